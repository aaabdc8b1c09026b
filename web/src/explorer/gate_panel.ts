/** Gates by layer: of A, of B, or what they share; channels as images, and a map of shares by position. */
import { imageOf } from "../shared/canvas.ts";
import { sequentialAt, cssOf } from "../shared/colours.ts";
import { byId, fill, grouped, h, setText, short } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import { axesOf, compare, constants, isOpen, sharedAt, tapOf, unitsOf, type Axes } from "./bits.ts";
import type { Gates } from "./facts.ts";
import { enlarge, gateColours, shareImage, show } from "./pictures.ts";

type View = "shared" | "A" | "B";
const VIEWS: [View, string][] = [["shared", "A and B"], ["A", "A"], ["B", "B"]];
const KINDS: Record<string, string> = { relu: "ReLU", leaky_relu: "LeakyReLU", max_pool: "max-pooling", gated: "gated", bounded: "between two bounds", activation: "smooth activation", factor: "factor" };
const FIRST = 32;
const GAP = 3;

export class GatePanel implements Part {
  private readonly app: App;
  private view: View = "shared";
  private readonly layers: LayerRow[];

  constructor(app: App) {
    this.app = app;
    const views = h("div", { class: "segments", role: "radiogroup", "aria-label": "Gates of" });
    for (const [view, text] of VIEWS) {
      const input = h("input", { type: "radio", name: "gate-view", value: view, onchange: () => this.see(view) });
      input.checked = view === this.view;
      views.append(h("label", {}, input, text));
    }
    this.layers = app.facts.gates.map((layer, number) => new LayerRow(app, layer, number));
    fill(byId("gates"), h("div", { class: "row" }, views, h("span", { id: "gate-key", class: "key" })), h("div", { class: "layers" }, ...this.layers.map((row) => row.element)));
  }

  private see(view: View): void {
    this.view = view;
    this.app.redraw();
  }

  draw(): void {
    const colours = gateColours(this.app.colours);
    const swatch = (colour: number, text: string) => {
      const mark = h("i", {});
      mark.style.background = cssOf(colour);
      return h("span", {}, mark, text);
    };
    const pooling = this.app.facts.gates.some(({ kind }) => kind === "max_pool");
    const key =
      this.view === "shared"
        ? [swatch(colours.both, "open for both"), swatch(colours.onlyA, "only A"), swatch(colours.onlyB, "only B"), swatch(colours.neither, "neither"), pooling ? h("span", {}, "max-pooling: dark where both take the same pixel of a window") : null]
        : [swatch(colours.both, "open"), swatch(colours.neither, "closed"), pooling ? h("span", {}, "max-pooling: the shade tells which pixel of its window passes") : null];
    fill(byId("gate-key"), ...key);
    for (const layer of this.layers) layer.draw(this.view);
  }
}

/** Which channels or units do the same for every example of the page, in words. */
function alwaysAlike(layer: Gates, axes: Axes): string {
  const { closed, open } = constants(layer, axes);
  const everywhere = axes.isImage ? " everywhere" : "";
  const list = (numbers: number[]) => {
    const [noun, shown] = [axes.isImage ? "channel" : "unit", numbers.slice(0, 12).join(", ")];
    return `${noun}${numbers.length > 1 ? "s" : ""} ${shown}${numbers.length > 12 ? " and others" : ""} (${numbers.length} of ${axes.isImage ? axes.channels : axes.columns})`;
  };
  const said = [closed.length ? `closed${everywhere}: ${list(closed)}` : "", open.length ? `open${everywhere}: ${list(open)}` : ""].filter(Boolean);
  return said.length ? `For all ${layer.bits.shape[0]} examples ${said.join("; ")}.` : "";
}

class LayerRow {
  readonly element: HTMLElement;
  private readonly app: App;
  private readonly layer: Gates;
  private readonly axes: Axes;
  private readonly numbers = h("p", { class: "small" });
  private readonly channels: HTMLCanvasElement;
  private readonly map = h("canvas", { role: "img" });
  private readonly at = h("p", { class: "small muted at" });
  private readonly more: HTMLButtonElement | null = null;
  private view: View = "shared";
  private all = false;
  private cell = 0;

