"""A model under attack: how to make it, what it reads, and the plain network that it stands for."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CASES: dict[str, "Case"] = {}


@dataclass(frozen=True)
class Case:
    """A model and the shape of its examples.

    Attributes:
        build: makes the model.
        shape: of one example.
        plain: makes the same function in plain layers, if brute force cannot replace the weights of the model itself.
        documented: quantities whose documentation promises an answer; elsewhere a refusal is right as well.
        weights: parameters outside layers that count as values.
        soft: whether a signal gates another one. Brute force would draw the weights of the gate, too;
            ``tests/contracts`` compares such kernels with random values.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...] = (2,)
    plain: Callable[[nn.Module], nn.Module] | None = None
    documented: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    soft: bool = False

    def made(self) -> nn.Module:
        """Return the model, in evaluation mode, with the same weights every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            model = self.build().eval()
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.running_mean.normal_(0.0, 0.3)
                    module.running_var.uniform_(0.5, 1.5)
        return model

    def examples(self, n: int = 3) -> Tensor:
        """Return random examples."""
        return torch.randn(n, *self.shape, generator=torch.Generator().manual_seed(11))


EVERYTHING = ("gates", "twin", "path kernel", "raw path kernel", "tangent kernel", "paths", "region")
NO_REGION = tuple(what for what in EVERYTHING if what != "region")


def case(shape=(2,), *, plain=None, documented=(), weights=(), name=None, soft=False):
    """Register a factory of models."""

    def register(build):
        CASES[name or build.__name__] = Case(build, shape, plain, documented, weights, soft)
        return build

    return register


def forward_of(
    function: Callable[[nn.Module, Tensor], Tensor], **parts: nn.Module | nn.Parameter | Tensor
) -> nn.Module:
    """Return a module with these parts whose forward is ``function(self, x)``."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

        def forward(self, x):
            return function(self, x)

    return Net()
