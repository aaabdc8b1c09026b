/** All examples as thumbnails; a click, or A, B, C on the keyboard, picks one. */
import { byId, fill, h, setText, short } from "../shared/dom.ts";
import { SLOTS, type App, type Part, type Slot } from "./app.ts";
import { exampleImage, show } from "./pictures.ts";

const SIZE = 44;

export class Gallery implements Part {
  private readonly app: App;
  private readonly thumbs: HTMLButtonElement[];
  private readonly filter = h("select", { id: "filter", "aria-label": "Examples shown" });
  private active: Slot = "A";
  private dark: boolean | null = null;

  constructor(app: App) {
    this.app = app;
    const { examples, classes } = app.facts;
    this.thumbs = examples.numbers.map((_, k) =>
      h("button", { class: "thumb", tabindex: k ? -1 : 0, "data-example": k, onclick: (event: MouseEvent) => app.pick(event.shiftKey ? "B" : this.active, k) }, h("canvas", { "aria-hidden": "true" }), h("span", { class: "slots", "aria-hidden": "true" })),
    );
    byId("thumbs").addEventListener("keydown", (event) => this.key(event));
    fill(byId("thumbs"), ...this.thumbs);
    this.filter.append(h("option", { value: "all" }, `all ${examples.numbers.length}`));
    if (examples.labels.length) {
      this.filter.append(h("option", { value: "mistakes" }, "mistakes"));
      for (const label of [...new Set(examples.labels)]) this.filter.append(h("option", { value: String(label) }, `class ${classes[label] ?? label}`));
    }
    this.filter.addEventListener("change", () => this.sift());
    const slots = h("div", { class: "segments", role: "radiogroup", "aria-label": "A click picks" });
    for (const slot of SLOTS) {
      const input = h("input", { type: "radio", name: "slot", value: slot, id: `slot-${slot}`, onchange: () => (this.active = slot) });
      input.checked = slot === "A";
      slots.append(h("label", {}, input, slot));
    }
    fill(byId("gallery-tools"), h("span", { class: "muted small" }, "a click picks"), slots, h("span", { class: "muted small" }, "of"), this.filter);
    setText(byId("gallery-note"), this.note());
  }

  private note(): string {
    const { examples } = this.app.facts;
    const from = examples.part === "all" ? "of the data" : `of the ${examples.part === "test" ? "test" : "training"} part`;
    if (examples.mistakes === null) return `${examples.numbers.length} examples ${from}.`;
    const shown = examples.numbers.filter((_, k) => this.app.isMistake(k)).length;
    const rate = short((100 * examples.mistakes) / examples.looked_at, 2);
    const isMore = shown * examples.looked_at > examples.mistakes * examples.numbers.length;
    return `${examples.numbers.length} examples ${from}, by class; ${shown} of them are mistakes (outlined)${isMore ? ", more than their share" : ""}: the network decides ${examples.mistakes} of ${examples.looked_at.toLocaleString("en-GB")} examples wrongly, ${rate} %.`;
  }

  private get visible(): HTMLButtonElement[] {
    return this.thumbs.filter((thumb) => !thumb.hidden);
  }

  private sift(): void {
    const { value } = this.filter;
    this.thumbs.forEach((thumb, k) => {
      thumb.hidden = !(value === "all" || (value === "mistakes" ? this.app.isMistake(k) : String(this.app.facts.examples.labels[k]) === value));
    });
    this.stop(this.visible[0]);
    setText(byId("live"), `${this.visible.length} examples shown`);
  }

  /** One thumbnail is in the order of tabs; arrows reach the others. */
  private stop(thumb: HTMLButtonElement | undefined): void {
    for (const each of this.thumbs) each.tabIndex = each === thumb ? 0 : -1;
  }

  private key(event: KeyboardEvent): void {
    const { visible } = this;
    const at = visible.indexOf(document.activeElement as HTMLButtonElement);
    if (at < 0) return;
    const slot = SLOTS.find((name) => name === event.key.toUpperCase());
    if (slot && !event.ctrlKey && !event.metaKey) this.app.pick(slot, Number(visible[at].dataset.example));
    const across = Math.max(1, visible.filter((thumb) => thumb.offsetTop === visible[0].offsetTop).length);
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -at, End: visible.length - 1 - at };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = visible[Math.min(visible.length - 1, Math.max(0, at + steps[event.key]))];
    this.stop(next);
    next.focus();
  }

  draw(): void {
    const { app } = this;
    const repaint = this.dark !== app.colours.dark;
    this.dark = app.colours.dark;
    this.thumbs.forEach((thumb, k) => {
      if (repaint) show(thumb.firstElementChild as HTMLCanvasElement, exampleImage(app.facts.examples, k, app.colours), SIZE);
      const slots = SLOTS.filter((slot) => app.picked[slot] === k).join(" ");
      setText(thumb.lastElementChild!, slots);
      thumb.classList.toggle("mistake", app.isMistake(k));
      thumb.setAttribute("aria-label", `Example ${app.nameOf(k)}${slots ? `; picked as ${slots}` : ""}`);
      thumb.setAttribute("aria-pressed", String(slots !== ""));
    });
    fill(byId("picked"), ...SLOTS.map((slot) => this.card(slot)));
  }

  /** A picked example with its largest outputs. */
  private card(slot: Slot): HTMLElement {
    const { app } = this;
    const { examples } = app.facts;
    const k = app.picked[slot];
    const canvas = h("canvas", { role: "img", "aria-label": `Picture of example ${app.nameOf(k)}` });
    show(canvas, exampleImage(examples, k, app.colours), 84);
    const outputs = examples.outputs.shape[1];
    const row = Array.from({ length: outputs }, (_, o) => [o, examples.outputs.data[k * outputs + o]]);
    const best = row.sort((x, y) => y[1] - x[1]).slice(0, 3);
    const lines = best.map(([output, value]) => h("tr", {}, h("th", { scope: "row" }, app.outputName(output)), h("td", { class: "number" }, short(value))));
    return h("div", { class: "card", id: `card-${slot}` }, canvas, h("div", {}, h("h3", {}, h("span", { class: `tag tag-${slot}` }, slot), ` ${app.nameOf(k)}`), h("table", {}, h("tbody", {}, ...lines))));
  }
}
