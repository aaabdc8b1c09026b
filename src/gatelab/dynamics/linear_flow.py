"""The linear flow u̇ = f − Hu for a symmetric, positive semidefinite H, solved once for all times.

f and u may have several columns, one for each output of a network; H acts on each separately.
"""

import warnings
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError, NotConvergedWarning


class LinearFlow(ABC):
    """The flow in the eigenbasis of H, where each mode moves alone: v̇ = c − λv.

    Attributes:
        rates: λ; values that differ from zero only by rounding are set to zero.
        drive: c, zero where λ is zero, with the columns on its last axis.
        counts: how often each mode counts in the norm, ‖u‖² = Σ count |v|².
    """

    rates: Tensor
    drive: Tensor
    counts: Tensor

    @abstractmethod
    def to_modes(self, u: Float[Tensor, "blocks d c"]) -> Tensor:
        """Return the amplitudes of the modes."""

    @abstractmethod
    def from_modes(self, v: Tensor) -> Float[Tensor, "times blocks d c"]:
        """Return u for amplitudes of the modes, which have the times on their first axis."""

    def all_rates(self) -> Float[Tensor, " m"]:
        """Return the rate of every mode, repeated as often as the mode counts."""
        return self.rates.flatten().repeat_interleave(self.counts.flatten().long())

    def at(
        self, start: Float[Tensor, "blocks d *columns"], times: Float[Tensor, " times"]
    ) -> Float[Tensor, "times blocks d *columns"]:
        """Return u(t) = e^{−tH} u(0) + (I − e^{−tH}) H⁺ f."""
        return self.from_modes(self._modes_at(start, times)).view(len(times), *start.shape)

    def limit(self, start: Float[Tensor, "blocks d *columns"]) -> Float[Tensor, "blocks d *columns"]:
        """Return u(∞) = H⁺ f + the part of u(0) in the null space of H."""
        v = torch.where(self.rates[..., None] > 0, self._goals(), self.to_modes(columns(start)))
        return self.from_modes(v.unsqueeze(0)).view(start.shape)

    def energy(
        self, start: Float[Tensor, "blocks d *columns"], times: Float[Tensor, " times"]
    ) -> Float[Tensor, " times"]:
        """Return ½ uᵀHu − fᵀu, summed over columns, which the flow descends."""
        v = self._modes_at(start, times)
        of_modes = 0.5 * self.rates[..., None] * v.abs().square() - (self.drive.conj() * v).real
        return (self.counts[..., None] * of_modes).flatten(1).sum(dim=1)

    def _modes_at(self, start: Tensor, times: Tensor) -> Tensor:
        exponent = -self.rates[..., None] * times.view(-1, *[1] * (self.rates.dim() + 1))
        return torch.exp(exponent) * self.to_modes(columns(start)) - torch.expm1(exponent) * self._goals()

    def _goals(self) -> Tensor:
        """Return c/λ, and 0 for modes that never move."""
        rates = self.rates[..., None]
        return torch.where(rates > 0, self.drive / torch.where(rates > 0, rates, 1), 0)


def columns(u: Float[Tensor, "blocks d *columns"]) -> Float[Tensor, "blocks d c"]:
    """Return u with an axis for its columns, if it has none."""
    return u if u.ndim == 3 else u.unsqueeze(-1)


class DenseFlow(LinearFlow):
    """The flow from one eigendecomposition of all of H."""

    def __init__(self, H: Float[Tensor, "m m"], f: Float[Tensor, "blocks d *columns"]):
        f = columns(f)
        self._shape = f.shape
        rates, self._vectors = torch.linalg.eigh(H)
        self.rates, self.drive = _without_rounding(rates, self.to_modes(f))
        self.counts = torch.ones_like(rates)

    def to_modes(self, u: Float[Tensor, "blocks d c"]) -> Float[Tensor, "m c"]:
        """Return Pᵀu."""
        return self._vectors.T @ u.flatten(0, 1)

    def from_modes(self, v: Float[Tensor, "times m c"]) -> Float[Tensor, "times blocks d c"]:
        """Return Pv."""
        return (self._vectors @ v).view(-1, *self._shape)


class CirculantFlow(LinearFlow):
    """The flow for an H with translation-invariant blocks, whose Fourier modes of different frequency do not mix.

    It solves one K × K eigenproblem per frequency: O(n log n + n K³) instead of O(n³ K³).
    """

    def __init__(self, rows: Float[Tensor, "k k *shape"], f: Float[Tensor, "k d *columns"]):
        self._shape = tuple(rows.shape[2:])
        self._axes = tuple(range(-len(self._shape), 0))
        # The blocks are symmetric, so their spectra are real.
        spectra = torch.fft.rfftn(rows, dim=self._axes).real.movedim((0, 1), (-2, -1))
        rates, self._vectors = torch.linalg.eigh(spectra)
        self.rates, self.drive = _without_rounding(rates, self.to_modes(columns(f)))
        # The real transform leaves out the mirror image of every frequency but 0 and, for even sizes, the highest.
        counts = torch.full_like(rates, 2)
        counts[..., 0, :] = 1
        if self._shape[-1] % 2 == 0:
            counts[..., -1, :] = 1
        self.counts = counts

    def to_modes(self, u: Float[Tensor, "k d c"]) -> Tensor:
        """Return the amplitudes of the modes at every frequency."""
        fields = u.movedim(-1, 1).reshape(*u.shape[::2], *self._shape)
        waves = torch.fft.rfftn(fields, dim=self._axes, norm="ortho").movedim((0, 1), (-2, -1))
        return self._vectors.mT.to(waves) @ waves

    def from_modes(self, v: Tensor) -> Float[Tensor, "times k d c"]:
        """Transform frequencies back to sites."""
        waves = (self._vectors.to(v) @ v).movedim((-2, -1), (1, 2))
        return torch.fft.irfftn(waves, s=self._shape, dim=self._axes, norm="ortho").flatten(3).movedim(2, -1)


def _without_rounding(rates: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
    """Set rates that are zero up to rounding, and their drive, to zero; raise InputError for impossible moments."""
    if not torch.isfinite(rates).all() or not torch.isfinite(drive).all():
        raise InputError("A or b holds NaN or infinity; moments must be finite")
    largest, lowest = float(rates.abs().max()), float(rates.min())
    share = 10 * rates.numel() * torch.finfo(rates.dtype).eps
    if lowest < -share * largest:
        raise InputError(
            f"A has an eigenvalue {lowest / largest:.3g} times its largest, beyond rounding ({share:.1g}); "
            "second moments are positive semidefinite: estimate A and b from the same examples"
        )
    still = rates <= share * largest
    if rates.dtype != torch.float64 and bool((still & (rates != 0)).any()):
        # Such modes may be slow rather than still, and then dominate the limit.
        warnings.warn(
            f"{int(still.sum())} modes of A lie below the rounding of {rates.dtype} and are held still, so late "
            "weights and limit() may be far off; pass A and b in float64",
            NotConvergedWarning,
            stacklevel=2,
        )
    # For moments of real data |c|² ≤ λ⟨y²⟩, so a mode with almost no λ has almost no drive.
    still_columns = still[..., None]
    strongest, loose = float(drive.abs().max()), float(torch.where(still_columns, drive.abs(), 0).max())
    if loose > 1e3 * share**0.5 * strongest:
        raise InputError(
            f"b has a part of size {loose / strongest:.3g} of its largest where A is zero; "
            "no data have such moments: estimate A and b from the same examples"
        )
    return torch.where(still, 0, rates), torch.where(still_columns, 0, drive)
