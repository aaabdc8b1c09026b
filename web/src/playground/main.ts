/** Puts the page together. `WORKER_SOURCE` is the bundled worker, put in by build.ts. */
import { DEFAULT_CONFIG } from "../engine/config.ts";
import { byId, setText } from "../shared/dom.ts";
import type { Frame } from "../worker/protocol.ts";
import { App } from "./app.ts";
import { Controls } from "./controls.ts";
import { wireExports } from "./exports.ts";
import { KernelPanel } from "./kernel_panel.ts";
import { Readout } from "./readout.ts";
import { makeStages, type Stage } from "./stage.ts";
import { decode, DEFAULT_VIEW, type Shared } from "./state.ts";
import { Timeline } from "./timeline.ts";
import { TourGuide } from "./tour_guide.ts";

declare const WORKER_SOURCE: string;

function makeWorker(): Worker {
  const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
  const worker = new Worker(url);
  URL.revokeObjectURL(url);
  return worker;
}

function firstState(): { shared: Shared; isFresh: boolean } {
  const found = decode(location.hash);
  const fresh = { config: DEFAULT_CONFIG, events: [], step: 0, view: { ...DEFAULT_VIEW } };
  return { shared: found ?? fresh, isFresh: found === null };
}

function wireTransport(app: App, controls: Controls): void {
  const on = (id: string, event: string, action: (element: HTMLInputElement) => void) =>
    byId(id).addEventListener(event, (e) => action(e.currentTarget as HTMLInputElement));
  on("play", "click", () => {
    app.play(!app.playing);
    if (!app.playing) app.remember();
  });
  on("step", "click", () => app.advance(1));
  on("reset", "click", () => {
    app.begin(app.config, [], 0, false);
    app.remember();
  });
  on("seed", "change", (input) => {
    const seed = Math.min(999_999, Math.max(0, Math.round(Number(input.value) || 0)));
    app.change({ ...app.config, seed });
    app.remember();
  });
  on("speed", "change", (input) => app.setSpeed(Number(input.value)));
  on("compare", "click", () => controls.compare(app.config.nets.length === 1));
  on("theme", "click", (button) => setTheme(app, controls, button.getAttribute("aria-pressed") !== "true"));
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLElement && event.target.closest("input, select, textarea, button, dialog, canvas, summary");
    if (event.key === " " && !isTyping) {
      event.preventDefault();
      app.play(!app.playing);
    }
  });
}

function setTheme(app: App, controls: Controls, dark: boolean): void {
  app.setDark(dark);
  byId("theme").setAttribute("aria-pressed", String(dark));
  controls.build();
}

/** Note when the first picture was on the screen; shown by the browser's own performance tools. */
function markFirstPicture({ start, reached }: Frame): void {
  if (start === 1 && reached === 0 && !performance.getEntriesByName("first-picture").length)
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("first-picture")));
}

function main(): void {
  const { shared, isFresh } = firstState();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
  // A phone has no room for open settings above the fold; they are one tap away.
  if (matchMedia("(max-width: 760px)").matches) for (const id of ["data-panel", "net-panel", "train-panel"]) (byId(id) as HTMLDetailsElement).open = false;
  const app = new App(makeWorker(), shared, dark);
  const controls = new Controls(app);
  let stages: Stage[] = [];
  const others = [new Readout(app), new KernelPanel(app), new Timeline(app)];
  const arrange = () => {
    if (stages.length === app.config.nets.length) return;
    stages = makeStages(app, app.config.nets.length);
    app.parts = [...stages, ...others];
  };
  app.onConfig.push(arrange);
  wireTransport(app, controls);
  wireExports(app, () => stages);
  new TourGuide(app);
  byId<HTMLSelectElement>("speed").value = String(app.speed);
  app.onFrame.push(markFirstPicture);
  app.onFrame.push((frame) => setText(byId("play"), frame.playing ? "❚❚ Pause" : "▶ Train"));
  let remembered = performance.now();
  app.onFrame.push((frame) => {
    if (frame.playing && performance.now() - remembered < 1000) return;
    remembered = performance.now();
    if (!isFresh || frame.reached > 0) app.remember();
  });
  new ResizeObserver(() => app.redraw(true)).observe(byId("stages"));
  app.begin(shared.config, shared.events, shared.step);
  app.setKernel(shared.view.kernel);
  window.addEventListener("hashchange", () => {
    const told = decode(location.hash);
    if (!told || JSON.stringify(told) === JSON.stringify(app.shared)) return;
    app.view = told.view;
    app.begin(told.config, told.events, told.step);
    app.setKernel(told.view.kernel);
  });
}

main();
