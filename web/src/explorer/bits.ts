/** Gates of examples: single ones, counts, and what two examples share. */
import type { Gates } from "./facts.ts";

/** The axes of a layer: channels × rows × columns × taps; a dense layer is one channel with one row. */
export interface Axes {
  channels: number;
  rows: number;
  columns: number;
  /** Inputs of a window of a max-pooling, of which one passes; 1 for all other gates. */
  taps: number;
  isImage: boolean;
}

export function axesOf({ kind, shape }: Pick<Gates, "kind" | "shape">): Axes {
  const taps = kind === "max_pool" ? shape[shape.length - 1] : 1;
  const units = kind === "max_pool" ? shape.slice(0, -1) : shape;
  if (units.length === 3 && units[1] * units[2] > 1) return { channels: units[0], rows: units[1], columns: units[2], taps, isImage: true };
  const count = units.reduce((product, size) => product * size, 1);
  return { channels: 1, rows: 1, columns: count, taps, isImage: false };
}

export const unitsOf = ({ channels, rows, columns }: Axes): number => channels * rows * columns;

/** Whether gate `bit` of an example is open. */
export function isOpen({ bits }: Gates, example: number, bit: number): boolean {
  return (bits.data[example * bits.shape[1] + (bit >> 3)] >> (bit & 7)) % 2 === 1;
}

/** The winning tap of a window; 0 for a gate that is no max-pooling. */
export function tapOf(layer: Gates, example: number, unit: number, taps: number): number {
  for (let tap = 0; tap < taps; tap++) if (isOpen(layer, example, unit * taps + tap)) return tap;
  return -1;
}

/** 0: closed for both, 1: open for the first alone, 2: for the second alone, 3: for both. A window: 3 if the winners agree, else 0. */
export function sharedAt(layer: Gates, axes: Axes, a: number, b: number, unit: number): number {
  if (axes.taps > 1) return tapOf(layer, a, unit, axes.taps) === tapOf(layer, b, unit, axes.taps) ? 3 : 0;
  return (isOpen(layer, a, unit) ? 1 : 0) + (isOpen(layer, b, unit) ? 2 : 0);
}

export interface Shared {
  units: number;
  a: number;
  b: number;
  both: number;
  agree: number;
}

/** Counts over a layer: open for a, for b, for both; states in which they agree. */
export function compare(layer: Gates, axes: Axes, a: number, b: number): Shared {
  const units = unitsOf(axes);
  const counts = [0, 0, 0, 0];
  for (let unit = 0; unit < units; unit++) counts[sharedAt(layer, axes, a, b, unit)]++;
  if (axes.taps > 1) return { units, a: units, b: units, both: counts[3], agree: counts[3] };
  return { units, a: counts[1] + counts[3], b: counts[2] + counts[3], both: counts[3], agree: counts[0] + counts[3] };
}

/** Channels of an image, or units, whose gates are closed for all examples everywhere, and those that are open. */
export function constants(layer: Gates, axes: Axes): { closed: number[]; open: number[] } {
  const [channels, size] = axes.isImage ? [axes.channels, axes.rows * axes.columns] : [axes.columns, 1];
  const found: { closed: number[]; open: number[] } = { closed: [], open: [] };
  for (let channel = 0; channel < channels; channel++) {
    const first = isOpen(layer, 0, channel * size);
    let isConstant = true;
    for (let example = 0; isConstant && example < layer.bits.shape[0]; example++)
      for (let p = 0; isConstant && p < size; p++) isConstant = isOpen(layer, example, channel * size + p) === first;
    if (isConstant) found[first ? "open" : "closed"].push(channel);
  }
  return found;
}

/** The first gate of a path that lets the path's example pass but not another; −1 if the path is open for both. */
export function closedAt(gates: Gates[], passed: [number, number][], a: number, b: number): number {
  return passed.findIndex(([layer, unit]) => {
    const { taps } = axesOf(gates[layer]);
    if (taps > 1) return !isOpen(gates[layer], b, unit * taps + tapOf(gates[layer], a, unit, taps));
    return isOpen(gates[layer], a, unit) && !isOpen(gates[layer], b, unit);
  });
}
