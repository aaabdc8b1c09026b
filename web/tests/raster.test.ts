/** Every pixel shows the region that holds its centre. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULT_CONFIG } from "../src/engine/config.ts";
import { makeData } from "../src/engine/data.ts";
import { partition } from "../src/engine/partition.ts";
import { Session } from "../src/engine/session.ts";
import { regionAt, regionMap } from "../src/shared/raster.ts";

test("the region of every pixel holds the pixel's centre", () => {
  const session = new Session(DEFAULT_CONFIG, 0, makeData(DEFAULT_CONFIG.data));
  session.advance(100);
  const cut = partition(session.net, [-1.5, 1.5, -1.5, 1.5]);
  const size = 120;
  const map = regionMap(cut, size);
  let wrong = 0;
  for (let row = 0; row < size; row++)
    for (let column = 0; column < size; column++) {
      const [s, t] = [((column + 0.5) / size) * 3 - 1.5, 1.5 - ((row + 0.5) / size) * 3];
      if (map[row * size + column] !== regionAt(cut, s, t)) wrong++;
    }
  assert.ok(cut.regions > 50);
  assert.equal(wrong, 0);
});
