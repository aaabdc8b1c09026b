/** What the timeline shows: loss, score, regions, gate flips, ν. */
import { labelAlignment, labelComplexity, pathKernel, scaledEigen } from "./kernels.ts";
import type { Network } from "./network.ts";
import type { Data } from "./data.ts";
import { Pass } from "./pass.ts";

export interface Scores {
  /** ½ mean (ŷ − y)². */
  loss: number;
  /** Share of right signs, or R² for real targets. */
  score: number;
}

export interface Record {
  step: number;
  train: Scores;
  /** Null without test points. */
  test: Scores | null;
  regions: number;
  /** Gates of training points that changed since the record before, per step, as a share of all. */
  flips: number;
  nu: number;
  alignment: number;
}

/** λ in ν, relative to the trace of H. */
export const RIDGE = 1e-3;
export const PROBES = 64;

/** Indices of at most `most` examples, evenly spread. */
export function probes(n: number, most: number): number[] {
  const count = Math.min(n, most);
  return Array.from({ length: count }, (_, i) => Math.floor((i * n) / count));
}

export function scores(net: Network, x: Float64Array, y: Float64Array, isRegression: boolean): Scores {
  const n = y.length;
  const output = new Pass(net, n).forward(x, n);
  let [squares, right, mean] = [0, 0, 0];
  for (let s = 0; s < n; s++) {
    squares += (output[s] - y[s]) ** 2;
    right += output[s] > 0 === y[s] > 0 ? 1 : 0;
    mean += y[s] / n;
  }
  const spread = y.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { loss: squares / (2 * n), score: isRegression ? 1 - squares / spread : right / n };
}

/** Gate bits of all training points, layer by layer. */
export function gateBits(net: Network, data: Data): Uint8Array[] {
  const pass = new Pass(net, data.y.length);
  pass.forward(data.x, data.y.length);
  return pass.decides.map((q) => Uint8Array.from(q, (value) => (value > 0 ? 1 : 0)));
}

export function flipped(before: Uint8Array[], now: Uint8Array[]): number {
  let [changed, all] = [0, 0];
  before.forEach((bits, l) => {
    all += bits.length;
    for (let i = 0; i < bits.length; i++) if (bits[i] !== now[l][i]) changed++;
  });
  return all ? changed / all : 0;
}

/** Inputs and labels of some examples. */
export function chosen(data: Data, ids: number[]): { x: Float64Array; y: Float64Array } {
  return {
    x: Float64Array.from(ids.flatMap((i) => [data.x[2 * i], data.x[2 * i + 1]])),
    y: Float64Array.from(ids, (i) => data.y[i]),
  };
}

/** ν with ridge and the alignment of the path kernel on a few training points. */
export function kernelScores(net: Network, data: Data): { nu: number; alignment: number } {
  const { x, y } = chosen(data, probes(data.y.length, PROBES));
  const pass = new Pass(net, y.length);
  pass.forward(x, y.length);
  const kernel = pathKernel(pass);
  const scaled = scaledEigen(kernel, y.length);
  return { nu: scaled ? labelComplexity(scaled, y, RIDGE) : NaN, alignment: labelAlignment(kernel, y) };
}
