/** Gates of the explorer: bits, counts and shared paths against plain loops. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { axesOf, closedAt, compare, constants, isOpen, sharedAt, tapOf } from "../src/explorer/bits.ts";
import { revive, type Gates } from "../src/explorer/facts.ts";

/** A layer from rows of booleans. */
function layerOf(kind: string, shape: number[], rows: boolean[][]): Gates {
  const octets = Math.ceil(rows[0].length / 8);
  const data = new Uint8Array(rows.length * octets);
  rows.forEach((row, n) => row.forEach((open, k) => open && (data[n * octets + (k >> 3)] |= 1 << (k & 7))));
  return { name: "layer", kind, shape, bits: { shape: [rows.length, octets], data }, soft: null, slope: "" };
}

const ROWS = [0, 1, 2].map((n) => Array.from({ length: 18 }, (_, k) => (k * (n + 2) + n) % 3 === 0));

test("gates and what two examples share", () => {
  const layer = layerOf("relu", [2, 3, 3], ROWS);
  const axes = axesOf(layer);
  assert.deepEqual(axes, { channels: 2, rows: 3, columns: 3, taps: 1, isImage: true });
  ROWS.forEach((row, n) => row.forEach((open, k) => assert.equal(isOpen(layer, n, k), open)));
  const [a, b] = [ROWS[0], ROWS[1]];
  const count = (test: (x: boolean, y: boolean) => boolean) => a.filter((open, k) => test(open, b[k])).length;
  const found = compare(layer, axes, 0, 1);
  assert.deepEqual(found, { units: 18, a: count((x) => x), b: count((_, y) => y), both: count((x, y) => x && y), agree: count((x, y) => x === y) });
  a.forEach((open, k) => assert.equal(sharedAt(layer, axes, 0, 1, k), (open ? 1 : 0) + (b[k] ? 2 : 0)));
});

test("channels that do the same for all examples", () => {
  const rows = [[true, true, false, false, true, false], [true, true, false, false, false, false]];
  const layer = layerOf("relu", [3, 1, 2], rows);
  assert.deepEqual(constants(layer, axesOf(layer)), { closed: [1], open: [0] });
  const dense = layerOf("relu", [6], rows);
  assert.deepEqual(constants(dense, axesOf(dense)), { closed: [2, 3, 5], open: [0, 1] });
});

test("max-pooling: the winner of a window", () => {
  const winners = [[0, 3, 1], [0, 2, 1]];
  const rows = winners.map((taps) => Array.from({ length: 12 }, (_, k) => taps[Math.floor(k / 4)] === k % 4));
  const layer = layerOf("max_pool", [1, 1, 3, 4], rows);
  const axes = axesOf(layer);
  assert.equal(axes.taps, 4);
  winners.forEach((taps, n) => taps.forEach((tap, unit) => assert.equal(tapOf(layer, n, unit, 4), tap)));
  assert.deepEqual(compare(layer, axes, 0, 1), { units: 3, a: 3, b: 3, both: 2, agree: 2 });
});

test("a path is shared if all its gates are open for the other", () => {
  const one = layerOf("relu", [3], [[true, true, false], [true, false, false]]);
  const pool = layerOf("max_pool", [1, 1, 2, 2], [[true, false, false, true], [true, false, true, false]]);
  assert.equal(closedAt([one, pool], [[0, 0], [1, 0]], 0, 1), -1);
  assert.equal(closedAt([one, pool], [[0, 1], [1, 0]], 0, 1), 0);
  assert.equal(closedAt([one, pool], [[0, 0], [1, 1]], 0, 1), 1);
});

test("typed arrays arrive as they were sent", () => {
  const sent = Float32Array.from([1.5, -2, 1e-30]);
  const data = Buffer.from(sent.buffer).toString("base64");
  const held = JSON.parse(JSON.stringify({ values: { type: "f4", shape: [3], data }, name: "data" }), revive);
  assert.deepEqual(held, { values: { shape: [3], data: sent }, name: "data" });
});
