/** Symmetric eigenproblems: Householder's reduction to a tridiagonal matrix, then QL with implicit shifts. */

export interface Eigen {
  /** Smallest first. */
  values: Float64Array;
  /** Column k (entries [i * n + k]) belongs to values[k]. */
  vectors: Float64Array;
}

/** Eigenvalues and orthonormal eigenvectors of a symmetric n×n matrix, which is left as it is. */
export function eigen(matrix: Float64Array, n: number): Eigen {
  const v = matrix.slice();
  const d = new Float64Array(n);
  const e = new Float64Array(n);
  tridiagonalise(v, d, e, n);
  diagonalise(v, d, e, n);
  return sorted(v, d, n);
}

/** v becomes the orthogonal matrix Q of A = Q T Qᵀ; d and e hold the diagonal of T and what is beside it. */
function tridiagonalise(v: Float64Array, d: Float64Array, e: Float64Array, n: number): void {
  const q = new Float64Array(n * n);
  const u = new Float64Array(n);
  const p = new Float64Array(n);
  for (let i = 0; i < n; i++) q[i * n + i] = 1;
  for (let k = 0; k < n - 2; k++) {
    let norm = 0;
    for (let i = k + 1; i < n; i++) norm += v[i * n + k] ** 2;
    norm = Math.sqrt(norm);
    if (norm === 0) continue;
    const head = v[(k + 1) * n + k];
    const alpha = head > 0 ? -norm : norm;
    u.fill(0);
    for (let i = k + 1; i < n; i++) u[i] = v[i * n + k];
    u[k + 1] -= alpha;
    const half = alpha * alpha - head * alpha; // |u|² / 2
    if (half === 0) continue;
    reflectBoth(v, u, p, half, k, n);
    reflectColumns(q, u, half, k, n);
  }
  for (let i = 0; i < n; i++) {
    d[i] = v[i * n + i];
    if (i > 0) e[i - 1] = v[i * n + i - 1];
  }
  v.set(q);
}

/** v ← (I − uuᵀ/half) v (I − uuᵀ/half), for u that is zero up to index k. */
function reflectBoth(v: Float64Array, u: Float64Array, p: Float64Array, half: number, k: number, n: number): void {
  let mean = 0;
  for (let i = k; i < n; i++) {
    let sum = 0;
    for (let j = k + 1; j < n; j++) sum += v[i * n + j] * u[j];
    p[i] = sum / half;
    mean += u[i] * p[i];
  }
  mean /= 2 * half;
  for (let i = k; i < n; i++) p[i] -= mean * u[i];
  for (let i = k; i < n; i++) for (let j = k; j < n; j++) v[i * n + j] -= u[i] * p[j] + p[i] * u[j];
}

/** q ← q (I − uuᵀ/half). */
function reflectColumns(q: Float64Array, u: Float64Array, half: number, k: number, n: number): void {
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let j = k + 1; j < n; j++) sum += q[i * n + j] * u[j];
    sum /= half;
    for (let j = k + 1; j < n; j++) q[i * n + j] -= sum * u[j];
  }
}

/** Rotate the tridiagonal matrix until nothing is left beside the diagonal; v follows. */
function diagonalise(v: Float64Array, d: Float64Array, e: Float64Array, n: number): void {
  // Entries this small are rounding of the matrix; among eigenvalues of zero a relative test alone would never end.
  let rounding = 0;
  for (let i = 0; i < n; i++) rounding = Math.max(rounding, Number.EPSILON * (Math.abs(d[i]) + Math.abs(e[i])));
  for (let l = 0; l < n; l++) {
    for (let sweep = 0; ; sweep++) {
      let m = l;
      while (m < n - 1 && Math.abs(e[m]) > rounding) m++;
      if (m === l) break;
      if (sweep === 60) throw new Error("the eigenvalues did not converge");
      sweepUp(v, d, e, l, m, n);
    }
  }
}

function sweepUp(v: Float64Array, d: Float64Array, e: Float64Array, l: number, m: number, n: number): void {
  let g = (d[l + 1] - d[l]) / (2 * e[l]);
  let r = Math.hypot(g, 1);
  g = d[m] - d[l] + e[l] / (g + (g >= 0 ? r : -r));
  let [s, c, p] = [1, 1, 0];
  let i = m - 1;
  for (; i >= l; i--) {
    let f = s * e[i];
    const b = c * e[i];
    r = Math.hypot(f, g);
    e[i + 1] = r;
    if (r === 0) {
      d[i + 1] -= p;
      e[m] = 0;
      break;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    for (let k = 0; k < n; k++) {
      f = v[k * n + i + 1];
      v[k * n + i + 1] = s * v[k * n + i] + c * f;
      v[k * n + i] = c * v[k * n + i] - s * f;
    }
  }
  if (r === 0 && i >= l) return;
  d[l] -= p;
  e[l] = g;
  e[m] = 0;
}

function sorted(v: Float64Array, d: Float64Array, n: number): Eigen {
  const order = Array.from(d.keys()).sort((a, b) => d[a] - d[b]);
  const vectors = new Float64Array(n * n);
  order.forEach((from, to) => {
    for (let i = 0; i < n; i++) vectors[i * n + to] = v[i * n + from];
  });
  return { values: Float64Array.from(order, (k) => d[k]), vectors };
}
