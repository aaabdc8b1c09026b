"""gdln, 2.3: how many switches of the gates does a prediction of the network need?"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import mean

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gatelab.dynamics import PiecewiseFlow, moments_of, self_gated_flow, sign_flip_rate
from gatelab.lab.experiment import Experiment
from gatelab.lab.findings import Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import greater
from gatelab.papers.common import bound, figure, line, numbers
from gatelab.papers.gdln.training import SMOKE, GatesConfig, Training, cell_per_gain


class EvolvingConfig(GatesConfig):
    """Gates renewed at some of the network's switches, or by the flow itself."""

    runs: int = Field(default=16, ge=1)
    rate: float = Field(default=0.05, gt=0)
    switches: tuple[int, ...] = (0, 1, 2, 4, 8, 16, 32, 64)
    tolerances: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02, 0.01)
    records: int = Field(default=400, ge=4)


def even_switches(flips: Float[Tensor, " steps"], count: int) -> list[int]:
    """Return up to ``count`` records, after record 0, at which to renew the gates, with equal flips between them."""
    total = flips.cumsum(0)
    places = {0}
    for part in range(1, count + 1):
        # Flips come in bursts, so records at equal times would miss most of them.
        reached = (total >= total[-1] * part / (count + 1)).nonzero()
        places.add(int(reached[0]) + 1)
    return sorted(place for place in places if place < len(flips))


def _work(config: EvolvingConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context, 0.5)
    kept, used, own, restarts = (defaultdict[str, list[float]](list) for _ in range(4))
    for run in range(config.runs):
        gates, start = training.gates(run), training.weights[0, run]
        flips = sign_flip_rate(gates).mean(dim=1)
        for count in config.switches:
            places = even_switches(flips, count)
            moments = [moments_of(training.x, training.y, gates[place].T) for place in places]
            flow = PiecewiseFlow([training.times[place] for place in places], moments, initial=start)
            kept[str(count)].append(training.error(flow.weights(training.horizon), run))
            used[str(count)].append(float(len(places) - 1))
        for tolerance in config.tolerances:
            renewed = self_gated_flow(training.x, training.y, start, training.horizon, tolerance=tolerance)
            own[str(tolerance)].append(training.error(renewed.flow.weights(training.horizon), run))
            restarts[str(tolerance)].append(float(len(renewed.flips)))
        context.tell(0.5 + (run + 1) / config.runs / 2, f"run {run + 1} of {config.runs}")
    return {"kept": dict(kept), "used": dict(used), "own": dict(own), "restarts": dict(restarts)}


def _findings(config: EvolvingConfig, results: Mapping[str, Result]) -> Findings:
    rows, curves, claims = [], [], []
    segments = [count + 1 for count in config.switches]
    for name, r in results.items():
        for key, values in r["kept"].items():
            rows.append((name, "the network's", key, f"{mean(r['used'][key]):.0f}", numbers(values).text()))
        for key, values in r["own"].items():
            flips = f"its own, at {100 * float(key):g} % flips"
            rows.append((name, flips, "", f"{mean(r['restarts'][key]):.0f}", numbers(values).text()))
        errors = [numbers(r["kept"][str(count)]) for count in config.switches]
        curves.append(line(name, segments, [max(e.mean, 1e-6) for e in errors]))  # the axis is logarithmic
        near = f"{name}: {config.switches[-1]} switches predict the network to a relative error of 0.05"
        claims += [
            greater(f"{name}: the most switches predict better than one (relative error)", errors[1], errors[-1]),
            greater(near, bound(0.05, config.runs), errors[-1]),
        ]
    last, most = list(results.values())[-1]["kept"], str(config.switches[-1])
    title = f"Error of the predicted weights at the end, {config.runs} runs"
    axes = ("segments (switches + 1)", "relative error")
    caption = "Gates are renewed so that equal numbers of flips lie between."
    return Findings(
        "gdln, 2.3: gates that evolve",
        f"For the sharpest data the flow misses the ReLU network's weights by {100 * mean(last['0']):.0f} % with the "
        f"first gates alone, and by {100 * mean(last[most]):.1f} % with gates renewed at {most} of its switches.",
        (Table(title, ("data", "switches", "allowed", "used", "relative error"), tuple(rows)),),
        (figure("Error against the number of segments", *axes, curves, caption, log=True),),
        tuple(claims),
        (
            "The network's switches come from its training; the flow's own switches need no training.",
            "A small margin decides early which site wins. A small error there may end at another site, so the error "
            "of a single run need not fall with every switch.",
        ),
    )


EVOLVING_GATES = Experiment(
    "gdln-evolving-gates",
    "How many switches of the gates a prediction needs",
    EvolvingConfig,
    {
        "smoke": SMOKE | {"records": 20, "switches": (0, 1, 4), "tolerances": (0.1,)},
        "quick": {},
        "paper": {"runs": 30, "examples": 40_000, "rate": 0.01, "records": 2000},
    },
    cell_per_gain,
    _work,
    _findings,
)
EXPERIMENTS = (EVOLVING_GATES,)
