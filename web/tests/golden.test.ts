/** The engine against gatelab: files written by tools/playground_golden.py, to 1e-9. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { labelAlignment, labelComplexity, overlap, pathKernel, scaledEigen, tangentKernels } from "../src/engine/kernels.ts";
import { hiddenWidths, network, type Network } from "../src/engine/network.ts";
import { Optimiser, type Method } from "../src/engine/optimiser.ts";
import { areas, partition } from "../src/engine/partition.ts";
import { Pass } from "../src/engine/pass.ts";
import { openPaths, topPaths } from "../src/engine/paths.ts";
import { fromExport } from "../src/engine/export.ts";

const FOLDER = new URL("./golden/", import.meta.url);
const TOLERANCE = 1e-9;
const RIDGE = 1e-3;
const RATES: Record<Method, number> = { sgd: 0.05, momentum: 0.02, adam: 0.01 };

/** Both lists, with differences relative to the largest entry. */
function close(actual: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  assert.equal(actual.length, expected.length, `${what}: length`);
  const scale = Math.max(1e-12, ...Array.from(expected, Math.abs));
  for (let i = 0; i < expected.length; i++)
    assert.ok(
      Math.abs(actual[i] - expected[i]) <= TOLERANCE * scale,
      `${what}[${i}]: engine ${actual[i]}, gatelab ${expected[i]}`,
    );
}

function run(net: Network, x: Float64Array, n: number): Pass {
  const pass = new Pass(net, n);
  pass.forward(x, n);
  return pass;
}

function gradient(net: Network, x: Float64Array, y: number[]): Float64Array {
  const pass = run(net, x, y.length);
  pass.backward(Float64Array.from(y, (label, s) => (pass.output[s] - label) / y.length));
  const out = new Float64Array(net.parameters.length);
  pass.addGradients(out);
  return out;
}

function trained(net: Network, method: Method, x: Float64Array, y: number[]): Float64Array {
  const optimiser = new Optimiser(method, net.parameters.length);
  const end = net.parameters.length;
  for (let step = 0; step < 5; step++) {
    const slope = gradient(net, x, y);
    optimiser.steps++;
    optimiser.step(net.parameters, slope, RATES[method], 0, end);
  }
  return net.parameters;
}

const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

test("there are 20 networks, of every kind and gate", () => {
  assert.equal(files.length, 20);
  const told = files.map((name) => JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")).network);
  assert.deepEqual([...new Set(told.map((net) => net.kind))].sort(), ["dgn", "dlgn", "dlgn-pwc", "dln", "relu"]);
  assert.deepEqual([...new Set(told.map((net) => net.gate))].sort(), ["hard", "soft", "straight"]);
});

for (const name of files) {
  const golden = JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"));
  const x = Float64Array.from(golden.x.flat() as number[]);
  const y: number[] = golden.y;
  const n = y.length;
  const net = fromExport(golden.network);
  const pass = run(net, x, n);
  const hasGates = net.kind !== "dln";
  const perExample = (arrays: Float64Array[]) =>
    Array.from({ length: n }, (_, s) =>
      arrays.flatMap((array, l) => Array.from(array.subarray(s * net.widths[l + 1], (s + 1) * net.widths[l + 1]))),
    );

  test(`${name}: outputs, gradients, training`, () => {
    close(pass.output, golden.outputs, "outputs");
    close(gradient(net, x, y), golden.gradient, "gradient");
    for (const method of Object.keys(RATES) as Method[]) {
      const copy = network(net, net.parameters.slice());
      close(trained(copy, method, x, y), golden.trained[method], method);
    }
  });

  test(`${name}: gates, regions, paths`, () => {
    if (hasGates) close(perExample(pass.gates).flat(), golden.gates.flat(), "gates");
    const cut = partition(net, golden.partition.bounds);
    assert.equal(cut.regions, golden.partition.regions, "regions");
    const sizes = areas(cut);
    const order = Array.from(sizes.keys()).sort((a, b) => sizes[a] - sizes[b]);
    close(order.map((r) => sizes[r]), golden.partition.areas, "areas");
    close(order.flatMap((r) => Array.from(cut.maps.subarray(3 * r, 3 * r + 3))), golden.partition.maps.flat(), "maps");
    if (hasGates) {
      const bits = perExample(pass.decides).map((row) => Uint8Array.from(row, (q) => (q > 0 ? 1 : 0)));
      close(bits.map((row) => openPaths(hiddenWidths(net), row)), golden.open_paths, "open paths");
    }
    golden.paths.forEach((expected: any, s: number) => {
      const { paths, count } = topPaths(pass, s, 6);
      assert.equal(count, expected.count, "number of paths");
      assert.deepEqual(paths.map(({ start, units }) => [start, ...units]), expected.top.map((p: any) => [p.start, ...p.units]));
      close(paths.map((p) => p.contribution), expected.top.map((p: any) => p.contribution), "contributions");
    });
  });

  test(`${name}: kernels`, () => {
    if (hasGates) close(overlap(pass), golden.overlap.flat(), "overlap");
    const kernel = pathKernel(pass);
    close(kernel, golden.path_kernel.flat(), "path kernel");
    const tangent = tangentKernels(pass);
    close(tangent.all, golden.tangent_kernel.flat(), "tangent kernel");
    if (golden.value_kernel) {
      close(tangent.values, golden.value_kernel.flat(), "value kernel");
      close(tangent.features, golden.feature_kernel.flat(), "feature kernel");
    }
    const labels = Float64Array.from(y);
    const scaled = scaledEigen(kernel, n)!;
    close(scaled.values, golden.spectrum, "spectrum");
    close([labelAlignment(kernel, labels)], [golden.alignment], "alignment");
    close([labelComplexity(scaled, labels, RIDGE)], [golden.complexity], "complexity");
  });
}
