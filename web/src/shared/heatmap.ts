/** A matrix as a picture: rows and columns in a given order. */
import { imageOf } from "./canvas.ts";
import { divergingAt, sequentialAt, type Palette } from "./colours.ts";

export interface Matrix {
  n: number;
  values: Float64Array;
  /** Rows and columns are drawn in this order. */
  order: number[];
}

/** The largest |entry|; the scale of the colours. */
export const reach = ({ values }: Matrix): number => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

export const hasNegative = ({ values }: Matrix): boolean => values.some((value) => value < 0);

const scratch = document.createElement("canvas");

/** Fill a square of the context with the matrix; a matrix with negative entries gets the diverging scale. */
export function drawMatrix(context: CanvasRenderingContext2D, size: number, matrix: Matrix, colours: Palette): void {
  const { n, values, order } = matrix;
  const [most, isSigned] = [reach(matrix) || 1, hasNegative(matrix)];
  const pixels = new Uint32Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) {
      const value = values[order[i] * n + order[j]] / most;
      pixels[i * n + j] = isSigned ? divergingAt(colours, value) : sequentialAt(colours, value);
    }
  context.imageSmoothingEnabled = false;
  context.drawImage(imageOf(pixels, n, n, scratch), 0, 0, n, n, 0, 0, size, size);
}

/** Row and column under a point of the square, as numbers of examples; null outside. */
export function entryAt({ n, order }: Matrix, size: number, x: number, y: number): [number, number] | null {
  const [column, row] = [Math.floor((x / size) * n), Math.floor((y / size) * n)];
  const isInside = column >= 0 && row >= 0 && column < n && row < n;
  return isInside ? [order[row], order[column]] : null;
}
