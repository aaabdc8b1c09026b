/** Words for the choices that a user has. */
import type { NetConfig, Preset } from "../engine/config.ts";
import type { DataName } from "../engine/data.ts";
import type { Colour } from "./state.ts";

export const PRESET_NAMES: Record<Preset, string> = {
  relu: "ReLU network",
  "dgn-random": "Deep gated: fixed random gates",
  "dgn-learnt": "Deep gated: fixed learnt gates",
  "dgn-soft": "Deep gated: gates and values apart",
  dlgn: "DLGN: every gate a half-space",
  "dlgn-pwc": "DLGN, piecewise constant",
  dln: "Deep linear: all gates open",
};

export const PRESET_NOTES: Record<Preset, string> = {
  relu: "One set of weights decides over the gates and carries the values.",
  "dgn-random": "Random hard gates that never learn; the values have weights of their own.",
  "dgn-learnt": "The gates of a ReLU network, taken at the step below and fixed; fresh values learn.",
  "dgn-soft": "Gates and values have weights of their own and both learn, through soft gates σ(βq).",
  dlgn: "Gates are computed without ReLUs, so that each is open on one side of a straight line.",
  "dlgn-pwc": "As DLGN, but values see only ones: the input acts through the gates alone.",
  dln: "No gates at all: one linear function, however deep.",
};

export const DATA_TITLES: Record<DataName, string> = {
  circle: "Circle",
  spirals: "Spirals",
  xor: "XOR",
  blobs: "Blobs",
  stripes: "Stripes",
  own: "Own",
};

export const COLOUR_NAMES: Record<Colour, string> = {
  output: "Output",
  region: "Regions",
  paths: "Open paths",
  gate: "One gate",
  layer: "Layers",
};

const BRIEF: Record<Preset, string> = {
  relu: "ReLU",
  "dgn-random": "random gates",
  "dgn-learnt": "learnt gates",
  "dgn-soft": "gates and values apart",
  dlgn: "DLGN",
  "dlgn-pwc": "DLGN-PWC",
  dln: "deep linear",
};

export const brief = (net: NetConfig): string => `${BRIEF[net.preset]} 2-${net.hidden.join("-")}-1`;
