/** Which region each pixel lies in: exact polygons, filled row by row. */
import type { Partition } from "../engine/partition.ts";

/** The part of a partition that a picture needs. */
export type Polygons = Pick<Partition, "bounds" | "corners" | "starts" | "regions">;

/** Regions of a square of pixels, first row at the top; −1 where no pixel centre lies in a polygon. */
export function regionMap({ corners, starts, regions, bounds }: Polygons, size: number): Int32Array {
  const map = new Int32Array(size * size).fill(-1);
  const [left, right, low, high] = bounds;
  const [scaleX, scaleY] = [size / (right - left), size / (high - low)];
  const [from, to] = [new Float64Array(size), new Float64Array(size)];
  for (let region = 0; region < regions; region++) {
    const [first, last] = [starts[region], starts[region + 1]];
    let [top, bottom] = [size, -1];
    for (let i = first, j = last - 1; i < last; j = i++) {
      const [ax, ay] = [(corners[2 * j] - left) * scaleX, (high - corners[2 * j + 1]) * scaleY];
      const [bx, by] = [(corners[2 * i] - left) * scaleX, (high - corners[2 * i + 1]) * scaleY];
      const start = Math.max(0, Math.ceil(Math.min(ay, by) - 0.5));
      const end = Math.min(size - 1, Math.ceil(Math.max(ay, by) - 0.5) - 1);
      const slope = (bx - ax) / (by - ay);
      const [knownTop, knownBottom] = [top, bottom]; // edges follow each other, so that known rows have no gap
      for (let row = start; row <= end; row++) {
        const x = ax + slope * (row + 0.5 - ay);
        if (row < knownTop || row > knownBottom) from[row] = to[row] = x;
        else if (x < from[row]) from[row] = x;
        else if (x > to[row]) to[row] = x;
      }
      if (start <= end) [top, bottom] = [Math.min(top, start), Math.max(bottom, end)];
    }
    for (let row = top; row <= bottom; row++) {
      const end = Math.min(size, Math.ceil(to[row] - 0.5));
      const begin = Math.max(0, Math.ceil(from[row] - 0.5));
      map.fill(region, row * size + begin, row * size + Math.max(begin, end));
    }
  }
  return map;
}

/** The region that holds a point, or −1. */
export function regionAt({ corners, starts, regions }: Partition, s: number, t: number): number {
  for (let region = 0; region < regions; region++) {
    const [first, last] = [starts[region], starts[region + 1]];
    let inside = true;
    for (let i = first, j = last - 1; i < last && inside; j = i++) {
      const across =
        (corners[2 * i] - corners[2 * j]) * (t - corners[2 * j + 1]) -
        (corners[2 * i + 1] - corners[2 * j + 1]) * (s - corners[2 * j]);
      inside = across >= -1e-12;
    }
    if (inside) return region;
  }
  return -1;
}
