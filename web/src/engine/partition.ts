/** The exact partition of a rectangle of the input plane into the regions where all gates are constant. */
import { hasLinearGates, hiddenWidths, isSplit, type Layer, type Network } from "./network.ts";
import { Cutter, NOISE, Polygons } from "./polygons.ts";

/** s low, s high, t low, t high. */
export type Bounds = [number, number, number, number];

export interface Partition {
  bounds: Bounds;
  regions: number;
  /** Corners (s, t) of all polygons, one polygon after another, counter-clockwise. */
  corners: Float64Array;
  starts: Int32Array;
  /** Label of the edge from each corner to the next: ±(1 + unit), + where the unit's gate is open; 0 on the border. */
  labels: Int32Array;
  /** One row of bits for each region, all hidden layers in order. */
  gates: Uint8Array;
  units: number;
  /** With hard gates the output is maps[3r] + maps[3r+1] · s + maps[3r+2] · t. */
  maps: Float64Array;
  /** True if `limit` stopped the cutting: units of later layers are then missing from the picture. */
  stopped: boolean;
}

/** Rows of one width in a growing array. */
class Rows<A extends Float64Array | Uint8Array> {
  readonly width: number;
  data: A;
  count = 0;
  private readonly make: (length: number) => A;

  constructor(width: number, make: (length: number) => A) {
    this.width = width;
    this.make = make;
    this.data = make(64 * width);
  }

  /** Where a new row begins. */
  add(): number {
    const at = this.count++ * this.width;
    if (at + this.width > this.data.length) {
      const grown = this.make(2 * this.data.length + this.width);
      grown.set(this.data as Float64Array & Uint8Array);
      this.data = grown;
    }
    return at;
  }
}

const numbers = (width: number) => new Rows(width, (length) => new Float64Array(length));

/**
 * Values of a layer's outputs as affine functions (1, s, t), three numbers each, from those of its inputs, which begin
 * at `at`. Inputs behind closed gates are zero and are skipped.
 */
function through(layer: Layer, inputs: Float64Array, at: number, out: Float64Array, open: Int32Array): void {
  const { outputs, weight, bias } = layer;
  let count = 0;
  for (let i = 0, from = at; i < layer.inputs; i++, from += 3)
    if (inputs[from] !== 0 || inputs[from + 1] !== 0 || inputs[from + 2] !== 0) open[count++] = i;
  for (let j = 0; j < outputs; j++) {
    let c = bias ? bias[j] : 0;
    let [s, t] = [0, 0];
    const row = j * layer.inputs;
    for (let k = 0; k < count; k++) {
      const w = weight[row + open[k]];
      const from = at + 3 * open[k];
      c += w * inputs[from];
      s += w * inputs[from + 1];
      t += w * inputs[from + 2];
    }
    out[3 * j] = c;
    out[3 * j + 1] = s;
    out[3 * j + 2] = t;
  }
}

class Cells {
  polygons = new Polygons();
  /** What feeds the next feature layer (or the next layer of a ReLU network), and the next value layer. */
  deciding: Float64Array;
  carrying: Float64Array;
  gates = new Rows(0, (length) => new Uint8Array(length));
  private readonly net: Network;
  private readonly open: Int32Array;
  private readonly cutter = new Cutter();

  constructor(net: Network, [left, right, low, high]: Bounds) {
    this.net = net;
    this.open = new Int32Array(Math.max(...net.widths));
    const square = new Polygons();
    square.corners.set([-1, -1, 1, -1, 1, 1, -1, 1]);
    square.starts.set([0, 4]);
    square.count = 1;
    this.polygons.append(square, 0);
    this.gates.add();
    const inputs = [(left + right) / 2, (right - left) / 2, 0, (low + high) / 2, 0, (high - low) / 2];
    this.deciding = Float64Array.from(inputs);
    this.carrying = net.kind === "dlgn-pwc" ? Float64Array.from([1, 0, 0, 1, 0, 0]) : this.deciding;
  }

  /** Cut every polygon where a gate of hidden layer l changes. */
  cut(l: number): void {
    const { net, polygons: old, gates: oldGates, open } = this;
    const [before, width] = [net.widths[l], net.widths[l + 1]];
    const own = isSplit(net.kind);
    const shared = hasLinearGates(net.kind); // half-spaces: the same lines in every region
    const lines = new Float64Array(3 * width);
    const values = own ? new Float64Array(3 * width) : lines;
    const cut = new Polygons();
    const gates = new Rows(oldGates.width + width, (length) => new Uint8Array(length));
    const [deciding, carrying] = [numbers(3 * width), numbers(3 * width)];
    if (shared) through(net.feature[l], this.deciding, 0, lines, open);
    for (let region = 0; region < old.count; region++) {
      const at = region * 3 * before;
      if (!shared) through((own ? net.feature : net.value)[l], this.deciding, at, lines, open);
      if (own) through(net.value[l], this.carrying, at, values, open);
      const first = cut.count;
      this.cutter.cut(old, region, lines, width, oldGates.width + 1, cut);
      const known = oldGates.data.subarray(region * oldGates.width, (region + 1) * oldGates.width);
      for (let part = first; part < cut.count; part++) {
        const row = gates.add();
        gates.data.set(known, row);
        signs(cut, part, lines, width, gates.data, row + known.length);
        if (own && !shared) pass(lines, width, gates.data, row + known.length, deciding);
        pass(values, width, gates.data, row + known.length, carrying);
      }
    }
    this.polygons = cut;
    this.gates = gates;
    this.carrying = carrying.data;
    this.deciding = shared ? lines : own ? deciding.data : carrying.data;
  }
}

