/** The half-spaces of a deep linearly gated network: each gate's normal as an image. */
import { byId, fill, grouped, h, setText, short } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import { axesOf, isOpen } from "./bits.ts";
import type { Normals } from "./facts.ts";
import { show, signedImage, tableShape } from "./pictures.ts";

export class NormalPanel implements Part {
  private readonly app: App;
  private readonly choice = h("select", { id: "normal-layer", "aria-label": "Layer" });
  private readonly grid = h("div", { class: "normals" });
  private readonly about = h("p", { class: "small" });
  private drawn = "";

  constructor(app: App) {
    this.app = app;
    app.facts.normals.forEach(({ layer }, k) => this.choice.append(h("option", { value: k }, `layer ${app.facts.gates[layer].name}`)));
    this.choice.addEventListener("change", () => app.redraw());
    fill(byId("normals"), h("div", { class: "row" }, this.choice), this.about, this.grid);
  }

  draw(): void {
    const { app } = this;
    const found = app.facts.normals[Number(this.choice.value)];
    const shown = found.units.length < found.of ? `${found.units.length} of ${grouped(found.of)}, evenly chosen` : `all ${grouped(found.of)}`;
    const filter = found.is_filter ? " One filter for each channel: the normal at a position is the filter, shifted there." : "";
    setText(this.about, `A gate is open where ⟨normal, x⟩ + offset > 0. Blue pixels open it, orange ones close it. Shown: ${shown}.${filter} Framed: open for A${found.is_filter ? " somewhere" : ""}.`);
    const key = `${this.choice.value} ${app.colours.dark}`;
    if (this.drawn !== key) fill(this.grid, ...found.units.map((_, k) => this.figure(found, k)));
    this.drawn = key;
    [...this.grid.children].forEach((figure, k) => figure.classList.toggle("open", this.isOpen(found, k)));
  }

  private figure(found: Normals, k: number): HTMLElement {
    const [, ...shape] = found.normals.shape;
    const count = shape.reduce((product, size) => product * size, 1);
    const isImage = shape.length >= 2 && shape[shape.length - 1] > 1;
    const [rows, columns] = isImage ? shape.slice(-2) : tableShape(count);
    const all = found.normals.data.subarray(k * count, (k + 1) * count);
    // Channels of a colour image are added up: one number for each pixel.
    const values = Float32Array.from({ length: isImage ? rows * columns : count }, (_, i) => {
      let sum = 0;
      for (let at = i; at < count; at += isImage ? rows * columns : count) sum += all[at];
      return sum;
    });
    const canvas = h("canvas", { role: "img", "aria-label": `Normal of ${found.is_filter ? "channel" : "unit"} ${this.name(found, k)}, offset ${short(found.offsets.data[k])}` });
    show(canvas, signedImage(values, rows, columns, this.app.colours), 66);
    return h("figure", {}, canvas, h("figcaption", { class: "small muted" }, `${this.name(found, k)}: ${short(found.offsets.data[k], 2)}`));
  }

  private positions(found: Normals): number {
    const { rows, columns } = axesOf(this.app.facts.gates[found.layer]);
    return found.is_filter ? rows * columns : 1;
  }

  private name(found: Normals, k: number): number {
    return Math.floor(found.units[k] / this.positions(found));
  }

  private isOpen(found: Normals, k: number): boolean {
    const layer = this.app.facts.gates[found.layer];
    for (let p = 0; p < this.positions(found); p++) if (isOpen(layer, this.app.picked.A, found.units[k] + p)) return true;
    return false;
  }
}
