"""The tangent kernel by plain autograd: one example and one output after another, no vmap."""

import torch
from torch import Tensor, nn


def tangent_kernel(model: nn.Module, x: Tensor) -> Tensor:
    """Return the kernel for all pairs of outputs, (n, n, k, k)."""
    parameters = list(model.parameters())
    rows = []
    with torch.enable_grad():
        for example in x:
            answer = model(example.unsqueeze(0)).flatten()
            parts = [torch.autograd.grad(output, parameters, retain_graph=True) for output in answer]
            rows.append(torch.stack([torch.cat([part.flatten() for part in row]) for row in parts]))
    jacobian = torch.stack(rows)
    return torch.einsum("nkp,mlp->nmkl", jacobian, jacobian)