  constructor(app: App, layer: Gates, number: number) {
    this.app = app;
    this.layer = layer;
    this.axes = axesOf(layer);
    this.channels = h("canvas", { id: `gates-${number}`, class: "channels", role: "img" });
    this.channels.addEventListener("pointermove", (event) => this.tell(event));
    this.channels.addEventListener("pointerleave", () => setText(this.at, ""));
    const { channels, rows, columns, taps, isImage } = this.axes;
    const shape = isImage ? `${channels} channels of ${rows} × ${columns}` : `${columns} units`;
    const about = [KINDS[layer.kind] ?? layer.kind, taps > 1 ? `${shape}, windows of ${taps}` : shape];
    if (layer.soft) about.push(`soft, factors ${short(layer.soft[0], 2)} to ${short(layer.soft[1], 2)}; shown open where the pre-activation is positive`);
    if (layer.slope) about.push(`a closed gate passes ${layer.slope}`);
    if (channels > FIRST) this.more = h("button", { class: "small", "aria-expanded": "false", onclick: () => this.expand() }, `all ${channels} channels`);
    const pictures = isImage ? h("div", { class: "pictures" }, h("figure", {}, this.map, h("figcaption", { class: "small muted" }, "by position")), h("div", { class: "grow" }, this.channels)) : h("div", {}, this.channels);
    const always = taps > 1 ? "" : alwaysAlike(layer, this.axes);
    this.element = h("section", { class: "layer", "aria-label": `Layer ${layer.name}` }, h("h3", {}, layer.name, h("span", { class: "muted" }, `  ${about.join(", ")}`)), this.numbers, always ? h("p", { class: "small always" }, always) : null, pictures, h("div", { class: "row" }, this.more, this.at));
  }

  private expand(): void {
    this.all = !this.all;
    this.more!.setAttribute("aria-expanded", String(this.all));
    setText(this.more!, this.all ? `first ${FIRST} channels` : `all ${this.axes.channels} channels`);
    this.draw(this.view);
  }

  private get shown(): number {
    return this.all ? this.axes.channels : Math.min(FIRST, this.axes.channels);
  }

  /** The colour of a unit under the present view. */
  private colour(unit: number): number {
    const { app, layer, axes, view } = this;
    const colours = gateColours(app.colours);
    const { A, B } = app.picked;
    if (view === "shared") return [colours.neither, colours.onlyA, colours.onlyB, colours.both][sharedAt(layer, axes, A, B, unit)];
    const example = view === "A" ? A : B;
    if (axes.taps > 1) return sequentialAt(app.colours, tapOf(layer, example, unit, axes.taps) / (axes.taps - 1));
    return isOpen(layer, example, unit) ? colours.both : colours.neither;
  }

  draw(view: View): void {
    this.view = view;
    const { app, axes, layer } = this;
    const { A, B } = app.picked;
    const found = compare(layer, axes, A, B);
    const percent = (count: number) => `${short((100 * count) / found.units, 3)} %`;
    const words =
      axes.taps > 1
        ? `Of ${grouped(found.units)} windows, A and B take the same pixel in ${grouped(found.both)} (${percent(found.both)}).`
        : `Of ${grouped(found.units)} gates, ${grouped(found.a)} (${percent(found.a)}) are open for A, ${grouped(found.b)} (${percent(found.b)}) for B, ${grouped(found.both)} (${percent(found.both)}) for both; A and B agree in ${percent(found.agree)}.`;
    setText(this.numbers, words);
    this.channels.setAttribute("aria-label", `Gates of layer ${layer.name}. ${words}`);
    if (axes.isImage) {
      this.drawMap();
      this.drawChannels();
    } else this.drawUnits();
  }

