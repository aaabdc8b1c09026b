"""Mean and variance of tangent kernels over signs: every sign pattern, and a case by hand."""

import pytest
import torch

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.kernels.tangent_moments import tangent_moments
from gatelab.lab.measure import all_signs, tangent_kernels
from gatelab.models import DeepGatedNetwork
from gatelab.network import capture_gates


@pytest.mark.parametrize("widths", [(1, 2, 1), (2, 3, 2, 1), (1, 2, 2, 2, 1)])
def test_all_sign_patterns(widths):
    generator = torch.Generator().manual_seed(len(widths))
    model = DeepGatedNetwork(widths, generator=generator)
    x = torch.randn(4, widths[0], generator=generator)
    values = {f"value.{name}": parameter for name, parameter in model.value.named_parameters()}
    kernels = tangent_kernels(model, x, all_signs(values, 0.7))
    moments = tangent_moments(x, capture_gates(model, x), 0.7)
    torch.testing.assert_close(moments.mean, kernels.mean(dim=0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(moments.variance, kernels.var(dim=0, unbiased=False), rtol=1e-9, atol=1e-11)


def test_one_hidden_layer_by_hand():
    """K = x x' Σ_i g_i g'_i (v_i² + u_i²) does not depend on the signs."""
    gates = GatePattern({"1": torch.tensor([[True, True, False], [True, False, True]])})
    moments = tangent_moments(torch.tensor([[2.0], [3.0]]), gates, 0.5)
    torch.testing.assert_close(moments.mean, 2 * 0.25 * torch.tensor([[8.0, 6.0], [6.0, 18.0]]))
    torch.testing.assert_close(moments.variance, torch.zeros(2, 2))


def test_gates_of_other_inputs_are_refused():
    gates = GatePattern({"1": torch.ones(3, 2, dtype=torch.bool)})
    with pytest.raises(InputError, match="gates have n=3, x has n=2"):
        tangent_moments(torch.ones(2, 1), gates, 1.0)
