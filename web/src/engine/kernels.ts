/** Kernels between examples (npk, Sections 2 to 4), and what they say about labels. All are n×n, row by row. */
import { eigen, type Eigen } from "./linear_algebra.ts";
import { isSplit, type Layer } from "./network.ts";
import type { Pass } from "./pass.ts";

/** Gram matrix of n rows of a given width. */
function gram(rows: Float64Array, n: number, width: number): Float64Array {
  const out = new Float64Array(n * n);
  for (let s = 0; s < n; s++)
    for (let t = s; t < n; t++) {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += rows[s * width + i] * rows[t * width + i];
      out[s * n + t] = out[t * n + s] = sum;
    }
  return out;
}

/** Λ(s, s') = Π_l (1/w_l) Σ_i G_l(s, i) G_l(s', i): the share of paths open for both inputs. */
export function overlap(pass: Pass): Float64Array {
  const { n } = pass;
  const out = new Float64Array(n * n).fill(1);
  pass.gates.forEach((gates, l) => {
    const width = pass.net.widths[l + 1];
    const shared = gram(gates, n, width);
    for (let i = 0; i < out.length; i++) out[i] *= shared[i] / width;
  });
  return out;
}

/** H = Σ ⊙ Λ, with Σ the Gram matrix of what enters the value network; paths start at inputs, not at biases. */
export function pathKernel(pass: Pass): Float64Array {
  const sigma = gram(pass.valueInputs[0], pass.n, pass.net.widths[0]);
  return overlap(pass).map((value, i) => value * sigma[i]);
}

/** The tangent kernels: of the values, of the gates, and of all parameters (their sum). */
export interface TangentKernels {
  values: Float64Array;
  features: Float64Array;
  all: Float64Array;
}

/** K = Σ_layers (Gram of a layer's inputs, + 1 for its bias) ⊙ (Gram of its back-propagated signals). */
export function tangentKernels(pass: Pass): TangentKernels {
  const { net, n } = pass;
  pass.backward(new Float64Array(n).fill(1));
  const sum = (layers: Layer[], inputs: Float64Array[], signals: Float64Array[]): Float64Array => {
    const total = new Float64Array(n * n);
    layers.forEach((layer, l) => {
      const before = gram(inputs[l], n, layer.inputs);
      const after = gram(signals[l], n, layer.outputs);
      const constant = layer.bias ? 1 : 0;
      for (let i = 0; i < total.length; i++) total[i] += (before[i] + constant) * after[i];
    });
    return total;
  };
  const values = sum(net.value, pass.valueInputs, pass.valueSignals);
  const features = isSplit(net.kind) ? sum(net.feature, pass.featureInputs, pass.featureSignals) : new Float64Array(n * n);
  return { values, features, all: values.map((value, i) => value + features[i]) };
}

export function trace(kernel: Float64Array, n: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += kernel[i * n + i];
  return sum;
}

/** The cosine between a kernel and y yᵀ. */
export function labelAlignment(kernel: Float64Array, y: Float64Array): number {
  const n = y.length;
  let [product, square, labels] = [0, 0, 0];
  for (let s = 0; s < n; s++) {
    labels += y[s] * y[s];
    for (let t = 0; t < n; t++) {
      const k = kernel[s * n + t];
      product += k * y[s] * y[t];
      square += k * k;
    }
  }
  return square && labels ? product / (Math.sqrt(square) * labels) : 0;
}

/** Eigenvalues and vectors of the kernel scaled to trace one; null for a kernel of zeros. */
export function scaledEigen(kernel: Float64Array, n: number): Eigen | null {
  const total = trace(kernel, n);
  return total > 0 ? eigen(kernel.map((value) => value / total), n) : null;
}

/** ν = Σ_i (u_iᵀy)² / (ρ̂_i + λ) of a kernel scaled to trace one: small if the labels lie in its large directions. */
export function labelComplexity(scaled: Eigen, y: Float64Array, ridge: number): number {
  let sum = 0;
  labelEnergy(scaled, y).forEach((energy, k) => (sum += energy / (Math.max(scaled.values[k], 0) + ridge)));
  return sum;
}

/** (u_kᵀ y)² for every eigenvector. */
export function labelEnergy(scaled: Eigen, y: Float64Array): Float64Array {
  const n = y.length;
  const projections = new Float64Array(n);
  for (let i = 0; i < n; i++) for (let k = 0; k < n; k++) projections[k] += scaled.vectors[i * n + k] * y[i];
  return projections.map((projection) => projection * projection);
}
