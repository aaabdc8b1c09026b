/** A kernel between all examples; pointer or arrow keys read entries, a click or Enter picks A and B. */
import { fit } from "../shared/canvas.ts";
import { byId, fill, h, setText, short } from "../shared/dom.ts";
import { drawMatrix, entryAt, type Matrix } from "../shared/heatmap.ts";
import type { App, Part } from "./app.ts";

export class KernelPanel implements Part {
  private readonly app: App;
  private readonly choice = h("select", { id: "kernel-name", "aria-label": "Kernel" });
  private readonly order = h("select", { id: "kernel-order", "aria-label": "Order of the examples" });
  private readonly cosine = h("input", { type: "checkbox", id: "kernel-cosine" });
  private readonly map = h("canvas", { id: "kernel-map", role: "img", "aria-label": "kernel, not drawn yet", tabindex: 0 });
  private readonly entry = h("p", { class: "small", id: "kernel-entry", "aria-live": "polite" });
  private readonly meaning = h("p", { class: "small muted" });
  /** Row and column under the cursor, in the order drawn. */
  private cursor: [number, number] | null = null;

  constructor(app: App) {
    this.app = app;
    app.facts.kernels.forEach(({ symbol, name }, k) => this.choice.append(h("option", { value: k }, `${symbol}: ${name}`)));
    if (app.facts.examples.labels.length) this.order.append(h("option", { value: "label" }, "by class"), h("option", { value: "decision" }, "by decision"));
    this.order.append(h("option", { value: "number" }, "by number"), h("option", { value: "like" }, "most like A first"));
    for (const input of [this.choice, this.order, this.cosine]) input.addEventListener("change", () => app.redraw());
    this.map.addEventListener("pointermove", (event) => this.over(event));
    this.map.addEventListener("pointerleave", () => this.move(null));
    this.map.addEventListener("click", () => this.take());
    this.map.addEventListener("keydown", (event) => this.key(event));
    const tools = h("div", { class: "row" }, this.choice, this.order, h("label", { class: "check" }, this.cosine, "as cosines"));
    fill(byId("kernels"), tools, h("div", { class: "kernel-square" }, this.map), this.entry, this.meaning);
  }

  private get matrix(): Matrix {
    const { values } = this.app.facts.kernels[Number(this.choice.value)];
    const n = values.shape[0];
    const raw = Float64Array.from(values.data);
    const diagonal = Array.from({ length: n }, (_, i) => Math.sqrt(Math.max(0, raw[i * n + i])));
    const scaled = this.cosine.checked ? raw.map((value, at) => value / (diagonal[Math.floor(at / n)] * diagonal[at % n] || 1)) : raw;
    return { n, values: scaled, order: this.sorted(n, raw, diagonal) };
  }

  private sorted(n: number, raw: Float64Array, diagonal: number[]): number[] {
    const { examples } = this.app.facts;
    const like = (i: number) => -raw[this.app.picked.A * n + i] / (diagonal[i] || 1);
    const keys: Record<string, (i: number) => number> = { label: (i) => examples.labels[i], decision: (i) => examples.decisions[i], number: (i) => examples.numbers[i], like };
    const key = keys[this.order.value];
    return Array.from({ length: n }, (_, i) => i).sort((a, b) => key(a) - key(b) || a - b);
  }

  private over(event: PointerEvent): void {
    const matrix = this.matrix;
    const found = entryAt(matrix, this.map.clientWidth, event.offsetX, event.offsetY);
    this.move(found ? [matrix.order.indexOf(found[0]), matrix.order.indexOf(found[1])] : null);
  }

  private move(cursor: [number, number] | null): void {
    this.cursor = cursor;
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { n } = this.matrix;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.take();
    } else if (event.key in steps) {
      event.preventDefault();
      const [row, column] = this.cursor ?? [0, 0];
      const bound = (k: number) => Math.min(n - 1, Math.max(0, k));
      this.move(this.cursor ? [bound(row + steps[event.key][0]), bound(column + steps[event.key][1])] : [0, 0]);
    }
  }

  private take(): void {
    if (!this.cursor) return;
    const { order } = this.matrix;
    const [row, column] = this.cursor;
    this.app.pick("A", order[row]);
    this.app.pick("B", order[column]);
  }

  draw(): void {
    const { app, cursor, matrix } = this;
    const { symbol, name, meaning } = app.facts.kernels[Number(this.choice.value)];
    const { context, width } = fit(this.map);
    drawMatrix(context, width, matrix, app.colours);
    const each = width / matrix.n;
    this.separate(context, matrix, each);
    const [a, b] = [matrix.order.indexOf(app.picked.A), matrix.order.indexOf(app.picked.B)];
    this.frame(context, a, b, each, app.colours.negative);
    if (cursor) this.frame(context, cursor[0], cursor[1], each, app.colours.highlight);
    const [i, j] = cursor ? [matrix.order[cursor[0]], matrix.order[cursor[1]]] : [app.picked.A, app.picked.B];
    const value = short(matrix.values[i * matrix.n + j], 4);
    setText(this.entry, `${symbol}${this.cosine.checked ? ", cosine" : ""}: ${app.nameOf(i)} and ${app.nameOf(j)}: ${value}${cursor ? "" : " (A and B)"}`);
    setText(this.meaning, `${meaning[0].toUpperCase()}${meaning.slice(1)}.`);
    this.map.setAttribute("aria-label", `${name} ${symbol} between ${matrix.n} examples, ${this.order.selectedOptions[0].text}; A and B: ${short(matrix.values[app.picked.A * matrix.n + app.picked.B], 4)}. Arrow keys read entries, Enter picks A and B.`);
  }

  /** Lines between classes. */
  private separate(context: CanvasRenderingContext2D, { order, n }: Matrix, each: number): void {
    const { labels, decisions } = this.app.facts.examples;
    const groups = { label: labels, decision: decisions }[this.order.value as "label" | "decision"];
    if (!groups?.length) return;
    context.strokeStyle = this.app.colours.panel;
    context.lineWidth = 1;
    context.beginPath();
    for (let k = 1; k < n; k++)
      if (groups[order[k]] !== groups[order[k - 1]]) {
        context.moveTo(k * each, 0);
        context.lineTo(k * each, n * each);
        context.moveTo(0, k * each);
        context.lineTo(n * each, k * each);
      }
    context.stroke();
  }

  private frame(context: CanvasRenderingContext2D, row: number, column: number, each: number, colour: string): void {
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(column * each - 1, row * each - 1, each + 2, each + 2);
  }
}
