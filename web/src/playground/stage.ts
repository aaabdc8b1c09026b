/** One network on the page: its name, scores and freeze switches, its plane and its diagram. */
import { hiddenWidths } from "../engine/network.ts";
import { byId, fill, h, setText } from "../shared/dom.ts";
import type { App, Part } from "./app.ts";
import { unitName } from "./at_point.ts";
import { DiagramView } from "./diagram.ts";
import { brief, COLOUR_NAMES } from "./names.ts";
import { PlaneView } from "./plane.ts";
import { COLOURS, type Colour } from "./state.ts";

const cssOfRamp = (colours: Uint32Array): string =>
  `linear-gradient(90deg, ${[0, 64, 128, 192, 255].map((i) => `rgb(${colours[i] & 255} ${(colours[i] >> 8) & 255} ${(colours[i] >> 16) & 255})`).join(", ")})`;

export class Stage implements Part {
  readonly root: HTMLElement;
  readonly plane: PlaneView;
  private readonly app: App;
  private readonly index: number;
  private readonly diagram: DiagramView;
  private readonly title = h("h2");
  private readonly scores = h("span", { class: "scores number" });
  private readonly badge = h("span", { class: "badge", hidden: true, title: "One copy of the weights decides over the gates, another carries the values. Reset joins them again." });
  private readonly freezeGates: HTMLButtonElement;
  private readonly freezeValues: HTMLButtonElement;
  private readonly redrawGates: HTMLButtonElement;
  private readonly key = h("div", { class: "key" });
  private readonly unit = h("div", { class: "tools" });
  private told = "";

  constructor(app: App, index: number) {
    [this.app, this.index] = [app, index];
    const name = "AB"[index];
    this.freezeGates = h("button", { class: "big", id: `freeze-gates-${name}`, "aria-pressed": "false", onclick: () => this.freeze("gates") }, "❄ Freeze gates");
    this.freezeValues = h("button", { class: "big", id: `freeze-values-${name}`, "aria-pressed": "false", onclick: () => this.freeze("values") }, "❄ Freeze values");
    this.redrawGates = h("button", { class: "plain", id: `redraw-gates-${name}`, title: "Draw the gates' weights anew", onclick: () => this.redraw("gates") }, "New gates");
    const redrawValues = h("button", { class: "plain", id: `redraw-values-${name}`, title: "Draw the values' weights anew; the gates stay", onclick: () => this.redraw("values") }, "New values");
    const planeCanvas = h("canvas", { class: "plane", id: `plane-${name}`, tabindex: "0", role: "application", "aria-label": "The plane" });
    const diagramCanvas = h("canvas", { class: "diagram", id: `diagram-${name}`, tabindex: "0", role: "application", "aria-label": "The network" });
    const left = h("div", {}, index === 0 ? this.colourChoice() : h("div", { class: "tools muted" }, "coloured as network A"), planeCanvas, this.key);
    this.root = h(
      "section",
      { class: "panel stage", id: `stage-${name}`, "aria-label": `Network ${name}` },
      h("div", { class: "stage-head" }, this.title, this.badge, this.scores),
      h("div", { class: "freeze" }, this.freezeGates, this.freezeValues, redrawValues, this.redrawGates),
      h("div", { class: "body" }, left, h("div", {}, this.unit, diagramCanvas)),
    );
    this.plane = new PlaneView(planeCanvas, app, index);
    this.diagram = new DiagramView(diagramCanvas, app, index);
  }

  private colourChoice(): HTMLElement {
    const group = h("div", { class: "segments", role: "radiogroup", "aria-label": "Colour of the plane" });
    for (const colour of COLOURS) {
      const input = h("input", {
        type: "radio",
        name: "colour",
        value: colour,
        onchange: () => {
          this.app.view.colour = colour as Colour;
          this.app.redraw(true);
          this.app.remember();
        },
      });
      group.append(h("label", {}, input, COLOUR_NAMES[colour]));
    }
    return h("div", { class: "tools" }, group);
  }

  private freeze(part: "gates" | "values"): void {
    const frozen = this.app.frame?.nets[this.index].frozen;
    if (frozen) this.app.act({ step: 0, net: this.index, type: "freeze", ...frozen, [part]: !frozen[part] });
  }

