/** The settings: data, network, training. Every control has a label and works with keys alone. */
import { DEFAULT_CONFIG, DEFAULT_NET, MOST_LAYERS, MOST_UNITS, PRESETS, type NetConfig, type Preset, type TrainConfig } from "../engine/config.ts";
import { DATA_NAMES, EXTENT, makeData, type DataConfig, type DataName } from "../engine/data.ts";
import type { Method } from "../engine/optimiser.ts";
import { cssOf, divergingAt } from "../shared/colours.ts";
import { byId, fill, h, short } from "../shared/dom.ts";
import type { App, Brush } from "./app.ts";
import { askForTable } from "./dialogs.ts";
import { DATA_TITLES, PRESET_NAMES, PRESET_NOTES } from "./names.ts";

function field(label: string, control: HTMLElement, value?: string): HTMLElement {
  return h("label", { class: "field" }, h("span", {}, label, value === undefined ? null : h("output", { class: "number" }, value)), control);
}

/** A slider over a list of values. */
function slider(id: string, label: string, values: number[], value: number, show: (v: number) => string, set: (v: number) => void): HTMLElement {
  const at = values.reduce((best, v, i) => (Math.abs(v - value) < Math.abs(values[best] - value) ? i : best), 0);
  const input = h("input", { id, type: "range", min: 0, max: values.length - 1, step: 1, value: at, "aria-valuetext": show(value) });
  const root = field(label, input, show(value));
  input.addEventListener("input", () => {
    const chosen = values[Number(input.value)];
    root.querySelector("output")!.textContent = show(chosen);
    input.setAttribute("aria-valuetext", show(chosen));
  });
  input.addEventListener("change", () => set(values[Number(input.value)]));
  return root;
}

function select<T extends string>(id: string, label: string, options: [T, string][], value: T, set: (v: T) => void): HTMLElement {
  const control = h("select", { id, onchange: () => set(control.value as T) }) as HTMLSelectElement;
  for (const [name, text] of options) control.append(h("option", { value: name, selected: name === value }, text));
  return field(label, control);
}

const RATES = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1];
const NOISES = [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3];
const SHARES = [0.5, 0.6, 0.75, 0.9, 1];
const COUNTS = [50, 100, 200, 300, 500];
const BATCHES = [1, 8, 16, 32, 64, 0];
const BETAS = [1, 2, 4, 8, 10, 16, 30];

export class Controls {
  private readonly app: App;
  /** Which of two networks is edited. */
  private edited = 0;

  constructor(app: App) {
    this.app = app;
    app.onConfig.push(() => this.build());
    this.build();
  }

  build(): void {
    const focused = document.activeElement?.id;
    this.edited = Math.min(this.edited, this.app.config.nets.length - 1);
    fill(byId("data-fields"), ...this.dataFields());
    fill(byId("net-fields"), ...this.netFields());
    fill(byId("train-fields"), ...this.trainFields());
    byId<HTMLInputElement>("seed").value = String(this.app.config.seed);
    byId("compare").setAttribute("aria-pressed", String(this.app.config.nets.length > 1));
    if (focused) document.getElementById(focused)?.focus();
  }

  private setData(change: Partial<DataConfig>): void {
    this.app.change({ ...this.app.config, data: { ...this.app.config.data, ...change } });
    this.app.remember();
  }

  private dataFields(): HTMLElement[] {
    const { data } = this.app.config;
    const choices = h("div", { class: "thumbs", role: "radiogroup", "aria-label": "Data" });
    for (const name of DATA_NAMES) if (name !== "own" || data.name === "own") choices.append(this.dataChoice(name));
    const isOwn = data.name === "own";
    return [
      choices,
      ...(isOwn ? [] : [slider("points", "Points", COUNTS, data.points, String, (points) => this.setData({ points }))]),
      ...(isOwn ? [] : [slider("noise", "Noise", NOISES, data.noise, (v) => short(v), (noise) => this.setData({ noise }))]),
      slider("train-share", "For training", SHARES, data.share, (v) => `${Math.round(100 * v)} %`, (share) => this.setData({ share })),
      ...(isOwn ? [] : [h("div", { class: "row" }, h("button", { id: "new-data", onclick: () => this.setData({ seed: data.seed + 1 }) }, "New sample"))]),
      this.brushes(),
      h("div", { class: "row" }, h("button", { id: "paste", onclick: () => askForTable(this.app, (own) => this.setData({ name: "own", own })) }, "Paste a table (CSV)")),
    ];
  }

  private dataChoice(name: DataName): HTMLElement {
    const { data } = this.app.config;
    const input = h("input", { type: "radio", name: "data", id: `data-${name}`, value: name, checked: data.name === name, onchange: () => this.setData({ name }) });
    const picture = h("canvas", { width: 68, height: 68, "aria-hidden": "true" });
    const context = picture.getContext("2d")!;
    const sample = makeData(name === "own" ? data : { ...DEFAULT_CONFIG.data, name, points: 120, share: 1 });
    for (let i = 0; i < sample.y.length; i++) {
      context.fillStyle = cssOf(divergingAt(this.app.colours, sample.y[i]));
      context.beginPath();
      context.arc(34 + (sample.x[2 * i] / EXTENT) * 34, 34 - (sample.x[2 * i + 1] / EXTENT) * 34, 2.6, 0, 7);
      context.fill();
    }
    return h("label", {}, input, picture, DATA_TITLES[name]);
  }

