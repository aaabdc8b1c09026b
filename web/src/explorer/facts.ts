/** What gatelab computed, as lab/explore/facts.py defines it; arrays arrive as base64. */

export interface Numbers<T> {
  shape: number[];
  data: T;
}

export interface Omission {
  part: string;
  reason: string;
}

export interface Examples {
  part: string;
  numbers: number[];
  labels: number[];
  targets: string[];
  decisions: number[];
  outputs: Numbers<Float64Array>;
  pixels: Numbers<Uint8Array> | null;
  values: Numbers<Float32Array> | null;
  range: [number, number];
  looked_at: number;
  mistakes: number | null;
}

export interface Gates {
  name: string;
  kind: string;
  shape: number[];
  bits: Numbers<Uint8Array>;
  soft: [number, number] | null;
  slope: string;
}

export interface Kernel {
  symbol: string;
  name: string;
  meaning: string;
  values: Numbers<Float32Array>;
}

export type Box = [number, number, number, number];

export interface Place {
  layer: string;
  index: number[];
  shape: number[];
  box: Box | null;
}

export interface Path {
  contribution: number;
  from_bias: boolean;
  places: Place[];
  gates: [number, number][];
  kept: number;
  reacting: number;
  decision: number | null;
}

export interface Paths {
  example: number;
  output: number;
  value: number;
  count: string;
  paths: Path[];
  by_input: Numbers<Float32Array>;
  biases: number;
}

export interface Plane {
  examples: [number, number, number];
  points: Numbers<Float64Array>;
  bounds: [number, number, number, number];
  share: number;
  between: [number, number] | null;
  corners: Numbers<Float32Array>;
  starts: Numbers<Int32Array>;
  outputs: number[];
  maps: Numbers<Float32Array>;
  open_gates: Numbers<Int32Array>;
  boundary: Numbers<Float32Array>;
}

export interface Normals {
  layer: number;
  units: number[];
  normals: Numbers<Float32Array>;
  offsets: Numbers<Float64Array>;
  of: number;
  is_filter: boolean;
}

export interface Plot {
  x_label: string;
  y_label: string;
  title: string;
  curves: { label: string; x: number[]; y: number[] }[];
}

export interface Facts {
  network: string;
  data: string;
  classes: string[];
  remarks: string[];
  parameters: number;
  rows: string[][];
  abilities: Record<string, string>;
  shape: number[];
  examples: Examples;
  gates: Gates[];
  is_chain: boolean;
  kernels: Kernel[];
  paths: Paths[];
  planes: Plane[];
  normals: Normals[];
  timeline: Plot[];
  omissions: Omission[];
  most: number;
}

const TYPES = { u1: Uint8Array, i1: Int8Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

/** Turn {type, shape, data} with base64 inside into {shape, data} with a typed array; all else stays. */
export function revive(_name: string, value: any): any {
  if (value === null || typeof value !== "object" || typeof value.data !== "string" || !(value.type in TYPES)) return value;
  const text = atob(value.data);
  const octets = Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i));
  return { shape: value.shape, data: new TYPES[value.type as keyof typeof TYPES](octets.buffer) };
}

/** The facts of a text, or null if the page was opened without any. */
export const decode = (text: string): Facts | null => JSON.parse(text, revive);
