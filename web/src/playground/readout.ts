/** In words and numbers: what the networks do at the point under the mouse, and what two pins share. */
import { hiddenWidths } from "../engine/network.ts";
import { sharedGates } from "../engine/paths.ts";
import { byId, fill, grouped, h, short, signed } from "../shared/dom.ts";
import type { App } from "./app.ts";
import { pathName, type AtPoint } from "./at_point.ts";

export class Readout {
  private readonly app: App;
  private shown = "";

  constructor(app: App) {
    this.app = app;
  }

  draw(): void {
    const { app } = this;
    const index = app.cursor?.net ?? 0;
    const key = JSON.stringify([app.cursor, app.view.pins, app.frame!.step, app.frame!.start, app.path?.units, app.nets.length, app.events.length]);
    if (key === this.shown) return;
    this.shown = key;
    const points = app.points(index);
    const root = byId("readout");
    if (!points.length) {
      fill(root, h("p", { class: "hint" }, "Point at the plane: its region, its open gates and its strongest paths light up. Click to pin a point, twice to compare two."));
      return;
    }
    const pair = !app.cursor && app.view.pins.length === 2 ? (points as [AtPoint, AtPoint]) : null;
    const nets = app.nets.length === 2 ? [0, 1] : [0];
    fill(root, ...(pair ? nets.flatMap((i) => this.pair(i, app.points(i))) : nets.flatMap((i) => this.one(i, app.points(i).at(-1)!))));
  }

  private title(index: number): HTMLElement | null {
    return this.app.nets.length === 2 ? h("h3", {}, `Network ${"AB"[index]}`) : null;
  }

  private one(index: number, point: AtPoint): (HTMLElement | null)[] {
    const net = this.app.nets[index];
    const widths = hiddenWidths(net);
    const all = widths.reduce((a, b) => a * b, 1);
    const factors = counts(widths, point.bits);
    const isSoft = net.gate === "soft" && net.feature.length > 0;
    const hard = point.map ? point.map[0] + point.map[1] * point.s + point.map[2] * point.t : NaN;
    return [
      this.title(index),
      h("p", { class: "equation" }, point.map ? `ŷ = ${short(point.map[0])} ${term(point.map[1], "x₁")} ${term(point.map[2], "x₂")}` : "too many regions for a formula"),
      h("p", { class: "small muted" }, `This linear function holds in the whole region. At (${short(point.s, 2)}, ${short(point.t, 2)}) it gives ${short(isSoft ? hard : point.output)}.` + (isSoft ? ` The network itself, whose gates are soft (β = ${net.beta}), gives ${short(point.output)}.` : "")),
      gateRows(widths, point.bits, null),
      h("p", {}, h("strong", {}, grouped(point.open)), ` of ${grouped(all)} paths are open`, h("span", { class: "muted" }, factors.length > 1 ? ` (${factors.join(" × ")})` : "")),
      this.app.nets.length === 1 ? this.paths(index, point) : null,
    ];
  }

  private paths(index: number, point: AtPoint): HTMLElement {
    const { app } = this;
    const sum = point.paths.reduce((total, path) => total + path.contribution, 0);
    const list = h("ol", { class: "paths" });
    for (const path of point.paths) {
      const isChosen = app.path !== null && pathName(app.path) === pathName(path);
      const button = h(
        "button",
        { "aria-pressed": String(isChosen), onclick: () => app.choosePath(isChosen ? null : path, index) },
        h("span", {}, pathName(path)),
        h("span", { class: path.contribution > 0 ? "plus" : "minus" }, signed(path.contribution)),
      );
      list.append(h("li", {}, button));
    }
    const text = `The strongest of ${grouped(point.count)} paths${app.nets[index].valueBias ? " (from inputs and biases)" : ""}; together they give ${short(sum)}, all paths ${short(point.output)}.`;
    return h("div", {}, list, h("p", { class: "small muted" }, text));
  }

  private pair(index: number, [one, other]: AtPoint[]): (HTMLElement | null)[] {
    const widths = hiddenWidths(this.app.nets[index]);
    const shared = sharedGates(widths, one.bits, other.bits);
    const both = shared.reduce((product, layer) => product * layer.both, 1);
    const overlap = shared.reduce((product, layer, l) => product * (layer.both / widths[l]), 1);
    const rows = shared.map((layer, l) => h("tr", {}, h("th", { scope: "row" }, `layer ${l + 1}`), h("td", { class: "number" }, `${layer.both} of ${layer.either}`)));
    return [
      this.title(index),
      h("p", {}, `Pins 1 and 2: outputs `, h("strong", {}, short(one.output)), " and ", h("strong", {}, short(other.output)), "."),
      h("p", { class: "small muted" }, "Gates open at pin 1; framed where pin 2 differs:"),
      gateRows(widths, one.bits, other.bits),
      h("table", {}, h("caption", { class: "hidden-visually" }, "Open in both, of those open in either"), h("tbody", {}, ...rows)),
      h("p", {}, h("strong", {}, grouped(both)), ` paths are open for both (${grouped(one.open)} and ${grouped(other.open)} for each): overlap Λ = ${short(overlap)}`),
    ];
  }
}

function counts(widths: number[], bits: Uint8Array): number[] {
  let at = 0;
  return widths.map((width) => {
    const open = bits.subarray(at, at + width).reduce((a, b) => a + b, 0);
    at += width;
    return open;
  });
}

function term(value: number, name: string): string {
  return `${value < 0 ? "−" : "+"} ${short(Math.abs(value))} ${name}`;
}

function gateRows(widths: number[], bits: Uint8Array, other: Uint8Array | null): HTMLElement {
  let at = 0;
  const rows = widths.map((width, l) => {
    const dots = h("span", { class: "dots", "aria-hidden": "true" });
    for (let i = 0; i < width; i++) {
      const differs = other && other[at + i] !== bits[at + i];
      dots.append(h("span", { class: `${bits[at + i] ? "on" : ""} ${differs ? "differs" : ""}` }));
    }
    const open = bits.subarray(at, at + width).reduce((a, b) => a + b, 0);
    at += width;
    return h("div", { class: "gate-row" }, h("span", {}, `layer ${l + 1}`), dots, h("span", {}, `${open} of ${width}`));
  });
  return h("div", { class: "gate-rows" }, ...rows);
}
