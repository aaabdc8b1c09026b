/** Puts the page together from the facts inside it. */
import { byId, setText } from "../shared/dom.ts";
import { writeAbout } from "./about.ts";
import { App, type Part } from "./app.ts";
import { decode } from "./facts.ts";
import { Gallery } from "./gallery.ts";
import { GatePanel } from "./gate_panel.ts";
import { KernelPanel } from "./kernel_panel.ts";
import { NormalPanel } from "./normal_panel.ts";
import { PairPanel } from "./pair_panel.ts";
import { PathPanel } from "./path_panel.ts";
import { PlanePanel } from "./plane_panel.ts";
import { Timeline } from "./timeline.ts";

function main(): void {
  const text = byId("facts").textContent ?? "null";
  const facts = decode(text);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (!facts) {
    setText(byId("lead"), "This page holds no network yet. Write one with: gatelab explore net.py:Net --weights w.safetensors --data mnist -o page.html");
    for (const id of ["main", "theme"]) byId(id).hidden = true;
    return;
  }
  const app = new App(facts, dark);
  setText(byId("subject"), `${facts.network} on ${facts.data}`);
  const panels: [string, boolean, () => Part][] = [
    ["gates", facts.gates.length > 0, () => new GatePanel(app)],
    ["pair", facts.gates.length > 0, () => new PairPanel(app)],
    ["kernels", facts.kernels.length > 0, () => new KernelPanel(app)],
    ["paths", facts.paths.length > 0, () => new PathPanel(app)],
    ["planes", facts.planes.length > 0, () => new PlanePanel(app)],
    ["normals", facts.normals.length > 0, () => new NormalPanel(app)],
    ["timeline", facts.timeline.length > 0, () => new Timeline(app)],
  ];
  app.parts = [new Gallery(app)];
  for (const [id, isThere, make] of panels) {
    byId(`${id}-panel`).hidden = !isThere;
    for (const link of document.querySelectorAll<HTMLElement>(`a[href="#${id}-panel"]`)) link.hidden = !isThere;
    if (isThere) app.parts.push(make());
  }
  writeAbout(app, new Blob([text]).size);
  const theme = byId("theme");
  theme.setAttribute("aria-pressed", String(dark));
  theme.addEventListener("click", () => {
    const isDark = theme.getAttribute("aria-pressed") !== "true";
    theme.setAttribute("aria-pressed", String(isDark));
    app.setDark(isDark);
  });
  let width = 0;
  new ResizeObserver(() => {
    if (width !== window.innerWidth) app.redraw();
    width = window.innerWidth;
  }).observe(document.body);
  app.redraw();
}

main();
