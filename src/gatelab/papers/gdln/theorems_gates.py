"""ReLU flows that slide, the best of all gates, and races over graphs, as theorems."""

from itertools import count, product

import numpy as np
import torch
from torch import Tensor

from gatelab.dynamics import GatedLinearFlow, minimum_loss, moments_of, self_gated_flow
from gatelab.dynamics.gate_optimum import Overlap, alternate_gates, certify_gates, fit_weights, predict
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.sliding import ReluFlow, relu_flow
from gatelab.figures import Plot
from gatelab.lab.measure import EXACT, identity
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import agrees, at_least, dots, first_suitable, line, measurement
from gatelab.papers.gdln.optimal_gates import support
from gatelab.papers.gdln.problem import (
    TAU,
    TIMES,
    follows,
    generator,
    plain_moments,
    plainly_opened,
    problem,
)
from gatelab.papers.gdln.shared_pathways import MODES, race_graph
from gatelab.papers.gdln.simulation import integrated, smoothed_relu_flow


def _sliding_problem(random: torch.Generator) -> tuple[Tensor, Tensor, Tensor, ReluFlow]:
    """Return a small problem whose flow slides at the end; most do."""

    def drawn() -> tuple[Tensor, Tensor, Tensor, ReluFlow]:
        x = torch.randn(20, 3, generator=random, dtype=torch.float64)
        y = (x[:, 0] + x[:, 1].abs() > 0.5).double()
        start = 0.3 * torch.randn(3, 3, generator=random, dtype=torch.float64)
        return x, y, start, relu_flow(x, y, start, 20.0, TAU)

    def slides(one: tuple[Tensor, Tensor, Tensor, ReluFlow]) -> bool:
        return one[-1].sliding(20.0) > 0

    return first_suitable((drawn() for _ in count()), slides, "a flow that slides at the end", most=50)


@theorem(
    "gdln-filippov",
    "Section 2.3",
    "A ReLU flow with K ≥ 2 slides along gates' boundaries; followed there, it is the limit of smoothed gates",
)
def sliding_flow(seed: int) -> Measurement:
    """Compare the event-driven flow with a stiff solver at two gate widths; restarting at each flip stalls."""
    x, y, start, found = _sliding_problem(generator(seed))
    end, times = found.weights(20.0), torch.linspace(0, 20, 60, dtype=torch.float64)
    wide, narrow = (smoothed_relu_flow(x, y, start, 20.0, TAU, width) for width in (1e-5, 1e-6))
    gaps = [float((w - end).abs().max()) for w in (wide, narrow, (10 * narrow - wide) / 9)]
    restarted = self_gated_flow(x, y, start, 20.0, TAU, tolerance=0.0, most=60)
    first, loss = found.slides[0], found.loss(times)
    written = (y - (found.weights(times) @ x.T).clamp(min=0).mean(dim=1)).square().mean(dim=1) / 2
    return measurement(
        Plot("t", "L", (line("event by event", times, loss),)),
        Check("gap to smoothed gates, extrapolated to width 0", gaps[2], 1e-6, "the error is linear in the width"),
        at_least("gap at 1e-5 / gap at 1e-6", gaps[0] / gaps[1], 4.0, "so the two meet as the width falls"),
        identity("L against ½⟨(y − ŷ)²⟩ of w(t)", loss, written),
        Check("largest rise of L", float(loss.diff().max()), 1e-12, "gradient flow descends, sliding or not"),
        at_least("boundaries along which units slide at the end", found.sliding(20.0), 1, "else nothing is shown"),
        Check("|time that restarts reach / first slide − 1|", abs(restarted.reached / first - 1), 1e-6, "they pile up"),
        agrees(
            "w there", restarted.flow.weights(restarted.reached), found.weights(restarted.reached), 1e-8, "until then"
        ),
    )


