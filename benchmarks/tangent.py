"""The tangent kernel of 784-128⁴-1, n = 2000, against a Jacobian contraction and against bare matrix products.

Also of two examples of a network with batch norm and 100 outputs, and of a layer with ten million weights.
"""

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import gatelab as gl
from benchmarks.memory import in_fresh_process
from benchmarks.timing import Ratio, interleaved

WIDTHS = (784, 128, 128, 128, 128, 1)
N = 2000


def problem() -> tuple[torch.nn.Module, Tensor]:
    """The network and its examples."""
    generator = torch.Generator().manual_seed(0)
    return gl.models.mlp(WIDTHS, bias=True, generator=generator), torch.randn(N, WIDTHS[0], generator=generator)


def jacobian_contraction(model: torch.nn.Module, x: Tensor) -> Tensor:
    """The way of torch's own tutorial: per-example Jacobians, contracted parameter by parameter."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def answer(values: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, values, (example.unsqueeze(0),)).squeeze(0)

    kernel = x.new_zeros(len(x), len(x))
    for name, own in parameters.items():  # one parameter at a time: all Jacobians together do not fit

        def of_one(value: Tensor, example: Tensor, name: str = name) -> Tensor:
            return answer({**parameters, name: value}, example)

        jacobian = vmap(jacrev(of_one), in_dims=(None, 0))(own, x).flatten(1)
        kernel += jacobian @ jacobian.T
    return kernel


def many_outputs() -> tuple[torch.nn.Module, Tensor]:
    """Return a convolutional network with batch norm and 100 outputs, and two images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        widths, layers = (3, 32, 64, 128), []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100))
        return model.eval(), torch.randn(2, 3, 32, 32)


def of_many_outputs() -> Ratio:
    """Two examples of 100 outputs, against all Jacobians at once."""
    model, x = many_outputs()
    # In float32 the contraction's long sums may be off by 2e-4.
    ours, exact = gl.neural_tangent_kernel(model, x), jacobian_contraction(copy.deepcopy(model).double(), x.double())
    if not torch.allclose(ours.double(), exact, rtol=1e-5):
        raise RuntimeError(f"the two kernels differ by {(ours - exact).abs().max()}")
    own, jacobian = interleaved(
        lambda: gl.neural_tangent_kernel(model, x), lambda: jacobian_contraction(model, x), rounds=5
    )
    work = "tangent kernel, 3 convolutions with batch norm, 100 outputs, n = 2"
    return Ratio(work, "torch.func Jacobian contraction (speed-up)", jacobian / own, "≥ 2", jacobian / own >= 2)


def of_many_weights() -> Ratio:
    """The error of float32 in a sum of ten million equal terms, where one product is off by 0.7 %."""
    layer, x = nn.Linear(10**7, 1), torch.full((2, 10**7), 0.1)
    exact = x.double() @ x.double().T + 1
    error = float(((gl.neural_tangent_kernel(layer, x) - exact) / exact).abs().max()) / 1e-5
    return Ratio(
        "tangent kernel, 10⁷-1, n = 2, equal inputs", "relative error of 1e-5 (error)", error, "≤ 1", error <= 1
    )


def run() -> list[Ratio]:
    """Measure."""
    model, x = problem()
    inputs = [torch.randn(N, width) for width in (*WIDTHS[:-1], *WIDTHS[1:-1])]

    def products() -> None:
        for matrix in inputs:
            _ = matrix @ matrix.T

    ours, bound = interleaved(lambda: gl.neural_tangent_kernel(model, x), products)
    again, jacobian = interleaved(
        lambda: gl.neural_tangent_kernel(model, x), lambda: jacobian_contraction(model, x), rounds=2
    )
    error = (gl.neural_tangent_kernel(model, x) - jacobian_contraction(model, x)).abs().max() / N
    if error > 1e-3:
        raise RuntimeError(f"the two kernels differ by {error}")
    memory = float(in_fresh_process("benchmarks.tangent_memory"))
    work = "tangent kernel, 784-128⁴-1, n = 2000"
    return [
        Ratio(work, "torch.func Jacobian contraction (speed-up)", jacobian / again, "≥ 10", jacobian / again >= 10),
        Ratio(work, "bare float32 products (time)", ours / bound, "≤ 2", ours / bound <= 2),
        Ratio(work, "the result (peak memory)", memory, "≤ 3", memory <= 3),
        of_many_outputs(),
        of_many_weights(),
    ]
