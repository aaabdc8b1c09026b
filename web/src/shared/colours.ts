/** Colour scales that people with any colour vision can read, in a light and a dark theme. */
export type Rgb = [number, number, number];

export interface Palette {
  dark: boolean;
  ink: string;
  muted: string;
  line: string;
  panel: string;
  accent: string;
  positive: string;
  negative: string;
  highlight: string;
  layers: string[];
  /** Lines of the two networks in charts. */
  series: string[];
  /** 256 colours from −1 to 1, and from 0 to 1. */
  diverging: Uint32Array;
  sequential: Uint32Array;
  gateOpen: Rgb;
  gateClosed: Rgb;
}

function hex(text: string): Rgb {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** A pixel of ImageData, seen as one 32-bit number (little-endian). */
export const pixel = ([r, g, b]: Rgb): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** 256 colours between some stops. */
function ramp(stops: string[]): Uint32Array {
  const colours = stops.map(hex);
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (colours.length - 1);
    const k = Math.min(Math.floor(at), colours.length - 2);
    const mix = colours[k].map((value, c) => Math.round(value + (at - k) * (colours[k + 1][c] - value)));
    return pixel(mix as Rgb);
  });
}

export const cssOf = (value: number): string => `rgb(${value & 255},${(value >> 8) & 255},${(value >> 16) & 255})`;

// Okabe and Ito's colours, which stay apart under every colour vision; darker on white, lighter on black.
const LAYERS_LIGHT = ["#0072b2", "#d55e00", "#007f5f", "#b3478f", "#8a6d00", "#4b5563"];
const LAYERS_DARK = ["#56b4e9", "#f08a3c", "#2fc79a", "#e295c4", "#e6c229", "#aab4c0"];
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

const LIGHT: Palette = {
  dark: false,
  ink: "#17212b",
  muted: "#55616e",
  line: "#d5dce4",
  panel: "#ffffff",
  accent: "#0b62b8",
  positive: "#1f5fa8",
  negative: "#b84c00",
  highlight: "#111827",
  layers: LAYERS_LIGHT,
  series: ["#0b62b8", "#b84c00"],
  diverging: ramp(["#b35806", "#e08214", "#f6b26b", "#fde3c4", "#f7f7f5", "#cfe1f2", "#8fbbe0", "#4a8cc7", "#1f5fa8"]),
  sequential: ramp([...CIVIDIS].reverse()),
  gateOpen: hex("#3f86c6"),
  gateClosed: hex("#eef1f4"),
};

const DARK: Palette = {
  dark: true,
  ink: "#e9eef3",
  muted: "#a3afbb",
  line: "#2d3843",
  panel: "#161d25",
  accent: "#6cb2f5",
  positive: "#6cb2f5",
  negative: "#f59a52",
  highlight: "#ffffff",
  layers: LAYERS_DARK,
  series: ["#6cb2f5", "#f59a52"],
  diverging: ramp(["#f5963c", "#d97d1c", "#a05c18", "#5a3a1a", "#1d2329", "#1b3b5a", "#22629c", "#3a86cc", "#62aef2"]),
  sequential: ramp(CIVIDIS),
  gateOpen: hex("#5aa5e6"),
  gateClosed: hex("#222b35"),
};

export const palette = (dark: boolean): Palette => (dark ? DARK : LIGHT);

/** The colour of a number between −1 and 1; beyond that the ends. */
export function divergingAt(colours: Palette, value: number): number {
  const at = Math.round(127.5 + 127.5 * value);
  return colours.diverging[at < 0 ? 0 : at > 255 ? 255 : at];
}

export function sequentialAt(colours: Palette, value: number): number {
  const at = Math.round(255 * value);
  return colours.sequential[at < 0 ? 0 : at > 255 ? 255 : at];
}
