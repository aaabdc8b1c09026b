"""Digests of models and data: they identify what a kernel on disk was made from."""

import hashlib

import torch
from torch import Tensor, nn


def model_digest(model: nn.Module) -> str:
    """Return a digest of a model's modules, parameters and buffers; it cannot see the code of ``forward``."""
    state = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return _digest([repr(model), *(part for name, tensor in state.items() for part in (name, tensor))])


def data_digest(x: Tensor) -> str:
    """Return a digest of the examples: shape, dtype and every value."""
    return _digest([x])


def _digest(parts: list[str | Tensor]) -> str:
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            sha.update(part.encode())
        else:
            values = part.detach().contiguous().cpu()
            sha.update(f"{tuple(values.shape)} {values.dtype}".encode())
            sha.update(values.flatten().view(torch.uint8).numpy().data)
    return sha.hexdigest()[:16]
