"""The best gates: against every assignment, monotone steps, and bounds that are bounds."""

from itertools import pairwise, product

import pytest
import torch

from gatelab.dynamics.gate_optimum import Overlap, alternate_gates, certify_gates, choose_gates, fit_weights, predict
from gatelab.errors import InputError


def problem(generator, n=6, d=2):
    return torch.randn(n, d, generator=generator), torch.rand(n, generator=generator)


def loss(x, target, gates):
    share = torch.full_like(target, 1 / len(x))
    return float((target - predict(x, gates, fit_weights(x, target, gates, share))).square().mean())


@pytest.mark.parametrize("overlap", Overlap)
def test_branch_and_bound_finds_the_best_of_all_assignments(overlap, generator):
    x, target = problem(generator, 5, 1)
    patterns = overlap.patterns(2)
    every = min(loss(x, target, patterns[list(chosen)]) for chosen in product(range(len(patterns)), repeat=len(x)))
    poor = alternate_gates(x, target, 2, overlap, restarts=1, rounds=1, generator=generator)
    proved = certify_gates(x, target, 2, overlap, known=poor)
    assert proved.loss == pytest.approx(every, abs=1e-10)
    assert proved.gap == pytest.approx(0, abs=1e-9)
    assert loss(x, target, proved.gates) == pytest.approx(proved.loss, abs=1e-12)


def test_a_search_that_is_cut_short_has_an_honest_bound(generator):
    x, target = problem(generator, 9, 2)
    full = certify_gates(x, target, 1, Overlap.EXCLUSIVE)
    short = certify_gates(x, target, 1, Overlap.EXCLUSIVE, most=4)
    assert full.gap == pytest.approx(0, abs=1e-9)
    assert short.bound <= full.loss + 1e-12 <= short.loss + 1e-9
    assert short.gap > 1e-6


def test_alternation_never_raises_the_loss(generator):
    x, target = problem(generator, 200, 4)
    gates = Overlap.ANY.patterns(3)[torch.randint(8, (200,), generator=generator)]
    losses = []
    for _ in range(8):
        weights = fit_weights(x, target, gates, torch.full_like(target, 1 / 200))
        losses.append(float((target - predict(x, gates, weights)).square().mean()))
        gates = choose_gates(x, target, weights, Overlap.ANY)
        losses.append(float((target - predict(x, gates, weights)).square().mean()))
    assert all(after <= before + 1e-12 for before, after in pairwise(losses))
    assert losses[-1] < losses[0] / 2


def test_kinds_of_gates():
    assert Overlap.TILING.patterns(3).sum(dim=1).tolist() == [1, 1, 1]
    assert Overlap.EXCLUSIVE.patterns(3).sum(dim=1).tolist() == [0, 1, 1, 1]
    assert len(Overlap.ANY.patterns(3)) == 8
    with pytest.raises(InputError, match="at most 10"):
        Overlap.ANY.patterns(11)
    with pytest.raises(InputError, match="no start"):
        alternate_gates(torch.eye(2), torch.ones(2), 1, restarts=0)


def test_overlap_can_need_fewer_units():
    """Sums that need four units one by one: 1/6, 1/5, −1/5 and −1/6 of one coordinate; three overlapping ones do."""
    x = torch.tensor([[6.0], [5.0], [-5.0], [-6.0]])
    target = torch.ones(4)
    assert certify_gates(x, target, 3, Overlap.EXCLUSIVE).loss > 1e-3
    weights = torch.tensor([[1 / 6], [1 / 30], [-1 / 5]])
    gates = choose_gates(x, target, weights, Overlap.ANY)
    assert float((target - predict(x, gates, weights)).abs().max()) < 1e-12
    assert certify_gates(x, target, 3, Overlap.ANY).loss < 1e-12
