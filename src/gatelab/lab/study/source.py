"""Where the networks of a study come from: the user's, fresh ones, and those that decide over the control's gates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.models.from_file import seeded_network
from gatelab.models.redraw import copied, measure_statistics, redrawn

# Seeds of one run that lie far apart: values, the control's gates, and networks that are trained a second time must not
# start where the network itself started.
_VALUES, _CONTROL, _AGAIN = 700_001, 500_009, 900_007
_FEW = 16  # entries below which a correlation says nothing
NORMALISING = 512  # training examples by which batch norms of random networks are set

Factory = Callable[[int], nn.Module]


@dataclass(frozen=True)
class NetworkSource:
    """The networks of a study, each from a seed.

    Attributes:
        name: of the network, in reports.
        template: the network as the user gave it: trained, or made by the factory once.
        factory: makes the network of a run under a seed; None if a trained one is studied.
        draw: the user's factory if it draws every weight anew under each seed, and the same ones under the same seed;
            None if there is none like that: gatelab then draws random networks.
        draws_alike: parameters that the factory does not draw anew under each seed.
        examples: training examples that set the statistics of a random network's batch norms.
    """

    name: str
    template: nn.Module
    factory: Factory | None
    draw: Factory | None = None
    draws_alike: tuple[str, ...] = ()
    examples: Tensor | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the network is studied as it is."""
        return self.factory is None

    def start(self, seed: int) -> nn.Module:
        """The network of a run, before it is trained."""
        return copied(self.template) if self.factory is None else self.factory(seed).eval()

    def fresh(self, seed: int) -> nn.Module:
        """A network with random weights, for values to start from."""
        return self._drawn(seed + _VALUES)[0]

    def again(self, seed: int) -> nn.Module:
        """A network with random weights, to be trained beside the one of this run."""
        return self._drawn(seed + _AGAIN)[0]

    def control(self, seed: int) -> nn.Module:
        """A network with random weights, whatever the user's factory does: it decides over the control's gates."""
        return self.control_draw(seed)[0]

    def control_draw(self, seed: int) -> tuple[nn.Module, str]:
        """The same, and how it was drawn."""
        network, how = self._drawn(seed + _CONTROL, constant=False)
        return network, how + self._normalised(network)

    def before_training(self, network: nn.Module) -> nn.Module:
        """A network that has not seen data yet, with batch norms that have, as its gates would be in training."""
        self._normalised(network)
        return network

    def with_examples(self, x: Tensor) -> "NetworkSource":
        """The same networks; batch norms of random ones are set by these examples."""
        return replace(self, examples=x)

    def _drawn(self, seed: int, *, constant: bool = True) -> tuple[nn.Module, str]:
        """A random network, and how it was drawn; unless ``constant``, weights that are no draw are replaced, too."""
        if self.draw is not None and (constant or not _constants(self.template)):
            count = sum(1 for _ in self.template.parameters())
            return self.draw(seed).eval(), f"{count} tensors by the network's factory, under another seed"
        drawn = redrawn(self.template, seed)
        return drawn.network, drawn.text()

    def _normalised(self, network: nn.Module) -> str:
        layers = 0 if self.examples is None else measure_statistics(network, self.examples)
        return f", and {layers} batch norms by the statistics of training examples" if layers else ""


def from_factory(name: str, function: Callable[[], Any]) -> NetworkSource:
    """A source whose networks are made by a function, under a seed that gatelab sets."""
    make = _factory(function)
    first, draw, alike = _looked_at(make)
    return NetworkSource(name, first.eval(), make, draw, alike)


def from_trained(name: str, model: nn.Module, function: Callable[[], Any] | None = None) -> NetworkSource:
    """A source for a trained network, which is copied and never changed; ``function`` makes others like it."""
    template = copied(model).to("cpu").eval()
    if function is None:
        return NetworkSource(name, template, None)
    _, draw, _ = _looked_at(_factory(function))
    return NetworkSource(name, template, None, draw)


def _factory(function: Callable[[], Any]) -> Factory:
    return lambda seed: seeded_network(function, seed).to("cpu")


def _looked_at(make: Factory) -> tuple[nn.Module, Factory | None, tuple[str, ...]]:
    """What a factory makes, the factory if random networks can be drawn with it, and what it does not draw anew."""
    first, again, second = make(1), make(1), make(2)
    alike = tuple(_alike(first, second))
    others = dict(again.named_parameters())
    repeats = all(name in others and torch.equal(tensor, others[name]) for name, tensor in first.named_parameters())
    return first, make if repeats and not alike else None, alike


def _alike(first: nn.Module, second: nn.Module) -> list[str]:
    """Parameters in which two networks agree more than independent draws would; constants may agree."""
    others: Mapping[str, Tensor] = dict(second.named_parameters())
    return [
        name
        for name, tensor in first.named_parameters()
        if name in others and not _is_constant(tensor) and _agree(tensor.detach(), others[name].detach())
    ]


def _constants(network: nn.Module) -> list[str]:
    """Weights that all have one value: no draw, whatever the seed."""
    return [name for name, tensor in network.named_parameters() if tensor.ndim > 1 and _is_constant(tensor)]


def _is_constant(tensor: Tensor) -> bool:
    return bool((tensor == tensor.flatten()[0]).all())


def _agree(first: Tensor, second: Tensor) -> bool:
    a, b = first.flatten().double(), second.flatten().double()
    if torch.equal(a, b) or len(a) < _FEW:
        return torch.equal(a, b)
    # Of independent entries the correlation has a standard deviation of n^(−1/2).
    return abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) > 6 / len(a) ** 0.5
