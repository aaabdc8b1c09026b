"""Eq. 109: weights of several parents that send a disentangled gradient down."""

import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import nearest_disentangled
from gatelab.hierarchy.disentangle import factor_marginals
from gatelab.hierarchy.parents import disentangling_weights
from gatelab.hierarchy.random_rank import random_activations
from gatelab.papers.hierarchy.theorems_random import random_parents


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_enough_parents_disentangle(generator, k):
    """The gradient is summed parent by parent, as back-propagation does, and compared with Definition 4."""
    prior, parents = random_parents(k, 2**k - 1, generator)
    gammas = torch.rand(2**k - 1, generator=generator) + 0.5
    marginals = factor_marginals(prior)
    found = disentangling_weights(parents, gammas, marginals)
    sent = sum(
        torch.outer(p.T @ (g * torch.tensor([-1.0, 1.0])), w)
        for p, g, w in zip(parents, gammas, found.weights, strict=True)
    )
    torch.testing.assert_close(sent, found.gradient)
    assert nearest_disentangled(sent, marginals).relative < 1e-8
    assert (found.residual < 1e-10, found.rank) == (True, 2**k - 1)


def test_parents_that_say_the_same_count_once(generator):
    prior, parents = random_parents(2, 2, generator)
    found = disentangling_weights([*parents, *parents], torch.ones(4), factor_marginals(prior))
    assert found.rank == 2
    assert found.residual > 0.01


def test_unusable_parents_are_refused(generator):
    prior, parents = random_parents(2, 2, generator)
    marginals = factor_marginals(prior)
    with pytest.raises(InputError, match="none of them 0"):
        disentangling_weights(parents, torch.zeros(2), marginals)
    with pytest.raises(InputError, match=r"give \(2, 2\^k\) each"):
        disentangling_weights(parents, torch.ones(2), marginals[:1])


def test_random_layers_are_relus_of_random_sums(generator):
    rows = torch.eye(3, dtype=torch.float64)
    f = random_activations(rows, 500, bias=False, generator=generator)
    assert f.shape == (3, 500)
    assert float((f > 0).double().mean()) == pytest.approx(0.5, abs=0.06)
