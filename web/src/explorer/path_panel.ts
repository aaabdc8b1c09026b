/** The strongest paths of A, drawn on its image, each checked by closing its gates. */
import { cssOf } from "../shared/colours.ts";
import { imageOf, fit } from "../shared/canvas.ts";
import { byId, fill, h, setText, short, signed } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import { axesOf, closedAt, isOpen, tapOf } from "./bits.ts";
import type { Box, Path, Paths, Place } from "./facts.ts";
import { enlarge, exampleImage, gateColours, show, signedImage, sizeOf, tableShape } from "./pictures.ts";

type View = "paths" | "pixels";

export class PathPanel implements Part {
  private readonly app: App;
  private readonly image = h("canvas", { id: "path-image", role: "img" });
  private readonly output = h("select", { id: "path-output", "aria-label": "Output explained" });
  private readonly list = h("ol", { class: "paths" });
  private readonly detail = h("div", { id: "path-detail" });
  private readonly sum = h("p", { class: "small" });
  private readonly views = h("div", { class: "segments", role: "radiogroup", "aria-label": "On the image" });
  private view: View = "paths";
  private shown = 0;
  private example = -1;
  private listed = "";

  constructor(app: App) {
    this.app = app;
    for (const [view, text] of [["paths", "strongest paths"], ["pixels", "all paths, by pixel"]] as [View, string][]) {
      const input = h("input", { type: "radio", name: "path-view", value: view, onchange: () => this.see(view) });
      input.checked = view === this.view;
      this.views.append(h("label", {}, input, app.facts.examples.pixels ? text : text.replace("pixel", "input")));
    }
    this.output.addEventListener("change", () => this.choose(-1));
    const left = h("div", { class: "path-left" }, this.image, this.sum);
    fill(byId("paths"), h("div", { class: "row" }, this.output, this.views), h("div", { class: "path-body" }, left, h("div", {}, this.list, this.detail)));
  }

  private see(view: View): void {
    this.view = view;
    this.app.redraw();
  }

  private choose(path: number): void {
    this.shown = path;
    this.app.redraw();
  }

  private get found(): Paths[] {
    return this.app.facts.paths.filter(({ example }) => example === this.app.picked.A);
  }

  draw(): void {
    const { app, found } = this;
    if (this.example !== app.picked.A) {
      this.example = app.picked.A;
      this.shown = -1;
      const name = (output: number) => {
        const { labels, decisions } = app.facts.examples;
        const several = app.facts.examples.outputs.shape[1] > 1;
        const role = !labels.length || !several ? "" : output === decisions[this.example] ? ", decided" : ", the label";
        return `A’s paths to ${app.outputName(output)}${role}`;
      };
      fill(this.output, ...found.map(({ output }) => h("option", { value: output }, name(output))));
      const decided = app.facts.examples.decisions[this.example];
      if (found.some(({ output }) => output === decided)) this.output.value = String(decided);
    }
    const paths = found.find(({ output }) => String(output) === this.output.value);
    for (const part of [this.image, this.output, this.views]) part.hidden = !paths;
    if (!paths) {
      setText(this.sum, `The paths of example ${app.nameOf(app.picked.A)} are not on this page; pick another for A.`);
      fill(this.list);
      fill(this.detail);
      this.listed = "";
      return;
    }
    // Paths from the input tell more at first sight than those from biases.
    if (this.shown < 0) this.shown = Math.max(0, paths.paths.findIndex(({ from_bias }) => !from_bias));
    this.shown = Math.min(this.shown, paths.paths.length - 1);
    this.write(paths);
    this.paint(paths);
  }

  private write(paths: Paths): void {
    const { app } = this;
    const total = paths.paths.reduce((sum, { contribution }) => sum + contribution, 0);
    const name = app.outputName(paths.output);
    setText(
      this.sum,
      this.view === "paths"
        ? `${paths.count} paths contribute to ${name}, which is ${short(paths.value, 4)}; the ${paths.paths.length} strongest add up to ${signed(total)}. Blue adds, orange takes away.`
        : `What all paths from each ${app.facts.examples.pixels ? "pixel" : "input"} add to ${name}: together ${signed(paths.value - paths.biases, 4)}, and biases ${signed(paths.biases, 3)}, which makes ${short(paths.value, 4)}. Blue adds, orange takes away.`,
    );
    const listed = `${paths.example} ${paths.output}`;
    if (this.listed !== listed) {
      this.listed = listed;
      fill(this.list, ...paths.paths.map((path, k) => h("li", {}, h("button", { onclick: () => this.choose(k) }, h("span", {}, route(path)), h("span", { class: path.contribution < 0 ? "minus" : "plus" }, signed(path.contribution))))));
    }
    [...this.list.children].forEach((item, k) => item.firstElementChild!.setAttribute("aria-pressed", String(k === this.shown)));
    const path = paths.paths[this.shown];
    fill(this.detail, ...(path ? [this.film(path), this.check(paths, path), this.other(path)] : []));
  }

