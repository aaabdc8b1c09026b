"""The checks of gdln's theorems must be able to fail."""

import pytest
import torch

from gatelab.lab import Verdict
from gatelab.papers import find_theorems
from gatelab.papers.gdln import theorems as gdln
from gatelab.papers.gdln import theorems_printed as gdln_findings


def verdict(identifier):
    (theorem,) = find_theorems(identifier)
    return theorem.check(seed=1).verdict


def scaled(function, factor):
    return lambda *args, **kwargs: factor * function(*args, **kwargs)


@pytest.mark.parametrize(
    ("identifier", "owner", "name"),
    [
        ("gdln-11", gdln.GatedLinearFlow, "weights"),
        ("gdln-descent", gdln.GatedLinearFlow, "weights"),
        ("gdln-limit", gdln.GatedLinearFlow, "limit"),
        ("gdln-16", gdln, "minimum_loss"),
        ("gdln-16", gdln, "minimum_loss_balanced"),
        ("gdln-16", gdln.GatedLinearFlow, "loss"),
        ("gdln-3.4", gdln.GatedLinearFlow, "limit"),
        ("gdln-3.4", gdln.DenseFlow, "at"),
        ("gdln-3.5", gdln.GatedLinearFlow, "weights"),
        ("gdln-3.5", gdln.GatedLinearFlow, "time_constants"),
        ("gdln-nlgp", gdln.NLGP, "correlation"),
        ("gdln-circulant", gdln.GatedLinearFlow, "weights"),
        ("gdln-piecewise", gdln.PiecewiseFlow, "weights"),
        ("gdln-race", gdln.NeuralRace, "loss"),
        ("gdln-18-printed", gdln_findings, "gate_objective"),
        ("gdln-18-printed", gdln_findings, "printed_gate_objective"),
    ],
)
def test_a_wrong_result_fails(monkeypatch, identifier, owner, name):
    monkeypatch.setattr(owner, name, scaled(getattr(owner, name), 1.05))
    assert verdict(identifier) is Verdict.FAILS


def test_wrong_gates_fail(monkeypatch):
    monkeypatch.setattr(gdln.MeanReadoutNetwork, "frozen_gates", lambda _: gdln.half_spaces(3, torch.Generator()))
    assert verdict("gdln-2") is Verdict.FAILS


def test_the_printed_flow_equation_would_fail(monkeypatch):
    """Moments as if the inner 1/K were missing: the theorem that holds fails, and the finding, too."""
    right = gdln.moments_of

    def without_inner_factor(*args):
        found = right(*args)
        return gdln.GatedMoments(found.units * found.A, found.b, found.units, found.power)

    monkeypatch.setattr(gdln, "moments_of", without_inner_factor)
    assert verdict("gdln-8") is Verdict.FAILS
    assert verdict("gdln-limit") is Verdict.FAILS


@pytest.mark.parametrize("identifier", ["gdln-11-printed", "gdln-31-printed"])
def test_findings_need_the_true_flow(monkeypatch, identifier):
    right = gdln_findings.integrated
    monkeypatch.setattr(gdln_findings, "integrated", lambda *args: 1.01 * right(*args))
    assert verdict(identifier) is Verdict.FAILS
