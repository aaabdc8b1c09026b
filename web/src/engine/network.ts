/**
 * Small dense networks with one output, whose gates are their own (ReLU) or decided by a second network.
 *
 * All weights lie in one array, in PyTorch's order of parameters: feature layers, then value layers, each weight (row
 * by row) followed by its bias. A layer's `weight` and `bias` are views of it.
 */
import { Random } from "./random.ts";

/** ReLU; deep gated; deep linearly gated; the same, piecewise constant; deep linear. */
export type Kind = "relu" | "dgn" | "dlgn" | "dlgn-pwc" | "dln";

/** 1 if q > 0; σ(βq); the first in the forward pass with the gradient of the second. */
export type Gate = "hard" | "soft" | "straight";

export interface Layer {
  inputs: number;
  outputs: number;
  weight: Float64Array;
  bias: Float64Array | null;
}

export interface Shape {
  kind: Kind;
  /** Input first, output last. */
  widths: number[];
  gate: Gate;
  beta: number;
  featureBias: boolean;
  valueBias: boolean;
}

export interface Network extends Shape {
  parameters: Float64Array;
  /** How many of the parameters, from the first, belong to the feature network. */
  featureCount: number;
  feature: Layer[];
  value: Layer[];
}

export const hiddenWidths = (shape: Shape): number[] => shape.widths.slice(1, -1);

/** Whether gates have weights of their own. */
export const isSplit = (kind: Kind): boolean => kind === "dgn" || kind === "dlgn" || kind === "dlgn-pwc";

/** Whether every gate is a half-space of the input. */
export const hasLinearGates = (kind: Kind): boolean => kind === "dlgn" || kind === "dlgn-pwc";

function layersOf(widths: number[], bias: boolean): { inputs: number; outputs: number; bias: boolean }[] {
  return widths.slice(1).map((outputs, i) => ({ inputs: widths[i], outputs, bias }));
}

/** A network of the given shape; its parameters are zero, or the given array itself. */
export function network(shape: Shape, parameters?: Float64Array): Network {
  const features = isSplit(shape.kind) ? layersOf(shape.widths.slice(0, -1), shape.featureBias) : [];
  const values = layersOf(shape.widths, shape.valueBias);
  const sizes = (layers: typeof values) => layers.reduce((n, l) => n + l.outputs * (l.inputs + (l.bias ? 1 : 0)), 0);
  const featureCount = sizes(features);
  const all = parameters ?? new Float64Array(featureCount + sizes(values));
  let at = 0;
  const take = (count: number) => all.subarray(at, (at += count));
  const place = (layers: typeof values): Layer[] =>
    layers.map(({ inputs, outputs, bias }) => ({
      inputs,
      outputs,
      weight: take(inputs * outputs),
      bias: bias ? take(outputs) : null,
    }));
  const [feature, value] = [place(features), place(values)];
  if (at !== all.length) throw new Error(`${all.length} parameters; a network of widths ${shape.widths} has ${at}`);
  const { kind, widths, gate, beta, featureBias, valueBias } = shape;
  return { kind, widths, gate, beta, featureBias, valueBias, parameters: all, featureCount, feature, value };
}

function drawLayer(layer: Layer, variance: number, random: Random): void {
  const bound = Math.sqrt((3 * variance) / layer.inputs);
  for (let i = 0; i < layer.weight.length; i++) layer.weight[i] = random.between(-bound, bound);
  const shift = 1 / Math.sqrt(layer.inputs);
  if (layer.bias) for (let i = 0; i < layer.bias.length; i++) layer.bias[i] = random.between(-shift, shift);
}

/** Draw the feature weights: variance 2 / fan in before a ReLU, 1 / fan in for linear gates; biases ±1/√fan in. */
export function drawFeatures(net: Network, random: Random): void {
  for (const layer of net.feature) drawLayer(layer, hasLinearGates(net.kind) ? 1 : 2, random);
}

/** Draw the value weights: variance 2 / fan in where half of the gates are closed, else 1 / fan in. */
export function drawValues(net: Network, random: Random): void {
  net.value.forEach((layer, l) => {
    const last = l === net.value.length - 1;
    drawLayer(layer, last || net.kind === "dln" ? 1 : 2, random);
  });
}

/**
 * The gated network that computes what a ReLU network computes, with a copy of the weights that decides over the gates
 * and one that carries the values. Its gates are hard with the gradient of soft ones, so that they can learn.
 */
export function split(relu: Network, beta: number): Network {
  if (relu.kind !== "relu") throw new Error(`a ${relu.kind} network cannot be split; only a ReLU network can`);
  const twin = network({ ...relu, kind: "dgn", gate: "straight", beta });
  twin.parameters.set(relu.parameters.subarray(0, twin.featureCount), 0);
  twin.parameters.set(relu.parameters, twin.featureCount);
  return twin;
}
