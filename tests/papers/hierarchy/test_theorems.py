"""The theorems of the hierarchy paper fail when the measured code is wrong; every equation has a home."""

import pkgutil

import pytest
import torch

from gatelab.lab.verdicts import Outcome
from gatelab.papers import find_experiment, find_theorems
from gatelab.papers.hierarchy import EQUATIONS
from gatelab.papers.hierarchy import theorems as hierarchy
from gatelab.papers.hierarchy import theorems_batchnorm as hierarchy_batchnorm
from gatelab.papers.hierarchy import theorems_expressibility as hierarchy_expressibility
from gatelab.papers.hierarchy import theorems_factors as hierarchy_factors

THEOREMS = {theorem.id for theorem in find_theorems("hierarchy")}


def broken(right, factor=1.01):
    """Return the function with its result a little too large."""

    def wrong(*args, **kwargs):
        return right(*args, **kwargs) * factor

    return wrong


def leaky_backward(right):
    def wrong(forward, gradient, scale, weights=None):
        found, *rest = right(forward, gradient, scale, weights)
        return found + 1e-6 * gradient, *rest

    return wrong


def fails(identifier):
    (theorem,) = find_theorems(identifier)
    return theorem.check(seed=1).outcome is Outcome.FAILS


@pytest.mark.parametrize(
    ("identifier", "module", "name"),
    [
        ("hierarchy-5", hierarchy_batchnorm, "batch_norm_jacobian"),
        ("hierarchy-81", hierarchy_batchnorm, "projection"),
        ("hierarchy-8.6.2", hierarchy_batchnorm, "row_energy"),
        ("hierarchy-8.7.3", hierarchy_factors, "factorised"),
    ],
)
def test_a_wrong_formula_fails(monkeypatch, identifier, module, name):
    if name == "row_energy":
        # Any multiple of a conserved energy is conserved; another power of it is not.
        monkeypatch.setattr(module, name, lambda weight: weight.abs().pow(3).sum(dim=0))
    else:
        monkeypatch.setattr(module, name, broken(getattr(module, name)))
    assert fails(identifier)


def test_a_wrong_backward_pass_fails(monkeypatch):
    right = hierarchy_batchnorm.batch_norm_backward
    monkeypatch.setattr(hierarchy_batchnorm, "batch_norm_backward", leaky_backward(right))
    assert fails("hierarchy-5")


def test_gradients_that_ignore_the_gate_fail(monkeypatch):
    right = hierarchy.observe_student

    def wrong(student, teacher):
        seen = right(student, teacher)
        seen.gradients.update(seen.raw_gradients)
        return seen

    monkeypatch.setattr(hierarchy, "observe_student", wrong)
    assert fails("hierarchy-1")
    assert fails("hierarchy-2")
    assert fails("hierarchy-4")


@pytest.mark.parametrize("identifier", ["hierarchy-3", "hierarchy-4"])
def test_a_lossy_teacher_fails_where_full_information_is_claimed(monkeypatch, identifier):
    monkeypatch.setattr(hierarchy, "full_information", lambda teacher: teacher)
    assert fails(identifier)


def test_a_wrong_construction_fails(monkeypatch):
    right = hierarchy_expressibility.expressibility

    def wrong(events, *, values=2):
        noisy = {edge: matrix * 0.9 + 0.1 / matrix.shape[1] for edge, matrix in events.matrices.items()}
        found = right(events, values=values)
        return type(found)(
            found.events, found.relu + sum(m.sum().item() for m in noisy.values()), found.linear, found.rank
        )

    monkeypatch.setattr(hierarchy_expressibility, "expressibility", wrong)
    assert fails("hierarchy-6")


def test_wrong_vertices_fail(monkeypatch):
    monkeypatch.setattr(hierarchy_expressibility, "vertices", lambda matrix: torch.ones(len(matrix), dtype=torch.bool))
    assert fails("hierarchy-7")


@pytest.mark.parametrize("identifier", ["hierarchy-L1", "hierarchy-8"])
def test_an_entangled_matrix_fails(monkeypatch, identifier):
    right = hierarchy_factors.disentangled
    monkeypatch.setattr(hierarchy_factors, "disentangled", lambda *args: right(*args).roll(1, dims=1))
    assert fails(identifier)


def test_every_equation_names_something_that_exists():
    for name in EQUATIONS.values():
        if name.startswith("hierarchy-"):
            assert find_theorems(name) if name in THEOREMS else find_experiment(name)
        else:
            assert callable(pkgutil.resolve_name(name))


def test_probabilities_that_do_not_factorise_fail(monkeypatch):
    right = hierarchy_factors.factorised
    monkeypatch.setattr(hierarchy_factors, "factorised", lambda blocks, sets: right(blocks, sets).flip(0))
    assert not fails("hierarchy-8")  # the events are renamed, but still factorise
    monkeypatch.setattr(
        hierarchy_factors, "factorised", lambda blocks, sets: right(blocks, sets)[torch.tensor([1, 0, 2, 3])]
    )
    assert fails("hierarchy-8")
    assert fails("hierarchy-9")
