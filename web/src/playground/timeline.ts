/** Loss, score, regions, flips and ν over time; scrubbing back to any moment. */
import type { Record as Moment } from "../engine/measure.ts";
import { fit } from "../shared/canvas.ts";
import { drawRows, stepAt, type Line, type Row } from "../shared/chart.ts";
import { byId, fill, grouped, h, setText, short } from "../shared/dom.ts";
import type { App } from "./app.ts";

export class Timeline {
  private readonly app: App;
  private readonly canvas = byId<HTMLCanvasElement>("timeline");
  private readonly scrub = byId<HTMLInputElement>("scrub");
  private legend = "";

  constructor(app: App) {
    this.app = app;
    this.scrub.addEventListener("input", () => app.seek(Number(this.scrub.value)));
    this.scrub.addEventListener("change", () => app.remember());
    const drag = (event: PointerEvent) => app.seek(stepAt(event.offsetX, Math.max(app.frame?.reached ?? 0, 10), this.canvas.clientWidth));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons && drag(event));
    this.canvas.addEventListener("pointerup", () => app.remember());
    byId("again").addEventListener("click", () => {
      app.seek(0);
      app.play(true);
    });
  }

  newFrame(): void {
    const { step, reached } = this.app.frame!;
    setText(byId("clock"), grouped(step));
    this.scrub.max = String(reached);
    this.scrub.value = String(step);
    this.scrub.setAttribute("aria-valuetext", `step ${step} of ${reached}, ${this.app.scoreText(0)}`);
    this.drawLegend();
    this.drawChart();
  }

  private drawLegend(): void {
    const { nets } = this.app;
    const key = `${nets.length}${this.app.colours.dark}${this.app.frame!.nets[0].test === null}`;
    if (key === this.legend) return;
    this.legend = key;
    const item = (text: string, colour: string, dashed: boolean) => {
      const line = h("span", { class: `legend-key${dashed ? " dashed" : ""}` });
      line.style.borderTopColor = colour;
      return [line, text];
    };
    const { series } = this.app.colours;
    const parts = nets.flatMap((_, i) => item(nets.length > 1 ? `network ${"AB"[i]}` : "training", series[i], false));
    const test = this.app.frame!.nets[0].test ? item("test", series[0], true) : [];
    const mark = item("you changed something", this.app.colours.muted, true);
    fill(byId("legend"), ...parts, ...test, ...mark);
  }

  private lines(value: (moment: Moment) => number, test?: (moment: Moment) => number): Line[] {
    const { records } = this.app.frame!;
    return records.flatMap((list, i) => {
      const colour = this.app.colours.series[i];
      const main: Line = { points: list.map((moment) => [moment.step, value(moment)]), colour };
      const dashed: Line[] = test && list[0]?.test ? [{ points: list.map((moment) => [moment.step, test(moment)]), colour, dashed: true }] : [];
      return [...dashed, main];
    });
  }

  private drawChart(): void {
    const { frame, colours } = this.app;
    const { context, width, height } = fit(this.canvas);
    const isRegression = frame!.data.isRegression;
    const percent = (value: number) => `${short(100 * value, 3)} %`;
    const rows: Row[] = [
      { title: "loss (log)", lines: this.lines(({ train }) => train.loss, ({ test }) => test!.loss), logarithmic: true, format: (v) => short(v, 2) },
      {
        title: isRegression ? "R²" : "accuracy",
        lines: this.lines(({ train }) => train.score, ({ test }) => test!.score),
        range: isRegression ? [0, 1] : [0.4, 1],
        format: isRegression ? (v) => short(v, 3) : percent,
      },
      { title: "regions", lines: this.lines(({ regions }) => regions), format: grouped },
      { title: "flips per step", lines: this.lines(({ flips }) => flips), format: percent },
      { title: "ν of H (log)", lines: this.lines(({ nu }) => nu), logarithmic: true, format: (v) => short(v, 3) },
    ];
    const marks = [...new Set(this.app.events.map(({ step }) => step))];
    drawRows(context, width, height, rows, Math.max(frame!.reached, 10), frame!.step, marks, colours);
  }
}
