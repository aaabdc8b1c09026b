/** Three tours: what a network is, who learns, what freezing costs. */
import { grouped, short } from "../../shared/dom.ts";
import { alone, freeze, setUp, versus, type Tour } from "./tour.ts";

const SMALL = setUp([{ hidden: [4, 4] }], { name: "xor" }, 9);
const PIN: [number, number] = [0.6, 0.75];

export const SUM_OVER_PATHS: Tour = {
  title: "A network is a sum over paths",
  steps: [
    {
      title: "One unit, one gate",
      text: [
        "A ReLU unit computes a weighted sum q of its inputs. Where q is positive it passes q on: its gate is open (blue). Elsewhere it passes nothing: its gate is closed.",
        "In the first layer the border between the two is a straight line. Click other units in the diagram.",
      ],
      config: SMALL,
      view: { colour: "gate", unit: 0 },
      spot: "#diagram-A",
      now: (_, frame) => `${frame.nets[0].partition.units} gates in two layers.`,
    },
    {
      title: "Gates cut the plane into regions",
      text: ["Take all gates together. In each region the pattern of open and closed gates is the same, so the network is one linear function there. The polygons are exact; nothing is sampled."],
      config: SMALL,
      from: 300,
      view: { colour: "region" },
      spot: "#plane-A",
      now: (_, frame) => `${frame.nets[0].partition.regions} regions, each with its own linear function. Point at one: its formula appears under “At a point”.`,
    },
    {
      title: "A path",
      text: [
        "A path runs from an input through one unit in each layer to the output. It is open if all gates on it are open. What it adds to the output is the input times the weights along it.",
        "The strongest open paths of the pinned point are drawn in the diagram. Click one in the list: the plane keeps only where this path is open.",
      ],
      config: SMALL,
      from: 300,
      view: { pins: [PIN] },
      spot: "#readout",
      now: (app) => `At the pin ${app.points(0)[0]?.open ?? 0} of 16 paths between the layers are open.`,
    },
    {
      title: "Add them all up",
      text: ["The output is exactly the sum of what all open paths add. No approximation: this is all that a ReLU network does.", "Train the network (▶) and watch the paths of the pinned point change."],
      paper: "Neural path features paper (npk), Section 2.1: ŷ = ⟨φ, v⟩. The features φ say which paths are open, the values v what each is worth.",
      config: SMALL,
      from: 300,
      view: { pins: [PIN] },
      spot: "#play",
      now: (app) => {
        const point = app.points(0)[0];
        if (!point) return "Pin a point.";
        const sum = point.paths.reduce((total, path) => total + path.contribution, 0);
        return `Output at the pin: ${short(point.output)}. Its five strongest of ${grouped(point.count)} paths give ${short(sum)}; the others give ${short(point.output - sum)}.`;
      },
    },
    {
      title: "Two points share paths",
      text: ["Two points are alike, for the network, if the same paths are open for both. The overlap Λ counts those. It needs no path list: multiply, layer by layer, the gates that are open in both.", "Move the pins: click twice on the plane."],
      paper: "npk, Lemma 2.1: the kernel of the path features is H = Σ ⊙ Λ, the product of inputs times the overlap.",
      config: SMALL,
      from: 300,
      view: { pins: [PIN, [-0.5, 0.8]], kernel: "overlap" },
      spot: "#readout",
      now: (app) => {
        const [one, other] = app.points(0);
        return one && other ? `Open paths: ${one.open} at pin 1, ${other.open} at pin 2.` : "Pin two points.";
      },
    },
  ],
};

const SPIRALS = { hidden: [8, 8] };

