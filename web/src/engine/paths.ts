/** Paths of one input: how many are open, which contribute most, what two inputs share. */
import { hiddenWidths, type Network } from "./network.ts";
import type { Pass } from "./pass.ts";

export interface Path {
  /** 0: starts at an input node; l: at the bias of value layer l (counted from 1). */
  start: number;
  /** The units passed; with start = 0 the input node is first. Empty for the bias of the output. */
  units: number[];
  /** x · gates · weights, signed. */
  contribution: number;
}

/** Where each layer's gates begin in a row of all gates, and their total last. */
export function gateOffsets(net: Network): number[] {
  const offsets = [0];
  for (const width of hiddenWidths(net)) offsets.push(offsets[offsets.length - 1] + width);
  return offsets;
}

/** Π over layers of the number of open gates: paths from the first hidden layer to the output. */
export function openPaths(widths: number[], bits: Uint8Array, at = 0): number {
  let [product, place] = [1, at];
  for (const width of widths) {
    let open = 0;
    for (let i = 0; i < width; i++) open += bits[place++];
    product *= open;
  }
  return product;
}

/** The largest k of some candidates by |contribution|, largest first. */
function largest(candidates: Path[], k: number): Path[] {
  return candidates.sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution)).slice(0, k);
}

/**
 * The k paths that contribute most to the output of example `row` of a forward pass, and the number of paths with a
 * contribution. The k best into a unit are among the k best into each of the units below, so no path is listed twice
 * and none of the others at all.
 */
export function topPaths(pass: Pass, row: number, k: number): { paths: Path[]; count: number } {
  const { net } = pass;
  const d = net.widths[0];
  let below: Path[][] = [];
  let counts: number[] = [];
  for (let i = 0; i < d; i++) {
    const x = pass.valueInputs[0][row * d + i];
    below.push(x ? [{ start: 0, units: [i], contribution: x }] : []);
    counts.push(x ? 1 : 0);
  }
  net.value.forEach((layer, l) => {
    const gates = l < pass.gates.length ? pass.gates[l] : null;
    const paths: Path[][] = [];
    const totals: number[] = [];
    for (let j = 0; j < layer.outputs; j++) {
      const gate = gates ? gates[row * layer.outputs + j] : 1;
      const unit = gates ? [j] : [];
      const candidates: Path[] = [];
      let total = 0;
      for (let i = 0; i < layer.inputs; i++) {
        const factor = layer.weight[j * layer.inputs + i] * gate;
        if (!factor) continue;
        total += counts[i];
        for (const path of below[i])
          candidates.push({ ...path, units: [...path.units, ...unit], contribution: path.contribution * factor });
      }
      const bias = layer.bias ? layer.bias[j] * gate : 0;
      if (bias) {
        candidates.push({ start: l + 1, units: unit, contribution: bias });
        total += 1;
      }
      paths.push(largest(candidates, k));
      totals.push(total);
    }
    [below, counts] = [paths, totals];
  });
  return { paths: below[0], count: counts[0] };
}

/** For two rows of gate bits: open in both, open in either, by layer. */
export function sharedGates(widths: number[], one: Uint8Array, other: Uint8Array): { both: number; either: number }[] {
  let place = 0;
  return widths.map((width) => {
    let [both, either] = [0, 0];
    for (let i = 0; i < width; i++, place++) {
      both += one[place] & other[place];
      either += one[place] | other[place];
    }
    return { both, either };
  });
}
