/** Drawing a partition: fills, lines, the decision boundary. Shared by the plane, thumbnails and exports. */
import type { Partition } from "../engine/partition.ts";
import { openPaths } from "../engine/paths.ts";
import { divergingAt, pixel, sequentialAt, type Palette, type Rgb } from "../shared/colours.ts";
import type { Field } from "../worker/protocol.ts";
import type { Colour } from "./state.ts";

export interface Fill {
  colour: Colour;
  partition: Partition;
  field: Field | null;
  widths: number[];
  unit: number;
  /** Regions outside of this set are faded; null for none. */
  within: Uint8Array | null;
}

/** Outputs are shown between ±REACH. */
const REACH = 1.25;

/** A colour for a pattern of gates: equal patterns, equal colours. */
function patternColour(gates: Uint8Array, at: number, units: number, colours: Palette): number {
  let hash = 2166136261;
  for (let i = 0; i < units; i++) hash = Math.imul(hash ^ (gates[at + i] + 1), 16777619);
  const spread = (shift: number) => ((hash >>> shift) & 255) / 255;
  // Light and dark steps tell neighbours apart for every colour vision; the hue is only an addition.
  const light = colours.dark ? 0.16 + 0.34 * spread(3) : 0.62 + 0.34 * spread(3);
  const tint = 0.16 * (spread(13) - 0.5);
  return pixel([light - tint, light, light + tint].map((c) => Math.round(255 * Math.min(1, Math.max(0, c)))) as Rgb);
}

/** One colour for each region, for every mode but the output's. */
export function regionColours({ colour, partition, widths, unit }: Fill, colours: Palette): Uint32Array {
  const { regions, gates, units } = partition;
  const known = widths.filter((_, l) => widths.slice(0, l + 1).reduce((a, b) => a + b, 0) <= units);
  if (colour === "paths") {
    const counts = Float64Array.from({ length: regions }, (_, r) => Math.log1p(openPaths(known, gates, r * units)));
    const most = counts.reduce((a, b) => Math.max(a, b), 0) || 1;
    return Uint32Array.from(counts, (count) => sequentialAt(colours, count / most));
  }
  if (colour === "gate") {
    const [open, closed] = [pixel(colours.gateOpen), pixel(colours.gateClosed)];
    return Uint32Array.from({ length: regions }, (_, r) => (units && gates[r * units + unit] ? open : closed));
  }
  if (colour === "layer") return new Uint32Array(regions).fill(pixel(colours.gateClosed));
  return Uint32Array.from({ length: regions }, (_, r) => patternColour(gates, r * units, units, colours));
}

/** The output of a soft network between the points of its grid. */
function fieldAt({ size, values }: Field, s: number, t: number): number {
  const x = Math.min(size - 1.001, Math.max(0, s * size - 0.5));
  const y = Math.min(size - 1.001, Math.max(0, t * size - 0.5));
  const [i, j] = [Math.floor(x), Math.floor(y)];
  const [a, b] = [x - i, y - j];
  const at = j * size + i;
  return (1 - b) * ((1 - a) * values[at] + a * values[at + 1]) + b * ((1 - a) * values[at + size] + a * values[at + size + 1]);
}

/** Pixels of a square of the plane, from the region of each pixel. */
export function fillPixels(fill: Fill, map: Int32Array, size: number, colours: Palette): Uint32Array {
  const out = new Uint32Array(size * size);
  const { partition, field, within } = fill;
  const byRegion = fill.colour === "output" ? null : regionColours(fill, colours);
  const [left, right, low, high] = partition.bounds;
  const faded = pixel(colours.gateClosed);
  for (let row = 0, i = 0; row < size; row++) {
    const t = high - ((row + 0.5) / size) * (high - low);
    for (let column = 0; column < size; column++, i++) {
      const region = map[i];
      if (region < 0) out[i] = i ? out[i - 1] : faded;
      else if (within && !within[region]) out[i] = faded;
      else if (byRegion) out[i] = byRegion[region];
      else {
        const s = left + ((column + 0.5) / size) * (right - left);
        const { maps } = partition;
        const value = field
          ? fieldAt(field, (column + 0.5) / size, 1 - (row + 0.5) / size)
          : maps[3 * region] + maps[3 * region + 1] * s + maps[3 * region + 2] * t;
        out[i] = divergingAt(colours, value / REACH);
      }
    }
  }
  return out;
}

export type Segment = [number, number, number, number];

/** Edges of regions by hidden layer, each once; only those of one unit if it is given. */
export function edges({ corners, starts, labels, regions }: Partition, widths: number[], only: number | null): Segment[][] {
  const layers: Segment[][] = widths.map(() => []);
  const layerOf = widths.flatMap((width, l) => new Array<number>(width).fill(l));
  for (let region = 0; region < regions; region++)
    for (let i = starts[region]; i < starts[region + 1]; i++) {
      const unit = labels[i] - 1; // positive on the open side only, so that each edge is drawn once
      if (unit < 0 || (only !== null && unit !== only)) continue;
      const next = i + 1 < starts[region + 1] ? i + 1 : starts[region];
      layers[layerOf[unit]].push([corners[2 * i], corners[2 * i + 1], corners[2 * next], corners[2 * next + 1]]);
    }
  return layers;
}

/** Where the output is zero: one piece of a line in each region it crosses. */
export function decisionBoundary(part: Partition, field: Field | null): Segment[] {
  if (field) return zeroOfField(field, part);
  const out: Segment[] = [];
  if (part.stopped) return out;
  const { corners, starts, maps } = part;
  for (let region = 0; region < part.regions; region++) {
    const value = (i: number) => maps[3 * region] + maps[3 * region + 1] * corners[2 * i] + maps[3 * region + 2] * corners[2 * i + 1];
    const ends: number[] = [];
    for (let i = starts[region]; i < starts[region + 1]; i++) {
      const next = i + 1 < starts[region + 1] ? i + 1 : starts[region];
      const [a, b] = [value(i), value(next)];
      if (a > 0 === b > 0) continue;
      const share = a / (a - b);
      for (const axis of [0, 1]) ends.push(corners[2 * i + axis] + share * (corners[2 * next + axis] - corners[2 * i + axis]));
    }
    if (ends.length === 4) out.push(ends as Segment);
  }
  return out;
}

/** Marching along the triangles of the grid. */
function zeroOfField({ size, values }: Field, { bounds: [left, right, low, high] }: Partition): Segment[] {
  const out: Segment[] = [];
  const place = (i: number, j: number) => [left + ((i + 0.5) / size) * (right - left), low + ((j + 0.5) / size) * (high - low), values[j * size + i]];
  for (let j = 0; j + 1 < size; j++)
    for (let i = 0; i + 1 < size; i++)
      for (const triangle of [[place(i, j), place(i + 1, j), place(i, j + 1)], [place(i + 1, j + 1), place(i, j + 1), place(i + 1, j)]]) {
        const ends: number[] = [];
        triangle.forEach((a, k) => {
          const b = triangle[(k + 1) % 3];
          if (a[2] > 0 === b[2] > 0) return;
          const share = a[2] / (a[2] - b[2]);
          ends.push(a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]));
        });
        if (ends.length === 4) out.push(ends as Segment);
      }
  return out;
}
