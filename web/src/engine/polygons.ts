/**
 * Convex polygons in [−1, 1]², cut along lines c₀ + c₁ s + c₂ t = 0.
 *
 * Corners of all polygons lie in one array, one polygon after another, counter-clockwise. Each corner carries a label
 * for the edge that leads to the next corner.
 */

/** A line closer to a corner than this passes through it. */
const TOUCH = 1e-12;
/** Numbers smaller than this, relative to the largest coefficient of a polygon's lines, are rounding. */
export const NOISE = 1e-15;

/** A growing list of polygons. */
export class Polygons {
  corners = new Float64Array(256);
  labels = new Int32Array(128);
  starts = new Int32Array(33);
  count = 0;

  /** Number of corners so far. */
  get end(): number {
    return this.starts[this.count];
  }

  clear(): void {
    this.count = 0;
  }

  /** Make room for this many more corners and one more polygon. */
  private reserve(more: number): void {
    const needed = this.end + more;
    if (this.labels.length < needed) {
      const grown = Math.max(needed, 2 * this.labels.length);
      const corners = new Float64Array(2 * grown);
      corners.set(this.corners);
      this.corners = corners;
      const labels = new Int32Array(grown);
      labels.set(this.labels);
      this.labels = labels;
    }
    if (this.starts.length < this.count + 2) {
      const starts = new Int32Array(2 * this.starts.length);
      starts.set(this.starts);
      this.starts = starts;
    }
  }

  /** Append a copy of polygon k of another list. */
  append(other: Polygons, k: number): void {
    const [first, last] = [other.starts[k], other.starts[k + 1]];
    this.reserve(last - first);
    this.corners.set(other.corners.subarray(2 * first, 2 * last), 2 * this.end);
    this.labels.set(other.labels.subarray(first, last), this.end);
    this.starts[this.count + 1] = this.end + last - first;
    this.count++;
  }

  /** Append the part of a polygon where sign · height ≥ 0; edges along the cut get sign · label. */
  appendPart(other: Polygons, k: number, heights: Float64Array, sign: number, label: number): void {
    const first = other.starts[k];
    const count = other.starts[k + 1] - first;
    this.reserve(count + 2);
    let at = this.end;
    for (let i = 0; i < count; i++) {
      const after = i + 1 < count ? i + 1 : 0;
      const [here, there] = [sign * heights[i], sign * heights[after]];
      if (here >= 0) {
        this.corners[2 * at] = other.corners[2 * (first + i)];
        this.corners[2 * at + 1] = other.corners[2 * (first + i) + 1];
        this.labels[at++] = here === 0 && there < 0 ? sign * label : other.labels[first + i];
      }
      if (here * there < 0) {
        // Both parts start from the same end, so that they share the new corner to the last bit.
        const [p, q] = heights[i] > 0 ? [i, after] : [after, i];
        const share = heights[p] / (heights[p] - heights[q]);
        for (let axis = 0; axis < 2; axis++) {
          const a = other.corners[2 * (first + p) + axis];
          const b = other.corners[2 * (first + q) + axis];
          this.corners[2 * at + axis] = a + share * (b - a);
        }
        this.labels[at++] = here > 0 ? sign * label : other.labels[first + i];
      }
    }
    this.starts[this.count + 1] = at;
    this.count++;
  }
}

/** Cuts one polygon after another along its own lines. */
export class Cutter {
  private heights = new Float64Array(64);
  private here = new Polygons();
  private there = new Polygons();

  /** Heights of a polygon's corners over a line, 0 if on it; true if the line cuts the polygon. */
  private cuts(polygons: Polygons, k: number, lines: Float64Array, at: number, touch: number): boolean {
    const [first, last] = [polygons.starts[k], polygons.starts[k + 1]];
    if (this.heights.length < last - first) this.heights = new Float64Array(2 * (last - first));
    let [below, above] = [false, false];
    for (let i = first; i < last; i++) {
      let height = lines[at] + lines[at + 1] * polygons.corners[2 * i] + lines[at + 2] * polygons.corners[2 * i + 1];
      if (height > touch) above = true;
      else if (height < -touch) below = true;
      else height = 0;
      this.heights[i - first] = height;
    }
    return below && above;
  }

  /** Append to `out` the parts of polygon k under `count` lines; edges along line u are labelled ±(label + u). */
  cut(polygons: Polygons, k: number, lines: Float64Array, count: number, label: number, out: Polygons): void {
    let largest = 0;
    for (let i = 0; i < 3 * count; i++) largest = Math.max(largest, Math.abs(lines[i]));
    let [here, there] = [this.here, this.there];
    here.clear();
    here.append(polygons, k);
    for (let u = 0; u < count; u++) {
      const at = 3 * u;
      const touch = TOUCH * (Math.abs(lines[at + 1]) + Math.abs(lines[at + 2])) + NOISE * largest;
      if (!this.cuts(polygons, k, lines, at, touch)) continue;
      there.clear();
      for (let part = 0; part < here.count; part++) {
        if (this.cuts(here, part, lines, at, touch)) {
          there.appendPart(here, part, this.heights, 1, label + u);
          there.appendPart(here, part, this.heights, -1, label + u);
        } else there.append(here, part);
      }
      [here, there] = [there, here];
    }
    for (let part = 0; part < here.count; part++) out.append(here, part);
  }
}
