"""How local a receptive field is, where it lies, and how its gates change while it forms (gdln, Section 2)."""

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy.optimize import least_squares
from torch import Tensor

from gatelab.errors import InputError


def inverse_participation_ratio(weights: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
    """Return IPR = Σw⁴/(Σw²)²: 1 for a single site, 1/d for a flat field. About 1/IPR sites take part.

    Example:
        >>> inverse_participation_ratio(torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 1.0, -1.0, 1.0]])).tolist()
        [1.0, 0.25]
    """
    if not isinstance(weights, Tensor):
        raise InputError(f"weights are {type(weights).__name__}; use torch.as_tensor(weights)")
    _check_fields(weights)
    # Rescaling does not change the ratio, and keeps fourth powers within the range of the dtype.
    squares = (weights / weights.abs().amax(dim=-1, keepdim=True)).square()
    return squares.square().sum(dim=-1) / squares.sum(dim=-1).square()


def _check_fields(weights: Float[Tensor, "*shape d"]) -> None:
    """Raise InputError unless every field is finite and somewhere differs from zero."""
    if not bool(torch.isfinite(weights).all()):
        raise InputError("a receptive field holds NaN or infinite values; leave it out")
    if not weights.shape[-1:].numel() or not bool((weights != 0).any(dim=-1).all()):
        raise InputError("a receptive field is zero everywhere, so it has no localisation; leave it out")


def peak(weights: Float[Tensor, "*shape d"]) -> Int64[Tensor, "*shape"]:
    """Return the site where a field is largest in absolute value."""
    return weights.abs().argmax(dim=-1)


def site_distance(
    first: Int64[Tensor, "*shape"], second: Int64[Tensor, "*shape"], sites: tuple[int, ...]
) -> Float[Tensor, "*shape"]:
    """Return the shortest distance between two sites on a ring or torus.

    Example:
        >>> site_distance(torch.tensor([1, 5]), torch.tensor([39, 8]), (40,)).tolist()
        [2.0, 3.0]
    """
    total = torch.zeros(first.shape, dtype=torch.get_default_dtype(), device=first.device)
    for size in reversed(sites):
        gap = (first - second) % size
        total = total + torch.minimum(gap, size - gap).to(total).square()
        first, second = first // size, second // size
    return total.sqrt()


@dataclass(frozen=True)
class LocationMatch:
    """Predicted against observed fields, unit by unit: the distance between the peaks in sites, and the cosine.

    The correlation is the largest cosine over all shifts of the predicted field; it compares shapes wherever they lie.
    """

    distance: Float[Tensor, " k"]
    cosine: Float[Tensor, " k"]
    correlation: Float[Tensor, " k"]


def match_location(
    predicted: Float[Tensor, "k d"], observed: Float[Tensor, "k d"], sites: tuple[int, ...] | None = None
) -> LocationMatch:
    """Compare the place and shape of predicted and observed receptive fields.

    Args:
        predicted: one field for each unit.
        observed: the fields of the same units.
        sites: shape of the ring or torus; by default a ring.

    Returns:
        Distances and cosines, one for each unit.

    Example:
        >>> field = torch.tensor([[0.0, 3.0, 1.0, 0.0, 0.0, 0.0]])
        >>> match_location(field, field.roll(2, dims=1)).distance.tolist()
        [2.0]
    """
    if predicted.shape != observed.shape or predicted.ndim != 2:
        raise InputError(
            f"predicted {tuple(predicted.shape)}, observed {tuple(observed.shape)}; give (k, d) for the same units"
        )
    _check_fields(predicted)
    _check_fields(observed)
    sites = sites or (predicted.shape[1],)
    if prod(sites) != predicted.shape[1]:
        raise InputError(f"sites {sites} are {prod(sites)}, the fields have {predicted.shape[1]}; give their shape")
    first, second = (torch.nn.functional.normalize(w, dim=1).view(-1, *sites) for w in (predicted, observed))
    axes = tuple(range(1, len(sites) + 1))
    # The correlation theorem gives the cosines of all shifts at once.
    spectrum = torch.fft.rfftn(first, dim=axes).conj() * torch.fft.rfftn(second, dim=axes)
    shifted = torch.fft.irfftn(spectrum, s=sites, dim=axes)
    distance = site_distance(peak(predicted), peak(observed), sites)
    return LocationMatch(distance, (first * second).flatten(1).sum(dim=1), shifted.flatten(1).max(dim=1).values)


def open_gates(
    weights: Float[Tensor, "*times k d"], x: Float[Tensor, "n d"], bias: Float[Tensor, "*times k"] | None = None
) -> Bool[Tensor, "*times k n"]:
    """Return 1(wᵀx + b > 0) for every recorded time, unit and example."""
    margins = weights @ x.T
    return margins + bias[..., None] > 0 if bias is not None else margins > 0


def sign_flip_rate(gates: Bool[Tensor, "times k n"]) -> Float[Tensor, "steps k"]:
    """Return the share of examples for which each unit's gate differs from the record before (gdln, 2.1).

    Example:
        >>> sign_flip_rate(torch.tensor([[[True, True]], [[True, False]]])).tolist()
        [[0.5]]
    """
    if gates.ndim != 3 or len(gates) < 2 or gates.dtype != torch.bool or not gates.numel():
        raise InputError(
            f"gates are {gates.dtype} of shape {tuple(gates.shape)}; flips need two or more records of booleans, "
            "(times, units, examples)"
        )
    return (gates[1:] != gates[:-1]).to(torch.get_default_dtype()).mean(dim=2)


def gate_agreement(gates: Bool[Tensor, "*times k n"], final: Bool[Tensor, "k n"]) -> Float[Tensor, "*times k"]:
    """Return the share of examples for which each unit's gate equals its gate in the final network."""
    return (gates == final).to(torch.get_default_dtype()).mean(dim=-1)


@dataclass(frozen=True)
class GaborFit:
    r"""The best fit :math:`a\, e^{-\delta^2/(2 s^2)} \cos(2\pi f \delta + \varphi)` to a field on a ring.

    Centre and width s are in sites, the frequency f in cycles per site, between 0 and ½, the phase φ in radians;
    ``r_squared`` is the share of the field's sum of squares that the fit explains.
    """

    centre: float
    width: float
    frequency: float
    amplitude: float
    phase: float
    r_squared: float


def fit_gabor(weights: Float[Tensor, " d"]) -> GaborFit:
    """Fit a Gabor function to a receptive field on a ring.

    Amplitude and phase follow from centre, width and frequency by linear least squares. The search therefore covers
    only these three: first a grid, then a refinement of the best grid points.

    Example:
        >>> round(fit_gabor(torch.exp(-((torch.arange(20) - 7.0) ** 2) / 8)).centre)
        7
    """
    if weights.ndim != 1 or len(weights) < 2:
        raise InputError(f"the field has shape {tuple(weights.shape)}; give one field on a ring of two sites or more")
    _check_fields(weights)
    field = weights.detach().double().cpu().numpy()
    total = float((field**2).sum())
    n = len(field)
    peaks = np.argsort(-np.abs(field))[:3]
    widths = [width for width in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0) if width <= n / 2]
    starts = list(product(peaks, widths, (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)))
    costs = [float((_residual(np.array(start), field) ** 2).sum()) for start in starts]
    # The search may move the centre past the end of the ring; envelopes narrower than 0.2 cover a single site.
    bounds = ([-n, 0.2, 0.0], [2 * n, n, 0.5])
    fits = [
        least_squares(_residual, starts[place], args=(field,), bounds=bounds, max_nfev=200)
        for place in np.argsort(costs)[:4]
    ]
    best = min(fits, key=lambda fit: fit.cost)
    centre, width, frequency = (float(value) for value in best.x)
    cosine, sine = _linear_part(best.x, field)[0]
    amplitude, phase = float(np.hypot(cosine, sine)), float(np.arctan2(-sine, cosine))
    return GaborFit(centre % n, width, frequency, amplitude, phase, 1 - 2 * float(best.cost) / total)


def _linear_part(shape: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best cosine and sine amplitudes for a centre, width and frequency, and the two waves."""
    centre, width, frequency = shape
    n = len(field)
    offset = (np.arange(n) - centre + n / 2) % n - n / 2
    envelope = np.exp(-(offset**2) / (2 * width**2))
    angle = 2 * np.pi * frequency * offset
    waves = np.stack([envelope * np.cos(angle), envelope * np.sin(angle)], axis=1)
    # At frequency 0 the sine wave is zero; lstsq gives it no amplitude.
    return np.linalg.lstsq(waves, field, rcond=None)[0], waves


def _residual(shape: np.ndarray, field: np.ndarray) -> np.ndarray:
    amplitudes, waves = _linear_part(shape, field)
    return waves @ amplitudes - field
