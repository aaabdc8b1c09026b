/** Networks as plain data, the form that gatelab.models.from_playground reads. */
import { network, type Gate, type Kind, type Layer, type Network } from "./network.ts";

export interface ExportedLayer {
  weight: number[][];
  bias: number[] | null;
}

export interface ExportedNetwork {
  kind: Kind;
  widths: number[];
  gate: Gate;
  beta: number;
  feature: ExportedLayer[];
  value: ExportedLayer[];
}

function layerOut({ inputs, outputs, weight, bias }: Layer): ExportedLayer {
  const rows = Array.from({ length: outputs }, (_, j) => Array.from(weight.subarray(j * inputs, (j + 1) * inputs)));
  return { weight: rows, bias: bias && Array.from(bias) };
}

export function toExport(net: Network): ExportedNetwork {
  const { kind, widths, gate, beta } = net;
  return { kind, widths, gate, beta, feature: net.feature.map(layerOut), value: net.value.map(layerOut) };
}

export function fromExport(told: ExportedNetwork): Network {
  const { kind, widths, gate, beta } = told;
  const hasBias = (layers: ExportedLayer[]) => layers.some((layer) => layer.bias !== null);
  const numbers = [...told.feature, ...told.value].flatMap(({ weight, bias }) => [...weight.flat(), ...(bias ?? [])]);
  const shape = { kind, widths, gate, beta, featureBias: hasBias(told.feature), valueBias: hasBias(told.value) };
  return network(shape, Float64Array.from(numbers));
}