  /** The channels that a path passes, with the unit marked. */
  private film(path: Path): HTMLElement {
    const { app } = this;
    const [A, colours] = [app.picked.A, gateColours(app.colours)];
    const frames = path.gates.map(([number, unit]) => {
      const layer = app.facts.gates[number];
      const axes = axesOf(layer);
      const [rows, columns] = axes.isImage ? [axes.rows, axes.columns] : tableShape(axes.columns);
      const size = axes.rows * axes.columns;
      const first = axes.isImage ? Math.floor(unit / size) * size : 0;
      const pixels = new Uint32Array(rows * columns);
      for (let p = 0; p < size; p++) pixels[p] = (axes.taps > 1 ? tapOf(layer, A, first + p, axes.taps) >= 0 : isOpen(layer, A, first + p)) ? colours.both : colours.neither;
      const canvas = h("canvas", { role: "img", "aria-label": `Gates of layer ${layer.name}` });
      const image = imageOf(pixels, columns, rows);
      show(canvas, image, 76);
      const [scale, at] = [canvas.width / columns, unit - first];
      const context = canvas.getContext("2d")!;
      context.strokeStyle = app.colours.negative;
      context.lineWidth = Math.max(2, canvas.width / 36);
      const [x, y, r] = [((at % columns) + 0.5) * scale, (Math.floor(at / columns) + 0.5) * scale, Math.max(scale, canvas.width / 12)];
      context.strokeRect(x - r, y - r, 2 * r, 2 * r);
      const where = axes.isImage ? `channel ${Math.floor(unit / size)}, ${Math.floor(at / axes.columns)}, ${at % axes.columns}` : `unit ${unit}`;
      return h("figure", {}, canvas, h("figcaption", { class: "small muted" }, h("strong", {}, layer.name), ` ${where}`));
    });
    return h("div", { class: "film", "aria-label": "Gates that the path passes", role: "group" }, ...frames);
  }

  private check(paths: Paths, path: Path): HTMLElement {
    const { app } = this;
    const name = app.outputName(paths.output);
    const row = (text: string, value: number) => h("tr", {}, h("th", { scope: "row" }, text), h("td", { class: "number" }, short(value, 4)), h("td", { class: "number" }, signed(value - paths.value)));
    const decided = path.decision === null ? null : h("p", { class: "small" }, path.decision === app.facts.examples.decisions[paths.example] ? `The decision stays “${app.className(path.decision)}”.` : `The decision becomes “${app.className(path.decision)}”.`);
    const head = h("tr", {}, h("td", {}), h("th", { scope: "col" }, name), h("th", { scope: "col" }, "change"));
    const rows = [row("as it is", paths.value), row("its gates closed, all others kept", path.kept), row("its gates closed, later gates react", path.reacting)];
    if (!path.gates.length) return h("p", { class: "small" }, "This path passes no gate: it is a bias of the output, and always open.");
    return h("div", {}, h("table", { class: "check-table" }, h("thead", {}, head), h("tbody", {}, ...rows)), decided, h("p", { class: "small muted" }, `A gate carries many paths: closing ${path.gates.length === 1 ? "it" : `the ${path.gates.length} gates`} takes away all paths through ${path.gates.length === 1 ? "it" : "any of them"}, not this one alone.`));
  }

  /** Whether the path is open for B, too. */
  private other(path: Path): HTMLElement {
    const { app } = this;
    const { A, B } = app.picked;
    const at = closedAt(app.facts.gates, path.gates, A, B);
    const layer = app.facts.gates[path.gates[at]?.[0]];
    const closed = layer?.slope ? `the gate of this path at layer ${layer.name} is closed and passes ${layer.slope} times its input` : `this path is closed at layer ${layer?.name}`;
    const words = A === B || !path.gates.length ? "" : at < 0 ? `This path is open for B, ${app.nameOf(B)}, too.` : `For B, ${app.nameOf(B)}, ${closed}.`;
    return h("p", { class: "small", id: "path-other" }, words);
  }

