/** The page's state: what is picked, in which colours; parts redraw when it changes. */
import { palette, type Palette } from "../shared/colours.ts";
import { byId, setText } from "../shared/dom.ts";
import type { Facts } from "./facts.ts";

export type Slot = "A" | "B" | "C";
export const SLOTS: Slot[] = ["A", "B", "C"];

export interface Part {
  /** Draw everything that depends on the picked examples or the colours. */
  draw(): void;
}

export class App {
  readonly facts: Facts;
  colours: Palette;
  parts: Part[] = [];
  picked: Record<Slot, number>;
  private waiting = false;

  constructor(facts: Facts, dark: boolean) {
    this.facts = facts;
    this.colours = palette(dark);
    const n = facts.examples.numbers.length;
    const [a, b, c] = facts.planes[0]?.examples ?? [0, Math.min(1, n - 1), Math.min(2, n - 1)];
    this.picked = { A: a, B: b, C: c };
  }

  pick(slot: Slot, example: number): void {
    this.picked = { ...this.picked, [slot]: example };
    setText(byId("live"), `${slot} is now example ${this.nameOf(example)}`);
    this.redraw();
  }

  setDark(dark: boolean): void {
    this.colours = palette(dark);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    this.redraw();
  }

  /** Draw at the next frame, once however often it is asked for. */
  redraw(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      for (const part of this.parts) part.draw();
    });
  }

  className(label: number): string {
    return this.facts.classes[label] ?? String(label);
  }

  /** An output's name: its class, or its number. */
  outputName(output: number): string {
    const { classes, examples } = this.facts;
    if (examples.outputs.shape[1] === 1) return classes.length ? `“${this.className(1)}” against “${this.className(0)}”` : "the output";
    return classes.length ? `“${this.className(output)}”` : `output ${output}`;
  }

  isMistake(example: number): boolean {
    const { labels, decisions } = this.facts.examples;
    return labels.length > 0 && labels[example] !== decisions[example];
  }

  /** Number and label of an example, in words. */
  nameOf(example: number): string {
    const { numbers, labels, targets, decisions } = this.facts.examples;
    if (!labels.length) return `#${numbers[example]}, target ${targets[example]}`;
    const decided = this.isMistake(example) ? `, taken for “${this.className(decisions[example])}”` : "";
    return `#${numbers[example]}, “${this.className(labels[example])}”${decided}`;
  }
}
