"""Images with the channels of a pixel adjacent in memory, the fastest layout for convolutions: forward and backward."""

import copy
from contextlib import nullcontext
from enum import Enum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.observe import torch_state_kept

_ROUNDING = 1e-2  # far above that of float32, far below what another function would change
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


class ImageLayout(Enum):
    """How far a model is trained with the channels of a pixel adjacent."""

    GIVEN = "images and gradients lie as they come"
    IMAGES = "images do"
    GRADIENTS = "images and their gradients do"


def layout_for(model: nn.Module, x: Float[Tensor, "n ..."]) -> ImageLayout:
    """The fastest layout in which a model computes what it computes otherwise, tried on a few examples.

    ``view`` may fail on the other layout, in a forward pass, in one of training alone, or in a backward pass of the
    user's own; and where flattening is a view in one layout and a copy in the other, overwriting it differs.
    """
    if is_compiled(model):  # each further pass would be compiled, too
        with torch_state_kept(), torch.no_grad():
            return ImageLayout.IMAGES if _runs(model, channels_last(x), training=False) else ImageLayout.GIVEN
    with torch_state_kept(), torch.enable_grad():
        try:
            expected = _outcome(model, x, training=False)
        except Exception:  # training itself will raise it
            return ImageLayout.GIVEN
        in_training = _runs(model, x, training=True)
        for layout, mode in ((ImageLayout.GRADIENTS, GradientsToo), (ImageLayout.IMAGES, nullcontext)):
            with mode():
                trains = not in_training or _runs(model, channels_last(x), training=True)
                if trains and _runs(model, channels_last(x), training=False, expected=expected):
                    return layout
    return ImageLayout.GIVEN


def _outcome(model: nn.Module, x: Tensor, *, training: bool) -> list[Tensor | None]:
    """A model's answers, and the derivatives of their squares, from a copy."""
    copied = copy.deepcopy(model).train(training)
    answers = copied(x)
    parameters = [parameter for parameter in copied.parameters() if parameter.requires_grad]
    if not answers.requires_grad or not parameters:
        return [answers.detach()]
    return [answers.detach(), *torch.autograd.grad(answers.square().sum(), parameters, allow_unused=True)]


def _runs(model: nn.Module, x: Tensor, *, training: bool, expected: list[Tensor | None] | None = None) -> bool:
    """Whether a model runs forward and backward, and gives what is expected of it."""
    try:
        found = _outcome(model, x, training=training)
    except Exception:  # a user's own code may raise anything
        return False
    return expected is None or _agree(expected, found)


def _agree(expected: list[Tensor | None], found: list[Tensor | None]) -> bool:
    """Whether tensors are the same up to rounding, and to a gate that rounding decides."""
    for one, other in zip(expected, found, strict=True):
        if one is None or other is None:
            if one is not other:
                return False
        elif not torch.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING * float(one.abs().max()), equal_nan=True):
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
