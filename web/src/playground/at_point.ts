/** What a network does at one point of the plane. */
import { hiddenWidths, type Network } from "../engine/network.ts";
import type { Partition } from "../engine/partition.ts";
import { Pass } from "../engine/pass.ts";
import { openPaths, topPaths, type Path } from "../engine/paths.ts";
import { regionAt } from "../shared/raster.ts";

export interface AtPoint {
  s: number;
  t: number;
  region: number;
  /** Gate bits, all hidden layers in order. */
  bits: Uint8Array;
  /** What the network computes; with soft gates it differs from the region's linear function. */
  output: number;
  /** Constant and slopes of the region's linear function; null if there is no region. */
  map: [number, number, number] | null;
  open: number;
  paths: Path[];
  /** Number of paths with a contribution, those from biases included. */
  count: number;
}

export const SHOWN_PATHS = 5;

export function atPoint(net: Network, part: Partition, s: number, t: number): AtPoint {
  const pass = new Pass(net, 1);
  const output = pass.forward(Float64Array.from([s, t]), 1)[0];
  const bits = Uint8Array.from(
    pass.decides.flatMap((q) => Array.from(q)),
    (q) => (net.kind === "dln" || q > 0 ? 1 : 0),
  );
  const region = regionAt(part, s, t);
  const { paths, count } = topPaths(pass, 0, SHOWN_PATHS);
  const map = region < 0 || part.stopped ? null : (Array.from(part.maps.subarray(3 * region, 3 * region + 3)) as [number, number, number]);
  return { s, t, region, bits, output, map, open: openPaths(hiddenWidths(net), bits), paths, count };
}

/** Gates on a path, as numbers of units over all hidden layers. */
export function gatesOf(path: Path, widths: number[]): number[] {
  const skip = path.start === 0 ? 1 : 0;
  const first = path.start === 0 ? 0 : path.start - 1;
  return path.units.slice(skip).map((unit, k) => widths.slice(0, first + k).reduce((a, b) => a + b, 0) + unit);
}

/** Layer (from 0) and unit (from 0) of a unit that is counted over all hidden layers. */
export function placeOfUnit(unit: number, widths: number[]): [number, number] {
  let [layer, rest] = [0, unit];
  while (layer < widths.length - 1 && rest >= widths[layer]) rest -= widths[layer++];
  return [layer, rest];
}

export function unitName(unit: number, widths: number[]): string {
  const [layer, place] = placeOfUnit(unit, widths);
  return `layer ${layer + 1}, unit ${place + 1}`;
}

export function pathName(path: Path): string {
  const inputs = path.start === 0 ? [`x${"₁₂"[path.units[0]]}`] : ["bias"];
  const units = path.start === 0 ? path.units.slice(1) : path.units;
  return [...inputs, ...units.map((unit) => String(unit + 1)), "ŷ"].join(" → ");
}
