"""A layer with random weights (hierarchy, after Thm. 7): does training the layer above suffice?"""

import torch
from jaxtyping import Float
from torch import Tensor


def random_activations(
    rows: Float[Tensor, "m k"], nodes: int, *, bias: bool, generator: torch.Generator | None = None
) -> Float[Tensor, "m n"]:
    """Return F = relu(P W + b) of a layer with Gaussian weights and, on request, biases.

    Args:
        rows: P F_β of all children side by side, a row for each event.
        nodes: n.
        bias: whether nodes have Gaussian biases.
        generator: the source of random numbers.

    Returns:
        The activations, a row for each event.
    """
    k = rows.shape[1]
    weight = torch.randn(k, nodes, generator=generator, dtype=rows.dtype) / k**0.5
    shift = torch.randn(nodes, generator=generator, dtype=rows.dtype) if bias else torch.zeros((), dtype=rows.dtype)
    return torch.relu(rows @ weight + shift)
