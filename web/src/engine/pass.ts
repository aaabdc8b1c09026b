/** Forward and backward passes over a batch. Arrays hold one row for each example. */
import { hasLinearGates, hiddenWidths, isSplit, type Layer, type Network } from "./network.ts";

export const sigmoid = (q: number): number => 1 / (1 + Math.exp(-q));

/** out = in · Wᵀ + b for n rows. */
function affine(layer: Layer, n: number, input: Float64Array, out: Float64Array): void {
  const { inputs, outputs, weight, bias } = layer;
  for (let s = 0; s < n; s++) {
    const from = s * inputs;
    const to = s * outputs;
    for (let j = 0, w = 0; j < outputs; j++) {
      let sum = bias ? bias[j] : 0;
      for (let i = 0; i < inputs; i++, w++) sum += weight[w] * input[from + i];
      out[to + j] = sum;
    }
  }
}

/** into += signal · W for n rows: what reaches a layer's inputs from its outputs. */
function backThrough(layer: Layer, n: number, signal: Float64Array, into: Float64Array): void {
  const { inputs, outputs, weight } = layer;
  for (let s = 0; s < n; s++) {
    const to = s * inputs;
    for (let j = 0, w = 0; j < outputs; j++) {
      const d = signal[s * outputs + j];
      if (d === 0) w += inputs;
      else for (let i = 0; i < inputs; i++, w++) into[to + i] += weight[w] * d;
    }
  }
}

/** Add Σ_s signal(s) ⊗ input(s) to a layer's gradient, laid out as the layer's parameters. */
function addGradient(layer: Layer, n: number, input: Float64Array, signal: Float64Array, gradient: Float64Array): void {
  const { inputs, outputs } = layer;
  for (let s = 0; s < n; s++) {
    for (let j = 0; j < outputs; j++) {
      const d = signal[s * outputs + j];
      if (d === 0) continue;
      const row = j * inputs;
      for (let i = 0; i < inputs; i++) gradient[row + i] += d * input[s * inputs + i];
      if (layer.bias) gradient[outputs * inputs + j] += d;
    }
  }
}

/** What a network computes on a batch, and what flows back. `rows` is the largest batch. */
export class Pass {
  readonly net: Network;
  readonly rows: number;
  n = 0;
  output: Float64Array;
  /** Per hidden layer: the gates as numbers, what decides them (q), and what they multiply (v). */
  gates: Float64Array[];
  decides: Float64Array[];
  carries: Float64Array[];
  /** Inputs of every feature and every value layer. */
  featureInputs: Float64Array[];
  valueInputs: Float64Array[];
  /** ∂/∂(output of a layer), for every feature and value layer; filled by `backward`. */
  featureSignals: Float64Array[];
  valueSignals: Float64Array[];

  constructor(net: Network, rows: number) {
    this.net = net;
    this.rows = rows;
    const room = (widths: number[]) => widths.map((w) => new Float64Array(rows * w));
    const hidden = hiddenWidths(net);
    const own = isSplit(net.kind);
    this.output = new Float64Array(rows);
    this.gates = room(hidden);
    this.carries = room(hidden);
    this.decides = own ? room(hidden) : this.carries;
    this.valueInputs = room(net.widths.slice(0, -1));
    this.featureInputs = own ? room(net.widths.slice(0, -2)) : [];
    this.valueSignals = room(net.widths.slice(1));
    this.featureSignals = own ? room(hidden) : [];
  }

  /** Run on n examples with two (or d) inputs each; leaves the outputs in `output`. */
  forward(x: Float64Array, n: number): Float64Array {
    const { net } = this;
    if (n > this.rows) throw new Error(`${n} examples; there is room for ${this.rows}`);
    this.n = n;
    const inputs = n * net.widths[0];
    if (net.kind === "dlgn-pwc") this.valueInputs[0].fill(1, 0, inputs);
    else this.valueInputs[0].set(x.subarray(0, inputs));
    if (this.featureInputs.length) this.featureInputs[0].set(x.subarray(0, inputs));
    for (let l = 0; l < this.gates.length; l++) this.hiddenLayer(l);
    const last = net.value.length - 1;
    affine(net.value[last], n, this.valueInputs[last], this.output);
    return this.output;
  }