  private redraw(part: "gates" | "values"): void {
    this.app.act({ step: 0, net: this.index, type: "redraw", part });
  }

  newFrame(): void {
    const { app, index } = this;
    const frame = app.frame!.nets[index];
    const name = app.nets.length > 1 ? `${"AB"[index]}: ` : "";
    setText(this.title, name + brief(app.config.nets[index]));
    setText(this.scores, app.scoreText(index));
    for (const [button, on] of [[this.freezeGates, frame.frozen.gates], [this.freezeValues, frame.frozen.values]] as const) button.setAttribute("aria-pressed", String(on));
    setText(this.freezeGates, frame.frozen.gates ? "❄ Gates frozen" : "❄ Freeze gates");
    setText(this.freezeValues, frame.frozen.values ? "❄ Values frozen" : "❄ Freeze values");
    const hasGates = frame.shape.kind !== "dln";
    this.freezeGates.disabled = this.redrawGates.disabled = !hasGates;
    this.badge.hidden = !frame.wasSplit;
    setText(this.badge, "weights split in two");
    for (const input of document.getElementsByName("colour") as NodeListOf<HTMLInputElement>) input.checked = input.value === app.view.colour;
    this.describe();
    this.plane.drawBase();
    this.diagram.drawThumbs();
  }

  /** The key under the plane, and the line above the diagram. */
  private describe(): void {
    const { app, index } = this;
    const { partition, field } = app.frame!.nets[index];
    const unit = app.unitOf(index);
    const told = JSON.stringify([app.view, app.colours.dark, partition.regions, field !== null, app.path?.units, partition.stopped]);
    if (told === this.told) return;
    this.told = told;
    fill(this.key, ...this.keyParts(), h("span", {}, `${partition.regions.toLocaleString("en-GB")} regions${partition.stopped ? ", and more in deeper layers" : ""}`));
    if (unit === null) fill(this.unit, h("span", { class: "muted" }, "Each unit shows where its gate is open. Click one to see its boundary alone."));
    else {
      const close = app.view.unit === null ? null : h("button", { onclick: () => app.selectUnit(null) }, "Show all");
      fill(this.unit, h("span", {}, "Boundary of ", h("strong", {}, unitName(unit, hiddenWidths(app.nets[index]))), " alone"), close);
    }
  }

  private keyParts(): Node[] {
    const { app } = this;
    const swatch = (colour: string, text: string) => {
      const box = h("i");
      box.style.background = colour;
      return h("span", {}, box, text);
    };
    const scale = (colours: Uint32Array, low: string, high: string) => {
      const bar = h("span", { class: "ramp" });
      bar.style.background = cssOfRamp(colours);
      return h("span", {}, `${low} `, bar, ` ${high}`);
    };
    const { colours, view } = app;
    const open = `rgb(${colours.gateOpen.join(" ")})`;
    const closed = `rgb(${colours.gateClosed.join(" ")})`;
    const path = app.path && app.pathNet === this.index ? [h("span", {}, "shown where the chosen path is open")] : [];
    if (view.colour === "output") {
      const soft = app.frame!.nets[this.index].field ? [h("span", {}, `soft gates: the output bends; lines are where a gate passes ½`)] : [];
      return [scale(colours.diverging, "−1", "+1"), h("span", {}, "black line: output 0"), ...soft, ...path].map((part) => (colours.dark && part.textContent === "black line: output 0" ? h("span", {}, "white line: output 0") : part));
    }
    if (view.colour === "paths") return [scale(colours.sequential, "few", "many open paths"), ...path];
    if (view.colour === "gate") return [swatch(open, "open"), swatch(closed, "closed"), ...path];
    if (view.colour === "layer") return [...app.nets[this.index].widths.slice(1, -1).map((_, l) => swatch(colours.layers[l], `layer ${l + 1}`)), ...path];
    return [h("span", {}, "one shade for each pattern of gates"), ...path];
  }

  draw(): void {
    this.plane.draw();
    this.diagram.draw();
  }
}

/** As many stages as there are networks. */
export function makeStages(app: App, count: number): Stage[] {
  const stages = Array.from({ length: count }, (_, i) => new Stage(app, i));
  fill(byId("stages"), ...stages.map((stage) => stage.root));
  document.querySelector("main")!.classList.toggle("comparing", count > 1);
  return stages;
}
