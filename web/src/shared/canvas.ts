/** Canvases that match the screen's pixels. */

/** Give a canvas as many pixels as the screen shows of it; returns its context, scaled to CSS pixels, and its size. */
export function fit(canvas: HTMLCanvasElement, most = 1200): { context: CanvasRenderingContext2D; width: number; height: number; ratio: number } {
  const width = Math.max(1, canvas.clientWidth);
  const height = Math.max(1, canvas.clientHeight);
  const ratio = Math.min(window.devicePixelRatio || 1, most / Math.max(width, height));
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(w / width, 0, 0, h / height, 0, 0);
  return { context, width, height, ratio };
}

/** A canvas that is not on the page, holding an image of the given pixels. */
export function imageOf(pixels: Uint32Array, width: number, height: number, canvas = document.createElement("canvas")): HTMLCanvasElement {
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer, pixels.byteOffset, 4 * width * height);
  canvas.getContext("2d")!.putImageData(new ImageData(bytes, width, height), 0, 0);
  return canvas;
}
