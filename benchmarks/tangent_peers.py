"""Tangent kernels of an MLP and of GCONV against neural-tangents, nngeometry, torch.func and the products they need."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import gatelab as gl
from benchmarks import convolutional, tangent
from benchmarks.peers import environment
from benchmarks.peers.contest import check, measured, speed_up
from benchmarks.peers.remote import Peer
from benchmarks.timing import Ratio, interleaved
from gatelab.kernels.tiles import tiles

WAYS = ("JACOBIAN_CONTRACTION", "NTK_VECTOR_PRODUCTS", "STRUCTURED_DERIVATIVES")
MLP = "tangent kernel, 784-128⁴-1, n = 2000"
NEURAL_TANGENTS = "neural-tangents 0.6.5, the best of three ways (speed-up)"


def jacobian_contraction(model: nn.Module, x: Tensor) -> Tensor:
    """Torch's own tutorial: per-example Jacobians of all parameters and outputs, contracted."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def answer(values: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, values, (example.unsqueeze(0),)).squeeze(0)

    jacobians = vmap(jacrev(answer), in_dims=(None, 0))(parameters, x)
    kernel = torch.zeros(len(x), len(x))
    for jacobian in jacobians.values():
        flat = jacobian.flatten(1)  # outputs and parameters together: the trace over outputs
        kernel += flat @ flat.T
    return kernel


def half_of_the_products(n: int) -> float:
    """Time of our kernel over that of its matrix products alone: the lower half of the tiles, nothing else."""
    model, x = tangent.problem()
    operands = [torch.randn(n, width) for width in (*tangent.WIDTHS[:-1], *tangent.WIDTHS[1:])]
    blocks = list(tiles(n, n, symmetric=True))

    def products() -> None:
        for i, j in blocks:
            for operand in operands:
                _ = operand[i] @ operand[j].T

    ours, bound = interleaved(lambda: gl.neural_tangent_kernel(model, x), products)
    return ours / bound


def of_the_mlp() -> list[Ratio]:
    """784-128⁴-1, n = 2000."""
    model, x = tangent.problem()
    assert isinstance(model, nn.Sequential)

    def ours() -> Tensor:
        return gl.neural_tangent_kernel(model, x)

    def against_neural_tangents() -> float:
        with Peer("neural_tangents_kernel", environment.neural_tangents, model, x) as peer:
            return speed_up(peer, "neural-tangents", WAYS, ours, sample=100, n=len(x), rounds=3)

    def against_nngeometry() -> float:
        with Peer("nngeometry_kernel", environment.nngeometry, model, x) as peer:
            return speed_up(peer, "nngeometry", ("Gram matrix",), ours, sample=100, n=len(x), rounds=3)

    ratio = half_of_the_products(len(x))
    return [
        measured(MLP, NEURAL_TANGENTS, "≥ 3", 3, against_neural_tangents),
        measured(MLP, "nngeometry 0.4 (speed-up)", "none", None, against_nngeometry),
        Ratio(MLP, "bare float32 products, half of the tiles (time)", ratio, "≤ 1.5", ratio <= 1.5),
    ]


def of_gconv(n: int) -> list[Ratio]:
    """GCONV on 32×32 images, trace over ten outputs."""
    model, x = convolutional.problem(n)
    assert isinstance(model, nn.Sequential)
    work = f"tangent kernel, GCONV, 10 outputs, n = {n}"
    rounds = 3 if n <= 16 else 2

    def ours() -> Tensor:
        return gl.neural_tangent_kernel(model, x)

    def against_neural_tangents() -> float:
        with Peer("neural_tangents_kernel", environment.neural_tangents, model, x) as peer:
            return speed_up(peer, "neural-tangents", WAYS, ours, sample=4, n=n, rounds=rounds)

    def against_torch_func() -> float:
        check(jacobian_contraction(model, x), ours(), "torch.func")
        own, theirs = interleaved(ours, lambda: jacobian_contraction(model, x), rounds=rounds - 1)
        print(f"  torch.func: {theirs:.2f} s; ours {own:.2f} s", flush=True)
        return theirs / own

    return [
        measured(work, NEURAL_TANGENTS, "≥ 1.3", 1.3, against_neural_tangents),
        measured(work, "torch.func Jacobian contraction (speed-up)", "≥ 3", 3, against_torch_func),
    ]


def run() -> list[Ratio]:
    """Measure."""
    return [*of_the_mlp(), *of_gconv(16), *of_gconv(64)]
