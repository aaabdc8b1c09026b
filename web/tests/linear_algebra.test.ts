/** Eigenproblems, checked by what defines them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eigen } from "../src/engine/linear_algebra.ts";
import { Random } from "../src/engine/random.ts";

function check(matrix: Float64Array, n: number): Float64Array {
  const { values, vectors } = eigen(matrix, n);
  const scale = Math.max(...matrix.map(Math.abs), 1e-300);
  for (let k = 0; k < n; k++) {
    if (k) assert.ok(values[k] >= values[k - 1]);
    for (let i = 0; i < n; i++) {
      let [product, inner] = [0, 0];
      for (let j = 0; j < n; j++) {
        product += matrix[i * n + j] * vectors[j * n + k];
        inner += vectors[j * n + i] * vectors[j * n + k];
      }
      assert.ok(Math.abs(product - values[k] * vectors[i * n + k]) < 1e-12 * n * scale);
      assert.ok(Math.abs(inner - (i === k ? 1 : 0)) < 1e-12 * n);
    }
  }
  return values;
}

/** A Gram matrix of n random vectors of few dimensions. */
function lowRank(n: number, rank: number, scale: number): Float64Array {
  const random = new Random(n + rank);
  const rows = Array.from({ length: n }, () => Array.from({ length: rank }, () => random.normal()));
  return Float64Array.from({ length: n * n }, (_, at) => scale * rows[Math.floor(at / n)].reduce((sum, v, r) => sum + v * rows[at % n][r], 0));
}

test("full, singular, zero, repeated and tiny matrices", () => {
  for (const [n, rank] of [[1, 1], [2, 2], [30, 30], [40, 3], [64, 1], [20, 0]]) check(lowRank(n, rank, 1), n);
  check(lowRank(25, 4, 1e-30), 25);
  const identity = Float64Array.from({ length: 100 }, (_, i) => (i % 11 === 0 ? 1 : 0));
  assert.deepEqual(Array.from(check(identity, 10)), new Array(10).fill(1));
});

test("blocks of equal rows, as of points in one region", () => {
  const n = 64;
  check(Float64Array.from({ length: n * n }, (_, at) => (Math.floor(Math.floor(at / n) / 16) === Math.floor((at % n) / 16) ? 1 : 0)), n);
});
