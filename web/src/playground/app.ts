/** The page's state, its worker, and what happens when either changes. */
import type { Config, Event } from "../engine/config.ts";
import { makeData, MOST_POINTS } from "../engine/data.ts";
import { hiddenWidths, network, type Network } from "../engine/network.ts";
import type { Path } from "../engine/paths.ts";
import { palette, type Palette } from "../shared/colours.ts";
import { byId, setText, short } from "../shared/dom.ts";
import type { Frame, KernelName, Request } from "../worker/protocol.ts";
import { atPoint, type AtPoint } from "./at_point.ts";
import { encode, type Shared, type View } from "./state.ts";

export interface Cursor {
  s: number;
  t: number;
  net: number;
  byKey: boolean;
}

export type Brush = "none" | "plus" | "minus" | "erase";

/** A part of the page. `newFrame` is called for every new state of the networks, `draw` for every change. */
export interface Part {
  newFrame?(): void;
  draw?(): void;
}

export class App {
  config: Config;
  view: View;
  frame: Frame | null = null;
  nets: Network[] = [];
  events: Event[] = [];
  cursor: Cursor | null = null;
  path: Path | null = null;
  pathNet = 0;
  brush: Brush = "none";
  speed = 200;
  colours: Palette;
  parts: Part[] = [];
  /** Called with every new frame; tours wait for a step with it. */
  onFrame: ((frame: Frame) => void)[] = [];
  onConfig: (() => void)[] = [];
  private readonly worker: Worker;
  private start = 0;
  private isNewFrame = false;
  private isScheduled = false;
  private isPlaying = false;
  private points_: { key: string; points: AtPoint[] }[] = [];

  constructor(worker: Worker, shared: Shared, dark: boolean) {
    this.worker = worker;
    this.config = shared.config;
    this.view = shared.view;
    this.colours = palette(dark);
    worker.onmessage = ({ data }: MessageEvent<Frame>) => this.received(data);
    worker.onerror = (event) => this.tell(`The engine stopped: ${event.message}. Reload the page.`);
    this.post({ type: "speed", perSecond: this.perSecond });
  }

  private get perSecond(): number {
    return this.speed || 1e6;
  }

  private post(request: Request): void {
    this.worker.postMessage(request);
  }

  /** Begin anew with a configuration; with events and a step, up to that moment. */
  begin(config: Config, events: Event[] = [], step = 0, playing = false): void {
    if (this.frame && this.frame.nets.length !== config.nets.length) this.frame = null; // nothing to draw until the next
    this.config = config;
    this.events = events;
    this.path = null;
    this.tell("");
    this.isPlaying = playing;
    const units = Math.max(...config.nets.map((net) => net.hidden.reduce((a, b) => a + b, 0)));
    if (this.view.unit !== null && this.view.unit >= units) this.view.unit = null;
    this.post({ type: "start", start: ++this.start, config, events, step, playing });
    for (const listener of this.onConfig) listener();
  }

  /** Change settings that need a fresh start; training goes on if it was on. */
  change(config: Config): void {
    this.begin(config, [], 0, this.isPlaying);
  }

  get playing(): boolean {
    return this.isPlaying;
  }

  play(on: boolean, until?: number): void {
    this.isPlaying = on;
    this.post({ type: "play", on, until });
    this.redraw();
  }

  advance(steps: number): void {
    this.isPlaying = false;
    this.post({ type: "advance", steps });
  }

  seek(step: number): void {
    this.isPlaying = false;
    this.post({ type: "seek", step });
  }

  act(event: Event): void {
    this.post({ type: "act", event });
  }

  setSpeed(speed: number): void {
    this.speed = speed;
    this.post({ type: "speed", perSecond: this.perSecond });
  }

  setKernel(name: KernelName): void {
    this.view.kernel = name;
    this.post({ type: "kernel", name });
  }

  private received(frame: Frame): void {
    if (frame.start !== this.start) {
      this.post({ type: "drawn" }); // of settings that have been changed since
      return;
    }
    const old = this.frame;
    if (old?.start === frame.start) frame.nets.forEach((net, i) => (net.kernel ??= old.nets[i].kernel));
    this.frame = frame;
    this.events = frame.events;
    this.isPlaying = frame.playing;
    this.nets = frame.nets.map((net) => network(net.shape, net.parameters));
    this.points_ = [];
    if (this.path && !this.pathFits(this.path)) this.path = null;
    if (frame.diverged) this.tell("The loss grew beyond all bounds: take a smaller step, then Reset.");
    this.isNewFrame = true;
    this.redraw();
    for (const listener of this.onFrame) listener(frame);
  }

  private pathFits(path: Path): boolean {
    const widths = this.nets[this.pathNet]?.widths ?? [];
    return path.units.every((unit, k) => unit < (widths[path.start + k] ?? 0));
  }

