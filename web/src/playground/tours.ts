import { DEFAULT_CONFIG, type Config, type Event } from "../engine/config.ts";
import type { Frame } from "../worker/protocol.ts";
import type { App } from "./app.ts";
import type { View } from "./state.ts";

export interface TourStep {
  title: string;
  text: string[];
  paper?: string;
  config: Config;
  events?: Event[];
  from?: number;
  until?: number;
  view?: Partial<View>;
  spot?: string;
  now: (app: App, frame: Frame) => string;
}
export interface Tour { title: string; steps: TourStep[] }
export const FIRST_TOUR = "who";
export const TOURS: Record<string, Tour> = { who: { title: "Gates or values", steps: [{ title: "x", text: ["y"], config: DEFAULT_CONFIG, now: () => "" }] } };
