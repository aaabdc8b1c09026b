/** What a tour is made of, and words for live numbers. */
import { DEFAULT_CONFIG, DEFAULT_NET, type Config, type Event, type NetConfig } from "../../engine/config.ts";
import type { DataConfig } from "../../engine/data.ts";
import { short } from "../../shared/dom.ts";
import type { Frame } from "../../worker/protocol.ts";
import type { App } from "../app.ts";
import type { View } from "../state.ts";

export interface TourStep {
  title: string;
  text: string[];
  /** What the papers say about it. */
  paper?: string;
  config: Config;
  events?: Event[];
  /** The step at which the networks stand when the reader comes. */
  from?: number;
  /** Train up to this step, before the reader's eyes. */
  until?: number;
  view?: Partial<View>;
  /** What to point at. */
  spot?: string;
  /** One sentence from the live numbers. */
  now: (app: App, frame: Frame) => string;
}

export interface Tour {
  title: string;
  steps: TourStep[];
}

/** A configuration: the default's, but for what is given. */
export function setUp(nets: Partial<NetConfig>[], data: Partial<DataConfig> = {}, seed = 1): Config {
  return { ...DEFAULT_CONFIG, seed, data: { ...DEFAULT_CONFIG.data, ...data }, nets: nets.map((net) => ({ ...DEFAULT_NET, ...net })) };
}

export const freeze = (net: number, gates: boolean, values: boolean, step = 0): Event => ({ step, net, type: "freeze", gates, values });

export function score(frame: Frame, index: number): string {
  const { loss, score: value } = frame.nets[index].train;
  return frame.data.isRegression ? `loss ${short(loss, 2)} (R² ${short(value, 2)})` : `loss ${short(loss, 2)}, ${Math.round(100 * value)} % right`;
}

/** "A: …; B: …" for two networks. */
export const versus = (a: string, b: string) => (_: App, frame: Frame) => `Step ${frame.step}. ${a}: ${score(frame, 0)}. ${b}: ${score(frame, 1)}.`;

export const alone = (_: App, frame: Frame): string => `Step ${frame.step}: ${score(frame, 0)}, ${frame.nets[0].partition.regions} regions.`;
