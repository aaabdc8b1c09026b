/** Training is reproducible: freezing holds to the last bit, any moment can be visited, a branch forgets the future. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULT_CONFIG, PRESETS, type Config, type Preset } from "../src/engine/config.ts";
import { DATA_NAMES, makeData, parseTable } from "../src/engine/data.ts";
import { gateBits } from "../src/engine/measure.ts";
import { partition } from "../src/engine/partition.ts";
import { Pass } from "../src/engine/pass.ts";
import { Session } from "../src/engine/session.ts";
import { Lab } from "../src/worker/lab.ts";

function config(preset: Preset, more: Partial<Config> = {}): Config {
  return { ...DEFAULT_CONFIG, nets: [{ ...DEFAULT_CONFIG.nets[0], preset, hidden: [6, 5], learntAt: 20 }], ...more };
}

const session = (given: Config) => new Session(given, 0, makeData(given.data));
const freeze = (gates: boolean, values: boolean) => ({ step: 0, net: 0, type: "freeze", gates, values }) as const;

for (const preset of PRESETS)
  test(`${preset}: frozen gates and frozen values do not move by a bit, the others do`, () => {
    for (const [gates, values] of [[true, false], [false, true], [true, true]]) {
      const run = session(config(preset));
      run.advance(30);
      run.act({ ...freeze(gates, values) });
      const before = run.net.parameters.slice();
      const bits = gateBits(run.net, run.data);
      run.advance(60);
      const [feature, value] = [(p: Float64Array) => p.slice(0, run.net.featureCount), (p: Float64Array) => p.slice(run.net.featureCount)];
      const canLearn = run.net.gate !== "hard" && run.net.featureCount > 0;
      assert.equal(gates || !canLearn, feature(before).every((w, i) => w === feature(run.net.parameters)[i]), "gates");
      assert.equal(values, value(before).every((w, i) => w === value(run.net.parameters)[i]), "values");
      if (gates && preset !== "dln") assert.deepEqual(gateBits(run.net, run.data), bits);
    }
  });

test("splitting a ReLU network changes no output and no region", () => {
  const run = session(config("relu"));
  run.advance(40);
  const before = new Pass(run.net, 150).forward(run.data.x, 150).slice();
  const regions = partition(run.net, [-1.5, 1.5, -1.5, 1.5]).regions;
  run.act({ ...freeze(true, false) });
  assert.equal(run.net.kind, "dgn");
  assert.deepEqual(new Pass(run.net, 150).forward(run.data.x, 150), before);
  assert.equal(partition(run.net, [-1.5, 1.5, -1.5, 1.5]).regions, regions);
});

for (const method of ["sgd", "momentum", "adam"] as const)
  test(`${method}: every moment can be visited again, across events and thinned snapshots`, () => {
    const run = session(config("relu", { train: { method, rate: 0.01, batch: 7 } }));
    const seen = new Map<number, Float64Array>();
    const walk = (to: number) => {
      for (let step = run.step; step < to; step++) {
        run.advance(step + 1);
        seen.set(step + 1, run.net.parameters.slice());
      }
    };
    walk(333);
    run.act({ ...freeze(false, true) });
    walk(500);
    run.act({ step: 0, net: 0, type: "redraw", part: "values" });
    seen.set(500, run.net.parameters.slice());
    walk(2700);
    assert.ok(run.snapshotEvery > 10, "snapshots were thinned");
    for (const step of [2699, 1, 332, 340, 499, 500, 501, 1234, 2700]) {
      run.seek(step);
      assert.equal(run.step, step);
      assert.deepEqual(run.net.parameters, seen.get(step), `step ${step}`);
    }
    run.seek(100);
    run.advance(2700);
    assert.deepEqual(run.net.parameters, seen.get(2700), "training on from an earlier moment repeats what was");
  });

test("the script of events rebuilds the network from nothing", () => {
  const given = config("relu");
  const lab = new Lab({ ...given, nets: [given.nets[0], { ...given.nets[0], preset: "dlgn" }] });
  lab.advance(50);
  lab.act({ step: 0, net: 0, type: "freeze", gates: true, values: false });
  lab.advance(80);
  lab.act({ step: 0, net: -1, type: "train", train: { method: "sgd", rate: 0.1, batch: 0 } });
  lab.act({ step: 0, net: 1, type: "redraw", part: "gates" });
  lab.advance(120);
  const again = new Lab(lab.config, JSON.parse(JSON.stringify(lab.events)));
  again.advance(120);
  for (const i of [0, 1]) assert.deepEqual(again.sessions[i].net.parameters, lab.sessions[i].net.parameters);
  assert.deepEqual(again.records.map((list) => list.at(-1)!.train), lab.records.map((list) => list.at(-1)!.train));
});

test("an event at an earlier moment forgets the later ones", () => {
  const lab = new Lab(config("relu"));
  lab.advance(100);
  lab.act({ step: 0, net: 0, type: "freeze", gates: true, values: false });
  lab.advance(200);
  lab.seek(60);
  lab.act({ step: 0, net: 0, type: "freeze", gates: false, values: true });
  assert.equal(lab.reached, 60);
  assert.deepEqual(lab.events.map(({ step }) => step), [60]);
  assert.equal(lab.records[0].at(-1)!.step, 60);
});

test("a step that is too large is told, not drawn", () => {
  const lab = new Lab(config("dln", { train: { method: "sgd", rate: 50, batch: 0 } }));
  lab.advance(200);
  assert.ok(lab.diverged && lab.step < 200);
});

test("data: every name gives its points, again with the same seed, and others with another", () => {
  for (const name of DATA_NAMES.filter((n) => n !== "own")) {
    const given = { ...DEFAULT_CONFIG.data, name, points: 80, share: 0.75, noise: 0.1 };
    const data = makeData(given);
    assert.equal(data.y.length, 60);
    assert.equal(data.testY.length, 20);
    assert.deepEqual(makeData(given), data);
    assert.notDeepEqual(makeData({ ...given, seed: 2 }).x, data.x);
    assert.equal(data.isRegression, name === "circle");
    assert.ok(data.y.some((y) => y > 0) && data.y.some((y) => y < 0));
  }
});

test("a table is read, scaled, relabelled, or refused with the line", () => {
  const { own, note } = parseTable("x,y,class\n0,0,3\n10;20;5\n\n4 4 3\n");
  assert.equal(own.length, 9);
  assert.deepEqual([own[2], own[5], own[8]], [-1, 1, -1]);
  assert.ok(own.every((value) => Math.abs(value) <= 1.2));
  assert.match(note, /scaled.*became/);
  assert.throws(() => parseTable("1,2,3\n1,<b>,2"), /line 2: “1,<b>,2” is not three numbers/);
  assert.throws(() => parseTable("1,2,3\n1,2"), /line 2 has 2 numbers/);
  assert.throws(() => parseTable("1,2,1"), /at least two/);
});
