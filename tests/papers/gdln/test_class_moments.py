"""Moments by class, and the notes' objective for gates."""

import pytest
import torch

from gatelab.data import SinglePulse
from gatelab.dynamics import minimum_loss, moments_of
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.moments import gated_inputs
from gatelab.errors import InputError
from gatelab.models import OpenGates
from gatelab.papers.gdln.class_moments import (
    class_moments_of,
    gate_objective,
    minimum_loss_balanced,
    printed_gate_objective,
)


def sample(n, generator):
    x, y = SinglePulse(((3, 4), (1, 2)), (8,)).sample(n, generator=generator)
    return x, y, random_half_spaces(8, 3, generator=generator)


def test_classes_add_up(generator):
    x, y, gates = sample(100, generator)
    pooled, whole = class_moments_of(x, y, gates).pooled(), moments_of(x, y, gates)
    torch.testing.assert_close(pooled.A, whole.A)
    torch.testing.assert_close(pooled.b, whole.b)
    assert pooled.power == whole.power


@pytest.mark.parametrize("n", [200, 10])
def test_the_objective_is_what_least_squares_leaves(n, generator):
    x, y, gates = sample(n, generator)
    by_class, features = class_moments_of(x, y, gates), gated_inputs(x, gates)
    left = (y - features @ (torch.linalg.pinv(features) @ y)).square().mean().item()
    assert minimum_loss(by_class.pooled()) == pytest.approx(left, abs=1e-10)
    assert minimum_loss_balanced(by_class) == pytest.approx(left, abs=1e-10)
    assert gate_objective(by_class) == pytest.approx(1 - 2 * left, abs=1e-10)


def test_printed_objective_does_not_depend_on_gates(generator):
    """Eq. 18 as printed is 1 for any gates whose class means differ; the corrected one is not."""
    for _ in range(3):
        moments = class_moments_of(*sample(200, generator))
        assert printed_gate_objective(moments) == pytest.approx(1)
        assert gate_objective(moments) < 0.99


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: minimum_loss_balanced(class_moments_of(torch.eye(3), torch.tensor([1.0, 0, 0]), OpenGates(1))),
            "a share of 0.3333; Eq. 16 is for balanced",
        ),
        (lambda: class_moments_of(torch.eye(2), torch.tensor([1.0, 2]), OpenGates(1)), "y = 0 and y = 1"),
        (lambda: class_moments_of(torch.eye(2), torch.ones(2), OpenGates(1)), "both must be there"),
    ],
)
def test_bad_labels_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
