"""The angles of Eq. 2 in floating point: arccos, as printed, loses half of the digits of (anti)parallel inputs.

Reference: exact rational arithmetic on the same float64 inputs (:mod:`fractions`), rounded once.
"""

from fractions import Fraction
from math import asin, factorial, pi, sin, sqrt

import torch
from torch import Tensor

from gatelab.figures import Plot
from gatelab.kernels import infinite_width_kernels
from gatelab.kernels.infinite_width import angle_maps
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import agrees, at_least, line, measurement

ANGLES = (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.04)  # from x to x', or to −x'
SERIES = 7  # Σ^(2) is compared from this angle on, 1e-4: its digits are those of the angle's cube
ROUNDING = "unit vectors are known to 1e-16, so the angle is; ten roundings"


@theorem(
    "npk-theta",
    "Eq. (2), θ in floating point",
    "2 atan2(‖u − v‖, ‖u + v‖) has the angle θ of (anti)parallel inputs to 1e-15, arccos of the cosine only to 1e-8",
)
def angles(seed: int) -> Measurement:
    """Inputs x and x' = ±3 (cos t x + sin t u), u ⊥ x: κ₀ = 1 − θ/π in two layers and Σ^(2), against exact angles."""
    generator = torch.Generator().manual_seed(seed)
    x, u = torch.linalg.qr(torch.randn(5, 2, generator=generator, dtype=torch.float64))[0].T
    t = torch.tensor(ANGLES, dtype=torch.float64)[:, None]
    parallel = 3 * (t.cos() * x + t.sin() * u)
    errors, by_arccos = [], []
    for sign in (1, -1):
        others = sign * parallel
        layers = torch.stack([both_open[0] for _, both_open in angle_maps(x[None], others, 2)])
        exact = torch.tensor([_both_open(_small_angle(x, other), sign) for other in others], dtype=torch.float64).T
        cosine = (others @ x) / (others.norm(dim=1) * x.norm())
        errors.append((layers - exact).abs())
        by_arccos.append((1 - cosine.clamp(-1, 1).arccos() / pi - exact[0]).abs())
    opposite = -parallel[SERIES:]
    lengths = x.norm() * opposite.norm(dim=1)
    cubes = torch.tensor([_sine_excess(_small_angle(x, other)) / pi for other in opposite], dtype=torch.float64)
    nngp = infinite_width_kernels(x[None], opposite, depth=2).nngp[0] / lengths
    worst = max(error.max().item() for error in by_arccos)
    curves = (
        line("atan2", ANGLES, torch.stack(errors).amax(dim=(0, 1)).clamp(min=1e-17)),
        line("arccos", ANGLES, torch.stack(by_arccos).amax(dim=0).clamp(min=1e-17)),
    )
    return measurement(
        Plot("angle between x and x', or x and −x'", "error of κ₀", curves, log=True),
        *(
            Check(f"κ₀ of {name} inputs, {which} layer, error", errors[place][layer].max().item(), 1e-15, ROUNDING)
            for place, name in enumerate(("parallel", "antiparallel"))
            for layer, which in enumerate(("first", "second"))
        ),
        # Each entry by itself: they are the cubes of 1e-4 … 0.04.
        agrees("Σ^(2) of antiparallel inputs", nngp / cubes, torch.ones_like(cubes), 3e-11, "3 × 1e-15 / 1e-4: a cube"),
        at_least("error of κ₀ by arccos", worst, 1e-10, "a cosine rounds 1 − t²/2 to 1e-16"),
    )


def _small_angle(x: Tensor, other: Tensor) -> float:
    """Return the angle between the lines through two vectors: sin² is rational in their entries, and exact."""
    a, b = ([Fraction(value) for value in vector.tolist()] for vector in (x, other))
    aa, bb, ab = (sum(p * q for p, q in zip(*pair, strict=True)) for pair in ((a, a), (b, b), (a, b)))
    return asin(sqrt(1 - ab**2 / Fraction(aa * bb)))


def _both_open(angle: float, sign: int) -> tuple[float, float]:
    """Return κ₀ of the first and of the second layer for θ = angle (sign 1) or π − angle (sign −1)."""
    if sign < 0:  # cos θ' is tiny: θ' = π/2 − cos θ' up to its cube
        return angle / pi, 0.5 + asin(_sine_excess(angle) / pi) / pi
    versine = 2 * sin(angle / 2) ** 2 - _sine_excess(angle) / pi
    return 1 - angle / pi, 1 - 2 * asin(sqrt(versine / 2)) / pi


def _sine_excess(angle: float) -> float:
    """Return sin a − a cos a, summed in exact arithmetic: Σ_k (−1)^{k+1} 2k a^{2k+1} / (2k+1)!."""
    a = Fraction(angle)
    return float(sum((-1) ** (k + 1) * 2 * k * a ** (2 * k + 1) / factorial(2 * k + 1) for k in range(1, 9)))
