/** The six tours, in the order of the menu. */
import { COST, SUM_OVER_PATHS, WHO_LEARNS } from "./gates.ts";
import { DEPTH, HALF_SPACES, KERNEL_SEES } from "./kernels.ts";
import type { Tour } from "./tour.ts";

export type { Tour } from "./tour.ts";

export const TOURS: Record<string, Tour> = {
  sum: SUM_OVER_PATHS,
  who: WHO_LEARNS,
  halfspaces: HALF_SPACES,
  cost: COST,
  kernel: KERNEL_SEES,
  depth: DEPTH,
};

/** The one that needs no knowledge at all. */
export const FIRST_TOUR = "who";