@theorem(
    "gdln-3.3",
    "Section 3.3",
    "Best gates over a finite support: branch and bound finds the optimum; half-spaces are worse than exclusive gates",
)
def optimal_gates(seed: int) -> Measurement:
    """Compare branch and bound with every assignment of gates; order the kinds of gates; compare half-spaces."""
    random = generator(seed)
    x = torch.randn(5, 1, generator=random, dtype=torch.float64)
    target = torch.rand(5, generator=random, dtype=torch.float64)
    share = torch.full_like(target, 1 / len(x))
    rows = []
    for overlap in Overlap:
        patterns = overlap.patterns(2)
        best = np.inf
        for chosen in product(range(len(patterns)), repeat=len(x)):
            if overlap is Overlap.ANY and chosen[0] == 2:
                continue  # units are interchangeable
            gates = patterns[list(chosen)]
            best = min(best, float((target - predict(x, gates, fit_weights(x, target, gates, share))).square().mean()))
        start = alternate_gates(x, target, 2, overlap, restarts=1, generator=random)
        proved = certify_gates(x, target, 2, overlap, known=start)
        rows.append((best, proved.loss, proved.bound))
    every, found, bound = torch.tensor(rows, dtype=torch.float64).T
    # One input, targets 0, 1, 2, 3. Slopes 1 and 2 and their sum reach all of them; {0}, {1}, {2.5} and {0.5}, {2.5}
    # are the best groups where at most one unit, and exactly one unit, is open.
    same, steps = torch.ones(4, 1, dtype=torch.float64), torch.arange(4, dtype=torch.float64)
    known = torch.tensor([0.25, 0.125, 0.0], dtype=torch.float64)
    least = torch.tensor([certify_gates(same, steps, 2, kind).loss for kind in Overlap]).double()
    fits = [alternate_gates(same, steps, 2, kind, restarts=50, generator=random) for kind in Overlap]
    local = torch.tensor([fit.loss for fit in fits]).double()
    pulses, classes = support(6, ((2, 3), (1, 2)))
    free = alternate_gates(pulses, classes, 2, Overlap.EXCLUSIVE, generator=random)
    halves = [
        minimum_loss(moments_of(pulses, classes, random_half_spaces(6, 2, generator=random, dtype=torch.float64)))
        for _ in range(20)
    ]
    order = float((found[1:] - found[:-1]).max())
    return measurement(
        Plot("least loss over all assignments", "branch and bound", (dots("kinds", every, found),), diagonal="equal"),
        Check("branch and bound − all assignments", float((found - every).abs().max()), 1e-9, "both are exhaustive"),
        Check("optimality gap", float((found - bound).abs().max()), 1e-9, "the search was finished"),
        Check("loss of a larger kind − of a smaller", order, 1e-12, "tiling ⊂ exclusive ⊂ overlapping"),
        Check("targets 0 to 3: branch and bound − ¼, ⅛, 0", float((least - known).abs().max()), 1e-9, "by hand"),
        Check("the same: best of 50 searches − ¼, ⅛, 0", float((local - known).abs().max()), 1e-9, "50 starts suffice"),
        at_least(
            "best of 20 half-spaces − exclusive gates, pulses", min(halves) - free.loss, 0.01, "half-spaces are few"
        ),
    )


@theorem(
    "gdln-shared-race",
    "beyond the notes",
    "Pathways over a graph, reduced: a pathway that k tasks share starts to grow k times as fast as one of its own",
)
def shared_race(seed: int) -> Measurement:
    """Compare early growth rates of shared and separate pathways with theory, for one and three tasks per input."""
    rng = np.random.default_rng(seed)
    checks, curves, rates = [], [], {}
    for tasks in (1, 3):
        graph = race_graph(3, tasks, deeper=False)
        strength = {edge: 1e-5 * (1 + 0.1 * rng.random(len(MODES)))[:, None, None] for edge in graph.edges}
        times = np.linspace(0, 3.0, 7)
        solved = graph.solve(strength, list(times))
        share = 1 / len(graph.contexts)
        for name, edges, expected in (
            ("shared", [edge for edge in graph.edges if "S" in edge], tasks * share),
            ("separate", [("x0", "D00"), ("D00", "y0")], share),
        ):
            total = np.sum([solved.weights[edge][:, 0, 0, 0] for edge in edges], axis=0)
            start = float(sum(strength[edge][0, 0, 0] for edge in edges))
            # Near zero the sum over the edges of a pathway grows as e^{rate t}, the mode's strength being 1. Shared
            # edges drive each other, so only the sum over all of them does.
            rates[name, tasks] = rate = float(np.log(total[-1] / start) / times[-1])
            what = f"{name}, {tasks} tasks: |rate − {expected:.3g}|"
            checks.append(Check(what, abs(rate - expected), 1e-6, "weights stay below 4e-5, and s below 1e-8"))
            curves.append(line(f"{name}, {tasks} tasks", times, np.log(total / start).tolist()))
    ratio = rates["shared", 3] / rates["separate", 3]
    return measurement(
        Plot("t", "growth of log strength", tuple(curves)),
        *checks,
        at_least("3 tasks: shared rate / separate rate", ratio, 2.999, "k = 3 times as fast"),
    )


@theorem(
    "gdln-outputs", "Section 3.2, several outputs", "Targets with columns share A, and each column is a flow of its own"
)
def several_outputs(seed: int) -> Measurement:
    """Compare a flow of three columns with three integrated flows; (n, 1) is one column, not a row."""
    given, random = problem(seed), generator(seed)
    y = torch.stack([given.y, 1 - given.y, torch.randn(len(given.y), generator=random, dtype=torch.float64)], dim=1)
    start = torch.randn(*given.initial.shape, 3, generator=random, dtype=torch.float64)
    found = GatedLinearFlow.from_data(given.x, y, given.gates, TAU, initial=start).weights(TIMES)
    opened = plainly_opened(given.x, given.gates)
    each = torch.stack(
        [integrated(plain_moments(given.x, y[:, k], opened), start[..., k].contiguous(), TIMES, TAU) for k in range(3)],
        dim=-1,
    )
    one, column = (minimum_loss(moments_of(given.x, t, given.gates)) for t in (given.y, given.y[:, None]))
    several = minimum_loss(moments_of(given.x, y, given.gates))
    alone = [given._replace(y=y[:, k]).residual() for k in range(3)]
    return measurement(
        Plot("integrated", "closed form", (dots("weights", each, found),), diagonal="equal"),
        follows("w(t)", found, each),
        Check("least loss of (n, 1) − of (n,)", abs(one - column), 1e-12, "one column"),
        Check("least loss of three columns − sum of their own", abs(several - sum(alone)), 1e-10, EXACT),
        at_least("least loss of three columns − of the first", several - one, 0.01, "the others count as well"),
    )
