"""Recording gates and kernels while a network trains."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.choice import GateChoice
from gatelab.kernels import label_complexity, neural_path_kernel, neural_tangent_kernel
from gatelab.network import capture_gates
from gatelab.observe import examples
from gatelab.paths.hardening import HardeningGap, hardening_gap


@dataclass(frozen=True)
class Record:
    """Gates and kernels on the probes at one step.

    Attributes:
        step: the caller's own count.
        flips: number of gates that differ from the record before, per layer; empty in the first record.
        active: share of open gates, per layer.
        cosine: mean over pairs of different probes of H(x, x') / √(H(x, x) H(x', x')), with the path kernel H.
        complexity: ν = yᵀĤ⁻¹y, if there are labels (npk, Section 6).
        tangent: trace and Frobenius norm of the tangent kernel: of all parameters ("all"), and of a gated network's
            ``feature`` and ``value`` alone (K^F and K^V).
        hardening: what hard gates would cost, if some gates are soft.
    """

    step: int
    flips: dict[str, int]
    active: dict[str, float]
    cosine: float | None
    complexity: float | None
    tangent: dict[str, tuple[float, float]]
    hardening: HardeningGap | None = None


@dataclass
class GateTracker:
    """Record the gates and kernels of a network on fixed probes; call :meth:`record` in any training loop.

    Args:
        model: the network; it may train between records.
        x: probes.
        y: their labels, ±1 or numbers, for ν.
        tangent: whether to compute tangent kernels.
        before: gates with which the first record's gates are compared.
        kernel_gates: the gates of the path kernel, "network" or "hard"; flips and open shares are always those of bits.
        records: all records so far.

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

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise InputError(f"model is {type(self.model).__name__}; give the network to track, an nn.Module")
        self.x = examples(self.x, self.model)
        if self.y is not None and len(self.y) != len(self.x):
            raise InputError(f"{len(self.x)} probes, {len(self.y)} labels; give one for each")

    def record(self, step: int) -> Record:
        """Record the network in evaluation mode, and restore its own mode."""
        training = {module: module.training for module in self.model.modules()}
        # Batch statistics and dropout would make the gates of one example depend on others, or on chance.
        self.model.eval()
        try:
            gates = capture_gates(self.model, self.x)
            kernel = self._path_kernel()
            record = Record(
                step,
                {} if self.before is None else gates.flips(self.before),
                gates.active_fraction(),
                None if kernel is None else _mean_cosine(kernel),
                None if kernel is None or self.y is None else label_complexity(kernel, self.y.to(kernel)),
                self._tangents() if self.tangent else {},
                None if gates.kind == "bits" else self._hardening(),
            )
        finally:
            for module, mode in training.items():
                module.training = mode
        self.before = gates
        self.records.append(record)
        return record

    @property
    def gates(self) -> GatePattern:
        """The gates at the last record."""
        if self.before is None:
            raise InputError("nothing has been recorded; call record(step) first")
        return self.before

    def switching_instants(self) -> list[int]:
        """Return the steps at whose record some gate differed from the record before (npk, Definition 3.3)."""
        return [record.step for record in self.records if any(record.flips.values())]

    def _hardening(self) -> HardeningGap:
        """Compare with hard gates; labels that suit ν alone, such as ±1 for a class among ten, give no loss."""
        try:
            return hardening_gap(self.model, self.x, self.y)
        except InputError:
            return hardening_gap(self.model, self.x)

    def _path_kernel(self) -> Tensor | None:
        """Return H in float64, since ν divides by its small eigenvalues; neither measure depends on its scale."""
        try:
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
