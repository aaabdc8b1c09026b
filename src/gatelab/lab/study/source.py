"""Where the networks of a study come from: the user's, fresh ones, and those that decide over the control's gates."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.models.from_file import seeded_network
from gatelab.models.redraw import Redrawn, redrawn

# Seeds of one run that lie far apart: values, the control's gates, and networks that are trained a second time must not
# start where the network itself started.
_VALUES, _CONTROL, _AGAIN = 700_001, 500_009, 900_007
_FEW = 16  # entries below which a correlation says nothing


@dataclass(frozen=True)
class NetworkSource:
    """The networks of a study, each from a seed.

    Attributes:
        name: of the network, in reports.
        template: the network as the user gave it: trained, or made by the factory once.
        factory: makes a network under a seed; None if a trained one is studied.
        draws_alike: parameters that the factory does not draw anew under each seed; if there are any, gatelab draws
            fresh networks.
    """

    name: str
    template: nn.Module
    factory: Callable[[int], nn.Module] | None
    draws_alike: tuple[str, ...] = ()

    @property
    def is_trained(self) -> bool:
        """Whether the network is studied as it is."""
        return self.factory is None

    def start(self, seed: int) -> nn.Module:
        """The network of a run, before it is trained."""
        return copy.deepcopy(self.template) if self.factory is None else self.factory(seed).eval()

    def fresh(self, seed: int) -> nn.Module:
        """A network with random weights, for values to start from."""
        return self._drawn(seed + _VALUES)

    def again(self, seed: int) -> nn.Module:
        """A network with random weights, to be trained beside the one of this run."""
        return self._drawn(seed + _AGAIN)

    def control(self, seed: int) -> nn.Module:
        """A network with random weights that gatelab itself drew, whatever the factory does: the control's gates."""
        return self.control_draw(seed).network

    def control_draw(self, seed: int) -> Redrawn:
        """The same, and how it was drawn."""
        return redrawn(self.template, seed + _CONTROL)

    def _drawn(self, seed: int) -> nn.Module:
        if self.factory is None or self.draws_alike:
            return redrawn(self.template, seed).network
        return self.factory(seed).eval()


def from_factory(name: str, function: Callable[[], Any]) -> NetworkSource:
    """A source whose networks are made by a function, under a seed that gatelab sets."""

    def make(seed: int) -> nn.Module:
        return seeded_network(function, seed).to("cpu")

    first, second = make(1), make(2)
    return NetworkSource(name, first.eval(), make, tuple(_alike(first, second)))


def from_trained(name: str, model: nn.Module) -> NetworkSource:
    """A source for a trained network, which is copied and never changed."""
    return NetworkSource(name, copy.deepcopy(model).to("cpu").eval(), None)


def _alike(first: nn.Module, second: nn.Module) -> list[str]:
    """Parameters in which two networks agree more than independent draws would; constants may agree."""
    others: Mapping[str, Tensor] = dict(second.named_parameters())
    return [
        name
        for name, tensor in first.named_parameters()
        if name in others and not _is_constant(tensor) and _agree(tensor.detach(), others[name].detach())
    ]


def _is_constant(tensor: Tensor) -> bool:
    return bool((tensor == tensor.flatten()[0]).all())


def _agree(first: Tensor, second: Tensor) -> bool:
    a, b = first.flatten().double(), second.flatten().double()
    if torch.equal(a, b) or len(a) < _FEW:
        return torch.equal(a, b)
    # Of independent entries the correlation has a standard deviation of n^(−1/2).
    return abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) > 6 / len(a) ** 0.5
