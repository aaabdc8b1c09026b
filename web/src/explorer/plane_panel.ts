/** Exact regions on planes through three examples: those that the library computed. */
import { fit, imageOf } from "../shared/canvas.ts";
import { cssOf, divergingAt, pixel, sequentialAt, type Rgb } from "../shared/colours.ts";
import { byId, fill, grouped, h, setText, short } from "../shared/dom.ts";
import { regionMap, type Polygons } from "../shared/raster.ts";
import { SLOTS, type App, type Part } from "./app.ts";
import type { Plane } from "./facts.ts";

const SIZE = 560;
const MOST_BORDERS = 15_000;

export class PlanePanel implements Part {
  private readonly app: App;
  private readonly choice = h("select", { id: "plane-choice", "aria-label": "Plane through" });
  private readonly colour = h("select", { id: "plane-colour", "aria-label": "Colour" });
  private readonly canvas = h("canvas", { id: "plane", role: "img", tabindex: 0, class: "plane" });
  private readonly about = h("p", { class: "small" });
  private readonly readout = h("div", { id: "plane-readout", "aria-live": "polite" });
  private readonly key = h("div", { class: "key" });
  private readonly hint = h("p", { class: "small muted", id: "plane-hint" });
  private readonly maps = new Map<number, Int32Array>();
  /** The cursor, as shares of the square from its top left corner. */
  private cursor: [number, number] | null = null;

  constructor(app: App) {
    this.app = app;
    app.facts.planes.forEach(({ examples }, k) => this.choice.append(h("option", { value: k }, examples.map((example) => `#${app.facts.examples.numbers[example]}${this.label(example)}`).join(", "))));
    this.choice.addEventListener("change", () => {
      this.cursor = null;
      this.colours();
      SLOTS.forEach((slot, k) => app.pick(slot, this.plane.examples[k]));
    });
    this.colour.addEventListener("change", () => app.redraw());
    this.canvas.addEventListener("pointermove", (event) => this.move([event.offsetX / this.canvas.clientWidth, event.offsetY / this.canvas.clientHeight]));
    this.canvas.addEventListener("pointerleave", () => this.move(null));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.colours();
    const tools = h("div", { class: "row" }, h("label", { class: "inline" }, "through ", this.choice), h("label", { class: "inline" }, "coloured by ", this.colour));
    fill(byId("planes"), tools, h("div", { class: "plane-body" }, h("div", {}, this.canvas, this.key), h("div", {}, this.about, this.readout, this.hint)));
  }

  private label(example: number): string {
    const { labels } = this.app.facts.examples;
    return labels.length ? ` “${this.app.className(labels[example])}”` : "";
  }

  private get number(): number {
    return Number(this.choice.value);
  }

  private get plane(): Plane {
    return this.app.facts.planes[this.number];
  }

  private colours(): void {
    const { app, plane } = this;
    const chosen = this.colour.value;
    const options = [["decision", app.facts.examples.labels.length ? "decision" : "output"], ["region", "region"], ["gates", "open gates"]];
    for (const output of plane.outputs) options.push([`output-${output}`, app.outputName(output)]);
    fill(this.colour, ...options.map(([value, text]) => h("option", { value }, text)));
    if (options.some(([value]) => value === chosen)) this.colour.value = chosen;
  }

  private move(cursor: [number, number] | null): void {
    this.cursor = cursor;
    this.app.redraw();
  }

  private press(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [x, y] = this.cursor ?? [0.5, 0.5];
    const bound = (value: number) => Math.min(0.995, Math.max(0.005, value));
    const pace = event.shiftKey ? 0.1 : 0.02;
    this.move([bound(x + pace * steps[event.key][0]), bound(y + pace * steps[event.key][1])]);
  }

  /** The region of each pixel, made once for each plane. */
  private get map(): Int32Array {
    let map = this.maps.get(this.number);
    if (!map) {
      const { corners, starts, bounds } = this.plane;
      const polygons: Polygons = { corners: Float64Array.from(corners.data), starts: starts.data, bounds, regions: starts.data.length - 1 };
      map = regionMap(polygons, SIZE);
      this.maps.set(this.number, map);
    }
    return map;
  }

  private outputAt(region: number, k: number, s: number, t: number): number {
    const { maps, outputs } = this.plane;
    const at = 3 * (region * outputs.length + k);
    return maps.data[at] + maps.data[at + 1] * s + maps.data[at + 2] * t;
  }

  /** The place of the deciding output in the plane's list; with one output, whether it is positive. */
  private decisionAt(region: number, s: number, t: number): number {
    const { outputs } = this.plane;
    if (this.app.facts.examples.outputs.shape[1] === 1) return this.outputAt(region, 0, s, t) > 0 ? 1 : 0;
    let best = 0;
    for (let k = 1; k < outputs.length; k++) if (this.outputAt(region, k, s, t) > this.outputAt(region, best, s, t)) best = k;
    return best;
  }

