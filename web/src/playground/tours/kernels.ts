/** Three tours: half-spaces, kernels, depth. */
import type { Preset } from "../../engine/config.ts";
import { Pass } from "../../engine/pass.ts";
import { short } from "../../shared/dom.ts";
import type { Frame } from "../../worker/protocol.ts";
import type { App } from "../app.ts";
import { alone, freeze, score, setUp, versus, type Tour } from "./tour.ts";

const CIRCLE = { name: "circle", noise: 0, share: 1 } as const;

/** Two layers of eight units. */
const small = (preset: Preset) => ({ hidden: [8, 8], preset });

/** Mean squared error (halved) on the upper, smooth half of the circle and on the lower, rough half. */
function halves(app: App, frame: Frame, index: number): [number, number] {
  const { x, y } = frame.data;
  const output = new Pass(app.nets[index], y.length).forward(x, y.length);
  const sums = [0, 0, 0, 0];
  for (let i = 0; i < y.length; i++) {
    const half = x[2 * i + 1] > 0 ? 0 : 1;
    sums[half] += (output[i] - y[i]) ** 2 / 2;
    sums[2 + half]++;
  }
  return [sums[0] / sums[2], sums[1] / sums[3]];
}

export const HALF_SPACES: Tour = {
  title: "Half-spaces against ReLU regions",
  steps: [
    {
      title: "A deep ReLU gate bends",
      text: ["This unit is in the second layer. What it sees has passed the gates of the first layer, so its border bends wherever it crosses one of their lines."],
      config: setUp([small("relu")]),
      from: 600,
      view: { colour: "gate", unit: 9 },
      spot: "#plane-A",
      now: alone,
    },
    {
      title: "A linear gate does not",
      text: ["A deep linearly gated network (DLGN) computes its gates without ReLUs. Every gate, however deep, is a half-space: open on one side of one straight line. Click units in any layer."],
      paper: "Half-space paper, Theorem 2: in a DLGN the set where a path is open is an intersection of half-spaces, one for each layer.",
      config: setUp([small("dlgn")]),
      from: 600,
      view: { colour: "gate", unit: 9 },
      spot: "#diagram-A",
      now: alone,
    },
    {
      title: "Both learn",
      text: ["The target lives on a circle: it changes slowly along the upper half, fast along the lower half. Both networks start learning the slow half first."],
      paper: "Half-space paper, Section 4 and Figure 5: the half with the lower frequency is learnt in a few epochs, the other takes more than a hundred.",
      config: setUp([{ ...small("relu"), beta: 10 }, { ...small("dlgn"), beta: 10 }], CIRCLE),
      until: 1500,
      spot: ".stages",
      now: (app, frame) => {
        const [[a, b], [c, d]] = [halves(app, frame, 0), halves(app, frame, 1)];
        return `Step ${frame.step}, error on the slow and the fast half. A, ReLU: ${short(a, 2)} and ${short(b, 2)}. B, DLGN: ${short(c, 2)} and ${short(d, 2)}.`;
      },
    },
    {
      title: "Gates alone carry the input",
      text: ["In the piecewise constant variant (DLGN-PWC) the values see only ones. The input acts through the gates and nothing else: with hard gates, every region would have one output. It still learns the circle."],
      config: setUp([{ ...small("dlgn-pwc"), beta: 10 }], CIRCLE),
      until: 1500,
      view: { colour: "layer" },
      spot: "#plane-A",
      now: alone,
    },
    {
      title: "Fixed half-spaces are slow",
      text: ["The same network twice; in B the half-spaces are frozen at their random start. Where paths are open can no longer change."],
      paper: "Half-space paper, Figure 2: a DLGN with fixed random gates needs more than 2,000 epochs where learnt gates need about 200. The paper also sees more open paths on the slow half; in networks as small as these that depends on the seed. Colour by “Open paths” and check.",
      config: setUp([{ ...small("dlgn"), beta: 10 }, { ...small("dlgn"), beta: 10 }], CIRCLE),
      events: [freeze(1, true, false)],
      until: 1500,
      spot: "#freeze-gates-B",
      now: versus("A, half-spaces learn", "B, half-spaces frozen"),
    },
  ],
};

const nuAt = (frame: Frame, at: number): number => frame.records[0].at(at)?.nu ?? NaN;
const change = (frame: Frame): string => `ν of H was ${short(frame.records[0][0].nu)} at the start and is ${short(nuAt(frame, -1))} at step ${frame.records[0].at(-1)!.step}.`;