  private paint(paths: Paths): void {
    const { app } = this;
    const { examples } = app.facts;
    const [rows, columns] = sizeOf(examples);
    this.image.style.aspectRatio = `${columns} / ${rows}`;
    const { context, width, height } = fit(this.image);
    const byInput = this.view === "pixels";
    const image = byInput ? signedImage(paths.by_input.data, rows, columns, app.colours) : exampleImage(examples, paths.example, app.colours);
    context.clearRect(0, 0, width, height);
    enlarge(context, image, 0, 0, width, height);
    this.image.setAttribute("aria-label", byInput ? `What all paths from each place add to ${app.outputName(paths.output)}` : `Example ${app.nameOf(paths.example)} with its ${paths.paths.length} strongest paths`);
    if (byInput) return;
    const scale = width / columns;
    const most = Math.max(...paths.paths.map(({ contribution }) => Math.abs(contribution)));
    paths.paths.forEach((path, k) => {
      if (k !== this.shown) this.line(context, path, scale, [rows, columns], 1 + (2.5 * Math.abs(path.contribution)) / most, 0.75);
    });
    const path = paths.paths[this.shown];
    if (!path) return;
    this.boxes(context, path, scale, rows, columns);
    this.line(context, path, scale, [rows, columns], 3.5, 1);
  }

  /** From the pixel where a path starts through the middle of what each unit sees. */
  private line(context: CanvasRenderingContext2D, path: Path, scale: number, [rows, columns]: [number, number], width: number, alpha: number): void {
    const points = path.places.map((place, k) => middle(place, !k && !path.from_bias, rows, columns)).filter((point) => point !== null);
    if (!points.length) return;
    context.globalAlpha = alpha;
    for (const [colour, more] of [[this.app.colours.dark ? "#000000" : "#ffffff", 2], [path.contribution < 0 ? cssOf(this.app.colours.diverging[24]) : cssOf(this.app.colours.diverging[231]), 0]] as [string, number][]) {
      context.strokeStyle = colour;
      context.fillStyle = colour;
      context.lineWidth = width + more;
      context.lineJoin = "round";
      context.beginPath();
      points.forEach(([x, y], k) => (k ? context.lineTo(x * scale, y * scale) : context.moveTo(x * scale, y * scale)));
      context.stroke();
      context.beginPath();
      if (!path.from_bias) context.arc(points[0][0] * scale, points[0][1] * scale, width + 2 + more / 2, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /** What each unit on the path sees, unless it is the whole image. */
  private boxes(context: CanvasRenderingContext2D, path: Path, scale: number, rows: number, columns: number): void {
    context.font = "600 12px system-ui, sans-serif";
    path.places.forEach(({ box, layer }, k) => {
      if (!box || isAll(box, rows, columns)) return;
      const [top, left, bottom, right] = box;
      const colour = this.app.colours.layers[k % this.app.colours.layers.length];
      context.setLineDash(k ? [5, 3] : []);
      for (const [stroke, line] of [[this.app.colours.panel, 4], [colour, 2]] as [string, number][]) {
        context.strokeStyle = stroke;
        context.lineWidth = line;
        context.strokeRect(left * scale, top * scale, (right - left + 1) * scale, (bottom - top + 1) * scale);
      }
      context.setLineDash([]);
      if (!k) return;
      const [x, y] = [left * scale + 3, top * scale < 14 ? (bottom + 1) * scale + 13 : top * scale - 4];
      context.lineWidth = 3;
      context.strokeStyle = this.app.colours.panel;
      context.strokeText(layer, x, y);
      context.fillStyle = colour;
      context.fillText(layer, x, y);
    });
  }
}

const isAll = ([top, left, bottom, right]: Box, rows: number, columns: number): boolean => top === 0 && left === 0 && bottom === rows - 1 && right === columns - 1;

/** The middle of what a unit sees, in pixels, unless it sees everything; inputs that are no image lie in a table. */
function middle({ box, index, shape }: Place, isInput: boolean, rows: number, columns: number): [number, number] | null {
  if (box) return isAll(box, rows, columns) ? null : [(box[1] + box[3] + 1) / 2, (box[0] + box[2] + 1) / 2];
  if (!isInput) return null;
  const at = index.reduce((flat, place, axis) => flat * shape[axis] + place, 0);
  return [(at % columns) + 0.5, Math.floor(at / columns) + 0.5];
}

/** A path in a line: names of layers, channels and positions. */
export function route({ places, from_bias }: Path): string {
  const unit = ({ index, shape }: Place) => (shape.length === 3 ? `${shape[0] > 1 ? `c${index[0]} ` : ""}(${index[1]}, ${index[2]})` : index.join(", "));
  const names = places.map((place, k) => (k === 0 && !from_bias ? unit(place) : `${place.layer}: ${unit(place)}`));
  return (from_bias ? ["bias", ...names] : names).join(" → ");
}