  private coordinates(x: number, y: number): [number, number] {
    const [left, right, low, high] = this.plane.bounds;
    return [left + x * (right - left), high - y * (high - low)];
  }

  private openGates(region: number): number {
    const { open_gates } = this.plane;
    const layers = open_gates.shape[1];
    return open_gates.data.subarray(region * layers, (region + 1) * layers).reduce((sum, value) => sum + value, 0);
  }

  private classColour(k: number): number {
    const { layers } = this.app.colours;
    const text = layers[k % layers.length];
    const mix = (at: number) => parseInt(text.slice(at, at + 2), 16);
    // Beyond six classes the same hues come again, nearer to the ground.
    const [share, ground] = [[0.62, 0.3, 0.12][Math.floor(k / layers.length) % 3], this.app.colours.dark ? 22 : 255];
    return pixel([1, 3, 5].map((at) => Math.round(share * mix(at) + (1 - share) * ground)) as Rgb);
  }

  private paint(): HTMLCanvasElement {
    const { map, plane, app } = this;
    const how = this.colour.value;
    const pixels = new Uint32Array(SIZE * SIZE);
    const regions = plane.starts.data.length - 1;
    const isOne = how === "decision" && !app.facts.examples.labels.length;
    const wanted = how.startsWith("output-") ? plane.outputs.indexOf(Number(how.slice(7))) : isOne ? 0 : -1;
    const gates = how === "gates" ? Array.from({ length: regions }, (_, r) => this.openGates(r)) : [0];
    const [fewest, most] = [gates.reduce((a, b) => Math.min(a, b)), gates.reduce((a, b) => Math.max(a, b))];
    const values = new Float32Array(wanted >= 0 ? SIZE * SIZE : 0);
    for (let i = 0; i < pixels.length; i++) {
      const region = map[i];
      if (region < 0) continue;
      const [s, t] = this.coordinates(((i % SIZE) + 0.5) / SIZE, (Math.floor(i / SIZE) + 0.5) / SIZE);
      if (wanted >= 0) values[i] = this.outputAt(region, wanted, s, t);
      else if (how === "decision") pixels[i] = this.classColour(this.decisionAt(region, s, t));
      else if (how === "gates") pixels[i] = sequentialAt(app.colours, (gates[region] - fewest) / (most - fewest || 1));
      else pixels[i] = divergingAt(app.colours, ((region * 0.61803398875) % 1) * 1.3 - 0.65);
    }
    if (wanted >= 0) {
      const reach = values.reduce((top, value) => Math.max(top, Math.abs(value)), 0) || 1;
      values.forEach((value, i) => (pixels[i] = divergingAt(app.colours, value / reach)));
      this.legend([[`−${short(reach, 2)}`, app.colours.diverging[0]], ["0", app.colours.diverging[128]], [short(reach, 2), app.colours.diverging[255]]]);
    } else if (how === "gates") this.legend([[`${grouped(fewest)} open gates`, app.colours.sequential[0]], [grouped(most), app.colours.sequential[255]]]);
    else if (how === "decision") {
      const one = app.facts.examples.outputs.shape[1] === 1;
      this.legend((one ? [0, 1] : plane.outputs).map((output, k) => [app.className(output), this.classColour(one ? output : k)]));
    } else this.legend([]);
    return imageOf(pixels, SIZE, SIZE);
  }

  private legend(entries: [string, number][]): void {
    fill(
      this.key,
      ...entries.map(([text, colour]) => {
        const mark = h("i", {});
        mark.style.background = cssOf(colour);
        return h("span", {}, mark, text);
      }),
    );
  }

