"""Run a copy of a user's model in surroundings that neither it nor the caller can disturb."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gatelab.observe.chance import OwnChance, random_states_kept


@contextmanager
def undisturbed(
    model: nn.Module, x: Tensor, parameters: dict[str, Tensor] | None = None
) -> Iterator[Callable[[Tensor], Any]]:
    """Yield a function that runs ``model`` on a batch, with random numbers of its own.

    Args:
        model: a :func:`stand_in` of the user's model.
        x: a batch on the model's device.
        parameters: tensors to use in place of the parameters with these names.
    """
    substitutes = {name: buffer.clone() for name, buffer in model.named_buffers()} | (parameters or {})
    with plain_surroundings(x):
        # The clone protects the caller's x from a model that starts with an in-place operation.
        yield lambda batch: functional_call(model, substitutes, (batch.detach().clone(),))


@contextmanager
def plain_surroundings(x: Tensor) -> Iterator[list[str]]:
    """Switch off the caller's inference mode and autocast, and give models random numbers of their own.

    Yields:
        A list, which holds after the block the libraries beside torch whose random numbers were drawn.
    """
    plain = torch.autocast(x.device.type, enabled=False)
    with torch.inference_mode(False), plain, OwnChance(), random_states_kept() as drawn:
        yield drawn
