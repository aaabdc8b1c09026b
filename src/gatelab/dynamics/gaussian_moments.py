"""Exact moments of Gaussian data under half-space gates: truncated Gaussians, by bivariate orthant integrals."""

from math import asin, exp, pi, sqrt

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import ndtr
from torch import Tensor

from gatelab.errors import InputError
from gatelab.models import HalfSpaceGates


def gaussian_gated_moments(
    mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"], gates: HalfSpaceGates
) -> tuple[Float[Tensor, "kd kd"], Float[Tensor, " kd"]]:
    r"""Return ⟨x̃x̃ᵀ⟩ and ⟨x̃⟩ of x ~ N(mean, covariance) under half-space gates, in float64.

    With the scores s = (n_pᵀx + o_p, n_qᵀx + o_q), x given s is Gaussian with a mean that is affine in s. Block (p, q)
    is therefore a function of the moments of s over the quadrant s > 0 up to second order, which have closed forms up
    to one orthant probability (Rosenbaum 1961). Mixtures are sums: weigh the results of their components.

    Args:
        mean: of x.
        covariance: of x; it may be singular.
        gates: K half-spaces, with or without offsets.

    Returns:
        The second moment, K × K blocks, and the mean, K blocks.

    Example:
        >>> gates = HalfSpaceGates(torch.eye(2, dtype=torch.float64)[:1])
        >>> second, first = gaussian_gated_moments(torch.zeros(2).double(), torch.eye(2).double(), gates)
        >>> second[0, 0].item(), round(first[0].item(), 6)
        (0.5, 0.398942)
    """
    m, C = mean.double().numpy(), covariance.double().numpy()
    if C.shape != (len(m), len(m)) or gates.inputs != len(m):
        raise InputError(f"mean {m.shape}, covariance {C.shape}, gates read {gates.inputs}; give the same dimension")
    normals, offsets = gates.normals.double().numpy(), gates.offsets.double().numpy()
    K, d = normals.shape
    second, first = np.zeros((K, d, K, d)), np.zeros((K, d))
    for p in range(K):
        for q in range(p, K):
            pair = normals[[p, q]] if q != p else normals[[p]]
            _, linear, block = _quadrant(m, C, pair, offsets[[p, q]] if q != p else offsets[[p]])
            second[p, :, q] = block
            second[q, :, p] = block.T
            if p == q:
                first[p] = linear
    return torch.from_numpy(second.reshape(K * d, K * d)), torch.from_numpy(first.reshape(K * d))


def _quadrant(
    m: np.ndarray, C: np.ndarray, normals: np.ndarray, offsets: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return P(s > 0), ⟨1(s > 0) x⟩ and ⟨1(s > 0) x xᵀ⟩ for the scores s of one or two half-spaces."""
    centre, cross = normals @ m + offsets, C @ normals.T
    spread = np.sqrt(np.diag(normals @ cross))
    if (spread <= 1e-150).any():
        fixed = spread <= 1e-150  # a score that does not vary is open always or never
        if not (centre[fixed] > 0).all():
            return 0.0, np.zeros_like(m), np.zeros_like(C)
        if fixed.all():
            return 1.0, m, C + np.outer(m, m)
        normals, offsets = normals[~fixed], offsets[~fixed]
        return _quadrant(m, C, normals, offsets)
    slopes = cross / spread  # covariance of x with the standardised scores u
    thresholds = -centre / spread
    if len(spread) == 1:
        zeroth, ones, twos = _half(float(thresholds[0]))
        R = np.eye(1)
    else:
        rho = float(np.clip(slopes[:, 0] @ normals[1] / spread[1], -1, 1))
        if abs(rho) > 1 - 1e-12:  # the same boundary, or opposite ones
            if rho < 0:
                return _between(m, C, slopes[:, 0], float(thresholds[0]), -float(thresholds[1]))
            tighter = int(thresholds.argmax())
            return _quadrant(m, C, normals[[tighter]], offsets[[tighter]])
        zeroth, ones, twos = _quadrant_moments(float(thresholds[0]), float(thresholds[1]), rho)
        R = np.array([[1, rho], [rho, 1]])
    return _lift(m, C, slopes, R, zeroth, ones, twos)


def _lift(
    m: np.ndarray, C: np.ndarray, slopes: np.ndarray, R: np.ndarray, zeroth: float, ones: np.ndarray, twos: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the moments of x from those of the standardised scores: x = m + B u + a remainder independent of u."""
    B = np.linalg.solve(R, slopes.T).T
    shift = B @ ones
    rest = C - B @ slopes.T
    block = zeroth * (rest + np.outer(m, m)) + np.outer(m, shift) + np.outer(shift, m) + B @ twos @ B.T
    return zeroth, zeroth * m + shift, block


def _half(h: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return P(u > h), ⟨u⟩ and ⟨u²⟩ over u > h."""
    tail, density = float(ndtr(-h)), exp(-h * h / 2) / sqrt(2 * pi)
    return tail, np.array([density]), np.array([[tail + h * density]])


def _between(
    m: np.ndarray, C: np.ndarray, slope: np.ndarray, h: float, k: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the moments of x over h < u < k, the strip between opposite half-spaces."""
    if k <= h:
        return 0.0, np.zeros_like(m), np.zeros_like(C)
    (zero, one, two), (zero_k, one_k, two_k) = _half(h), _half(k)
    return _lift(m, C, slope[:, None], np.eye(1), zero - zero_k, one - one_k, two - two_k)


def orthant_probability(h: float, k: float, rho: float) -> float:
    """Return P(u > h, v > k) for standard Gaussians with correlation ρ, by Plackett's integral over the correlation."""
    if h == 0 and k == 0:
        return 0.25 + asin(rho) / (2 * pi)

    def density(angle: float) -> float:
        return exp(-(h * h + k * k - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2))

    integral, _ = quad(density, 0.0, asin(rho), epsabs=1e-14, epsrel=1e-12, limit=200)
    return float(ndtr(-h) * ndtr(-k)) + integral / (2 * pi)


def _quadrant_moments(h: float, k: float, rho: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return P, ⟨(u, v)⟩ and the second moments of (u, v) over u > h, v > k."""
    root = sqrt(1 - rho * rho)
    at_h = exp(-h * h / 2) / sqrt(2 * pi) * float(ndtr((rho * h - k) / root))
    at_k = exp(-k * k / 2) / sqrt(2 * pi) * float(ndtr((rho * k - h) / root))
    corner = root / (2 * pi) * exp(-(h * h - 2 * rho * h * k + k * k) / (2 * root * root))
    P = orthant_probability(h, k, rho)
    uu = P + h * at_h + rho * rho * k * at_k + rho * corner
    vv = P + k * at_k + rho * rho * h * at_h + rho * corner
    uv = rho * P + rho * h * at_h + rho * k * at_k + corner
    return P, np.array([at_h + rho * at_k, at_k + rho * at_h]), np.array([[uu, uv], [uv, vv]])