  draw(): void {
    const { plane, app } = this;
    const { context, width, height } = fit(this.canvas);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.paint(), 0, 0, width, height);
    const [left, right, low, high] = plane.bounds;
    const place = (s: number, t: number): [number, number] => [((s - left) / (right - left)) * width, ((high - t) / (high - low)) * height];
    const regions = plane.starts.data.length - 1;
    if (regions <= MOST_BORDERS) this.borders(context, place);
    context.strokeStyle = app.colours.highlight;
    context.lineWidth = 2.25;
    context.beginPath();
    const ends = plane.boundary.data;
    for (let i = 0; i < ends.length; i += 4) {
      context.moveTo(...place(ends[i], ends[i + 1]));
      context.lineTo(...place(ends[i + 2], ends[i + 3]));
    }
    context.stroke();
    const inside = this.marks(context, place, width, height);
    const [from, to] = (plane.between ?? []).map((example) => `#${app.facts.examples.numbers[example]}`);
    const where = plane.between ? `around a point where the decision changes on the way from ${from} to ${to}` : "in the middle between them";
    const share = plane.share >= 1 ? "The square has room around all three examples" : `The square is 1/${Math.round(1 / plane.share)} as wide as one around all three examples, ${where}`;
    const why = plane.share >= 1 ? "" : ": a wider one has more regions than a page can hold";
    const soft = app.facts.gates.some(({ soft }) => soft) ? " Soft gates count as hard ones here." : "";
    setText(this.about, `${grouped(regions)} exact regions; on each the network is one affine function. ${share}${why}.${inside ? "" : " None of the three lies inside."}${app.facts.examples.labels.length ? " The dark line is where the decision changes." : ""} Regions thinner than the rounding error of float64 may be missing.${soft}`);
    this.canvas.setAttribute("aria-label", `${grouped(regions)} regions on the plane through examples ${plane.examples.map((example) => app.nameOf(example)).join("; ")}. Arrow keys move a cursor.`);
    this.tell(context, width, height);
    const wanted = SLOTS.map((slot) => app.picked[slot]);
    const there = app.facts.planes.findIndex(({ examples }) => SLOTS.every((_, k) => examples.includes(wanted[k])) && new Set(wanted).size === 3);
    const numbers = wanted.map((example) => app.facts.examples.numbers[example]).join(",");
    setText(this.hint, there >= 0 ? "" : new Set(wanted).size < 3 ? "A, B and C are not three different examples." : `The plane through A, B and C is not on this page. Write it with gatelab explore … --triple ${numbers}, or triples=[(${numbers.replaceAll(",", ", ")})] in Python.`);
  }

  private borders(context: CanvasRenderingContext2D, place: (s: number, t: number) => [number, number]): void {
    const { corners, starts } = this.plane;
    context.strokeStyle = this.app.colours.dark ? "rgb(255 255 255 / 30%)" : "rgb(20 30 40 / 28%)";
    context.lineWidth = starts.data.length > 3000 ? 0.4 : 0.7;
    context.beginPath();
    for (let region = 0; region + 1 < starts.data.length; region++) {
      for (let i = starts.data[region]; i < starts.data[region + 1]; i++) {
        const point = place(corners.data[2 * i], corners.data[2 * i + 1]);
        if (i === starts.data[region]) context.moveTo(...point);
        else context.lineTo(...point);
      }
      context.closePath();
    }
    context.stroke();
  }

  /** The three examples, where they lie inside; returns how many do. */
  private marks(context: CanvasRenderingContext2D, place: (s: number, t: number) => [number, number], width: number, height: number): number {
    const { plane, app } = this;
    let inside = 0;
    context.font = "600 13px system-ui, sans-serif";
    context.textBaseline = "middle";
    plane.examples.forEach((example, k) => {
      const [x, y] = place(plane.points.data[2 * k], plane.points.data[2 * k + 1]);
      if (x < 0 || y < 0 || x > width || y > height) return;
      inside++;
      context.fillStyle = app.colours.panel;
      context.strokeStyle = app.colours.highlight;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 6, 0, 7);
      context.fill();
      context.stroke();
      const text = `#${app.facts.examples.numbers[example]}`;
      const [shift, align] = x > 0.8 * width ? [-10, "right" as const] : [10, "left" as const];
      context.textAlign = align;
      context.lineWidth = 4;
      context.strokeStyle = app.colours.panel;
      context.strokeText(text, x + shift, y);
      context.fillStyle = app.colours.ink;
      context.fillText(text, x + shift, y);
    });
    return inside;
  }

  /** What holds at the cursor. */
  private tell(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { plane, app, cursor } = this;
    if (!cursor) return fill(this.readout, h("p", { class: "small muted" }, "Point at a region, or use the arrow keys."));
    const [column, row] = cursor.map((share) => Math.min(SIZE - 1, Math.floor(share * SIZE)));
    const region = this.map[row * SIZE + column];
    context.strokeStyle = app.colours.highlight;
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(cursor[0] * width, cursor[1] * height, 5, 0, 7);
    context.stroke();
    if (region < 0) return fill(this.readout);
    const [s, t] = this.coordinates(...cursor);
    const best = plane.outputs.map((output, k): [number, number] => [output, this.outputAt(region, k, s, t)]).sort((a, b) => b[1] - a[1]).slice(0, 3);
    const layers = plane.open_gates.shape[1];
    const rows = [
      ...best.map(([output, value]) => [app.outputName(output), short(value, 4)]),
      ...app.facts.gates.map(({ name }, layer) => [`open gates, ${name}`, grouped(plane.open_gates.data[region * layers + layer])]),
    ];
    fill(this.readout, h("h3", {}, `Region ${grouped(region + 1)} of ${grouped(plane.starts.data.length - 1)}`), h("table", {}, h("tbody", {}, ...rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value))))));
  }
}
