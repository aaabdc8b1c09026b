/** The network: every unit a thumbnail of its gate over the plane, every edge a weight. */
import { hiddenWidths, type Network } from "../engine/network.ts";
import type { Path } from "../engine/paths.ts";
import { fit, imageOf } from "../shared/canvas.ts";
import { pixel } from "../shared/colours.ts";
import { regionMap } from "../shared/raster.ts";
import type { App } from "./app.ts";
import { placeOfUnit, unitName, type AtPoint } from "./at_point.ts";

const THUMB = 40; // pixels of a thumbnail's picture

interface Layout {
  columns: { x: number; ys: number[]; size: number }[];
}

/** Where every node stands: inputs, hidden layers, output. */
function layout(net: Network, width: number, height: number): Layout {
  const counts = net.widths;
  const largest = Math.max(...counts);
  const size = Math.min(38, (height - 30) / largest - 3, (width / counts.length) * 0.62);
  const margin = size / 2 + 14;
  const columns = counts.map((count, c) => {
    const gap = Math.min(size + 10, (height - 22) / count);
    const top = 20 + (height - 20) / 2 - ((count - 1) * gap) / 2;
    return {
      x: margin + (c * (width - 2 * margin)) / (counts.length - 1),
      ys: Array.from({ length: count }, (_, i) => top + i * gap),
      size,
    };
  });
  return { columns };
}

export class DiagramView {
  readonly canvas: HTMLCanvasElement;
  private readonly app: App;
  private readonly index: number;
  private readonly atlas = document.createElement("canvas");
  private focus = 0;

