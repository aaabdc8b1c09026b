/** Examples, gates and normals as small images. */
import { imageOf } from "../shared/canvas.ts";
import { divergingAt, pixel, sequentialAt, type Palette, type Rgb } from "../shared/colours.ts";
import type { Examples } from "./facts.ts";

/** Rows and columns in which numbers without a shape are shown. */
export function tableShape(count: number): [number, number] {
  const columns = Math.ceil(Math.sqrt(count * (count > 16 ? 1 : 4)));
  return [Math.ceil(count / Math.min(count, columns)), Math.min(count, columns)];
}

/** Height and width of the picture of an example. */
export function sizeOf({ pixels, values }: Examples): [number, number] {
  return pixels ? [pixels.shape[2], pixels.shape[3]] : tableShape(values!.shape[1]);
}

/** An example, one pixel for each of its own. */
export function exampleImage(examples: Examples, example: number, colours: Palette): HTMLCanvasElement {
  const { pixels, values, range } = examples;
  const [height, width] = sizeOf(examples);
  const out = new Uint32Array(height * width);
  if (pixels) {
    const [, channels] = pixels.shape;
    const [size, start] = [height * width, example * channels * height * width];
    const at = (channel: number, i: number) => pixels.data[start + (channels === 3 ? channel : 0) * size + i];
    for (let i = 0; i < size; i++) out[i] = pixel([at(0, i), at(1, i), at(2, i)]);
  } else {
    const count = values!.shape[1];
    const most = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
    for (let i = 0; i < count; i++) out[i] = divergingAt(colours, values!.data[example * count + i] / most);
  }
  return imageOf(out, width, height);
}

export interface GateColours {
  neither: number;
  onlyA: number;
  onlyB: number;
  both: number;
}

const rgb = (text: string): Rgb => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) as Rgb;

/** Told apart by lightness as well as by hue. */
export function gateColours(colours: Palette): GateColours {
  const [onlyA, onlyB, both] = colours.dark ? ["#2f7fc4", "#c9731f", "#eaf4ff"] : ["#6db3e8", "#e69f00", "#0a3a66"];
  return { neither: pixel(colours.gateClosed), onlyA: pixel(rgb(onlyA)), onlyB: pixel(rgb(onlyB)), both: pixel(rgb(both)) };
}

/** Numbers around 0 as an image; the strongest colour is the largest size. */
export function signedImage(values: ArrayLike<number>, height: number, width: number, colours: Palette): HTMLCanvasElement {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = Math.max(most, Math.abs(values[i]));
  const out = new Uint32Array(height * width);
  for (let i = 0; i < values.length; i++) out[i] = divergingAt(colours, values[i] / (most || 1));
  return imageOf(out, width, height);
}

/** Shares between 0 and 1 as an image. */
export function shareImage(values: ArrayLike<number>, height: number, width: number, colours: Palette): HTMLCanvasElement {
  return imageOf(Uint32Array.from(values, (value) => sequentialAt(colours, value)), width, height);
}

/** Draw a small image large, pixels as squares. */
export function enlarge(context: CanvasRenderingContext2D, image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void {
  context.imageSmoothingEnabled = false;
  context.drawImage(image, x, y, width, height);
}

/** Put an image into a canvas of a fixed size in CSS pixels. */
export function show(canvas: HTMLCanvasElement, image: HTMLCanvasElement, size: number): void {
  const scale = Math.max(1, Math.round((size * Math.min(2, window.devicePixelRatio || 1)) / Math.max(image.width, image.height)));
  canvas.width = image.width * scale;
  canvas.height = image.height * scale;
  const ratio = size / Math.max(image.width, image.height);
  canvas.style.width = `${Math.round(image.width * ratio)}px`;
  canvas.style.height = `${Math.max(6, Math.round(image.height * ratio))}px`;
  enlarge(canvas.getContext("2d")!, image, 0, 0, canvas.width, canvas.height);
}
