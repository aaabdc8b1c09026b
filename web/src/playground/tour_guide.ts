/** The panel that leads through a tour: text, the live numbers, and the state that each step sets. */
import type { Frame } from "../worker/protocol.ts";
import { byId, fill, h, setText } from "../shared/dom.ts";
import type { App } from "./app.ts";
import { DEFAULT_VIEW } from "./state.ts";
import { FIRST_TOUR, TOURS, type Tour } from "./tours/index.ts";

export class TourGuide {
  private readonly app: App;
  private tour: Tour | null = null;
  private at = 0;
  private now = h("p", { class: "now", role: "status" });
  private spot: Element | null = null;

  constructor(app: App) {
    this.app = app;
    const choice = byId<HTMLSelectElement>("tours");
    choice.append(h("option", { value: "" }, "Six tours …"));
    for (const [id, tour] of Object.entries(TOURS)) choice.append(h("option", { value: id }, tour.title));
    choice.addEventListener("change", () => this.open(TOURS[choice.value] ?? null));
    byId("start-here").addEventListener("click", () => this.open(TOURS[FIRST_TOUR]));
    app.onFrame.push((frame) => this.update(frame));
  }

  private open(tour: Tour | null): void {
    this.tour = tour;
    byId("tour").hidden = tour === null;
    document.querySelector("main")!.classList.toggle("touring", tour !== null);
    const id = Object.keys(TOURS).find((key) => TOURS[key] === tour) ?? "";
    byId<HTMLSelectElement>("tours").value = id;
    if (tour) this.go(0);
    else this.light(null);
    this.app.redraw(true);
  }

  private go(at: number): void {
    const { app, tour } = this;
    if (!tour) return;
    this.at = at;
    const step = tour.steps[at];
    app.view = { ...DEFAULT_VIEW, ...step.view, pins: step.view?.pins ?? [] };
    app.setCursor(null);
    app.begin(step.config, step.events ?? [], step.from ?? 0, false);
    app.setKernel(app.view.kernel);
    if (step.until) app.play(true, step.until);
    this.show();
    byId("tour").scrollIntoView({ block: "nearest" });
  }

  private show(): void {
    const tour = this.tour!;
    const step = tour.steps[this.at];
    const isLast = this.at === tour.steps.length - 1;
    const heading = h("h2", { tabindex: "-1" }, step.title);
    const dots = h("span", { class: "dots", role: "img", "aria-label": `Step ${this.at + 1} of ${tour.steps.length}` });
    tour.steps.forEach((_, i) => dots.append(h("span", { class: i === this.at ? "on" : "" })));
    this.now = h("p", { class: "now", role: "status" });
    fill(
      byId("tour"),
      h("p", { class: "small muted" }, `${tour.title} · ${this.at + 1} of ${tour.steps.length}`),
      heading,
      ...step.text.map((text) => h("p", {}, text)),
      this.now,
      step.paper ? h("p", { class: "paper" }, step.paper) : null,
      h(
        "nav",
        { "aria-label": "Tour" },
        h("button", { id: "tour-back", disabled: this.at === 0, onclick: () => this.go(this.at - 1) }, "Back"),
        dots,
        isLast ? h("button", { id: "tour-end", class: "primary", onclick: () => this.open(null) }, "Play on your own") : h("button", { id: "tour-next", class: "primary", onclick: () => this.go(this.at + 1) }, "Next"),
      ),
      h("button", { id: "tour-close", class: "plain small muted", onclick: () => this.open(null) }, "Leave the tour"),
    );
    this.light(step.spot ?? null);
    heading.focus({ preventScroll: true });
  }

  private light(selector: string | null): void {
    this.spot?.classList.remove("spot");
    this.spot = selector ? document.querySelector(selector) : null;
    this.spot?.classList.add("spot");
  }

  private update(frame: Frame): void {
    const step = this.tour?.steps[this.at];
    if (!step) return;
    if (frame.nets.length === step.config.nets.length) setText(this.now, step.now(this.app, frame));
    if (step.spot && !this.spot) this.light(step.spot);
  }
}
