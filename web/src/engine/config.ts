/** What a user can choose. Together with the events it determines every number that the playground shows. */
import type { DataConfig } from "./data.ts";
import type { Method } from "./optimiser.ts";

export const PRESETS = ["relu", "dgn-random", "dgn-learnt", "dgn-soft", "dlgn", "dlgn-pwc", "dln"] as const;
/** Networks by name; "dgn-random" and "dgn-learnt" have hard gates that stay as they are. */
export type Preset = (typeof PRESETS)[number];

export const MOST_LAYERS = 6;
export const MOST_UNITS = 32;

export interface NetConfig {
  preset: Preset;
  hidden: number[];
  bias: boolean;
  beta: number;
  /** For "dgn-learnt": the step of the ReLU network at which its gates are taken. */
  learntAt: number;
}

export interface TrainConfig {
  method: Method;
  rate: number;
  /** Examples in a step; 0 for all. */
  batch: number;
}

export interface Config {
  seed: number;
  data: DataConfig;
  /** One network, or two side by side. */
  nets: NetConfig[];
  train: TrainConfig;
}

/** Something that a user did while the networks trained; `net` is −1 for all. */
export type Event = { step: number; net: number } & (
  | { type: "freeze"; gates: boolean; values: boolean }
  | { type: "redraw"; part: "gates" | "values" }
  | { type: "train"; train: TrainConfig }
);

export const DEFAULT_NET: NetConfig = { preset: "relu", hidden: [8, 8], bias: true, beta: 8, learntAt: 1000 };

export const DEFAULT_CONFIG: Config = {
  seed: 1,
  data: { name: "spirals", points: 200, noise: 0.02, share: 0.75, seed: 1, own: [] },
  nets: [DEFAULT_NET],
  train: { method: "adam", rate: 0.01, batch: 32 },
};
