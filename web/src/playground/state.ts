/** What the page shows, and its form in the address bar. Whatever comes from there is checked, never trusted. */
import { DEFAULT_CONFIG, DEFAULT_NET, MOST_LAYERS, MOST_UNITS, PRESETS, type Config, type Event, type NetConfig, type TrainConfig } from "../engine/config.ts";
import { DATA_NAMES, EXTENT, MOST_POINTS, type DataConfig } from "../engine/data.ts";
import { KERNELS, type KernelName } from "../worker/protocol.ts";

export const COLOURS = ["output", "region", "paths", "gate", "layer"] as const;
export type Colour = (typeof COLOURS)[number];
export const ORDERS = ["class", "angle"] as const;
export type Order = (typeof ORDERS)[number];

export interface View {
  colour: Colour;
  /** The unit whose gate is shown, counted over all hidden layers. */
  unit: number | null;
  kernel: KernelName;
  order: Order;
  pins: [number, number][];
}

export interface Shared {
  config: Config;
  events: Event[];
  step: number;
  view: View;
}

export const DEFAULT_VIEW: View = { colour: "output", unit: null, kernel: "path", order: "class", pins: [] };
const MOST_STEPS = 50_000;

type Told = { [key: string]: unknown };
const asObject = (value: unknown): Told => (typeof value === "object" && value !== null ? (value as Told) : {});
const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const number = (value: unknown, low: number, high: number, fallback: number): number =>
  typeof value === "number" && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : fallback;
const whole = (value: unknown, low: number, high: number, fallback: number): number => Math.round(number(value, low, high, fallback));
const one = <T extends string>(value: unknown, names: readonly T[], fallback: T): T =>
  names.includes(value as T) ? (value as T) : fallback;

function netOf(told: Told): NetConfig {
  const hidden = asList(told.hidden).slice(0, MOST_LAYERS).map((width) => whole(width, 1, MOST_UNITS, 8));
  return {
    preset: one(told.preset, PRESETS, DEFAULT_NET.preset),
    hidden: hidden.length ? hidden : DEFAULT_NET.hidden,
    bias: told.bias !== false,
    beta: number(told.beta, 0.5, 50, DEFAULT_NET.beta),
    learntAt: whole(told.learntAt, 0, MOST_STEPS, DEFAULT_NET.learntAt),
  };
}

function dataOf(told: Told): DataConfig {
  const base = DEFAULT_CONFIG.data;
  const own = asList(told.own).slice(0, 3 * MOST_POINTS).map((value) => number(value, -EXTENT, EXTENT, 0));
  const name = one(told.name, DATA_NAMES, base.name);
  return {
    name: name === "own" && own.length < 6 ? base.name : name,
    points: whole(told.points, 20, MOST_POINTS, base.points),
    noise: number(told.noise, 0, 1, base.noise),
    share: number(told.share, 0.1, 1, base.share),
    seed: whole(told.seed, 0, 999_999, base.seed),
    own: own.slice(0, own.length - (own.length % 3)),
  };
}

function trainOf(told: Told): TrainConfig {
  const base = DEFAULT_CONFIG.train;
  return {
    method: one(told.method, ["sgd", "momentum", "adam"] as const, base.method),
    rate: number(told.rate, 1e-6, 10, base.rate),
    batch: whole(told.batch, 0, MOST_POINTS, base.batch),
  };
}

export function configOf(value: unknown): Config {
  const told = asObject(value);
  const nets = asList(told.nets).slice(0, 2).map((net) => netOf(asObject(net)));
  return {
    seed: whole(told.seed, 0, 999_999, DEFAULT_CONFIG.seed),
    data: dataOf(asObject(told.data)),
    nets: nets.length ? nets : [netOf({})],
    train: trainOf(asObject(told.train)),
  };
}

function eventOf(value: unknown, nets: number): Event | null {
  const told = asObject(value);
  const at = { step: whole(told.step, 0, MOST_STEPS, 0), net: whole(told.net, -1, nets - 1, 0) };
  if (told.type === "freeze") return { ...at, type: "freeze", gates: told.gates === true, values: told.values === true };
  if (told.type === "redraw") return { ...at, type: "redraw", part: one(told.part, ["gates", "values"] as const, "values") };
  if (told.type === "train") return { ...at, type: "train", train: trainOf(asObject(told.train)) };
  return null;
}

function viewOf(value: unknown): View {
  const told = asObject(value);
  const pins = asList(told.pins).slice(0, 2).map((pin) => asList(pin).map((c) => number(c, -EXTENT, EXTENT, 0)));
  return {
    colour: one(told.colour, COLOURS, DEFAULT_VIEW.colour),
    unit: typeof told.unit === "number" ? whole(told.unit, 0, MOST_LAYERS * MOST_UNITS - 1, 0) : null,
    kernel: one(told.kernel, KERNELS, DEFAULT_VIEW.kernel),
    order: one(told.order, ORDERS, DEFAULT_VIEW.order),
    pins: pins.filter((pin) => pin.length === 2) as [number, number][],
  };
}

export function sharedOf(value: unknown): Shared {
  const told = asObject(value);
  const config = configOf(told.config);
  const events = asList(told.events).slice(0, 200).map((event) => eventOf(event, config.nets.length)).filter((event) => event !== null);
  events.sort((a, b) => a.step - b.step);
  return { config, events, step: whole(told.step, 0, MOST_STEPS, 0), view: viewOf(told.view) };
}

/** Base64 of UTF-8 text, in letters that an address may hold. */
export function encode(shared: Shared): string {
  const bytes = new TextEncoder().encode(JSON.stringify(shared));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The state of an address; null if it holds none, or none that can be read. */
export function decode(hash: string): Shared | null {
  const text = hash.replace(/^#/, "");
  if (!text) return null;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    return sharedOf(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return null;
  }
}
