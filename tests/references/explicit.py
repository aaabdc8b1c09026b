"""Paths one by one, as in the papers' definitions, and dense Jacobians."""

from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev


def path_sum(weights: list[Tensor], gates: list[Tensor], x: Tensor) -> Tensor:
    """Return Σ_p x(i₀) Π gates Π weights for one input and each output, by a loop over all paths."""
    output = torch.zeros(weights[-1].shape[0])
    for units in product(*(range(weight.shape[1]) for weight in weights)):
        for k in range(weights[-1].shape[0]):
            term = x[units[0]]
            for layer, weight in enumerate(weights):
                following = units[layer + 1] if layer + 1 < len(weights) else k
                term = term * weight[following, units[layer]]
                if layer + 1 < len(weights):
                    term = term * gates[layer][following]
            output[k] += term
    return output


def overlap(patterns: list[Tensor]) -> Tensor:
    """Return Λ: for every pair of inputs, count the tuples of units that are open for both."""
    n = patterns[0].shape[0]
    count = torch.zeros(n, n)
    for units in product(*(range(p.shape[1]) for p in patterns)):
        active = torch.stack([p[:, i] for p, i in zip(patterns, units, strict=True)]).all(dim=0).double()
        count += torch.outer(active, active)
    return count


def tangent_kernel(model: nn.Module, x: Tensor, y: Tensor | None = None, names: list[str] | None = None) -> Tensor:
    """Return the kernel for all pairs of outputs, (n, m, k, k), from one Jacobian per example."""
    parameters = {k: p.detach() for k, p in model.named_parameters() if names is None or k in names}

    def answer(values: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, values, (example.unsqueeze(0),)).reshape(-1)

    def jacobian(examples: Tensor) -> Tensor:
        rows = [jacrev(answer)(parameters, example) for example in examples]
        return torch.stack([torch.cat([row[k].flatten(1) for k in parameters], dim=1) for row in rows])

    return torch.einsum("nkp,mlp->nmkl", jacobian(x), jacobian(x if y is None else y))
