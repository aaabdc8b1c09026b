"""The spectrum of an error on the smooth half of the circle: what the paper calls artefacts of high frequency."""

from math import ceil

import numpy as np
import torch
from jaxtyping import Float
from scipy.fft import dct
from torch import Tensor


def smooth_half_spectrum(error: Float[Tensor, " n"], count: int = 64) -> Float[Tensor, " count"]:
    r"""Return the energy of the error on the upper half at each angular frequency, from 0.

    .. math:: e(\theta) = \sum_j c_j \cos j\theta \;\; (0 < \theta < \pi), \qquad
              \tfrac{1}{\pi} \int e^2 = c_0^2 + \tfrac12 \sum_{j \ge 1} c_j^2

    The discrete cosine transform of the points on the upper half, so the energies of all frequencies add up to the mean
    square there; the last entry holds all frequencies from count − 1 on.

    Args:
        error: at evenly spaced angles (k + ½)·2π/n, as :func:`gatelab.data.circle` has them.
        count: the number of entries.

    Example:
        >>> angles = (torch.arange(40).double() + 0.5) * torch.pi / 20
        >>> smooth_half_spectrum((3 * angles).cos(), 5).round(decimals=6).tolist()
        [0.0, 0.0, 0.0, 0.5, 0.0]
    """
    upper = error[: len(error) // 2].double().numpy(force=True)
    energies = torch.from_numpy(np.asarray(dct(upper, norm="ortho"))).square() / len(upper)
    kept = torch.zeros(count, dtype=torch.float64)
    kept[: min(count, len(energies))] = energies[:count]
    kept[count - 1] += energies[count:].sum()
    return kept


def inner_energy(error: Float[Tensor, " n"], frequency: int, margin: float = 0.1) -> float:
    """The mean square of the part of an error with at least this angular frequency, away from the ends of the half.

    Where the target changes its frequency, at both ends of the upper half, an error is no artefact inside it.

    Args:
        error: as for :func:`smooth_half_spectrum`.
        frequency: the least one to count.
        margin: the share of the half to leave out at each end.

    Example:
        >>> angles = (torch.arange(400).double() + 0.5) * torch.pi / 200
        >>> [round(inner_energy((j * angles).cos(), 8), 2) for j in (1, 30)]
        [0.0, 0.5]
    """
    half = len(error) // 2
    left_out = round(margin * half)
    inner = error[left_out : half - left_out].double().numpy(force=True)
    energies = np.asarray(dct(inner, norm="ortho")) ** 2 / len(inner)
    # The j-th cosine has half a period j times on the inner part, which is shorter than the half.
    return float(energies[ceil(frequency * len(inner) / half) :].sum())


def energy_from(spectrum: list[float], frequency: int) -> float:
    """The mean square of the part of an error with at least this frequency."""
    return sum(spectrum[frequency:])
