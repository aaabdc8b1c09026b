"""An exponential integrator for ẇ = b(w) − Aw on a ring: A is exact in Fourier modes, only b is approximated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import InputError

_LONGEST = 3.0  # the drive's time constant is near 1; longer steps would skip its changes
_SHORTEST = 1e-3


@dataclass(frozen=True)
class Trajectory:
    """Weights at the requested times, (times, *runs, d), and how often b was computed."""

    times: tuple[float, ...]
    weights: Tensor
    evaluations: int


def exponential_flow(
    drive: Callable[[np.ndarray], np.ndarray],
    rates: np.ndarray,
    initial: np.ndarray,
    times: Sequence[float],
    *,
    tolerance: float = 1e-3,
) -> Trajectory:
    """Integrate by exponential time differencing of second order, with steps that keep the error below a tolerance.

    Args:
        drive: b(w), for all runs at once.
        rates: eigenvalues of A at the frequencies of a real Fourier transform.
        initial: w(0).
        times: rising times at which to record w.
        tolerance: largest error of a step, relative to w.

    Returns:
        The recorded weights.
    """
    wanted = [float(time) for time in times]
    if not wanted or not wanted[0] >= 0 or not wanted[-1] < inf or any(b <= a for a, b in pairwise(wanted)):
        raise InputError(f"times are {wanted[:5]}…; give finite times that rise, from 0 on")
    n = initial.shape[-1]
    w, pull, now, step, evaluations = initial, drive(initial), 0.0, 0.02, 1
    records = []
    for time in wanted:
        while now < time:
            # If the remainder after this step would be below rounding, end the step at the wanted time.
            last = step >= (time - now) * (1 - 1e-12)
            length = time - now if last else step
            stay, first, second = _phi(rates, length)
            guess = np.fft.irfft(stay * np.fft.rfft(w) + first * np.fft.rfft(pull), n=n)
            ahead = drive(guess)
            evaluations += 1
            correction = np.fft.irfft(second * np.fft.rfft(ahead - pull), n=n)
            error = float(np.max(_size(correction) / np.maximum(_size(guess), 1e-300)))
            factor = min(2.0, max(0.3, 0.9 * sqrt(tolerance / max(error, 1e-300))))
            if error > tolerance and length > _SHORTEST:
                step = max(_SHORTEST, length * factor)
                continue
            w, now = guess + correction, time if last else now + length
            pull = drive(w)
            evaluations += 1
            if not last or factor < 1:
                step = min(_LONGEST, max(_SHORTEST, length * factor))
        records.append(w)
    return Trajectory(tuple(wanted), torch.from_numpy(np.stack(records)), evaluations)


def _size(w: np.ndarray) -> np.ndarray | np.floating:
    return np.sqrt((w * w).sum(axis=-1))


def _phi(rates: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return e^{−hλ}, (1 − e^{−hλ})/λ and (hλ − 1 + e^{−hλ})/(hλ²), with their limits for small hλ."""
    z = rates * step
    safe = np.maximum(z, 1e-4)
    first = step * np.where(z > 1e-4, -np.expm1(-safe) / safe, 1 - z / 2)
    second = step * np.where(z > 1e-4, (safe + np.expm1(-safe)) / safe**2, 0.5 - z / 6)
    return np.exp(-z), first, second