export const WHO_LEARNS: Tour = {
  title: "Gates or values: who learns?",
  steps: [
    {
      title: "What is a gate?",
      text: ["Each square in the diagram is one unit, and shows the plane: blue where its gate is open, grey where it is closed. An open gate passes its signal on, a closed gate passes nothing.", "So weights do two jobs. They decide which gates open, and they carry the values through the open ones. Which job does the learning?"],
      config: setUp([SPIRALS]),
      view: { colour: "gate", unit: 3 },
      spot: "#diagram-A",
      now: () => "Two spirals of points, orange (−1) and blue (+1), are to be told apart.",
    },
    {
      title: "Everything learns",
      text: ["Here it trains. The lines (borders of gates) move to where they are needed, and the colours (values) follow. After 2,000 steps the spirals are apart."],
      config: setUp([SPIRALS]),
      until: 2000,
      spot: "#plane-A",
      now: alone,
    },
    {
      title: "Freeze the gates: it fails",
      text: ["Two copies start alike. In B the gates are frozen at their random start: it may change every value, but no line may move. Watch B’s lines stand still.", "The values alone cannot do it."],
      config: setUp([SPIRALS, SPIRALS]),
      events: [freeze(1, true, false)],
      until: 2000,
      spot: "#freeze-gates-B",
      now: versus("A, all free", "B, gates frozen"),
    },
    {
      title: "Freeze the values: it fails too",
      text: ["Now B’s values are frozen, and only its gates learn. The lines move, but what flows through them stays random.", "So both are needed. Are they equally hard to find?"],
      config: setUp([SPIRALS, SPIRALS]),
      events: [freeze(1, false, true)],
      until: 2000,
      spot: "#freeze-values-B",
      now: versus("A, all free", "B, values frozen"),
    },
    {
      title: "Keep learnt gates, forget the values",
      text: ["Both networks here have frozen gates and fresh random values. A’s gates are random. B’s gates were learnt by a network like the one you saw, then frozen; its values were thrown away.", "B finds good values quickly: most of what was learnt sat in the gates."],
      paper: "npk, Table 2 (MNIST, CIFAR-10): with learnt gates and fresh values a network comes close to the trained one; with random gates it stays behind. This is one small example: try other seeds and widths.",
      config: setUp([{ ...SPIRALS, preset: "dgn-random" }, { ...SPIRALS, preset: "dgn-learnt", learntAt: 2000 }]),
      until: 2000,
      spot: "#stage-B h2",
      now: versus("A, random gates", "B, learnt gates"),
    },
  ],
};

export const COST: Tour = {
  title: "What freezing costs",
  steps: [
    {
      title: "Freeze early, freeze late",
      text: ["Gates are frozen at step 100 in A and at step 1,000 in B; values go on learning in both. Dashed marks in the timeline show where."],
      config: setUp([SPIRALS, SPIRALS]),
      events: [freeze(0, true, false, 100), freeze(1, true, false, 1000)],
      until: 2000,
      spot: ".timeline",
      now: versus("A, frozen at 100", "B, frozen at 1,000"),
    },
    {
      title: "Gates from several stages",
      text: ["A takes the gates of a ReLU network at step 100, B at step 2,000. Both then train fresh values only. The later the gates, the better they serve."],
      paper: "npk, Figure 3, left: a convolutional network’s gates, taken at six stages of training, give 72 % at the first and 79.68 % at the last (CIFAR-10).",
      config: setUp([{ ...SPIRALS, preset: "dgn-learnt", learntAt: 100 }, { ...SPIRALS, preset: "dgn-learnt", learntAt: 2000 }]),
      until: 1500,
      spot: "#learnt-at",
      now: versus("A, gates of step 100", "B, gates of step 2,000"),
    },
    {
      title: "Width buys it back",
      text: ["Both have random, frozen gates. A has 8 units in a layer, B has 24. With enough random gates some are good enough, and values alone suffice: on a plane that is cheap, in many dimensions it is not."],
      config: setUp([{ ...SPIRALS, preset: "dgn-random" }, { hidden: [24, 24], preset: "dgn-random" }]),
      until: 1000,
      spot: "#width-1",
      now: versus("A, 8 random gates in a layer", "B, 24"),
    },
    {
      title: "Frozen means frozen",
      text: ["Freeze the gates yourself while this network trains, and watch “flips per step” drop to zero: no gate of any point changes any more. Then thaw them."],
      config: setUp([SPIRALS]),
      until: 3000,
      spot: "#freeze-gates-A",
      now: (_, frame) => `Step ${frame.step}: gates ${frame.nets[0].frozen.gates ? "frozen" : "free"}, flips per step ${short(100 * (frame.records[0].at(-1)?.flips ?? 0), 2)} % of all gates.`,
    },
    {
      title: "Gates alone, later",
      text: ["Values are frozen at step 0 in A and at step 300 in B. From then on only gates learn, through the slope of a soft gate. A later freeze costs less, but gates alone finish the job only slowly."],
      config: setUp([SPIRALS, SPIRALS]),
      events: [freeze(0, false, true), freeze(1, false, true, 300)],
      until: 2000,
      spot: "#freeze-values-B",
      now: versus("A, values frozen at 0", "B, at 300"),
    },
  ],
};
