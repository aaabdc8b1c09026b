/** Messages between the page and its worker. */
import type { Config, Event } from "../engine/config.ts";
import type { Scores, Record as Moment } from "../engine/measure.ts";
import type { Shape } from "../engine/network.ts";
import type { Partition } from "../engine/partition.ts";
import type { Frozen } from "../engine/session.ts";

export const KERNELS = ["overlap", "path", "tangent", "value", "feature"] as const;
export type KernelName = (typeof KERNELS)[number];

export interface KernelFacts {
  name: KernelName;
  n: number;
  matrix: Float64Array;
  /** Coordinates and labels of the examples, in the order of the rows. */
  x: Float64Array;
  y: Float64Array;
  /** Of the kernel scaled to trace one, largest first; empty for a kernel of zeros. */
  spectrum: Float64Array;
  /** (uᵀy)² / |y|² for the same eigenvectors. */
  energy: Float64Array;
  alignment: number;
  nu: number;
}

/** What a soft network really computes, on a grid of size × size points, row by row from the lower left. */
export interface Field {
  size: number;
  values: Float32Array;
}

export interface NetFrame {
  shape: Shape;
  parameters: Float64Array;
  frozen: Frozen;
  /** A ReLU network that was split into gates and values by freezing. */
  wasSplit: boolean;
  partition: Partition;
  field: Field | null;
  train: Scores;
  test: Scores | null;
  /** Null if this frame brings no new one. */
  kernel: KernelFacts | null;
}

export interface Frame {
  type: "frame";
  /** Number of the start that this frame belongs to. */
  start: number;
  step: number;
  reached: number;
  playing: boolean;
  diverged: boolean;
  nets: NetFrame[];
  records: Moment[][];
  events: Event[];
  data: { x: Float64Array; y: Float64Array; testX: Float64Array; testY: Float64Array; isRegression: boolean };
}

export type Request =
  | { type: "start"; start: number; config: Config; events: Event[]; step: number; playing: boolean }
  | { type: "play"; on: boolean; until?: number }
  | { type: "advance"; steps: number }
  | { type: "speed"; perSecond: number }
  | { type: "seek"; step: number }
  | { type: "act"; event: Event }
  | { type: "kernel"; name: KernelName | null }
  | { type: "drawn" };
