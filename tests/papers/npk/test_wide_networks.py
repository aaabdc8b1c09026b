"""Wide random networks drawn without their weights have the law of networks whose weights are drawn."""

from math import sqrt

import torch

from gatelab.lab.measure import Mean, tangent_kernels, transposed, wide_preactivations, wide_tangent_kernels
from gatelab.models import mlp

DRAWS = 6000


def with_weights(x, depth, width, last_layer, generator):
    model = mlp((x.shape[1], *[width] * (depth - 1), 1), dtype=torch.float64)
    weights = {
        name: sqrt(2 / width) * torch.randn(DRAWS, *p.shape, generator=generator, dtype=torch.float64)
        for name, p in model.named_parameters()
    }
    *_, last = weights
    weights[last] *= sqrt(last_layer / 2)
    return weights, tangent_kernels(model, x, weights)


def moments(kernels):
    """Means of K and K², which differ between laws that agree in one of them."""
    return Mean(torch.stack([kernels, kernels.square()], dim=1))


def test_tangent_kernels_have_the_law_of_networks_with_weights(generator):
    x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    _, real = with_weights(x, 4, 6, 1.0, generator)
    drawn = wide_tangent_kernels(x, 4, 6, 1.0, DRAWS, generator)
    assert moments(real).z_score_between(moments(drawn)) < 5
    others = wide_tangent_kernels(x, 4, 6, 1.5, DRAWS, generator)  # the comparison can fail
    assert moments(real).z_score_between(moments(others)) > 5


def test_preactivations_have_the_law_of_networks_with_weights(generator):
    x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    weights, _ = with_weights(x, 3, 5, 1.0, generator)
    first, second, _ = weights.values()
    q = x @ first.mT
    real = [q, torch.relu(q) @ second.mT]
    for ours, theirs in zip(wide_preactivations(x, 2, 5, DRAWS, generator), real, strict=True):
        assert moments(ours @ ours.mT).z_score_between(moments(theirs @ theirs.mT)) < 5


def test_the_backward_pass_has_the_weights_of_the_forward_pass(generator):
    """The moments above hardly depend on it: values have random signs."""
    hidden, q, back = (torch.randn(2, 3, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    drawn = transposed(back, q, hidden, generator)
    torch.testing.assert_close(drawn @ hidden.mT, back @ q.mT)
    assert not torch.allclose(drawn, transposed(back, q, hidden, generator)), "the rest is random"
