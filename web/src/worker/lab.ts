/** One or two networks on the same data, in step with each other, and the record of their training. */
import type { Config, Event } from "../engine/config.ts";
import { EXTENT, makeData, type Data } from "../engine/data.ts";
import { chosen, flipped, gateBits, kernelScores, probes, RIDGE, scores, type Record as Moment } from "../engine/measure.ts";
import { labelAlignment, labelComplexity, labelEnergy, overlap, pathKernel, scaledEigen, tangentKernels } from "../engine/kernels.ts";
import type { Network } from "../engine/network.ts";
import { partition, type Bounds, type Partition } from "../engine/partition.ts";
import { Pass } from "../engine/pass.ts";
import { Session } from "../engine/session.ts";
import type { Field, Frame, KernelFacts, KernelName, NetFrame } from "./protocol.ts";

export const PLANE: Bounds = [-EXTENT, EXTENT, -EXTENT, EXTENT];
const MOST_RECORDS = 240;
const KERNEL_EXAMPLES = 96;
/** Multiplications that a frame may spend on the grid of a soft network. */
const FIELD_WORK = 6e6;

export class Lab {
  readonly config: Config;
  readonly data: Data;
  sessions: Session[];
  records: Moment[][];
  private every = 10;
  private bits: Uint8Array[][] = [];
  /** The partition of the latest recorded step, so that a frame need not cut again. */
  private cut: { step: number; parts: Partition[] } = { step: -1, parts: [] };

  constructor(config: Config, events: Event[] = []) {
    this.config = config;
    this.data = makeData(config.data);
    this.sessions = config.nets.map((_, i) => new Session(config, i, this.data, events));
    this.records = this.sessions.map(() => []);
    this.record();
  }

  get step(): number {
    return this.sessions[0].step;
  }

  get reached(): number {
    return this.sessions[0].reached;
  }

  get diverged(): boolean {
    return this.sessions.some((session) => session.diverged);
  }

  /** All events in order; those for all networks once. */
  get events(): Event[] {
    const all = this.sessions.flatMap((session, i) => session.events.filter((e) => i === 0 || e.net !== -1));
    return all.sort((a, b) => a.step - b.step);
  }

  /** Train one step. */
  once(): void {
    for (const session of this.sessions) session.advance(session.step + 1);
    if (this.diverged) return;
    const last = this.records[0].at(-1)?.step ?? -1;
    if (this.step > last && this.step % this.every === 0) this.record();
  }

  advance(to: number): void {
    while (this.step < to && !this.diverged) this.once();
  }

  seek(step: number): void {
    for (const session of this.sessions) session.seek(step);
  }

  act(event: Event): void {
    for (const session of this.sessions)
      if (event.net === -1 || event.net === session.index) session.act(event);
      else session.branch();
    this.records = this.records.map((list) => list.filter(({ step }) => step < this.step));
    this.bits = [];
    this.cut.step = -1;
    this.record();
  }

  private partitions(): Partition[] {
    if (this.cut.step !== this.step)
      this.cut = { step: this.step, parts: this.sessions.map(({ net }) => partition(net, PLANE)) };
    return this.cut.parts;
  }

  private record(): void {
    const { data } = this;
    this.cut.step = -1;
    const parts = this.partitions();
    this.sessions.forEach((session, i) => {
      const list = this.records[i];
      const bits = gateBits(session.net, data);
      const before = list.at(-1);
      const flips = before && this.bits[i] ? flipped(this.bits[i], bits) / Math.max(1, session.step - before.step) : 0;
      this.bits[i] = bits;
      list.push({ step: session.step, ...this.scored(session.net), regions: parts[i].regions, flips, ...kernelScores(session.net, data) });
    });
    if (this.records[0].length > MOST_RECORDS) {
      this.every *= 2;
      const marks = new Set(this.events.map((event) => event.step));
      this.records = this.records.map((list) => list.filter(({ step }) => step % this.every === 0 || marks.has(step)));
    }
  }

  private scored(net: Network) {
    const { x, y, testX, testY, isRegression } = this.data;
    const test = testY.length ? scores(net, testX, testY, isRegression) : null;
    return { train: scores(net, x, y, isRegression), test };
  }

  /** All that the page draws. */
  frame(start: number, playing: boolean, kernel: KernelName | null): Frame {
    const parts = this.partitions();
    const nets = this.sessions.map((session, i): NetFrame => {
      const { net } = session;
      const { kind, widths, gate, beta, featureBias, valueBias } = net;
      return {
        shape: { kind, widths, gate, beta, featureBias, valueBias },
        parameters: net.parameters.slice(),
        frozen: session.frozen,
        wasSplit: session.config.preset === "relu" && kind !== "relu",
        partition: parts[i],
        field: gate === "soft" ? field(net) : null,
        ...this.scored(net),
        kernel: kernel && kernelFacts(net, this.data, kernel),
      };
    });
    const { step, reached, diverged, records, events, data } = this;
    return { type: "frame", start, step, reached, playing, diverged, nets, records, events, data };
  }
}

function field(net: Network): Field {
  const size = Math.max(24, Math.min(128, Math.floor(Math.sqrt(FIELD_WORK / net.parameters.length))));
  const values = new Float32Array(size * size);
  const pass = new Pass(net, size);
  const row = new Float64Array(2 * size);
  const at = (i: number) => EXTENT * ((2 * i + 1) / size - 1);
  for (let t = 0; t < size; t++) {
    for (let s = 0; s < size; s++) {
      row[2 * s] = at(s);
      row[2 * s + 1] = at(t);
    }
    values.set(pass.forward(row, size), t * size);
  }
  return { size, values };
}

/** One kernel on training points, with its spectrum and what it says about the labels. */
export function kernelFacts(net: Network, data: Data, name: KernelName): KernelFacts {
  const { x, y } = chosen(data, probes(data.y.length, KERNEL_EXAMPLES));
  const n = y.length;
  const pass = new Pass(net, n);
  pass.forward(x, n);
  const matrix = matrixOf(pass, name);
  const scaled = scaledEigen(matrix, n);
  const length = y.reduce((sum, value) => sum + value * value, 0) || 1;
  const reversed = (values: Float64Array) => values.slice().reverse();
  return {
    name,
    n,
    matrix,
    x,
    y,
    spectrum: scaled ? reversed(scaled.values) : new Float64Array(0),
    energy: scaled ? reversed(labelEnergy(scaled, y)).map((value) => value / length) : new Float64Array(0),
    alignment: labelAlignment(matrix, y),
    nu: scaled ? labelComplexity(scaled, y, RIDGE) : NaN,
  };
}

function matrixOf(pass: Pass, name: KernelName): Float64Array {
  if (name === "overlap") return overlap(pass);
  if (name === "path") return pathKernel(pass);
  const tangent = tangentKernels(pass);
  return name === "tangent" ? tangent.all : name === "value" ? tangent.values : tangent.features;
}
