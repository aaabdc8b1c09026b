"""Gates that steepen: which gates flipped, and what the report claims of given numbers."""

import pytest
import torch

from gatelab.lab.verdicts import Outcome
from gatelab.papers import find_experiment
from gatelab.papers.halfspace.hardening_steps import StepsConfig, share_flipped

CONFIG = StepsConfig(runs=8, width=6, layers=3)


def test_gates_flip_where_their_half_spaces_turn_round():
    weights, x = CONFIG.make("fixed", 0).state_dict(), torch.rand(20, 1, 28, 28)
    turned = {name: tensor.clone() for name, tensor in weights.items()}
    gates = [name for name in turned if "feature" in name]
    first = next(name for name in gates if name.endswith("weight"))
    for name in gates:
        if name == first or name.endswith("bias"):  # then every pre-activation changes its sign
            turned[name] *= -1
    assert share_flipped(CONFIG, weights, weights, x) == 0
    assert share_flipped(CONFIG, weights, turned, x) == 1


@pytest.mark.parametrize("worse", ["much", "slowed"])
def test_claims_follow_the_errors(worse):
    """The way that is worse has 20 % errors, all others 6, and as many flips."""
    results = {}
    for number, way in enumerate(CONFIG.ways()):
        error = 0.2 if way == worse else 0.06
        errors = [error + 0.001 * ((run * (number + 2)) % 7) for run in range(CONFIG.runs)]
        seen = [{"epoch": 10, "members": [{"trained": e, "hardened": e} for e in errors]}]
        results[way] = {"seen": seen, "flips": errors}
    found = find_experiment("halfspace-hardening-steps").findings(CONFIG, results)
    outcomes = {claim.text.split(":")[0]: claim.outcome for claim in found.claims[2:]}
    holds = worse == "much"
    assert outcomes["Steps of the gates that shrink as 1/β lower them"] is (Outcome.HOLDS if holds else Outcome.FAILS)
    assert outcomes["With these, at most 1 point more than with a fixed β"] is (
        Outcome.HOLDS if holds else Outcome.FAILS
    )
    assert outcomes["They flip fewer gates in the last epoch"] is (Outcome.HOLDS if holds else Outcome.FAILS)
