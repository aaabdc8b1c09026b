/** One network in training: a script of events makes every moment reproducible, so that any step can be visited. */
import type { Config, Event, NetConfig, TrainConfig } from "./config.ts";
import type { Data } from "./data.ts";
import { drawFeatures, drawValues, isSplit, network, split, type Network, type Shape } from "./network.ts";
import { Optimiser } from "./optimiser.ts";
import { Pass } from "./pass.ts";
import { Random } from "./random.ts";

export interface Frozen {
  gates: boolean;
  values: boolean;
}

/** All that is needed to go on from a moment. */
interface Snapshot {
  step: number;
  net: Network;
  frozen: Frozen;
  train: TrainConfig;
  first: Float64Array;
  second: Float64Array;
  optimiserSteps: number;
  seen: number;
  /** Events applied so far. */
  applied: number;
  /** Kept when snapshots are thinned. */
  pinned: boolean;
}

const Stream = { FEATURES: 1, VALUES: 2, FRESH: 3, ORDER: 1000, EVENTS: 5000 } as const;
const MOST_SNAPSHOTS = 240;

const copyOf = (net: Network): Network => network(net, net.parameters.slice());

export class Session {
  readonly config: NetConfig;
  readonly data: Data;
  readonly seed: number;
  readonly index: number;
  net: Network;
  frozen: Frozen;
  train: TrainConfig;
  step = 0;
  /** The latest step that was ever reached on this branch. */
  reached = 0;
  events: Event[];
  diverged = false;
  snapshotEvery = 10;
  private optimiser: Optimiser;
  private seen = 0;
  private applied = 0;
  private snapshots: Snapshot[] = [];
  private pass: Pass;
  private gradient: Float64Array;
  private batch = new Float64Array(0);
  private delta = new Float64Array(0);
  private order: { epoch: number; ids: Uint32Array } = { epoch: -1, ids: new Uint32Array(0) };

  constructor(config: Config, index: number, data: Data, events: Event[] = []) {
    this.config = config.nets[index];
    this.index = index;
    this.data = data;
    this.seed = config.seed;
    this.train = config.train;
    this.events = events.filter((event) => event.net === index || event.net === -1);
    const fixed = this.config.preset === "dgn-random" || this.config.preset === "dgn-learnt";
    this.frozen = { gates: fixed, values: false };
    this.net = this.build(config);
    this.optimiser = new Optimiser(this.train.method, this.net.parameters.length);
    this.pass = new Pass(this.net, data.y.length);
    this.gradient = new Float64Array(this.net.parameters.length);
    this.applyEvents();
    this.keep(true);
  }

  private build(config: Config): Network {
    const { preset, hidden, bias, beta } = this.config;
    const kind = preset.startsWith("dgn") ? "dgn" : (preset as Network["kind"]);
    const linear = kind === "dlgn" || kind === "dlgn-pwc";
    const hard = preset === "dgn-random" || preset === "dgn-learnt" || !isSplit(kind);
    const widths = [2, ...hidden, 1];
    const shape: Shape = { kind, widths, gate: hard ? "hard" : "soft", beta, featureBias: bias, valueBias: bias && !linear };
    const net = network(shape);
    drawFeatures(net, new Random(this.seed, Stream.FEATURES));
    drawValues(net, new Random(this.seed, preset === "dgn-learnt" ? Stream.FRESH : Stream.VALUES));
    if (preset === "dgn-learnt") {
      const nets = [...config.nets];
      nets[this.index] = { ...this.config, preset: "relu" };
      const teacher = new Session({ ...config, nets }, this.index, this.data);
      teacher.advance(this.config.learntAt);
      net.parameters.set(teacher.net.parameters.subarray(0, net.featureCount));
    }
    return net;
  }

  /** Train up to a step; stops early if the loss is no longer finite. */
  advance(to: number): void {
    while (this.step < to && !this.diverged) this.once();
    this.applyEvents();
  }

  private once(): void {
    this.applyEvents();
    const [x, count, ids] = this.nextBatch();
    const { output } = this.pass;
    this.pass.forward(x, count);
    let loss = 0;
    for (let s = 0; s < count; s++) {
      const error = output[s] - this.data.y[ids ? ids[s] : s];
      this.delta[s] = error / count;
      loss += error * error;
    }
    if (!(loss < 1e12)) {
      this.diverged = true;
      return;
    }
    this.pass.backward(this.delta);
    this.gradient.fill(0);
    const { net, frozen } = this;
    this.pass.addGradients(this.gradient, !frozen.gates, !frozen.values);
    this.optimiser.steps++;
    const move = (start: number, end: number) =>
      this.optimiser.step(net.parameters, this.gradient, this.train.rate, start, end);
    if (!frozen.gates && net.gate !== "hard") move(0, net.featureCount);
    if (!frozen.values) move(net.featureCount, net.parameters.length);
    this.step++;
    if (this.step > this.reached) this.reached = this.step;
    if (this.step % this.snapshotEvery === 0) this.keep(false);
  }

