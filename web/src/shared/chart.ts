/** Small line charts, one under the other, with a common horizontal axis. */
import type { Palette } from "./colours.ts";

export interface Line {
  points: [number, number][];
  colour: string;
  dashed?: boolean;
}

export interface Row {
  title: string;
  lines: Line[];
  logarithmic?: boolean;
  /** Fixed ends of the vertical axis; by default those of the data. */
  range?: [number, number];
  format: (value: number) => string;
}

const [LEFT, RIGHT] = [96, 12];

/** The horizontal place of a step, and the step at a place. */
export const placeOf = (step: number, last: number, width: number): number => LEFT + (step / Math.max(1, last)) * (width - LEFT - RIGHT);
export const stepAt = (x: number, last: number, width: number): number =>
  Math.round((Math.min(Math.max(x - LEFT, 0), width - LEFT - RIGHT) / (width - LEFT - RIGHT)) * Math.max(1, last));

function extent(row: Row): [number, number] {
  if (row.range) return row.range;
  const values = row.lines.flatMap(({ points }) => points.map(([, y]) => y)).filter((y) => Number.isFinite(y) && (!row.logarithmic || y > 0));
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (row.logarithmic) return [low, Math.max(high, 1.5 * low)];
  return [Math.min(0, low), high > 0 ? high : 1];
}

/** Draw the rows in a box; `now` is the step that is shown. */
export function drawRows(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  rows: Row[],
  last: number,
  now: number,
  marks: number[],
  colours: Palette,
): void {
  context.clearRect(0, 0, width, height);
  const each = height / rows.length;
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  rows.forEach((row, i) => {
    const [top, bottom] = [i * each + 7, (i + 1) * each - 6];
    context.fillStyle = colours.muted;
    context.textAlign = "left";
    context.fillText(row.title, 0, (top + bottom) / 2 - 7);
    const [low, high] = extent(row);
    const scale = row.logarithmic ? Math.log : (y: number) => y;
    const place = (y: number) => bottom - ((scale(y) - scale(low)) / (scale(high) - scale(low) || 1)) * (bottom - top);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(LEFT, bottom + 0.5);
    context.lineTo(width - RIGHT, bottom + 0.5);
    context.stroke();
    for (const line of row.lines) drawLine(context, line, (x) => placeOf(x, last, width), place, row.logarithmic ?? false);
    drawValues(context, row, now, (top + bottom) / 2 + 8);
  });
  context.setLineDash([2, 3]);
  context.strokeStyle = colours.muted;
  for (const mark of marks) vertical(context, placeOf(mark, last, width), height);
  context.setLineDash([]);
  context.strokeStyle = colours.highlight;
  vertical(context, placeOf(now, last, width), height);
}

function vertical(context: CanvasRenderingContext2D, x: number, height: number): void {
  context.beginPath();
  context.moveTo(x, 2);
  context.lineTo(x, height - 2);
  context.stroke();
}

function drawLine(context: CanvasRenderingContext2D, line: Line, x: (step: number) => number, y: (value: number) => number, positive: boolean): void {
  context.strokeStyle = line.colour;
  context.lineWidth = line.dashed ? 1.25 : 1.75;
  context.setLineDash(line.dashed ? [4, 3] : []);
  context.beginPath();
  let isDown = false;
  for (const [step, value] of line.points) {
    const shown = Number.isFinite(value) && (!positive || value > 0);
    if (shown && isDown) context.lineTo(x(step), y(value));
    else if (shown) context.moveTo(x(step), y(value));
    isDown = shown;
  }
  context.stroke();
  context.setLineDash([]);
}

/** The value of each solid line at the step that is shown, under the title. */
function drawValues(context: CanvasRenderingContext2D, row: Row, now: number, y: number): void {
  let x = 0;
  for (const line of row.lines.filter(({ dashed }) => !dashed)) {
    const at = line.points.findLast(([step]) => step <= now) ?? line.points[0];
    if (!at) continue;
    const text = row.format(at[1]);
    context.fillStyle = line.colour;
    context.fillText(text, x, y);
    x += context.measureText(text).width + 8;
  }
}