/** Store whether each gate is open at the mean of a part's corners; zero but for rounding counts as closed. */
function signs(parts: Polygons, part: number, lines: Float64Array, width: number, bits: Uint8Array, at: number): void {
  let [s, t, largest] = [0, 0, 0];
  const [first, last] = [parts.starts[part], parts.starts[part + 1]];
  for (let i = first; i < last; i++) {
    s += parts.corners[2 * i];
    t += parts.corners[2 * i + 1];
  }
  s /= last - first;
  t /= last - first;
  for (let i = 0; i < 3 * width; i++) largest = Math.max(largest, Math.abs(lines[i]));
  for (let j = 0; j < width; j++)
    bits[at + j] = lines[3 * j] + lines[3 * j + 1] * s + lines[3 * j + 2] * t > NOISE * largest ? 1 : 0;
}

/** Add a row: what passes the open gates. */
function pass(values: Float64Array, width: number, bits: Uint8Array, at: number, into: Rows<Float64Array>): void {
  const row = into.add();
  for (let j = 0; j < width; j++)
    if (bits[at + j]) {
      into.data[row + 3 * j] = values[3 * j];
      into.data[row + 3 * j + 1] = values[3 * j + 1];
      into.data[row + 3 * j + 2] = values[3 * j + 2];
    }
}

/** Cut a rectangle of a network's two inputs; nothing is sampled. Stops after the layer that exceeds the limit. */
export function partition(net: Network, bounds: Bounds, limit = 20000): Partition {
  const cells = new Cells(net, bounds);
  const layers = net.kind === "dln" ? 0 : hiddenWidths(net).length;
  let stopped = false;
  for (let l = 0; l < layers && !stopped; l++) {
    cells.cut(l);
    stopped = cells.polygons.count > limit && l + 1 < layers;
  }
  const { polygons, gates } = cells;
  return {
    bounds,
    regions: polygons.count,
    corners: placed(polygons, bounds),
    starts: polygons.starts.slice(0, polygons.count + 1),
    labels: polygons.labels.slice(0, polygons.end),
    gates: gates.data.slice(0, polygons.count * gates.width),
    units: gates.width,
    maps: outputMaps(net, cells, bounds, stopped),
    stopped,
  };
}

/** Corners in the plane's own coordinates. */
function placed(polygons: Polygons, [left, right, low, high]: Bounds): Float64Array {
  const out = polygons.corners.slice(0, 2 * polygons.end);
  for (let i = 0; i < out.length; i += 2) {
    out[i] = (left + right) / 2 + (out[i] * (right - left)) / 2;
    out[i + 1] = (low + high) / 2 + (out[i + 1] * (high - low)) / 2;
  }
  return out;
}

function outputMaps(net: Network, cells: Cells, [left, right, low, high]: Bounds, stopped: boolean): Float64Array {
  const regions = cells.polygons.count;
  const out = new Float64Array(3 * regions);
  if (stopped) return out;
  const open = new Int32Array(Math.max(...net.widths));
  let feed = cells.carrying;
  if (net.kind === "dln")
    for (const layer of net.value.slice(0, -1)) {
      const next = new Float64Array(3 * layer.outputs);
      through(layer, feed, 0, next, open);
      feed = next;
    }
  const last = net.value[net.value.length - 1];
  const scaled = new Float64Array(3 * last.outputs);
  const [halfS, halfT] = [(right - left) / 2, (high - low) / 2];
  for (let r = 0; r < regions; r++) {
    through(last, feed, r * 3 * last.inputs, scaled, open);
    const [s, t] = [scaled[1] / halfS, scaled[2] / halfT];
    out[3 * r] = scaled[0] - (s * (left + right)) / 2 - (t * (low + high)) / 2;
    out[3 * r + 1] = s;
    out[3 * r + 2] = t;
  }
  return out;
}

/** The area of every region. */
export function areas({ corners, starts, regions }: Partition): Float64Array {
  const out = new Float64Array(regions);
  for (let r = 0; r < regions; r++) {
    const [first, last] = [starts[r], starts[r + 1]];
    let twice = 0;
    for (let i = first + 1; i + 1 < last; i++) {
      // Relative to a corner of the same polygon, so that small polygons lose no digits.
      const [ax, ay] = [corners[2 * i] - corners[2 * first], corners[2 * i + 1] - corners[2 * first + 1]];
      const [bx, by] = [corners[2 * i + 2] - corners[2 * first], corners[2 * i + 3] - corners[2 * first + 1]];
      twice += ax * by - ay * bx;
    }
    out[r] = twice / 2;
  }
  return out;
}