  private hiddenLayer(l: number): void {
    const { net, n } = this;
    const [q, v, gates, next] = [this.decides[l], this.carries[l], this.gates[l], this.valueInputs[l + 1]];
    affine(net.value[l], n, this.valueInputs[l], v);
    if (q !== v) affine(net.feature[l], n, this.featureInputs[l], q);
    const count = n * net.value[l].outputs;
    const soft = isSplit(net.kind) && net.gate === "soft";
    for (let i = 0; i < count; i++) {
      gates[i] = net.kind === "dln" ? 1 : soft ? sigmoid(net.beta * q[i]) : q[i] > 0 ? 1 : 0;
      next[i] = soft ? gates[i] * v[i] : gates[i] ? v[i] : 0;
    }
    if (q !== v && l + 1 < this.featureInputs.length) {
      const onward = this.featureInputs[l + 1];
      if (hasLinearGates(net.kind)) onward.set(q.subarray(0, count));
      else for (let i = 0; i < count; i++) onward[i] = q[i] > 0 ? q[i] : 0;
    }
  }

  /** Send `delta`, one number for each example, back from the output; fills the signals. */
  backward(delta: Float64Array): void {
    const { net, n } = this;
    const last = net.value.length - 1;
    this.valueSignals[last].set(delta.subarray(0, n));
    const learns = isSplit(net.kind) && net.gate !== "hard";
    for (let l = last - 1; l >= 0; l--) {
      const signal = this.valueSignals[l];
      const count = n * net.value[l].outputs;
      signal.fill(0, 0, count);
      backThrough(net.value[l + 1], n, this.valueSignals[l + 1], signal); // ∂/∂h
      if (isSplit(net.kind)) this.featureSignal(l, learns ? signal : null);
      const gates = this.gates[l];
      for (let i = 0; i < count; i++) signal[i] *= gates[i];
    }
  }

  /** ∂/∂q of feature layer l: through its own gates, and through the feature layer above. */
  private featureSignal(l: number, hidden: Float64Array | null): void {
    const { net, n } = this;
    const [signal, q, v] = [this.featureSignals[l], this.decides[l], this.carries[l]];
    const count = n * net.feature[l].outputs;
    signal.fill(0, 0, count);
    if (!hidden) return;
    if (l + 1 < net.feature.length) {
      backThrough(net.feature[l + 1], n, this.featureSignals[l + 1], signal);
      if (!hasLinearGates(net.kind)) for (let i = 0; i < count; i++) if (!(q[i] > 0)) signal[i] = 0;
    }
    for (let i = 0; i < count; i++) {
      const soft = sigmoid(net.beta * q[i]);
      signal[i] += hidden[i] * v[i] * net.beta * soft * (1 - soft);
    }
  }

  /** Add the gradient Σ_s delta(s) ∂ŷ(s)/∂θ to an array laid out as the parameters; frozen parts are left out. */
  addGradients(gradient: Float64Array, features = true, values = true): void {
    const { net, n } = this;
    let at = 0;
    const each = (layers: Layer[], inputs: Float64Array[], signals: Float64Array[], wanted: boolean) =>
      layers.forEach((layer, l) => {
        const size = layer.weight.length + (layer.bias?.length ?? 0);
        if (wanted) addGradient(layer, n, inputs[l], signals[l], gradient.subarray(at, at + size));
        at += size;
      });
    each(net.feature, this.featureInputs, this.featureSignals, features && net.gate !== "hard");
    each(net.value, this.valueInputs, this.valueSignals, values);
  }
}