export const KERNEL_SEES: Tour = {
  title: "The kernel sees the labels",
  steps: [
    {
      title: "Who shares paths with whom?",
      text: ["Each pixel of this matrix is a pair of training points, ordered by class: it is bright if many paths are open for both. Before training the gates know nothing about the labels."],
      config: setUp([small("relu")]),
      view: { kernel: "overlap" },
      spot: "#kernels",
      now: (_, frame) => `Λ and the labels: alignment ${short(frame.nets[0].kernel?.alignment ?? NaN)}.`,
    },
    {
      title: "Training moves the kernel",
      text: ["ν measures how hard the labels are for a kernel: small if they lie in its large directions. It is the last row of the timeline. As gates learn, it falls."],
      paper: "npk, Section 6 and Figure 3, middle: ν of the path kernel decreases during training (MNIST, 4 against 7). Here ν has a ridge λ = 10⁻³, since points in one region make H singular.",
      config: setUp([small("relu")]),
      until: 1500,
      view: { kernel: "path" },
      spot: ".timeline",
      now: (_, frame) => change(frame),
    },
    {
      title: "Frozen gates, frozen kernel",
      text: ["With random frozen gates the values learn, but Λ and H cannot move by a bit: they are functions of the gates alone. The row of ν is a flat line."],
      config: setUp([small("dgn-random")]),
      until: 1000,
      view: { kernel: "path" },
      spot: ".timeline",
      now: (_, frame) => change(frame),
    },
    {
      title: "Gates and values learn at the same time",
      text: ["Here gates and values have weights of their own. The tangent kernel K, which drives training, is then a sum: Kⱽ from the values and Kᶠ from the gates. Choose them in the list."],
      paper: "npk, Section 4: K = Kⱽ + Kᶠ. With frozen gates only Kⱽ is left.",
      config: setUp([small("dgn-soft")]),
      until: 1000,
      view: { kernel: "feature" },
      spot: "#kernel-name",
      now: (_, frame) => `${change(frame)} ${score(frame, 0)}.`,
    },
    {
      title: "Look along the circle",
      text: ["On the circle, ordered by angle, bands along the diagonal show how far a point’s open paths reach. Compare the first half of the matrix (slow) with the second (fast) while it trains."],
      paper: "Half-space paper, Figures 3 and 4: the overlap and tangent kernels change early in training, then keep their structure.",
      config: setUp([{ hidden: [16, 16, 16] }], CIRCLE),
      until: 600,
      view: { kernel: "overlap", order: "angle" },
      spot: "#kernels",
      now: alone,
    },
  ],
};

const deep = (width: number, depth: number) => ({ hidden: new Array<number>(depth).fill(width), preset: "dgn-random" as const });

export const DEPTH: Tour = {
  title: "Depth helps, then hurts",
  steps: [
    {
      title: "One layer of random gates",
      text: ["To see what depth alone does, gates stay random here and only values learn. With one layer of 8 gates there are 8 paths from an input, and few regions."],
      config: setUp([deep(8, 1)]),
      until: 1000,
      spot: "#diagram-A",
      now: alone,
    },
    {
      title: "More layers, more paths",
      text: ["A has one layer, B has four. B has 4,096 paths instead of 8, and two points share few of them unless they are close: the overlap is a product over layers."],
      paper: "npk, Appendix E: with random gates the kernel tends to the identity as depth grows, which is easier to learn with.",
      config: setUp([deep(8, 1), deep(8, 4)]),
      until: 1000,
      view: { kernel: "overlap" },
      spot: ".stages",
      now: versus("A, 1 layer", "B, 4 layers"),
    },
    {
      title: "Look at the overlap",
      text: ["Point at A’s plane, then at B’s: the kernel panel follows. Off the diagonal the deeper network’s Λ is darker. Its spectrum is flatter, and the labels’ curve rises sooner."],
      config: setUp([deep(8, 1), deep(8, 6)]),
      view: { kernel: "overlap", order: "angle" },
      spot: "#kernels",
      now: (_, frame) => `Largest eigenvalue, as a share of the trace. A, 1 layer: ${short(frame.nets[0].kernel?.spectrum[0] ?? NaN, 2)}; B, 6 layers: ${short(frame.nets[1].kernel?.spectrum[0] ?? NaN, 2)}.`,
    },
    {
      title: "Then it hurts",
      text: ["With 4 gates in a layer, six layers are worse than five. Paths close: one layer without an open gate, and nothing passes. Colour by “Open paths” shows where."],
      paper: "npk, Appendix E: for a given width the kernel’s entries scatter more and more as depth grows, so depth hurts beyond a point (width 25: about 8 layers). With 8 units we see no turn up to 6 layers; with 4 it depends on the seed.",
      config: setUp([deep(4, 5), deep(4, 6)], {}, 5),
      until: 1500,
      view: { colour: "paths" },
      spot: ".stages",
      now: versus("A, 5 layers", "B, 6 layers"),
    },
    {
      title: "Depth without gates is nothing",
      text: ["A has six layers and no gates at all: it stays one linear function. B has two layers of learning gates. Depth works through gates."],
      config: setUp([{ hidden: [8, 8, 8, 8, 8, 8], preset: "dln" }, { hidden: [8, 8] }]),
      until: 1500,
      spot: ".stages",
      now: versus("A, deep linear", "B, ReLU"),
    },
  ],
};
