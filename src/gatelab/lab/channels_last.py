"""Images with the channels of a pixel adjacent in memory, the fastest layout for convolutions: forward and backward."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.observe import torch_state_kept

# The gradients of these arrive in the other layout, whatever the layout of their images.
_FORGETFUL = frozenset(
    {
        nn.functional.adaptive_avg_pool2d,
        *(torch.flatten, Tensor.flatten),
        *(torch.mean, Tensor.mean),
        *(torch.reshape, Tensor.reshape),
    }
)


def channels_last(x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Return images with the channels of a pixel adjacent in memory; other examples as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


@torch.no_grad()
def takes_channels_last(model: nn.Module, x: Float[Tensor, "n ..."]) -> bool:
    """Whether a model's forward runs on images with adjacent channels; ``view`` may fail on the resulting layout."""
    copied = copy.deepcopy(model).eval()  # a forward pass may leave a trace in the network itself
    try:
        with torch_state_kept():
            copied(channels_last(x))
    except RuntimeError:
        return False
    return True


def is_compiled(model: nn.Module) -> bool:
    """Whether ``torch.compile`` runs a model or a part of it."""
    return any(hasattr(part, "_orig_mod") or part._compiled_call_impl is not None for part in model.modules())


class GradientsToo(TorchFunctionMode):
    """Gradients of images keep the layout of the images; their values stay the same.

    Where images end, in a global pooling or a flattening, torch returns their gradient with adjacent *pixels*. The
    derivative of a ReLU, which then reads two layouts at once, takes ten to twenty times as long. Not for a model
    that :func:`is_compiled`: each operation's passage through here would be compiled too.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FORGETFUL and args and _are_images(args[0]):
            args[0].register_hook(channels_last)
        return func(*args, **(kwargs or {}))


def _are_images(x: Any) -> bool:
    """Whether these are images in this layout, in the middle of a graph of derivatives.

    A leaf, such as the weights of a convolution of single pixels, would keep its hooks from step to step.
    """
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.requires_grad or x.is_leaf:
        return False
    return x.is_contiguous(memory_format=torch.channels_last)
