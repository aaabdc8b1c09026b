/** Pictures, the network as JSON, and code that rebuilds it with gatelab. */
import { toExport } from "../engine/export.ts";
import { EXTENT } from "../engine/data.ts";
import { hiddenWidths } from "../engine/network.ts";
import { Pass } from "../engine/pass.ts";
import { cssOf, divergingAt } from "../shared/colours.ts";
import { download } from "../shared/dom.ts";
import type { App } from "./app.ts";
import { copyText, showCode } from "./dialogs.ts";
import { decisionBoundary, edges, regionColours, type Segment } from "./paint.ts";
import type { Stage } from "./stage.ts";

export function exportJson(app: App): string {
  const { data, step } = app.frame!;
  const n = data.y.length;
  const pairs = (x: Float64Array) => Array.from({ length: x.length / 2 }, (_, i) => [x[2 * i], x[2 * i + 1]]);
  const networks = app.nets.map((net) => ({ ...toExport(net), outputs: Array.from(new Pass(net, n).forward(data.x, n).subarray(0, n)) }));
  const told = {
    format: "gatelab-playground",
    version: 1,
    step,
    networks,
    data: { x: pairs(data.x), y: Array.from(data.y), test_x: pairs(data.testX), test_y: Array.from(data.testY) },
    state: app.shared,
  };
  return JSON.stringify(told);
}

const saveJson = (app: App) => download("network.json", new Blob([exportJson(app)], { type: "application/json" }));

export function pythonCode(app: App): string {
  const second = app.nets.length > 1 ? "\nother = gl.models.from_playground(export, network=1)  # network B" : "";
  return `import json
from pathlib import Path

import torch

import gatelab as gl

export = json.loads(Path("network.json").read_text())
net = gl.models.from_playground(export)  # the very network, step ${app.frame!.step}${second}
x = torch.tensor(export["data"]["x"], dtype=torch.float64)
y = torch.tensor(export["data"]["y"], dtype=torch.float64)

here = torch.tensor(export["networks"][0]["outputs"], dtype=torch.float64)
print("largest difference to the browser:", (net(x).flatten() - here).abs().max().item())

regions = gl.regions.linear_regions_2d(net, bounds=((-${EXTENT}, ${EXTENT}), (-${EXTENT}, ${EXTENT})))
print(len(regions), "regions")
for path in gl.top_paths(net, x[0], k=5):
    print(path)
H = gl.neural_path_kernel(net, x)${app.nets[0].kind === "dln" ? "  # refused: a deep linear network has no gates" : ""}
print("alignment with the labels:", gl.kernels.label_alignment(H, y))
`;
}

/** The plane as polygons, in the units of the plane. */
export function planeSvg(app: App, index: number): string {
  const { partition, field } = app.frame!.nets[index];
  const { colours, view } = app;
  const widths = hiddenWidths(app.nets[index]);
  const f = (value: number) => value.toFixed(4);
  const { corners, starts, regions, maps, bounds } = partition;
  const fills = view.colour === "output" ? null : regionColours({ colour: view.colour, partition, field, widths, unit: app.unitOf(index) ?? 0, within: null }, colours);
  const polygons = Array.from({ length: regions }, (_, r) => {
    const ids = Array.from({ length: starts[r + 1] - starts[r] }, (_, k) => starts[r] + k);
    const [s, t] = [0, 1].map((axis) => ids.reduce((sum, i) => sum + corners[2 * i + axis], 0) / ids.length);
    const colour = fills ? fills[r] : divergingAt(colours, (maps[3 * r] + maps[3 * r + 1] * s + maps[3 * r + 2] * t) / 1.25);
    return `<polygon points="${ids.map((i) => `${f(corners[2 * i])},${f(-corners[2 * i + 1])}`).join(" ")}" fill="${cssOf(colour)}"/>`;
  });
  const line = (segments: Segment[], colour: string, width: number, opacity = 1) =>
    `<path d="${segments.map(([a, b, c, d]) => `M${f(a)} ${f(-b)}L${f(c)} ${f(-d)}`).join("")}" stroke="${colour}" stroke-width="${width}" stroke-opacity="${opacity}" fill="none" stroke-linecap="round"/>`;
  const isLayers = view.colour === "layer";
  const lines = edges(partition, widths, app.unitOf(index)).map((segments, l) => line(segments, isLayers ? colours.layers[l] : colours.ink, isLayers ? 0.008 : 0.005, isLayers ? 1 : 0.4));
  const { data } = app.frame!;
  const points = Array.from(data.y, (y, i) => `<circle cx="${f(data.x[2 * i])}" cy="${f(-data.x[2 * i + 1])}" r="0.02" fill="${cssOf(divergingAt(colours, y))}" stroke="${colours.panel}" stroke-width="0.006"/>`);
  const [left, right, low, high] = bounds;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${left} ${-high} ${right - left} ${high - low}" width="900" height="900"><title>${regions} linear regions, step ${app.frame!.step}</title><g shape-rendering="geometricPrecision">${polygons.join("")}</g>${lines.join("")}${line(decisionBoundary(partition, field), colours.highlight, 0.014)}${points.join("")}</svg>`;
}

/** Planes side by side, with diagrams under them. */
function picture(app: App, stages: Stage[]): HTMLCanvasElement {
  const pairs = stages.map(({ root }) => [...root.querySelectorAll<HTMLCanvasElement>(".plane, .diagram")]);
  const out = document.createElement("canvas");
  const column = Math.max(...pairs.map(([plane]) => plane.width));
  const height = Math.max(...pairs.map(([plane, diagram]) => plane.height + (column * diagram.height) / diagram.width));
  out.width = pairs.length * column;
  out.height = Math.round(height);
  const context = out.getContext("2d")!;
  context.fillStyle = app.colours.panel;
  context.fillRect(0, 0, out.width, out.height);
  pairs.forEach(([plane, diagram], i) => {
    context.drawImage(plane, i * column, 0);
    context.drawImage(diagram, i * column, plane.height, column, (column * diagram.height) / diagram.width);
  });
  return out;
}

export function wireExports(app: App, stages: () => Stage[]): void {
  const on = (id: string, action: () => void) =>
    document.getElementById(id)!.addEventListener("click", () => {
      (document.getElementById("export-menu") as HTMLDetailsElement).open = false;
      action();
    });
  on("export-png", () => picture(app, stages()).toBlob((blob) => blob && download("playground.png", blob), "image/png"));
  on("export-svg", () => app.nets.forEach((_, i) => download(app.nets.length > 1 ? `plane-${"AB"[i]}.svg` : "plane.svg", new Blob([planeSvg(app, i)], { type: "image/svg+xml" }))));
  on("export-json", () => saveJson(app));
  on("export-python", () => showCode("Open in Python", "Save network.json, then run this beside it. It rebuilds the network of this page, to rounding.", pythonCode(app), () => saveJson(app)));
  document.getElementById("share")!.addEventListener("click", () => {
    app.remember();
    void copyText(location.href).then((done) => app.tell(done ? "Link copied: it rebuilds this very state." : "Copy the link from the address bar."));
  });
}
