"""Made-up examples for models that are read without any."""

from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gatelab.network.operations import CONVOLUTIONS, module_operation, tensors_in
from gatelab.observe import stand_in

Shape = tuple[int, ...]

# Common image sizes first, then others; small rectangles last.
_COMMON = (32, 28, 224, 64, 16, 8, 4, 96, 128, 48, 256, 227, 299, 512)
_SIDES = tuple(dict.fromkeys((*_COMMON, *range(1, 65), *range(72, 257, 8))))
_RECTANGLES = tuple((high, wide) for high in range(1, 17) for wide in range(1, 17) if high != wide)
_LARGER = 32  # pixels by which a second image is larger
_LAYERS = 3  # the input is assumed to reach one of the model's first layers


def made_up_examples(model: nn.Module) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield random examples that the model may accept, likeliest first, and larger ones that it also accepts.

    The weights give the number of input features or channels. The size of an image is found by trial on the "meta"
    device, where nothing is computed; a model that cannot run there is tried on a common size.
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        return

    def drawn(shape: Shape) -> Tensor:
        return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), device="cpu").to(like)

    for shape, larger in _shapes(model):
        yield drawn(shape), None if larger is None else drawn(larger)


def _shapes(model: nn.Module) -> Iterator[tuple[Shape, Shape | None]]:
    trial = _Trial(model)
    for features, axes in list(dict.fromkeys(_first_layers(model)))[:_LAYERS]:
        if axes == 0:
            yield (features,), None
            continue
        fitting = trial.first((features, *sides) for sides in _sides(axes))
        yield fitting or (features, *_COMMON[:1] * axes), trial.larger(fitting)


def _first_layers(model: nn.Module) -> Iterator[tuple[int, int]]:
    """Input features or channels of each layer, and the number of its position axes."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        operation = module_operation(module)
        if operation == "linear" and isinstance(weight, Tensor):
            yield weight.shape[1], 0
        elif operation in CONVOLUTIONS and isinstance(weight, Tensor):
            channels: int = getattr(module, "in_channels", weight.shape[1])
            yield channels, weight.ndim - 2
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            yield parameter.shape[1], parameter.ndim - 2


def _sides(axes: int) -> Iterator[Shape]:
    yield from ((side,) * axes for side in _SIDES)
    if axes == 2:
        yield from _RECTANGLES


class _Trial:
    """Runs a model on shapes only, without computing values."""

    def __init__(self, model: nn.Module):
        self._model = model

    def first(self, shapes: Iterable[Shape]) -> Shape | None:
        """Return the first of these shapes that the model takes."""
        return next((shape for shape in shapes if self._takes(shape)), None)

    def larger(self, shape: Shape | None) -> Shape | None:
        """Return the shape of larger images, if the model takes them."""
        return None if shape is None else self.first([(shape[0], *(side + _LARGER for side in shape[1:]))])

    @cached_property
    def _copy(self) -> nn.Module:
        return stand_in(self._model)

    @cached_property
    def _held(self) -> dict[str, Tensor]:
        held = (*self._model.named_parameters(), *self._model.named_buffers())
        return {name: tensor.detach().to("meta") for name, tensor in held}

    @torch.no_grad()
    def _takes(self, shape: Shape) -> bool:
        dtype = next(tensor.dtype for tensor in self._held.values() if tensor.is_floating_point())
        try:
            answer = functional_call(self._copy, self._held, (torch.empty(2, *shape, device="meta", dtype=dtype),))
        except Exception:  # any error in the user's code: another size may work
            return False
        return all(tensor.ndim > 0 and tensor.shape[0] == 2 for tensor in tensors_in(answer))
