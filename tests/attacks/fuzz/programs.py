"""A network as a list of steps: printable as the source of a module, and open to a reference that never runs it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Fixed:
    """A linear map without weights; ``run`` takes and returns tensors (n, …)."""

    run: Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Shifted:
    """A constant that is added."""

    by: float


@dataclass(frozen=True)
class Weighted:
    """A dense layer (no axes of positions) or a convolution, by the names of its parameters."""

    weight: str
    bias: str | None
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    mode: str = "constant"

    def run(self, signal: Tensor, weight: Tensor, bias: Tensor | None, groups: int | None = None) -> Tensor:
        """Apply the layer with these weights."""
        axes = signal.ndim - 2
        if not axes:
            return F.linear(signal, weight, bias)
        padded = F.pad(signal, (self.padding,) * 2 * axes, self.mode) if self.padding else signal
        convolve = (F.conv1d, F.conv2d)[axes - 1]
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, groups or self.groups)


@dataclass(frozen=True)
class Normed:
    """Batch-norm in evaluation mode, by the name of its module."""

    module: str


@dataclass(frozen=True)
class Gated:
    """An activation: its value, the factor by which it multiplies, and whether it is open."""

    value: Callable[[Tensor], Tensor]
    factor: Callable[[Tensor], Tensor]
    opened: Callable[[Tensor], Tensor]
    name: str = "relu"


@dataclass(frozen=True)
class Selected:
    """A max-pooling: ``run`` returns the maxima and their places in the flattened image."""

    run: Callable[[Tensor], tuple[Tensor, Tensor]]
    uneven: bool = False  # windows of different sizes


SMOOTH = frozenset("silu gelu mish hardswish elu selu".split())
Action = Fixed | Shifted | Weighted | Normed | Gated | Selected


@dataclass(frozen=True)
class Step:
    """One line of forward: what it reads, what it writes, its source, and what it means."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    line: str
    action: Action


@dataclass
class Program:
    """A network as steps from ``x`` to ``y``."""

    seed: int
    shape: Shape
    members: dict[str, str] = field(default_factory=dict)  # attribute of the module -> its constructor
    steps: list[Step] = field(default_factory=list)

    def source(self) -> str:
        """Return the module as a person would write it."""
        return "\n".join(
            [
                "class Fuzzed(nn.Module):",
                f'    """Seed {self.seed}; examples of shape {self.shape}."""',
                "    def __init__(self):",
                "        super().__init__()",
                *(f"        self.{name} = {made}" for name, made in self.members.items()),
                "    def forward(self, x):",
                *(f"        {step.line}" for step in self.steps),
                "        return y",
            ]
        )

    def build(self) -> nn.Module:
        """Make the module, with random weights and batch-norm statistics, in evaluation mode and float64."""
        space = {"nn": nn, "torch": torch, "F": F}
        exec(compile(self.source(), f"<fuzz seed {self.seed}>", "exec"), space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = space["Fuzzed"]().double().eval()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                    module.running_mean.normal_(0.0, 0.3)
                    module.running_var.uniform_(0.5, 1.5)
                    if module.affine:
                        nn.init.normal_(module.weight, 1.0, 0.2)
                        nn.init.normal_(module.bias, 0.0, 0.2)
        return model

    def examples(self, n: int = 3) -> Tensor:
        """Return random examples."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)

    def oddities(self) -> set[str]:
        """Return what the network holds that the documentation does not promise for every quantity."""
        found = {"shared weight"} if self.shares_weights() else set()
        for step in self.steps:
            match step.action:
                case Gated(name="prelu"):
                    found.add("prelu")
                case Gated(name="relu6" | "hardtanh"):
                    found.add("two bounds")
                case Gated(name=name) if name in SMOOTH:
                    found.add("smooth")
                case Selected(uneven=uneven):
                    found |= {"max-pooling", "uneven max-pooling"} if uneven else {"max-pooling"}
                case Shifted():
                    found.add("constant sum")
                case Weighted(weight=weight) if "." not in weight:
                    found |= {"loose parameter", "matmul"} if "@" in step.line else {"loose parameter"}
            found |= {"stack"} if "torch.stack" in step.line else set()
        return found

    def shares_weights(self) -> bool:
        """Whether two steps use one weight."""
        weights = [step.action.weight for step in self.steps if isinstance(step.action, Weighted)]
        return len(set(weights)) < len(weights)