  /** Draw soon, once. */
  redraw(all = false): void {
    this.isNewFrame ||= all;
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    const isNew = this.isNewFrame;
    this.isScheduled = this.isNewFrame = false;
    try {
      if (this.frame && isNew) for (const part of this.parts) part.newFrame?.();
      if (this.frame) for (const part of this.parts) part.draw?.();
    } finally {
      if (isNew) this.post({ type: "drawn" }); // also if the frame was dropped meanwhile: the worker waits for it
    }
  }

  /** Pins and cursor, as the network sees them; the cursor last. */
  points(index: number): AtPoint[] {
    if (!this.frame) return [];
    const places = [...this.view.pins, ...(this.cursor ? [[this.cursor.s, this.cursor.t]] : [])];
    const key = JSON.stringify(places);
    const known = this.points_[index];
    if (known?.key === key) return known.points;
    const { partition } = this.frame.nets[index];
    const points = places.map(([s, t]) => atPoint(this.nets[index], partition, s, t));
    this.points_[index] = { key, points };
    return points;
  }

  setCursor(cursor: Cursor | null): void {
    this.cursor = cursor;
    this.redraw();
    const point = cursor?.byKey && this.points(cursor.net).at(-1);
    if (cursor && point) {
      this.announce(`${short(cursor.s, 2)}, ${short(cursor.t, 2)}: output ${short(point.output)}, ${point.open} open paths`);
    }
  }

  /** Pin a point; a third one replaces the first two. */
  pin(s: number, t: number): void {
    const round = (value: number) => Math.round(value * 1e4) / 1e4;
    const kept = this.view.pins.length >= 2 ? [] : this.view.pins;
    this.view.pins = [...kept, [round(s), round(t)]];
    this.path = null;
    this.announce(`pin ${this.view.pins.length} set`);
    this.redraw(true);
    this.remember();
  }

  clearPins(): void {
    this.view.pins = [];
    this.path = null;
    this.redraw(true);
    this.remember();
  }

  choosePath(path: Path | null, net: number): void {
    this.path = path;
    this.pathNet = net;
    this.redraw(true);
  }

  selectUnit(unit: number | null): void {
    this.view.unit = unit;
    this.redraw(true);
    this.remember();
  }

  /** The unit whose gate a network shows; null if none is chosen, or it has no such unit. */
  unitOf(index: number): number | null {
    const { unit, colour } = this.view;
    const units = hiddenWidths(this.nets[index]).reduce((a, b) => a + b, 0);
    if (unit !== null && unit < units) return unit;
    return colour === "gate" ? 0 : null;
  }

  setDark(dark: boolean): void {
    this.colours = palette(dark);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    this.redraw(true);
  }

  /** Add or erase points; the data become the user's own. Nothing restarts before `brushDone`. */
  brushAt(s: number, t: number): void {
    const own = this.ownPoints();
    const round = (value: number) => Math.round(value * 1e3) / 1e3;
    const distance = (i: number) => Math.hypot(own[i] - s, own[i + 1] - t);
    const starts = Array.from({ length: own.length / 3 }, (_, i) => 3 * i);
    if (this.brush === "erase") this.setOwn(starts.filter((i) => distance(i) > 0.12).flatMap((i) => own.slice(i, i + 3)));
    else if (own.length < 3 * MOST_POINTS && starts.every((i) => distance(i) > 0.04)) this.setOwn([...own, round(s), round(t), this.brush === "plus" ? 1 : -1]);
  }

  /** The user's own points; those that are shown, if there are none yet. */
  private ownPoints(): number[] {
    if (this.config.data.name === "own") return this.config.data.own;
    const { x, y, testX, testY } = makeData(this.config.data);
    const rows = (a: Float64Array, b: Float64Array) => Array.from(b, (label, i) => [a[2 * i], a[2 * i + 1], label]).flat();
    return [...rows(x, y), ...rows(testX, testY)].map((value) => Math.round(value * 1e3) / 1e3);
  }

  private setOwn(own: number[]): void {
    this.config = { ...this.config, data: { ...this.config.data, name: "own", own } };
    if (this.frame) this.frame.data = makeData(this.config.data);
    this.redraw();
  }

  brushDone(): void {
    this.change(this.config);
    this.remember();
  }

  scoreText(index: number): string {
    const { train, test } = this.frame!.nets[index];
    const show = this.frame!.data.isRegression ? (value: number) => `R² ${short(value, 2)}` : (value: number) => `${Math.round(100 * value)} % right`;
    return `loss ${short(train.loss, 2)}, ${show(train.score)}${test ? `; test ${show(test.score)}` : ""}`;
  }

  get shared(): Shared {
    return { config: this.config, events: this.events, step: this.frame?.step ?? 0, view: this.view };
  }

  /** Put the state into the address bar. */
  remember(): void {
    const hash = `#${encode(this.shared)}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  tell(text: string): void {
    setText(byId("status"), text);
  }

  announce(text: string): void {
    setText(byId("live"), text);
  }
}
