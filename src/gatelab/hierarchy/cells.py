"""Sums over the cells (region, value of z, group of examples), and estimates from them with their errors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.stats import t as student_t
from torch import Tensor

Means = Mapping[str, Float[Tensor, "r m c"]]
"""Name of a quantity → its mean for each region, value of z and node; 0 where the value does not occur."""


@dataclass(frozen=True)
class Gap:
    """A relative size, 0 if a condition holds, with a 95 % interval over groups of examples.

    The value is corrected for the noise of the compared means (jackknife), and 0 if the correction exceeds it.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.value)} ({_short(self.low)} to {_short(self.high)})"


def _short(value: float) -> str:
    """Format with two digits; tiny values get no exponent."""
    return f"{value:.2g}" if value >= 1e-3 else f"{value:.3f}"


class CellSums:
    """Sums of quantities over examples, for each group of examples, region, value of z and node.

    Args:
        groups: number of groups of examples.
        regions: number of regions.
        values: number of values of z.
    """

    def __init__(self, groups: int, regions: int, values: int):
        self.shape = (groups, regions, values)
        self._counts: Tensor | None = None
        self._sums: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def add(self, group: int, z: Int[Tensor, "n r"], **quantities: Float[Tensor, "n r _"]) -> None:
        """Add examples of one group."""
        groups, regions, values = self.shape
        cells = (z.long() + values * torch.arange(regions, device=z.device)).flatten()
        for name, quantity in quantities.items():
            flat = quantity.flatten(0, 1).double()
            if name not in self._sums:
                self._sums[name] = flat.new_zeros(groups, regions * values, flat.shape[1])
                self._squares[name] = flat.new_zeros(groups, regions, flat.shape[1])
            self._sums[name][group].index_add_(0, cells, flat)
            self._squares[name][group] += quantity.double().square().sum(dim=0)

    def count(self, group: int, z: Int[Tensor, "n r"]) -> None:
        """Count examples of one group; call it once for each, however often quantities are added."""
        groups, regions, values = self.shape
        if self._counts is None:
            self._counts = torch.zeros(groups, regions * values, dtype=torch.float64, device=z.device)
        cells = (z.long() + values * torch.arange(regions, device=z.device)).flatten()
        self._counts[group] += torch.bincount(cells, minlength=regions * values)

    def means(self, without: int | None = None) -> Means:
        """Return the mean of each quantity in each cell, over all examples or all but one group."""
        counts = self._over(self.counts, without).unsqueeze(1)
        _, regions, values = self.shape
        return {
            name: (self._over(sums, without) / counts.clamp(min=1)).view(regions, values, -1)
            for name, sums in self._sums.items()
        }

    def priors(self, without: int | None = None) -> Float[Tensor, "r m"]:
        """Return P(z_α) in each region."""
        counts = self._over(self.counts, without).view(self.shape[1:])
        return counts / counts.sum(dim=1, keepdim=True).clamp(min=1)

    def power(self, name: str, without: int | None = None) -> Float[Tensor, "r c"]:
        """Return the mean square of a quantity in each region, over examples."""
        examples = self._over(self.counts, without).view(self.shape[1:])[0].sum().clamp(min=1)
        return self._over(self._squares[name], without) / examples

    @property
    def counts(self) -> Float[Tensor, "g _"]:
        """Number of examples in each cell."""
        assert self._counts is not None
        return self._counts

    def gap(self, difference: Callable[[Means], Float[Tensor, "r m c"]], relative_to: str) -> Gap:
        """Return the RMS of a difference of means over z, relative to the RMS of the mean of a quantity given z."""

        def squared(without: int | None) -> float:
            means, weights = self.means(without), self.priors(without).unsqueeze(2)
            part, whole = ((weights * v.square()).sum().item() for v in (difference(means), means[relative_to]))
            return part / whole if whole > 0 else 0.0

        return jackknife(squared(None), [squared(group) for group in range(self.shape[0])])

    def _over(self, values: Tensor, without: int | None) -> Tensor:
        total = values.sum(dim=0)
        return total if without is None else total - values[without]


def jackknife(whole: float, without: list[float]) -> Gap:
    """Return the root of a squared gap from its value over all groups and without each of them in turn."""
    groups, middle = len(without), sum(without) / len(without)
    estimate = groups * whole - (groups - 1) * middle  # the noise of n examples adds about 1/n, which this removes
    variance = (groups - 1) / groups * sum((value - middle) ** 2 for value in without)
    half = float(student_t.ppf(0.975, groups - 1)) * variance**0.5
    # Where the noise exceeds the gap, the correction may overshoot; the uncorrected gap is then the upper end.
    high = estimate + half if estimate + half > 0 else whole
    value, low, high = (max(0.0, square) ** 0.5 for square in (estimate, estimate - half, high))
    return Gap(value, low, high)
