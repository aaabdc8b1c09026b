"""The notes' objective for gates, as printed and corrected."""

import pytest
import torch

from gatelab.data import SinglePulse
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.moments import gated_inputs
from gatelab.errors import InputError
from gatelab.papers.gdln.gate_objective import minimum_loss_balanced, objective, printed_objective


def sample(n, generator):
    x, y = SinglePulse(((3, 4), (1, 2)), (8,)).sample(n, generator=generator)
    return gated_inputs(x, random_half_spaces(8, 3, generator=generator)), y


@pytest.mark.parametrize("n", [200, 10])
def test_the_objective_is_what_least_squares_leaves(n, generator):
    features, y = sample(n, generator)
    classes = features[y == 0], features[y == 1]
    left = (y - features @ (torch.linalg.pinv(features) @ y)).square().mean().item()
    assert minimum_loss_balanced(*classes) == pytest.approx(left, abs=1e-10)
    assert objective(*classes) == pytest.approx(1 - 2 * left, abs=1e-10)


def test_printed_objective_does_not_depend_on_gates(generator):
    """Eq. 18 as printed is 1 for any gates whose class means differ; the corrected one is not."""
    for _ in range(3):
        features, y = sample(200, generator)
        assert printed_objective(features[y == 0], features[y == 1]) == pytest.approx(1)
        assert objective(features[y == 0], features[y == 1]) < 0.99


def test_unbalanced_classes_are_refused():
    with pytest.raises(InputError, match="2 examples have y = 0, 1 y = 1; Eqs 16 and 18 are for balanced"):
        minimum_loss_balanced(torch.eye(3)[:2], torch.eye(3)[2:])
