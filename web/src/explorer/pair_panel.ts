/** What A and B share, in one table: gates layer by layer, paths and kernels. */
import { byId, fill, grouped, h, short } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import { axesOf, closedAt, compare } from "./bits.ts";

export class PairPanel implements Part {
  private readonly app: App;

  constructor(app: App) {
    this.app = app;
  }

  draw(): void {
    const { app } = this;
    const { A, B } = app.picked;
    const rows = app.facts.gates.map((layer) => {
      const axes = axesOf(layer);
      const found = compare(layer, axes, A, B);
      const both = axes.taps > 1 ? "–" : grouped(found.both);
      const ofA = axes.taps > 1 || !found.a ? "–" : `${short((100 * found.both) / found.a, 3)} %`;
      return [layer.name, grouped(found.units), both, ofA, `${short((100 * found.agree) / found.units, 3)} %`];
    });
    const head = ["layer", "gates", "open for both", "of A’s open gates", "agree"];
    const cell = (text: string, k: number) => (k ? h("td", { class: "number" }, text) : h("th", { scope: "row" }, text));
    const body = rows.map((row) => h("tr", {}, ...row.map(cell)));
    const table = h("table", { id: "shared-gates" }, h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...body));
    fill(byId("pair"), h("p", {}, `A, ${app.nameOf(A)}, and B, ${app.nameOf(B)}:`), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Gates that A and B share, by layer" }, table), ...this.sentences().map((text) => h("p", { class: "small" }, text)));
  }

  private sentences(): string[] {
    const { app } = this;
    const { A, B } = app.picked;
    const said: string[] = [];
    for (const { symbol, values } of app.facts.kernels) {
      const n = values.shape[0];
      const [aa, ab, bb] = [values.data[A * n + A], values.data[A * n + B], values.data[B * n + B]];
      if (symbol === "Λ") said.push(`Of A’s open paths ${short((100 * ab) / aa, 3)} % are open for B; of B’s, ${short((100 * ab) / bb, 3)} % for A${app.facts.gates.some(({ soft, slope }) => soft || slope) ? ", counted by what soft or leaky gates let pass" : ""}.`);
      else said.push(`The cosine of ${symbol} between A and B is ${short(ab / (Math.sqrt(aa * bb) || 1), 3)}.`);
    }
    for (const slot of ["A", "B"] as const) {
      const other = slot === "A" ? "B" : "A";
      const own = app.facts.paths.find(({ example, output }) => example === app.picked[slot] && (!app.facts.examples.decisions.length || app.facts.examples.outputs.shape[1] === 1 || output === app.facts.examples.decisions[example]));
      if (!own) continue;
      const open = own.paths.filter(({ gates }) => closedAt(app.facts.gates, gates, app.picked[slot], app.picked[other]) < 0).length;
      said.push(`Of ${slot}’s ${own.paths.length} strongest paths ${open} are open for ${other}.`);
    }
    return said;
  }
}
