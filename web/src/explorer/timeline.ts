/** What was recorded while the network trained. */
import { fit } from "../shared/canvas.ts";
import { drawRows, stepAt } from "../shared/chart.ts";
import { byId, fill, h, setText, short } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import type { Plot } from "./facts.ts";

export class Timeline implements Part {
  private readonly app: App;
  private readonly canvases: HTMLCanvasElement[];
  private readonly scrub = h("input", { type: "range", id: "moment", step: 1, min: 0, "aria-label": "Step shown" });
  private readonly last: number;

  constructor(app: App) {
    this.app = app;
    const { timeline } = app.facts;
    this.last = Math.max(...timeline.flatMap(({ curves }) => curves.flatMap(({ x }) => x)));
    this.scrub.max = String(this.last);
    this.scrub.value = String(this.last);
    this.scrub.addEventListener("input", () => app.redraw());
    this.canvases = timeline.map(() => h("canvas", { class: "chart", role: "img" }));
    this.canvases.forEach((canvas) =>
      canvas.addEventListener("pointermove", (event) => {
        this.scrub.value = String(stepAt(event.offsetX, this.last, canvas.clientWidth));
        app.redraw();
      }),
    );
    const figures = timeline.map((plot, k) => h("figure", {}, h("figcaption", {}, h("h3", {}, plot.title || plot.y_label), this.legend(plot)), this.canvases[k]));
    fill(byId("timeline"), h("label", { class: "scrub small muted" }, h("span", { id: "moment-text" }), this.scrub), h("div", { class: "charts" }, ...figures));
  }

  private legend({ curves }: Plot): HTMLElement | null {
    if (curves.length < 2) return null;
    const { layers } = this.app.colours;
    return h("p", { class: "small key" }, ...curves.map(({ label }, k) => {
      const mark = h("i", {});
      mark.style.background = layers[k % layers.length];
      return h("span", {}, mark, label);
    }));
  }

  draw(): void {
    const now = Number(this.scrub.value);
    const { timeline } = this.app.facts;
    setText(byId("moment-text"), `${timeline[0].x_label} ${now}`);
    timeline.forEach(({ curves, title, x_label }, k) => {
      const { context, width, height } = fit(this.canvases[k]);
      const { layers } = this.app.colours;
      const lines = curves.map(({ x, y }, c) => ({ points: x.map((step, i): [number, number] => [step, y[i]]), colour: layers[c % layers.length] }));
      drawRows(context, width, height, [{ title: "", lines: lines.slice(0, 1), format: (value) => short(value, 3) }], this.last, now, [], this.app.colours);
      if (lines.length > 1) drawRows(context, width, height, [{ title: "", lines, format: () => "" }], this.last, now, [], this.app.colours);
      const words = curves.map(({ label, y }) => `${label ? `${label}: ` : ""}${short(y[0])} to ${short(y[y.length - 1])}`);
      this.canvases[k].setAttribute("aria-label", `${title}, from first to last ${x_label}: ${words.join("; ")}`);
    });
  }
}