  private brushes(): HTMLElement {
    const group = h("div", { class: "segments", role: "radiogroup", "aria-label": "Paint points" });
    const texts: [Brush, string][] = [["none", "Off"], ["plus", "+1"], ["minus", "−1"], ["erase", "Erase"]];
    for (const [brush, text] of texts) {
      const set = () => {
        this.app.brush = brush;
        for (const plane of document.querySelectorAll(".plane")) plane.classList.toggle("painting", brush !== "none");
      };
      group.append(h("label", {}, h("input", { type: "radio", name: "brush", id: `brush-${brush}`, value: brush, checked: this.app.brush === brush, onchange: set }), text));
    }
    return h("div", { class: "field" }, h("span", {}, "Paint on the plane"), group);
  }

  private setNet(change: Partial<NetConfig>): void {
    const nets = this.app.config.nets.map((net, i) => (i === this.edited ? { ...net, ...change } : net));
    this.app.change({ ...this.app.config, nets });
    this.app.remember();
  }

  private setPreset(preset: Preset): void {
    // Learnt gates are taken where the ReLU network on the page stands now.
    const old = this.app.config.nets[this.edited];
    const step = this.app.frame?.step ?? 0;
    const learntAt = preset === "dgn-learnt" && old.preset === "relu" && step > 0 ? step : old.learntAt;
    this.setNet({ preset, learntAt });
  }

  private netFields(): HTMLElement[] {
    const { nets } = this.app.config;
    const net = nets[this.edited];
    const presets = PRESETS.map((preset) => [preset, PRESET_NAMES[preset]] as [Preset, string]);
    const isSoft = net.preset === "dgn-soft" || net.preset.startsWith("dlgn");
    const bias = h("input", { type: "checkbox", id: "bias", checked: net.bias, onchange: () => this.setNet({ bias: bias.checked }) }) as HTMLInputElement;
    return [
      ...(nets.length > 1 ? [this.editChoice()] : []),
      select("preset", "Kind", presets, net.preset, (preset) => this.setPreset(preset)),
      h("p", { class: "small muted" }, PRESET_NOTES[net.preset]),
      ...(net.preset === "dgn-learnt" ? [this.learntAt(net)] : []),
      this.layers(net),
      h("label", { class: "check" }, bias, "Biases"),
      ...(isSoft || net.preset === "relu" ? [slider("beta", isSoft ? "Steepness β of soft gates" : "β for learning gates when split", BETAS, net.beta, String, (beta) => this.setNet({ beta }))] : []),
    ];
  }

  private editChoice(): HTMLElement {
    const group = h("div", { class: "segments", role: "radiogroup", "aria-label": "Network to edit" });
    for (const i of [0, 1]) {
      const set = () => {
        this.edited = i;
        this.build();
      };
      group.append(h("label", {}, h("input", { type: "radio", name: "edit", id: `edit-${"AB"[i]}`, checked: this.edited === i, onchange: set }), `Edit ${"AB"[i]}`));
    }
    return group;
  }

  private learntAt(net: NetConfig): HTMLElement {
    const input = h("input", { type: "number", id: "learnt-at", min: 0, max: 20000, step: 50, value: net.learntAt, onchange: () => this.setNet({ learntAt: Math.min(20000, Math.max(0, Math.round(Number(input.value) || 0))) }) }) as HTMLInputElement;
    return field("Gates taken at step", input);
  }

  private layers(net: NetConfig): HTMLElement {
    const rows = net.hidden.map((width, l) => {
      const input = h("input", {
        type: "number",
        id: `width-${l + 1}`,
        min: 1,
        max: MOST_UNITS,
        value: width,
        "aria-label": `Units in layer ${l + 1}`,
        onchange: () => this.setNet({ hidden: net.hidden.map((w, k) => (k === l ? Math.min(MOST_UNITS, Math.max(1, Math.round(Number(input.value) || w))) : w)) }),
      }) as HTMLInputElement;
      return h("div", { class: "row" }, h("span", {}, `Layer ${l + 1}`), input, h("span", {}, "units"));
    });
    const add = h("button", { id: "add-layer", disabled: net.hidden.length >= MOST_LAYERS, onclick: () => this.setNet({ hidden: [...net.hidden, net.hidden.at(-1)!] }) }, "+ layer");
    const drop = h("button", { id: "drop-layer", disabled: net.hidden.length <= 1, onclick: () => this.setNet({ hidden: net.hidden.slice(0, -1) }) }, "− layer");
    return h("div", { class: "layers" }, ...rows, h("div", { class: "row" }, add, drop));
  }

  private setTrain(change: Partial<TrainConfig>): void {
    const train = { ...this.app.config.train, ...change };
    const isFresh = this.app.frame?.reached === 0;
    if (isFresh) this.app.change({ ...this.app.config, train });
    else {
      // In the middle of training this is an event; a Reset starts with the new settings.
      this.app.config = { ...this.app.config, train };
      this.app.act({ step: 0, net: -1, type: "train", train });
    }
  }

  private trainFields(): HTMLElement[] {
    const { train } = this.app.config;
    const methods: [Method, string][] = [["sgd", "SGD"], ["momentum", "SGD with momentum 0.9"], ["adam", "Adam"]];
    return [
      select("method", "Optimiser", methods, train.method, (method) => this.setTrain({ method })),
      slider("rate", "Step size", RATES, train.rate, (v) => String(v), (rate) => this.setTrain({ rate })),
      slider("batch", "Batch", BATCHES, train.batch === 0 ? 65 : train.batch, (v) => (v === 0 || v > 64 ? "all" : String(v)), (batch) => this.setTrain({ batch })),
    ];
  }

  /** Show a second network beside the first, or only the first. */
  compare(on: boolean): void {
    const { nets } = this.app.config;
    const second: NetConfig = { ...(nets[0] ?? DEFAULT_NET), preset: nets[0].preset === "relu" ? "dlgn" : "relu" };
    this.app.change({ ...this.app.config, nets: on ? [nets[0], second] : [nets[0]] });
    this.app.remember();
  }
}
