"""The kernels between the examples of a gallery, each as far as it is defined for the network."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import GatelabError
from gatelab.kernels import OverlapKernel, compute, neural_path_kernel, neural_tangent_kernel
from gatelab.lab.explore.facts import Omission, ShownKernel

_KERNELS: tuple[tuple[str, str, str, Callable[[nn.Module, Tensor], Tensor]], ...] = (
    (
        "Λ",
        "overlap",
        "paths open for both examples, per starting node, as a share of all paths",
        lambda model, x: compute(OverlapKernel(model), x),
    ),
    (
        "H",
        "path kernel",
        "inner product of the two examples' path features: shared open paths, each weighted by both inputs",
        neural_path_kernel,
    ),
    (
        "K",
        "tangent kernel",
        "inner product of the output's gradients with respect to all parameters, summed over outputs",
        neural_tangent_kernel,
    ),
)


def shown_kernels(model: nn.Module, x: Float[Tensor, "n ..."]) -> tuple[list[ShownKernel], list[Omission]]:
    """Return the kernels that are defined, and why others are not."""
    found: list[ShownKernel] = []
    omitted: list[Omission] = []
    for symbol, name, meaning, kernel in _KERNELS:
        try:
            values = kernel(model, x).detach().double().numpy()
        except GatelabError as error:
            omitted.append(Omission(f"{name} {symbol}", str(error)))
            continue
        if not np.isfinite(values).all() or np.abs(values).max() > np.finfo(np.float32).max:
            omitted.append(Omission(f"{name} {symbol}", "its entries are too large for this page's numbers"))
            continue
        found.append(ShownKernel(symbol, name, meaning, values.astype(np.float32)))
    return found, omitted
