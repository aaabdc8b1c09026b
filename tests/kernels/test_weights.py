"""Networks whose weights are no numbers are refused by every kernel."""

import pytest
import torch

import gatelab as gl
from gatelab.errors import InputError
from gatelab.kernels import OverlapKernel, PathKernel, TangentKernel
from gatelab.models import mlp


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("kernel", [OverlapKernel, PathKernel, TangentKernel])
def test_weights_that_are_no_numbers_are_refused(kernel, broken):
    model, x = mlp([4, 5, 2]), torch.randn(3, 4)
    with torch.no_grad():
        model[0].weight[1, 2] = broken
    with pytest.raises(InputError, match=r"'0.weight' holds NaN or infinite values, .* load weights that are finite"):
        kernel(model).on(x)
    with pytest.raises(InputError, match=r"'0.weight' holds NaN"):
        gl.neural_path_kernel(model, x)
