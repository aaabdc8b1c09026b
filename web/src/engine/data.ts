/** Points of the plane with targets: two classes (±1), or real numbers. */
import { Random } from "./random.ts";

export const DATA_NAMES = ["circle", "spirals", "xor", "blobs", "stripes", "own"] as const;
export type DataName = (typeof DATA_NAMES)[number];

export interface DataConfig {
  name: DataName;
  /** Training and test points together; "own" data have their own number. */
  points: number;
  /** Standard deviation of what is added to coordinates (to targets, for the circle). */
  noise: number;
  /** Share of the points that are for training. */
  share: number;
  seed: number;
  /** x, y, target of each of one's own points. */
  own: number[];
}

export interface Data {
  x: Float64Array;
  y: Float64Array;
  testX: Float64Array;
  testY: Float64Array;
  isRegression: boolean;
}

/** The plane that is shown. */
export const EXTENT = 1.5;

/** halfspace, Section 4: y = sin(kθ), slow (k = 1) on the upper half and fast (k = 8) on the lower. */
export function circleTarget(angle: number): number {
  return Math.sin((Math.sin(angle) >= 0 ? 1 : 8) * angle);
}

type Sample = [number, number, number];

function draw(name: DataName, i: number, n: number, random: Random): Sample {
  const label = i % 2 ? 1 : -1;
  if (name === "circle") {
    const angle = ((i + 0.5) * 2 * Math.PI) / n;
    return [Math.cos(angle), Math.sin(angle), circleTarget(angle)];
  }
  if (name === "spirals") {
    const along = (Math.floor(i / 2) + 0.5) / Math.ceil(n / 2);
    const [angle, radius] = [along * 1.5 * 2 * Math.PI + (label > 0 ? Math.PI : 0), 0.12 + 1.08 * along];
    return [radius * Math.cos(angle), radius * Math.sin(angle), label];
  }
  if (name === "blobs") {
    const centre = label * 0.55;
    return [centre + 0.28 * random.normal(), centre + 0.28 * random.normal(), label];
  }
  for (;;) {
    const [a, b] = [random.between(-1.2, 1.2), random.between(-1.2, 1.2)];
    if (name === "xor" && Math.min(Math.abs(a), Math.abs(b)) > 0.07) return [a, b, a * b > 0 ? 1 : -1];
    const phase = (a + b) * 1.25; // stripes across the diagonal, with a gap between them
    const within = phase - Math.floor(phase);
    if (name === "stripes" && within > 0.08 && within < 0.92) return [a, b, Math.floor(phase) % 2 ? 1 : -1];
  }
}

function ownSamples(own: number[]): Sample[] {
  return Array.from({ length: Math.floor(own.length / 3) }, (_, i) => [own[3 * i], own[3 * i + 1], own[3 * i + 2]]);
}

/** The points of a configuration; the same one gives the same points. */
export function makeData(config: DataConfig): Data {
  const random = new Random(config.seed, 11);
  const samples =
    config.name === "own"
      ? ownSamples(config.own)
      : Array.from({ length: config.points }, (_, i) => {
          const [a, b, y] = draw(config.name, i, config.points, random);
          const shift = () => config.noise * random.normal();
          return (config.name === "circle" ? [a, b, y + shift()] : [a + shift(), b + shift(), y]) as Sample;
        });
  const order = random.shuffle(Uint32Array.from(samples.keys()));
  const train = Math.max(Math.min(1, samples.length), Math.round(config.share * samples.length));
  const pick = (ids: Uint32Array) => Array.from(ids.slice().sort(), (i) => samples[i]);
  const [kept, held] = [pick(order.subarray(0, train)), pick(order.subarray(train))];
  const inputs = (part: Sample[]) => Float64Array.from(part.flatMap(([a, b]) => [a, b]));
  const targets = (part: Sample[]) => Float64Array.from(part, ([, , y]) => y);
  return {
    x: inputs(kept),
    y: targets(kept),
    testX: inputs(held),
    testY: targets(held),
    isRegression: samples.some(([, , y]) => Math.abs(y) !== 1),
  };
}

export const MOST_POINTS = 1000;

export interface Parsed {
  own: number[];
  /** What was done to the numbers, in words; empty if nothing. */
  note: string;
}

/** Read lines of "x, y, target"; throws an error that names the line. Two target values become ±1. */
export function parseTable(text: string): Parsed {
  const rows: number[][] = [];
  text.split(/\r?\n/).forEach((line, i) => {
    if (!line.trim()) return;
    const cells = line.trim().split(/[\s,;]+/);
    const numbers = cells.map(Number);
    if (numbers.some(Number.isNaN)) {
      if (rows.length === 0 && i === 0) return; // a header
      throw new Error(`line ${i + 1}: “${line.trim().slice(0, 40)}” is not three numbers; write x, y, target`);
    }
    if (cells.length !== 3 || !numbers.every(Number.isFinite))
      throw new Error(`line ${i + 1} has ${cells.length} numbers; write three: x, y, target`);
    rows.push(numbers);
  });
  if (rows.length < 2) throw new Error(`${rows.length} points; give at least two lines of x, y, target`);
  if (rows.length > MOST_POINTS) throw new Error(`${rows.length} points; at most ${MOST_POINTS} fit`);
  const notes: string[] = [];
  rescale(rows, notes);
  relabel(rows, notes);
  return { own: rows.flat().map((value) => Math.round(value * 1e4) / 1e4), note: notes.join("; ") };
}

function rescale(rows: number[][], notes: string[]): void {
  const reach = Math.max(...rows.map(([a, b]) => Math.max(Math.abs(a), Math.abs(b))));
  if (reach <= EXTENT) return;
  const centre = [0, 1].map((axis) => {
    const values = rows.map((row) => row[axis]);
    return (Math.min(...values) + Math.max(...values)) / 2;
  });
  const radius = Math.max(...rows.map(([a, b]) => Math.max(Math.abs(a - centre[0]), Math.abs(b - centre[1]))));
  for (const row of rows) for (const axis of [0, 1]) row[axis] = ((row[axis] - centre[axis]) / (radius || 1)) * 1.2;
  notes.push("coordinates were shifted and scaled to fit the plane");
}

function relabel(rows: number[][], notes: string[]): void {
  const values = [...new Set(rows.map(([, , y]) => y))].sort((a, b) => a - b);
  if (values.length === 2 && (values[0] !== -1 || values[1] !== 1)) {
    for (const row of rows) row[2] = row[2] === values[1] ? 1 : -1;
    notes.push(`targets ${values[0]} and ${values[1]} became −1 and +1`);
  } else if (values.length > 2) {
    const largest = Math.max(...values.map(Math.abs));
    if (largest > 1) {
      for (const row of rows) row[2] /= largest;
      notes.push(`targets were divided by ${largest}`);
    }
  }
}
