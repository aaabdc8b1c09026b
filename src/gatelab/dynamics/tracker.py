"""Recording gates and kernels while a network trains."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data.tables import import_pandas
from gatelab.dynamics.records import Record, records_plot
from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.figures import Panels
from gatelab.gates import GatePattern
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.kernels import label_complexity, neural_path_kernel, neural_tangent_kernel, path_features
from gatelab.network import capture_gates
from gatelab.observe import examples
from gatelab.paths.hardening import HardeningGap, hardening_gap
from gatelab.printing import html_table

if TYPE_CHECKING:
    import pandas

Listener = Callable[[dict[str, float]], Any]


class Kernels(StrEnum):
    """Which kernels a tracker computes.

    ``EXACT`` computes the path kernel H and the tangent kernel K. ``SKETCH`` estimates H by random path features, whose
    cost is linear in the number of probes, and leaves K out. ``OFF`` tracks the gates alone.
    """

    OFF = "off"
    SKETCH = "sketch"
    EXACT = "exact"


def label_targets(y: Tensor) -> Float[Tensor, " n"] | Float[Tensor, "n k"]:
    """Return labels as the targets of ν, whatever numbers the classes have.

    Whole numbers are classes. Two classes become 1 and −1 (as in npk, Section 6; which is which does not matter); of
    more, each becomes a column of ones and zeros, and their ν add up. Real numbers are targets already.

    Example:
        >>> label_targets(torch.tensor([3, 8, 3])).tolist(), label_targets(torch.tensor([7, 1, 4])).tolist()
        ([-1.0, 1.0, -1.0], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    """
    if y.is_floating_point() or y.ndim > 1:
        return y.to(torch.get_default_dtype()) if not y.is_floating_point() else y
    classes, number = y.unique(return_inverse=True)
    if len(classes) == 2:
        return number.to(torch.get_default_dtype()) * 2 - 1
    return nn.functional.one_hot(number, len(classes)).to(torch.get_default_dtype())


@dataclass(repr=False)
class GateTracker:
    """Record the gates and kernels of a network on fixed probes; call :meth:`record` in any training loop.

    ν = yᵀĤ⁻¹y needs labels. Whole numbers are classes: two become ±1, as in the paper, more become one column of ones
    and zeros each, and the ν of all columns are added, so ν does not depend on the classes' numbers. Real
    numbers are used directly as targets; several columns add up.

    With ``kernels="sketch"`` H is estimated by ``sketch_dim`` random path features, the same ones at every record.
    The inverse of such an estimate is too large; ν is multiplied by (d − n − 1) / d for n probes and d features, which
    makes it right on average for Gaussian features, and is left out if d is not larger than n + 1.

    Args:
        model: the network; it may train between records.
        x: probes.
        y: their labels, for ν: classes as whole numbers, or targets as real numbers.
        tangent: whether to compute tangent kernels, if kernels are exact.
        before: gates to compare the first record's gates with.
        kernel_gates: the gates of the path kernel, "network" or "hard"; flips and open shares always use bits.
        records: all records so far.
        kernels: "exact", "sketch" or "off"; see :class:`gatelab.dynamics.Kernels`.
        sketch_dim: number of random features of a sketch.
        on_epoch: one or more functions, called after each record with its numbers by name, including "step";
            ``on_epoch=wandb.log`` works. See also :func:`gatelab.dynamics.tensorboard_listener`.

    Example:
        >>> tracker = GateTracker(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(4, 2))
        >>> tracker.record(0).flips, tracker.record(10).flips
        ({}, {'1': 0})
    """

    model: nn.Module
    x: Float[Tensor, "n ..."]
    y: Tensor | None = None
    tangent: bool = True
    before: GatePattern | None = None
    kernel_gates: GateChoice = "network"
    records: list[Record] = field(default_factory=list)
    kernels: Kernels | str = Kernels.EXACT
    sketch_dim: int = 1024
    on_epoch: Listener | Iterable[Listener] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise InputError(f"model is {type(self.model).__name__}; give the network to track, an nn.Module")
        self.x = examples(self.x, self.model)
        is_hard(self.kernel_gates)  # refuses an unknown choice
        if not isinstance(self.kernels, str) or self.kernels not in tuple(Kernels):
            raise InputError(f"kernels is {self.kernels!r}; use one of {', '.join(map(repr, map(str, Kernels)))}")
        self.kernels = Kernels(self.kernels)
        several = self.on_epoch if isinstance(self.on_epoch, Iterable) else (self.on_epoch,)
        self.on_epoch = (self.on_epoch,) if callable(self.on_epoch) else tuple(several)
        if not all(callable(listener) for listener in self.on_epoch):
            raise InputError(f"on_epoch is {self.on_epoch!r:.100}; give a function of a dict, or several")
        if not isinstance(self.sketch_dim, int) or self.sketch_dim < 1:
            raise InputError(f"sketch_dim is {self.sketch_dim!r}; give the number of features, at least 1")
        if self.before is not None and not isinstance(self.before, GatePattern):
            raise InputError(f"before is {type(self.before).__name__}; give a GatePattern, from capture_gates")
        self._check_labels()

    def _check_labels(self) -> None:
        if self.y is None:
            return
        if not isinstance(self.y, Tensor) or not self.y.ndim or self.y.is_complex():
            raise InputError(f"y is {self.y!r:.100}; give a tensor with one class or target for each probe")
        if len(self.y) != len(self.x):
            raise InputError(f"{len(self.x)} probes, {len(self.y)} labels; give one for each")

    def record(self, step: int) -> Record:
        """Record the network in evaluation mode, and restore its own mode."""
        training = {module: module.training for module in self.model.modules()}
        self.x = self.x.to(next((p.device for p in self.model.parameters()), self.x.device))  # a trainer may move it
        # Batch statistics and dropout would make the gates of one example depend on others, or on chance.
        self.model.eval()
        try:
            gates = capture_gates(self.model, self.x)
            kernel = None if self.kernels is Kernels.OFF else self._path_kernel()
            record = Record(
                step,
                {} if self.before is None else gates.flips(self.before),
                gates.active_fraction(),
                None if kernel is None else _mean_cosine(kernel),
                None if kernel is None else self._complexity(kernel),
                self._tangents() if self.tangent and self.kernels is Kernels.EXACT else {},
                None if gates.kind == "bits" else self._hardening(),
                {name: gates.n * gates.layer(name).units for name in gates.layers},
            )
        finally:
            for module, mode in training.items():
                module.training = mode
        self.before = gates
        self.records.append(record)
        for listener in self.on_epoch:  # pyright: ignore[reportGeneralTypeIssues]  a tuple since __post_init__
            listener({"step": step, **record.metrics()})
        return record

    def to_frame(self) -> "pandas.DataFrame":
        """Return a row for each record and a column for each quantity, such as "flip_rate/layer"; needs pandas."""
        pandas = import_pandas("tracker.records holds all numbers; to_frame() gives them as a DataFrame")
        steps = pandas.Index([record.step for record in self.records], name="step")
        return pandas.DataFrame([record.metrics() for record in self.records], index=steps)

    def plot(self) -> Panels:
        """Return flips, open gates, and the kernels' numbers over the steps; a notebook shows them as a figure."""
        if not self.records:
            raise InputError("nothing is recorded yet; call record(step) in the training loop")
        return records_plot(self.records)

    def __repr__(self) -> str:
        steps = f", steps {self.records[0].step} to {self.records[-1].step}" if self.records else ""
        count = f"{len(self.records)} record{'' if len(self.records) == 1 else 's'}"
        return f"GateTracker({type(self.model).__name__}, {len(self.x)} probes, kernels {self.kernels}, {count}{steps})"

    def _repr_html_(self) -> str:
        found = [(record.step, record.metrics()) for record in self.records]
        names = list(dict.fromkeys(name for _, metrics in found for name in metrics if "/" not in name))
        rows = ((step, *(metrics.get(name, "") for name in names)) for step, metrics in found)
        return html_table(repr(self), ("step", *names), rows)

    @property
    def gates(self) -> GatePattern:
        """The gates at the last record."""
        if self.before is None:
            raise InputError("nothing is recorded yet; call record(step) first")
        return self.before

    def switching_instants(self) -> list[int]:
        """Return the steps whose record has a gate that differs from the previous record (npk, Definition 3.3)."""
        return [record.step for record in self.records if any(record.flips.values())]

    def _hardening(self) -> HardeningGap:
        """Compare with hard gates; labels valid only for ν, such as ±1 for one of ten classes, give no loss."""
        try:
            return hardening_gap(self.model, self.x, self.y)
        except InputError:
            return hardening_gap(self.model, self.x)

    def _complexity(self, kernel: Tensor) -> float | None:
        if self.y is None:
            return None
        correction = 1.0
        if self.kernels is Kernels.SKETCH:
            correction = (self.sketch_dim - len(self.x) - 1) / self.sketch_dim
            if correction <= 0:
                return None
        if not kernel.any():
            return inf  # no path is open: no direction has the labels
        return correction * label_complexity(kernel, label_targets(self.y).to(kernel))

    def _path_kernel(self) -> Tensor | None:
        """Return H in float64, since ν divides by its small eigenvalues; neither measure depends on its scale."""
        try:
            if self.kernels is Kernels.SKETCH:
                generator = torch.Generator(self.x.device).manual_seed(0)
                features = path_features(self.model, self.x, self.sketch_dim, generator, gates=self.kernel_gates)
                return features.double() @ features.double().T
            return neural_path_kernel(self.model, self.x, normalise=False, gates=self.kernel_gates)
        except PathCountOverflowError:
            return neural_path_kernel(self.model, self.x, gates=self.kernel_gates)
        except UnsupportedModelError:
            return None  # no exact rule for this model; its gates can still be tracked

    def _tangents(self) -> dict[str, tuple[float, float]]:
        parts: dict[str, nn.Module | None] = {"all": None}
        parts |= {name: getattr(self.model, name) for name in ("feature", "value") if hasattr(self.model, name)}
        sizes = {}
        for name, part in parts.items():
            if part is None or any(True for _ in part.parameters()):
                kernel = neural_tangent_kernel(self.model, self.x, wrt=part)
                sizes[name] = (float(kernel.trace()), float(torch.linalg.matrix_norm(kernel)))
        return sizes


def _mean_cosine(kernel: Float[Tensor, "n n"]) -> float:
    scale = kernel.diagonal().clamp(min=torch.finfo(kernel.dtype).tiny).sqrt()
    cosine = kernel / scale / scale[:, None]
    n = len(kernel)
    return float((cosine.sum() - cosine.trace()) / max(1, n * (n - 1)))
