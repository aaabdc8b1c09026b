/** Λ, H and the tangent kernels between training points: heat map, spectrum, what they say about the labels. */
import { fit } from "../shared/canvas.ts";
import { byId, fill, h, setText, short } from "../shared/dom.ts";
import { drawMatrix, entryAt, type Matrix } from "../shared/heatmap.ts";
import type { KernelFacts, KernelName } from "../worker/protocol.ts";
import type { App } from "./app.ts";
import type { Order } from "./state.ts";

const NAMES: Record<KernelName, string> = {
  overlap: "Λ: paths open for both",
  path: "H: path kernel, Σ ⊙ Λ",
  tangent: "K: tangent kernel (NTK)",
  value: "Kⱽ: tangent, values only",
  feature: "Kᶠ: tangent, gates only",
};

export class KernelPanel {
  private readonly app: App;
  private readonly choice = h("select", { id: "kernel-name", "aria-label": "Kernel" });
  private readonly order = h("select", { id: "kernel-order", "aria-label": "Order of the points" });
  private readonly map = h("canvas", { id: "kernel-map", role: "img", "aria-label": "kernel, not drawn yet" });
  private readonly spectrum = h("canvas", { id: "kernel-spectrum", role: "img", "aria-label": "spectrum, not drawn yet" });
  private readonly numbers = h("div", { class: "small" });
  private readonly entry = h("p", { class: "small muted" });
  private over: [number, number] | null = null;

  constructor(app: App) {
    this.app = app;
    for (const [name, text] of Object.entries(NAMES)) this.choice.append(h("option", { value: name }, text));
    this.order.append(h("option", { value: "class" }, "by class"), h("option", { value: "angle" }, "by angle"));
    this.choice.addEventListener("change", () => {
      app.setKernel(this.choice.value as KernelName);
      app.remember();
    });
    this.order.addEventListener("change", () => {
      app.view.order = this.order.value as Order;
      app.redraw(true);
      app.remember();
    });
    this.map.addEventListener("pointermove", (event) => {
      this.over = [event.offsetX, event.offsetY];
      app.redraw();
    });
    this.map.addEventListener("pointerleave", () => {
      this.over = null;
      app.redraw();
    });
    const grid = h("div", { class: "kernel-grid" }, this.map, h("div", {}, this.spectrum, this.numbers));
    fill(byId("kernels"), h("div", { class: "row" }, this.choice, this.order), grid, this.entry);
  }

  /** The kernel of the network under the cursor, or of the first. */
  private get facts(): KernelFacts | null {
    return this.app.frame!.nets[this.app.cursor?.net ?? 0].kernel;
  }

  private matrix(facts: KernelFacts): Matrix {
    return { n: facts.n, values: facts.matrix, order: orderOf(facts, this.app.view.order) };
  }

  newFrame(): void {
    this.choice.value = this.app.view.kernel;
    this.order.value = this.app.view.order;
    const hasFeatures = this.app.nets.some((net) => net.feature.length > 0);
    for (const option of this.choice.options) if (option.value === "value" || option.value === "feature") option.disabled = !hasFeatures;
    const { facts } = this;
    if (!facts) return;
    const { context, width } = fit(this.map);
    const matrix = this.matrix(facts);
    drawMatrix(context, width, matrix, this.app.colours);
    this.drawSpectrum(facts);
    const rows: [string, string][] = [
      ["alignment with yyᵀ", short(facts.alignment)],
      ["ν (λ = 10⁻³)", short(facts.nu)],
    ];
    fill(this.numbers, h("table", {}, h("tbody", {}, ...rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value))))));
    this.map.setAttribute("aria-label", `${NAMES[facts.name]}, ${facts.n} training points, ${this.app.view.order === "class" ? "ordered by class" : "ordered by angle"}; alignment with the labels ${short(facts.alignment)}`);
  }

  /** Bars: eigenvalues (share of the trace), largest first; dots: share of the labels in each direction, summed. */
  private drawSpectrum(facts: KernelFacts): void {
    const { context, width, height } = fit(this.spectrum);
    const { colours } = this.app;
    context.clearRect(0, 0, width, height);
    const count = Math.min(24, facts.spectrum.length);
    const [top, bottom] = [16, height - 4];
    const floor = 1e-6;
    const place = (value: number) => bottom - (Math.log(Math.max(value, floor) / floor) / Math.log(1 / floor)) * (bottom - top);
    const each = width / Math.max(1, count);
    context.fillStyle = colours.muted;
    for (let k = 0; k < count; k++) context.fillRect(k * each + 1, place(facts.spectrum[k]), each - 2, bottom - place(facts.spectrum[k]));
    context.strokeStyle = colours.negative;
    context.lineWidth = 2;
    context.beginPath();
    let sum = 0;
    for (let k = 0; k < count; k++) {
      sum += facts.energy[k];
      context.lineTo((k + 0.5) * each, bottom - sum * (bottom - top));
    }
    context.stroke();
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = colours.muted;
    context.fillText("eigenvalues", 0, 0);
    context.fillStyle = colours.negative;
    context.textAlign = "right";
    context.fillText("labels", width, 0);
    context.textAlign = "left";
    this.spectrum.setAttribute("aria-label", `Largest eigenvalue ${short(facts.spectrum[0] ?? 0)} of the trace; the first ${count} directions hold ${short(100 * sum, 2)} percent of the labels`);
  }

  draw(): void {
    const { facts } = this;
    if (!facts || !this.over) {
      setText(this.entry, facts ? `${facts.n} training points. Strong colour: two points are alike for the network.` : "");
      return;
    }
    const found = entryAt(this.matrix(facts), this.map.clientWidth, ...this.over);
    if (!found) return;
    const [i, j] = found;
    const point = (k: number) => `(${short(facts.x[2 * k], 2)}, ${short(facts.x[2 * k + 1], 2)}; y = ${short(facts.y[k], 2)})`;
    setText(this.entry, `${point(i)} and ${point(j)}: ${short(facts.matrix[i * facts.n + j])}`);
  }
}

/** Points by class (or target), then angle; or by angle alone. */
function orderOf({ n, x, y }: KernelFacts, order: Order): number[] {
  const angle = (i: number) => (Math.atan2(x[2 * i + 1], x[2 * i]) + 2 * Math.PI) % (2 * Math.PI);
  const ids = Array.from({ length: n }, (_, i) => i);
  return ids.sort((a, b) => (order === "class" && y[a] !== y[b] ? y[a] - y[b] : angle(a) - angle(b)));
}
