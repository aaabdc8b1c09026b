"""The linear flow u̇ = f − Hu, H symmetric and positive semidefinite, solved once for all times."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError


class LinearFlow(ABC):
    """The flow in the eigenbasis of H, where each mode v moves alone: v̇ = c − λv.

    Attributes:
        rates: λ, those that rounding left near zero set to it.
        drive: c, zero where λ is.
    """

    rates: Tensor
    drive: Tensor

    @abstractmethod
    def to_modes(self, u: Float[Tensor, "blocks d"]) -> Tensor:
        """Amplitudes of the modes."""

    @abstractmethod
    def from_modes(self, v: Tensor) -> Float[Tensor, "times blocks d"]:
        """What the modes make together; times come first."""

    @abstractmethod
    def weight_of_modes(self) -> Tensor:
        """How often each mode counts in the norm ‖u‖² = Σ weight |v|²."""

    def all_rates(self) -> Float[Tensor, " m"]:
        """The rate of every mode, as often as it counts."""
        weights = self.weight_of_modes().flatten().long()
        return self.rates.flatten().repeat_interleave(weights)

    def at(self, start: Float[Tensor, "blocks d"], times: Float[Tensor, " times"]) -> Float[Tensor, "times blocks d"]:
        """u(t) = e^{−tH} u(0) + (I − e^{−tH}) H⁺ f."""
        return self.from_modes(self._modes_at(start, times))

    def limit(self, start: Float[Tensor, "blocks d"]) -> Float[Tensor, "blocks d"]:
        """u(∞) = H⁺ f + the part of u(0) in the null space of H."""
        moving = self.rates > 0
        v = torch.where(moving, self.drive / torch.where(moving, self.rates, 1), self.to_modes(start))
        return self.from_modes(v.unsqueeze(0))[0]

    def energy(self, start: Float[Tensor, "blocks d"], times: Float[Tensor, " times"]) -> Float[Tensor, " times"]:
        """½ uᵀHu − fᵀu, which the flow descends."""
        v = self._modes_at(start, times)
        each = 0.5 * self.rates * v.abs().square() - (self.drive.conj() * v).real
        return (self.weight_of_modes() * each).flatten(1).sum(dim=1)

    def _modes_at(self, start: Tensor, times: Tensor) -> Tensor:
        t = times.view(-1, *[1] * self.rates.dim())
        decay = torch.exp(-self.rates * t)
        moving = self.rates > 0
        approach = torch.where(moving, -torch.expm1(-self.rates * t) / torch.where(moving, self.rates, 1), 0)
        return decay * self.to_modes(start) + approach * self.drive


class DenseFlow(LinearFlow):
    """The flow by one eigendecomposition of all of H."""

    def __init__(self, H: Float[Tensor, "m m"], f: Float[Tensor, "blocks d"]):
        """Decompose."""
        self._shape = f.shape
        rates, self._vectors = torch.linalg.eigh(H)
        self.rates, self.drive = settled(rates, self.to_modes(f))

    def to_modes(self, u: Float[Tensor, "blocks d"]) -> Float[Tensor, " m"]:
        """Pᵀu."""
        return self._vectors.T @ u.flatten()

    def from_modes(self, v: Float[Tensor, "times m"]) -> Float[Tensor, "times blocks d"]:
        """Pv."""
        return (v @ self._vectors.T).view(-1, *self._shape)

    def weight_of_modes(self) -> Tensor:
        """One each: P is orthogonal."""
        return torch.ones_like(self.rates)


class CirculantFlow(LinearFlow):
    """The flow for H with translation-invariant blocks: Fourier modes of different frequency do not meet.

    One small eigenproblem for each frequency, O(n log n + n K³), instead of O(n³ K³).
    """

    def __init__(self, rows: Float[Tensor, "k k *shape"], f: Float[Tensor, "k d"]):
        """Decompose, given the first row of every block, over the ring or torus."""
        self._shape = tuple(rows.shape[2:])
        self._axes = tuple(range(-len(self._shape), 0))
        # Blocks are symmetric, so that their spectra are real.
        spectra = torch.fft.rfftn(rows, dim=self._axes).real.movedim((0, 1), (-2, -1))
        rates, self._vectors = torch.linalg.eigh(spectra)
        self.rates, self.drive = settled(rates, self.to_modes(f))

    def to_modes(self, u: Float[Tensor, "k d"]) -> Tensor:
        """Amplitudes of the modes at every frequency."""
        waves = torch.fft.rfftn(u.view(-1, *self._shape), dim=self._axes, norm="ortho").movedim(0, -1)
        return (self._vectors.mT.to(waves) @ waves.unsqueeze(-1)).squeeze(-1)

    def from_modes(self, v: Tensor) -> Float[Tensor, "times k d"]:
        """Back from frequencies to sites."""
        waves = (self._vectors.to(v) @ v.unsqueeze(-1)).squeeze(-1).movedim(-1, 1)
        return torch.fft.irfftn(waves, s=self._shape, dim=self._axes, norm="ortho").flatten(2)

    def weight_of_modes(self) -> Tensor:
        """Two for the frequencies whose mirror image the real transform leaves out."""
        last = self._shape[-1]
        weights = torch.full((last // 2 + 1,), 2.0, dtype=self.rates.dtype, device=self.rates.device)
        weights[0] = 1
        if last % 2 == 0:
            weights[-1] = 1
        return weights[:, None].expand_as(self.rates)


def settled(rates: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
    """Rates and drive with what is zero but for rounding set to zero.

    Raises:
        InputError: an eigenvalue is negative beyond rounding, or the drive pushes where nothing holds it.
    """
    if not torch.isfinite(rates).all() or not torch.isfinite(drive).all():
        raise InputError("A or b holds NaN or infinity; moments must be finite")
    largest = float(rates.abs().max())
    share = 10 * rates.numel() * torch.finfo(rates.dtype).eps
    lowest = float(rates.min())
    if lowest < -share * largest:
        raise InputError(
            f"A has the eigenvalue {lowest / largest:.3g} times its largest, beyond rounding ({share:.1g}): "
            "no second moment is indefinite; estimate A and b from the same examples"
        )
    still = rates <= share * largest
    loose = torch.where(still, drive.abs(), 0)
    # Of real moments |c|² ≤ λ⟨y²⟩, so that a mode with next to no λ has next to no drive.
    if float(loose.max()) > 1e3 * share**0.5 * float(drive.abs().max()):
        raise InputError(
            f"b has a part of size {float(loose.max()) / float(drive.abs().max()):.3g} of its largest where A is zero: "
            "no data have such moments; estimate A and b from the same examples"
        )
    return torch.where(still, 0, rates), torch.where(still, 0, drive)
