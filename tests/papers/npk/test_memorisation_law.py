"""The variance of memorisation networks' kernels against networks, and the depths that it predicts."""

import pytest
import torch

from gatelab.gates import GatePattern
from gatelab.kernels.tangent_moments import tangent_moments
from gatelab.papers.npk.memorisation_law import lookup_variance, predicted_steps


@pytest.mark.parametrize(("width", "depth", "mu"), [(4, 2, 0.5), (6, 4, 0.5), (5, 3, 0.3)])
def test_the_variance_over_gates_is_that_of_the_law_for_given_gates(width, depth, mu):
    """Exact moments over signs for many draws of gates, combined by the law of total variance."""
    generator, n = torch.Generator().manual_seed(width), 4000
    gates = {str(layer): torch.rand(n, width, generator=generator) < mu for layer in range(depth - 1)}
    parts = [
        tangent_moments(
            torch.ones(50, 1), GatePattern({k: g[i : i + 50] for k, g in gates.items()}), (mu * width) ** -0.5
        )
        for i in range(0, n, 50)
    ]
    seconds = torch.cat([(part.variance + part.mean**2).diagonal() for part in parts]) / depth**2
    error = seconds.std() / n**0.5
    assert abs(seconds.mean() - 1 - lookup_variance(width, depth, mu)) < 5 * error


def test_the_best_depths_are_those_of_figure_6():
    depths = (2, 4, 8, 12, 20)
    for width, best in ((25, 8), (500, 12)):
        assert min(depths, key=lambda depth: predicted_steps(200, width, depth, 0.5)) == best
