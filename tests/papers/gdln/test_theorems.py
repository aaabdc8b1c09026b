"""The checks of gdln's theorems must be able to fail."""

import pytest
import torch

from gatelab.data import NLGP
from gatelab.dynamics import GatedLinearFlow, GatedMoments, NeuralRace, PiecewiseFlow
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.lab.verdicts import Outcome
from gatelab.models import MeanReadoutNetwork
from gatelab.papers import find_theorems
from gatelab.papers.gdln import problem, theorems, theorems_printed


def outcome(identifier):
    (theorem,) = find_theorems(identifier)
    return theorem.check(seed=1).outcome


def scaled(function, factor):
    return lambda *args, **kwargs: factor * function(*args, **kwargs)


@pytest.mark.parametrize(
    ("identifier", "owner", "name"),
    [
        ("gdln-11", GatedLinearFlow, "weights"),
        ("gdln-descent", GatedLinearFlow, "weights"),
        ("gdln-limit", GatedLinearFlow, "limit"),
        ("gdln-16", theorems, "minimum_loss"),
        ("gdln-16", theorems, "minimum_loss_balanced"),
        ("gdln-16", GatedLinearFlow, "loss"),
        ("gdln-3.4", GatedLinearFlow, "limit"),
        ("gdln-3.4", DenseFlow, "at"),
        ("gdln-3.5", GatedLinearFlow, "weights"),
        ("gdln-3.5", GatedLinearFlow, "time_constants"),
        ("gdln-nlgp", NLGP, "correlation"),
        ("gdln-circulant", GatedLinearFlow, "weights"),
        ("gdln-piecewise", PiecewiseFlow, "weights"),
        ("gdln-race", NeuralRace, "loss"),
        ("gdln-18-printed", theorems_printed, "objective"),
        ("gdln-18-printed", theorems_printed, "printed_objective"),
    ],
)
def test_a_wrong_result_fails(monkeypatch, identifier, owner, name):
    monkeypatch.setattr(owner, name, scaled(getattr(owner, name), 1.05))
    assert outcome(identifier) is Outcome.FAILS


def test_wrong_gates_fail(monkeypatch):
    monkeypatch.setattr(MeanReadoutNetwork, "frozen_gates", lambda _: problem.half_spaces(3, torch.Generator()))
    assert outcome("gdln-2") is Outcome.FAILS


def test_the_printed_flow_equation_would_fail(monkeypatch):
    """Moments as if the inner 1/K were missing: the theorem that holds fails, and the finding, too."""
    right = problem.moments_of

    def without_inner_factor(*args):
        moments = right(*args)
        return GatedMoments(moments.units * moments.A, moments.b, moments.units, moments.power)

    monkeypatch.setattr(problem, "moments_of", without_inner_factor)
    assert outcome("gdln-8") is Outcome.FAILS
    assert outcome("gdln-limit") is Outcome.FAILS


@pytest.mark.parametrize("identifier", ["gdln-11-printed", "gdln-31-printed"])
def test_findings_need_the_true_flow(monkeypatch, identifier):
    right = theorems_printed.integrated
    monkeypatch.setattr(theorems_printed, "integrated", lambda *args: 1.01 * right(*args))
    assert outcome(identifier) is Outcome.FAILS