  /** Inputs of the next batch, their number, and which examples they are (null for all in order). */
  private nextBatch(): [Float64Array, number, Uint32Array | null] {
    const n = this.data.y.length;
    const { batch } = this.train;
    if (this.delta.length < n) {
      this.delta = new Float64Array(n);
      this.batch = new Float64Array(2 * n);
    }
    if (batch === 0 || batch >= n) {
      this.seen += n;
      return [this.data.x, n, null];
    }
    const epoch = Math.floor(this.seen / n);
    if (this.order.epoch !== epoch) {
      const ids = Uint32Array.from({ length: n }, (_, i) => i);
      this.order = { epoch, ids: new Random(this.seed, Stream.ORDER + epoch).shuffle(ids) };
    }
    const from = this.seen - epoch * n;
    const ids = this.order.ids.subarray(from, Math.min(from + batch, n));
    ids.forEach((id, s) => {
      this.batch[2 * s] = this.data.x[2 * id];
      this.batch[2 * s + 1] = this.data.x[2 * id + 1];
    });
    this.seen += ids.length;
    return [this.batch, ids.length, ids];
  }

  /** Do something now. */
  act(event: Event): void {
    this.branch();
    this.events.push({ ...event, step: this.step });
    this.applyEvents();
  }

  /** Forget what was reached later than this moment. */
  branch(): void {
    this.events.length = this.applied;
    this.snapshots = this.snapshots.filter((snapshot) => snapshot.step < this.step || snapshot.step === 0);
    this.reached = this.step;
    this.diverged = false;
  }

  private applyEvents(): void {
    const before = this.applied;
    while (this.applied < this.events.length && this.events[this.applied].step <= this.step)
      this.apply(this.events[this.applied], this.applied++);
    if (this.applied > before && this.snapshots.length) this.keep(true);
  }

  private apply(event: Event, number: number): void {
    if (event.type === "freeze") {
      if (this.net.kind === "relu" && (event.gates || event.values)) this.take(split(this.net, this.config.beta), true);
      // Hard gates cannot learn; thawed ones get the gradient of soft gates, which changes no output.
      if (this.net.gate === "hard" && isSplit(this.net.kind) && !event.gates)
        this.take(network({ ...this.net, gate: "straight" }, this.net.parameters));
      this.frozen = { gates: event.gates, values: event.values };
    } else if (event.type === "redraw") {
      if (this.net.kind === "relu") this.take(split(this.net, this.config.beta), true);
      const random = new Random(this.seed, Stream.EVENTS + number);
      if (event.part === "gates") drawFeatures(this.net, random);
      else drawValues(this.net, random);
      this.optimiser = new Optimiser(this.train.method, this.net.parameters.length);
    } else {
      if (event.train.method !== this.train.method)
        this.optimiser = new Optimiser(event.train.method, this.net.parameters.length);
      this.train = event.train;
    }
  }

  /** Go on with another network; a split one takes the running means of its ReLU network along. */
  private take(net: Network, fromRelu = false): void {
    const old = this.optimiser;
    if (fromRelu) {
      const moved = new Optimiser(old.method, net.parameters.length);
      moved.steps = old.steps;
      for (const part of ["first", "second"] as const)
        if (old[part].length) moved[part].set(old[part], net.featureCount);
      this.optimiser = moved;
    }
    this.net = net;
    this.pass = new Pass(net, this.data.y.length);
    this.gradient = new Float64Array(net.parameters.length);
  }

  private keep(pinned: boolean): void {
    const { step, frozen, train, optimiser, seen, applied } = this;
    const snapshot: Snapshot = {
      step,
      net: copyOf(this.net),
      frozen,
      train,
      first: optimiser.first.slice(),
      second: optimiser.second.slice(),
      optimiserSteps: optimiser.steps,
      seen,
      applied,
      pinned,
    };
    const at = this.snapshots.findIndex((other) => other.step >= step);
    if (at < 0) this.snapshots.push(snapshot);
    else if (this.snapshots[at].step === step) this.snapshots[at] = snapshot;
    else if (step === this.reached) this.snapshots.splice(at, 0, snapshot);
    if (this.snapshots.length > MOST_SNAPSHOTS) {
      this.snapshotEvery *= 2;
      this.snapshots = this.snapshots.filter((s) => s.pinned || s.step % this.snapshotEvery === 0);
    }
  }

  /** Go to a moment that was reached before; training goes on from there as it did. */
  seek(step: number): void {
    const to = Math.max(0, Math.min(step, this.reached));
    const from = this.snapshots.findLast((snapshot) => snapshot.step <= to)!;
    this.take(copyOf(from.net));
    this.optimiser = new Optimiser(from.train.method, this.net.parameters.length);
    this.optimiser.first.set(from.first);
    this.optimiser.second.set(from.second);
    this.optimiser.steps = from.optimiserSteps;
    this.step = from.step;
    this.frozen = from.frozen;
    this.train = from.train;
    this.seen = from.seen;
    this.applied = from.applied;
    this.diverged = false;
    this.advance(to);
  }
}
