/** The plane: exact regions, data, the decision boundary, pins. Mouse, touch and keys. */
import { EXTENT } from "../engine/data.ts";
import { hiddenWidths } from "../engine/network.ts";
import { fit, imageOf } from "../shared/canvas.ts";
import { cssOf, divergingAt } from "../shared/colours.ts";
import { regionMap } from "../shared/raster.ts";
import type { App } from "./app.ts";
import { gatesOf, unitName } from "./at_point.ts";
import { decisionBoundary, edges, fillPixels, type Segment } from "./paint.ts";

const MOST_PIXELS = 900;

export class PlaneView {
  readonly canvas: HTMLCanvasElement;
  private readonly app: App;
  private readonly index: number;
  private readonly base = document.createElement("canvas");
  private readonly image = document.createElement("canvas");
  private isStroke = false;

  constructor(canvas: HTMLCanvasElement, app: App, index: number) {
    [this.canvas, this.app, this.index] = [canvas, app, index];
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    canvas.addEventListener("pointerleave", () => app.setCursor(null));
    canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    canvas.addEventListener("pointerup", () => this.released());
    canvas.addEventListener("pointercancel", () => this.released());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => app.setCursor(null));
  }

  private at(event: PointerEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    const clamp = (value: number) => Math.min(EXTENT, Math.max(-EXTENT, value));
    return [
      clamp((((event.clientX - box.left) / box.width) * 2 - 1) * EXTENT),
      clamp((1 - ((event.clientY - box.top) / box.height) * 2) * EXTENT),
    ];
  }

  private moved(event: PointerEvent): void {
    const [s, t] = this.at(event);
    if (this.isStroke) this.app.brushAt(s, t);
    this.app.setCursor({ s, t, net: this.index, byKey: false });
  }

  private pressed(event: PointerEvent): void {
    const [s, t] = this.at(event);
    if (this.app.brush === "none") this.app.pin(s, t);
    else {
      this.isStroke = true;
      this.canvas.setPointerCapture(event.pointerId);
      this.app.brushAt(s, t);
    }
    this.app.setCursor({ s, t, net: this.index, byKey: false });
  }

  private released(): void {
    if (this.isStroke) this.app.brushDone();
    this.isStroke = false;
  }

  private key(event: KeyboardEvent): void {
    const stride = (event.shiftKey ? 0.25 : 0.05) * EXTENT;
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const here = this.app.cursor ?? { s: 0, t: 0 };
    const clamp = (value: number) => Math.min(EXTENT, Math.max(-EXTENT, value));
    if (moves[event.key]) {
      const [ds, dt] = moves[event.key];
      this.app.setCursor({ s: clamp(here.s + ds * stride), t: clamp(here.t + dt * stride), net: this.index, byKey: true });
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.app.brush === "none") this.app.pin(here.s, here.t);
      else {
        this.app.brushAt(here.s, here.t);
        this.app.brushDone();
      }
    } else if (event.key === "Escape") this.app.clearPins();
    else return;
    event.preventDefault();
  }

  /** Redraw regions, lines and boundary; needed when the network or the colours change. */
  drawBase(): void {
    const { app } = this;
    const net = app.nets[this.index];
    const frame = app.frame!.nets[this.index];
    const { width, ratio } = fit(this.canvas, MOST_PIXELS);
    const size = Math.round(width * ratio);
    const widths = hiddenWidths(net);
    const part = frame.partition;
    const unit = app.unitOf(this.index);
    const fill = { colour: app.view.colour, partition: part, field: frame.field, widths, unit: unit ?? 0, within: this.openFor(widths) };
    imageOf(fillPixels(fill, regionMap(part, size), size, app.colours), size, size, this.image);
    this.base.width = this.base.height = size;
    const context = this.base.getContext("2d")!;
    context.drawImage(this.image, 0, 0);
    const scale = size / (2 * EXTENT);
    context.setTransform(scale, 0, 0, -scale, size / 2, size / 2);
    this.drawLines(context, edges(part, widths, null), unit === null ? 1 : 0.18, ratio / scale);
    if (unit !== null) this.drawUnit(context, edges(part, widths, unit), ratio / scale);
    stroke(context, decisionBoundary(part, frame.field), app.colours.highlight, (2 * ratio) / scale);
    this.describe(part.regions, unit === null ? null : unitName(unit, widths));
  }

  /** Regions in which every gate of the chosen path is open; null without a path. */
  private openFor(widths: number[]): Uint8Array | null {
    const { path } = this.app;
    if (!path || this.app.pathNet !== this.index) return null;
    const { gates, units, regions } = this.app.frame!.nets[this.index].partition;
    const needed = gatesOf(path, widths);
    return Uint8Array.from({ length: regions }, (_, r) => (needed.every((unit) => !units || gates[r * units + unit]) ? 1 : 0));
  }

  private drawLines(context: CanvasRenderingContext2D, layers: Segment[][], alpha: number, dot: number): void {
    const { colours, view } = this.app;
    const isLayers = view.colour === "layer";
    context.globalAlpha = alpha * (isLayers ? 1 : 0.34);
    layers.forEach((segments, l) => stroke(context, segments, isLayers ? colours.layers[l] : colours.ink, (isLayers ? 1.5 : 0.8) * dot));
    context.globalAlpha = 1;
  }

  private drawUnit(context: CanvasRenderingContext2D, layers: Segment[][], dot: number): void {
    layers.forEach((segments, l) => {
      stroke(context, segments, this.app.colours.panel, 5 * dot);
      stroke(context, segments, this.app.colours.layers[l], 2.6 * dot);
    });
  }

  private describe(regions: number, unit: string | null): void {
    const scores = this.app.scoreText(this.index);
    const text = `The plane of network ${"AB"[this.index]}: ${regions} regions, ${scores}${unit ? `; boundary of ${unit}` : ""}. Arrow keys move a cursor, Enter pins a point, Escape removes the pins.`;
    if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
  }

  /** Redraw what lies over the regions. */
  draw(): void {
    const { app } = this;
    const { context, width } = fit(this.canvas, MOST_PIXELS);
    context.imageSmoothingEnabled = true;
    context.drawImage(this.base, 0, 0, width, width);
    this.drawData(context, width);
    const place = (s: number, t: number): [number, number] => [((s / EXTENT + 1) * width) / 2, ((1 - t / EXTENT) * width) / 2];
    for (const point of app.points(this.index)) this.outline(context, point.region, place);
    app.view.pins.forEach(([s, t], i) => this.marker(context, ...place(s, t), String(i + 1)));
    if (app.cursor && (app.cursor.byKey || app.cursor.net !== this.index)) this.cross(context, ...place(app.cursor.s, app.cursor.t));
  }

  private drawData(context: CanvasRenderingContext2D, width: number): void {
    const { data } = this.app.frame!;
    const { colours } = this.app;
    const radius = Math.max(2.4, width / 150);
    const each = (x: Float64Array, y: Float64Array, draw: (px: number, py: number, colour: string) => void) => {
      for (let i = 0; i < y.length; i++)
        draw(((x[2 * i] / EXTENT + 1) * width) / 2, ((1 - x[2 * i + 1] / EXTENT) * width) / 2, cssOf(divergingAt(colours, y[i])));
    };
    context.lineWidth = 1.2;
    context.strokeStyle = colours.dark ? "#0b0f14" : "#ffffff";
    each(data.x, data.y, (px, py, colour) => {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(px, py, radius, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    });
    each(data.testX, data.testY, (px, py, colour) => {
      const r = radius * 0.85;
      context.fillStyle = colour;
      context.strokeStyle = colours.ink;
      context.fillRect(px - r, py - r, 2 * r, 2 * r);
      context.strokeRect(px - r, py - r, 2 * r, 2 * r);
    });
  }

  private outline(context: CanvasRenderingContext2D, region: number, place: (s: number, t: number) => [number, number]): void {
    const { corners, starts, regions } = this.app.frame!.nets[this.index].partition;
    if (region < 0 || region >= regions) return;
    context.beginPath();
    for (let i = starts[region]; i < starts[region + 1]; i++) context.lineTo(...place(corners[2 * i], corners[2 * i + 1]));
    context.closePath();
    context.lineJoin = "round";
    context.strokeStyle = this.app.colours.panel;
    context.lineWidth = 4.5;
    context.stroke();
    context.strokeStyle = this.app.colours.highlight;
    context.lineWidth = 2.2;
    context.stroke();
  }

  private marker(context: CanvasRenderingContext2D, x: number, y: number, text: string): void {
    const { colours } = this.app;
    context.beginPath();
    context.arc(x, y, 9, 0, 2 * Math.PI);
    context.fillStyle = colours.highlight;
    context.fill();
    context.fillStyle = colours.panel;
    context.font = "bold 11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, x, y + 0.5);
  }

  private cross(context: CanvasRenderingContext2D, x: number, y: number): void {
    for (const [colour, width] of [[this.app.colours.panel, 4], [this.app.colours.highlight, 1.6]] as const) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x - 10, y);
      context.lineTo(x + 10, y);
      context.moveTo(x, y - 10);
      context.lineTo(x, y + 10);
      context.stroke();
    }
  }
}

function stroke(context: CanvasRenderingContext2D, segments: Segment[], colour: string, width: number): void {
  if (!segments.length) return;
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineCap = "round";
  context.beginPath();
  for (const [a, b, c, d] of segments) {
    context.moveTo(a, b);
    context.lineTo(c, d);
  }
  context.stroke();
}