  constructor(canvas: HTMLCanvasElement, app: App, index: number) {
    [this.canvas, this.app, this.index] = [canvas, app, index];
    canvas.addEventListener("click", (event) => {
      const unit = this.unitAt(event.offsetX, event.offsetY);
      app.selectUnit(unit === null || unit === app.view.unit ? null : unit);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => app.redraw());
  }

  private key(event: KeyboardEvent): void {
    const widths = hiddenWidths(this.app.nets[this.index]);
    const [layer, unit] = placeOfUnit(this.focus, widths);
    const start = (l: number) => widths.slice(0, l).reduce((a, b) => a + b, 0);
    const go = (l: number, u: number) => {
      const to = Math.min(Math.max(l, 0), widths.length - 1);
      this.focus = start(to) + Math.min(Math.max(u, 0), widths[to] - 1);
      this.app.announce(this.unitText(this.focus));
    };
    if (event.key === "ArrowRight") go(layer + 1, unit);
    else if (event.key === "ArrowLeft") go(layer - 1, unit);
    else if (event.key === "ArrowDown") go(layer, unit + 1);
    else if (event.key === "ArrowUp") go(layer, unit - 1);
    else if (event.key === "Enter" || event.key === " ") this.app.selectUnit(this.app.view.unit === this.focus ? null : this.focus);
    else if (event.key === "Escape") this.app.selectUnit(null);
    else return;
    event.preventDefault();
    this.app.redraw();
  }

  private unitText(unit: number): string {
    const { partition } = this.app.frame!.nets[this.index];
    const widths = hiddenWidths(this.app.nets[this.index]);
    const { gates, units, regions } = partition;
    let open = 0;
    for (let r = 0; r < regions; r++) open += units > unit ? gates[r * units + unit] : 1;
    return `${unitName(unit, widths)}: open in ${open} of ${regions} regions`;
  }

  private unitAt(x: number, y: number): number | null {
    const net = this.app.nets[this.index];
    const { columns } = layout(net, this.canvas.clientWidth, this.canvas.clientHeight);
    let before = 0;
    for (const column of columns.slice(1, -1)) {
      if (Math.abs(x - column.x) <= column.size / 2 + 3) {
        const unit = column.ys.findIndex((center) => Math.abs(y - center) <= column.size / 2 + 2);
        if (unit >= 0) return before + unit;
      }
      before += column.ys.length;
    }
    return null;
  }

  /** Redraw the thumbnails; needed when the network changes. */
  drawThumbs(): void {
    const { partition } = this.app.frame!.nets[this.index];
    const widths = hiddenWidths(this.app.nets[this.index]);
    const total = widths.reduce((a, b) => a + b, 0);
    const map = regionMap(partition, THUMB);
    const { gates, units } = partition;
    const [open, closed] = [pixel(this.app.colours.gateOpen), pixel(this.app.colours.gateClosed)];
    const pixels = new Uint32Array(total * THUMB * THUMB);
    for (let unit = 0; unit < total; unit++) {
      const at = unit * THUMB * THUMB;
      for (let i = 0; i < map.length; i++) {
        const region = Math.max(0, map[i]);
        pixels[at + i] = unit >= units ? (this.app.nets[this.index].kind === "dln" ? open : closed) : gates[region * units + unit] ? open : closed;
      }
    }
    imageOf(pixels, THUMB, total * THUMB, this.atlas);
  }

  draw(): void {
    const { app } = this;
    const net = app.nets[this.index];
    const { context, width, height } = fit(this.canvas);
    context.clearRect(0, 0, width, height);
    const { columns } = layout(net, width, height);
    const shown = app.points(this.index).at(-1) ?? null;
    this.drawEdges(context, net, columns, shown);
    const paths = app.path && app.pathNet === this.index ? [app.path] : (shown?.paths ?? []);
    this.drawPaths(context, columns, paths);
    this.drawNodes(context, net, columns, shown);
    const text = `Network ${"AB"[this.index]}, widths ${net.widths.join(", ")}. Arrow keys move between units, Enter shows the boundary of one.`;
    if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
  }

  private drawEdges(context: CanvasRenderingContext2D, net: Network, columns: Layout["columns"], shown: AtPoint | null): void {
    const { colours } = this.app;
    let offset = 0; // of the gates of the layer below
    net.value.forEach((layer, l) => {
      const [from, to] = [columns[l], columns[l + 1]];
      const most = layer.weight.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1;
      const width = l > 0 ? net.widths[l] : 0;
      // Among hundreds of edges the weak ones cannot be seen, but each takes its time.
      const isCrowded = layer.weight.length > 300;
      for (let j = 0; j < layer.outputs; j++) {
        const above = !shown || l === net.value.length - 1 || shown.bits[offset + width + j] === 1;
        for (let i = 0; i < layer.inputs; i++) {
          const share = layer.weight[j * layer.inputs + i] / most;
          const strength = Math.abs(share);
          const isOpen = above && (!shown || l === 0 || shown.bits[offset + i] === 1);
          if (strength < (isCrowded ? 0.3 : 0.06) || (isCrowded && !isOpen)) continue;
          context.globalAlpha = (isOpen ? 1 : 0.12) * (0.12 + 0.5 * strength);
          context.strokeStyle = share > 0 ? colours.positive : colours.negative;
          context.lineWidth = 0.4 + 2.6 * strength;
          context.beginPath();
          context.moveTo(from.x + from.size / 2, from.ys[i]);
          context.lineTo(to.x - to.size / 2, to.ys[j]);
          context.stroke();
        }
      }
      offset += width;
    });
    context.globalAlpha = 1;
  }

  private drawPaths(context: CanvasRenderingContext2D, columns: Layout["columns"], paths: Path[]): void {
    const { colours } = this.app;
    const most = Math.max(...paths.map((path) => Math.abs(path.contribution)), 1e-300);
    for (const path of [...paths].reverse()) {
      const from = path.start === 0 ? 0 : path.start;
      const nodes = path.units.map((unit, k) => [columns[from + k].x, columns[from + k].ys[unit]]);
      const last = columns[columns.length - 1];
      nodes.push([last.x, last.ys[0]]);
      if (path.start > 0) nodes.unshift([nodes[0][0] - columns[0].size * 0.9, nodes[0][1] + columns[0].size * 0.8]);
      const share = Math.abs(path.contribution) / most;
      for (const [colour, extra] of [[colours.panel, 2.5], [path.contribution > 0 ? colours.positive : colours.negative, 0]] as const) {
        context.strokeStyle = colour;
        context.lineWidth = 1.6 + 4 * share + extra;
        context.lineJoin = "round";
        context.beginPath();
        for (const [x, y] of nodes) context.lineTo(x, y);
        context.stroke();
      }
    }
  }

  private drawNodes(context: CanvasRenderingContext2D, net: Network, columns: Layout["columns"], shown: AtPoint | null): void {
    const { colours, view } = this.app;
    context.imageSmoothingEnabled = true;
    const hasFocus = document.activeElement === this.canvas && this.canvas.matches(":focus-visible");
    let unit = 0;
    columns.forEach((column, c) => {
      const isHidden = c > 0 && c < columns.length - 1;
      context.font = "11.5px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = isHidden && view.colour === "layer" ? colours.layers[c - 1] : colours.muted;
      if (isHidden) context.fillText(`${c}`, column.x, 9);
      const half = column.size / 2;
      column.ys.forEach((y, i) => {
        if (!isHidden) {
          this.drawEnd(context, column.x, y, Math.max(11, Math.min(half, 15)), c === 0 ? `x${"₁₂"[i]}` : "ŷ");
          return;
        }
        const isClosed = shown !== null && shown.bits[unit] === 0;
        context.globalAlpha = isClosed ? 0.28 : 1;
        context.fillStyle = colours.panel;
        context.fillRect(column.x - half, y - half, column.size, column.size);
        context.drawImage(this.atlas, 0, unit * THUMB, THUMB, THUMB, column.x - half, y - half, column.size, column.size);
        context.globalAlpha = 1;
        const isChosen = view.unit === unit;
        context.strokeStyle = isChosen ? colours.layers[c - 1] : shown && !isClosed ? colours.highlight : colours.muted;
        context.lineWidth = isChosen ? 3.4 : shown && !isClosed ? 2 : 1;
        context.globalAlpha = isClosed && !isChosen ? 0.4 : 1;
        context.strokeRect(column.x - half, y - half, column.size, column.size);
        context.globalAlpha = 1;
        if (hasFocus && this.focus === unit) {
          context.strokeStyle = colours.accent;
          context.lineWidth = 2.5;
          context.strokeRect(column.x - half - 3.5, y - half - 3.5, column.size + 7, column.size + 7);
        }
        unit++;
      });
    });
    if (net.kind === "dln") this.focus = Math.min(this.focus, unit - 1);
  }

  private drawEnd(context: CanvasRenderingContext2D, x: number, y: number, radius: number, text: string): void {
    const { colours } = this.app;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = colours.panel;
    context.fill();
    context.strokeStyle = colours.muted;
    context.lineWidth = 1.2;
    context.stroke();
    context.fillStyle = colours.ink;
    context.font = "12.5px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, x, y);
  }
}