  private drawMap(): void {
    const { channels, rows, columns } = this.axes;
    const { A, B } = this.app.picked;
    const shares = new Float32Array(rows * columns);
    const wanted = { shared: [3], A: [1, 3], B: [2, 3] }[this.axes.taps > 1 ? "shared" : this.view];
    for (let c = 0; c < channels; c++)
      for (let p = 0; p < rows * columns; p++) if (wanted.includes(sharedAt(this.layer, this.axes, A, B, c * rows * columns + p))) shares[p] += 1 / channels;
    show(this.map, shareImage(shares, rows, columns, this.app.colours), 84);
    const [least, most] = [Math.min(...shares), Math.max(...shares)];
    const what = this.axes.taps > 1 ? "windows with the same winner" : this.view === "shared" ? "gates open for both" : `gates open for ${this.view}`;
    const label = `Share of ${what}, by position: from ${short(100 * least, 2)} to ${short(100 * most, 2)} percent of the channels`;
    this.map.setAttribute("aria-label", label);
    this.map.title = label;
  }

  /** A grid of channels, each an image. */
  private drawChannels(): void {
    const { rows, columns } = this.axes;
    const width = Math.max(120, this.channels.parentElement!.clientWidth);
    this.cell = Math.min(64, Math.max(28, Math.floor(width / 8) - GAP));
    const across = Math.max(1, Math.floor((width + GAP) / (this.cell + GAP)));
    const down = Math.ceil(this.shown / across);
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.channels.width = ratio * (across * (this.cell + GAP) - GAP);
    this.channels.height = ratio * (down * (this.cell + GAP) - GAP);
    this.channels.style.width = `${this.channels.width / ratio}px`;
    this.channels.style.height = `${this.channels.height / ratio}px`;
    const context = this.channels.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pixels = new Uint32Array(rows * columns);
    for (let c = 0; c < this.shown; c++) {
      for (let p = 0; p < pixels.length; p++) pixels[p] = this.colour(c * pixels.length + p);
      enlarge(context, imageOf(pixels, columns, rows), (c % across) * (this.cell + GAP), Math.floor(c / across) * (this.cell + GAP), this.cell, this.cell);
    }
  }

  /** A dense layer: one square for each unit. */
  private drawUnits(): void {
    const units = unitsOf(this.axes);
    const width = Math.max(120, this.channels.parentElement!.clientWidth);
    this.cell = units > 512 ? 6 : 12;
    const across = Math.max(1, Math.floor(width / (this.cell + 2)));
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.channels.width = ratio * Math.min(units, across) * (this.cell + 2);
    this.channels.height = ratio * Math.ceil(units / across) * (this.cell + 2);
    this.channels.style.width = `${this.channels.width / ratio}px`;
    this.channels.style.height = `${this.channels.height / ratio}px`;
    const context = this.channels.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (let unit = 0; unit < units; unit++) {
      context.fillStyle = cssOf(this.colour(unit));
      context.fillRect((unit % across) * (this.cell + 2), Math.floor(unit / across) * (this.cell + 2), this.cell, this.cell);
    }
  }

  /** What is under the pointer, in words. */
  private tell(event: PointerEvent): void {
    const { axes, layer, app } = this;
    const step = this.cell + (axes.isImage ? GAP : 2);
    const width = this.channels.clientWidth + (axes.isImage ? GAP : 0);
    const across = Math.max(1, Math.floor(width / step));
    const place = Math.floor(event.offsetY / step) * across + Math.floor(event.offsetX / step);
    if (place >= (axes.isImage ? this.shown : unitsOf(axes))) return setText(this.at, "");
    let [unit, name] = [place, `unit ${place}`];
    if (axes.isImage) {
      const row = Math.min(axes.rows - 1, Math.floor(((event.offsetY % step) / this.cell) * axes.rows));
      const column = Math.min(axes.columns - 1, Math.floor(((event.offsetX % step) / this.cell) * axes.columns));
      unit = (place * axes.rows + row) * axes.columns + column;
      name = `channel ${place}, row ${row}, column ${column}`;
    }
    const state = (slot: "A" | "B") =>
      axes.taps > 1 ? `pixel ${tapOf(layer, app.picked[slot], unit, axes.taps)} of the window for ${slot}` : `${isOpen(layer, app.picked[slot], unit) ? "open" : "closed"} for ${slot}`;
    setText(this.at, `${name}: ${state("A")}, ${state("B")}`);
  }
}
