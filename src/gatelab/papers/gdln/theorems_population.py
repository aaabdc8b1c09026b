"""A ReLU unit on symmetric data, as theorems: one basis (Section 5), b(t), and what the unit maximises.

NLGP: nonlinear Gaussian process.
"""

from math import asin, inf, pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.data import NLGP, GaussianClone, SinglePulse
from gatelab.data.power_field import PowerField
from gatelab.dynamics import GatedMoments, estimate_moments, exact_moments, moments_of
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.population import PopulationFlow, excess_kurtosis, gaussian_drive, transformed
from gatelab.dynamics.population_centre import CentredFlow
from gatelab.figures import Plot
from gatelab.lab.measure import against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import HalfSpaceGates
from gatelab.papers.common import agrees, at_least, dots, line, measurement
from gatelab.papers.gdln.problem import generator
from gatelab.papers.gdln.training import relu_descent

SITES = 12


def symmetric_sample(source: NLGP, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return examples with their negatives and all shifts: a sample with the symmetries of the population."""
    x, y = source.sample(count, generator=random, dtype=torch.float64)
    shifts = torch.cat([x.roll(step, dims=1) for step in range(x.shape[1])])
    return torch.cat([shifts, -shifts]), y.repeat(2 * x.shape[1])


def _off_half(moments: GatedMoments, second: Float[Tensor, "d d"], p: int = 0, q: int = 0) -> float:
    """Return how far A_pq is from ½Σ, relative to it."""
    return relative_error(moments.input_input(p, q), second / 2)


@theorem(
    "gdln-one-basis",
    "Section 5",
    "Data symmetric under x → −x: every half-space through the origin has A_kk = ½Σ, circulant, while only b moves",
)
def one_basis(seed: int) -> Measurement:
    """Follow a ReLU unit by descent on a symmetric sample, and compare A and b along the way; break each condition."""
    random = generator(seed)
    x, y = symmetric_sample(NLGP((1.5, 0.3), 100.0, (SITES,)), 40, random)
    second = x.T @ x / len(x)
    start = 0.1 * torch.randn(1, 1, SITES, generator=random, dtype=torch.float64)
    path = relu_descent(x, y, start, 200, 0.2, records=8).weights[:, 0]
    moments = [moments_of(x, y, x @ w.T > 0) for w in path]
    blocks = torch.stack([m.A for m in moments])
    turned = 1 - float(torch.nn.functional.cosine_similarity(moments[0].b, moments[-1].b, dim=0))
    halves = random_half_spaces(SITES, 2, generator=random, dtype=torch.float64)
    shifted = HalfSpaceGates(halves.normals, torch.full((2,), 1.0, dtype=torch.float64))
    pulses = SinglePulse(((4, 5), (1, 2)), (SITES,))
    raw = torch.cat([pulses.support(1), pulses.support(0)])
    of_pulses = moments_of(raw, torch.ones(len(raw), dtype=torch.float64), halves)
    return measurement(
        against(blocks[-1], second / 2, "entries of A at the end of training"),
        identity("A_kk along training against ½Σ", blocks, (second / 2).expand_as(blocks)),
        identity("½Σ is circulant", second[1].roll(-1), second[0]),
        at_least("1 − cosine of b at start and end", turned, 0.003, "the gate turns, and b with it"),
        at_least("A₁₂ off ½Σ", _off_half(moments_of(x, y, halves), second, 0, 1), 0.1, "two units: both must be open"),
        at_least(
            "A_kk off ½Σ with an offset", _off_half(moments_of(x, y, shifted), second), 0.1, "no symmetry is left"
        ),
        at_least(
            "A_kk off ½Σ on raw pulses", _off_half(of_pulses, raw.T @ raw / len(raw)), 0.1, "x ≥ 0: not symmetric"
        ),
        note="The notes' hope for one basis over time holds for one bias-free unit on symmetric data.",
    )


@theorem(
    "gdln-gaussian-moments",
    "Sections 2.3, 3.2, Gaussian data",
    "b = ½Σ₁w/√(2π wᵀΣ₁w), and A_pq follows from orthant integrals, offsets and means included",
)
def gaussian_moments(seed: int) -> Measurement:
    """Compare exact moments of Gaussian clones with samples; an NLGP of large gain has another b."""
    random, checks, curves = generator(seed), [], []
    nlgp = NLGP((1.5, 0.3), 100.0, (SITES,))
    normals = torch.randn(3, SITES, generator=random, dtype=torch.float64)
    origin, offset = (
        HalfSpaceGates(normals),
        HalfSpaceGates(normals, torch.tensor([0.5, -0.5, 1.0], dtype=torch.float64)),
    )
    pulses = SinglePulse(((4, 5), (1, 2)), (SITES,))
    because = "the largest deviation in standard errors, over all entries"
    for name, source, gates in (("clone", GaussianClone(nlgp), origin), ("with means", GaussianClone(pulses), offset)):
        exact = exact_moments(source, gates)
        found = estimate_moments(source, gates, 160_000, generator=random, dtype=torch.float64)
        for what, mine, drawn, error in (
            ("A", exact.A, found.A, found.A_error),
            ("b", exact.b, found.b, found.b_error),
        ):
            deviation, of_wrong = (_deviation(drawn, error, scale * mine) for scale in (1, 1.1))
            checks.append(Check(f"{name}: deviation of {what}", deviation, 5.5, because))
            checks.append(at_least(f"{name}: deviation of 1.1 {what}", of_wrong, 8.0, "the error bars are tight"))
        curves.append(dots(name, exact.A, found.A))
    closed = gaussian_drive(normals, nlgp.second_moment(1))
    exact = exact_moments(GaussianClone(nlgp), origin).b.view(3, -1)
    site = torch.eye(SITES, dtype=torch.float64)[:1]
    row = nlgp.field_covariance(1) / nlgp.field_covariance(1)[0]
    signs = torch.tensor([asin(min(1.0, float(c))) / (2 * pi) for c in row], dtype=torch.float64)
    gap = relative_error(gaussian_drive(site, nlgp.second_moment(1))[0], signs)
    return measurement(
        Plot("exact", "sampled", tuple(curves), diagonal="equal"),
        *checks,
        identity("b against ½Σ₁w/√(2π wᵀΣ₁w)", exact, closed),
        at_least("the Gaussian b off that of signs, one weight", gap, 0.1, "⟨1(s₀ > 0) s_j⟩ = arcsin(C)/π for signs"),
    )


def _deviation(drawn: Tensor, error: Tensor | None, exact: Tensor) -> float:
    """Return the largest deviation from an estimate in standard errors; infinity if it has none."""
    return float(((drawn - exact).abs() / error.clamp(min=1e-9)).max()) if error is not None else inf


@theorem(
    "gdln-population",
    "Section 2.3",
    "b(w) of an NLGP by quadrature, wᵀx Gaussian given x_i and the centre: exact for Gaussians, and for one weight",
)
def population_drive(seed: int) -> Measurement:
    """Compare with the Gaussian formula, with b = arcsin(C)/(2π) for one weight and signs, and with samples."""
    random = generator(seed)
    w = torch.randn(SITES, generator=random, dtype=torch.float64)
    gaussian = PowerField((1.5, 0.3), 1.0, (SITES,))
    exact = gaussian_drive(w, gaussian.second_moment(1))
    sharp = NLGP((1.5, 0.3), 1e4, (SITES,))
    row = sharp.field_covariance(1) / sharp.field_covariance(1)[0]
    signs = torch.tensor([asin(min(1.0, float(c))) / (2 * pi) for c in row], dtype=torch.float64)
    site = torch.eye(SITES, dtype=torch.float64)[0]
    source = NLGP((1.5, 0.3), 3.0, (SITES,))
    x = source.of_class(1, 100_000, generator=random, dtype=torch.float64)
    centre = int(w.abs().argmax())
    local = w.clone()
    local[centre] = 8.0  # the others are about 1
    flow, both = CentredFlow(source, centre), torch.stack([w, local])
    centred, plain = flow.drive(both), PopulationFlow.of_field(source).drive(both)
    sampled = torch.stack([0.5 * (x * ((x @ v > 0).double() - 0.5)[:, None]).mean(dim=0) for v in both])
    formula = gaussian_drive(both, source.second_moment(1))
    off_centred, off_plain, off_formula = (relative_error(b[1], sampled[1]) for b in (centred, plain, formula))
    return measurement(
        against(centred, sampled, "b at each site, gain 3"),
        agrees("Gaussian field", PopulationFlow.of_field(gaussian, 24).drive(w), exact, 1e-4, "quadrature, 24 nodes"),
        agrees("signs, one weight", CentredFlow(sharp, 0).drive(site), signs, 1e-3, "signs are still erf at gain 10⁴"),
        agrees("gain 3, many weights, with a centre", centred[0], sampled[0], 0.15, "an approximation"),
        Check("gain 3, one large weight, with a centre, rel. error", off_centred, 0.03, "10⁵ examples: about 0.01"),
        at_least("without a centre / with it", off_plain / off_centred, 2.0, "the centre holds most of wᵀx"),
        at_least("the Gaussian formula off the samples", off_formula, 0.1, "gain 3, one large weight: no Gaussian"),
        note=f"Without a centre the error is {relative_error(plain[0], sampled[0]):.2g} for many weights, "
        f"{off_plain:.2g} for one large weight.",
    )


@theorem(
    "gdln-variational",
    "Section 1, why fields are local",
    "One unit, symmetric data: min over scale of L is ¼ − ⟨|wᵀx|⟩₁²/(16 wᵀΣ̄w); φ(a) = (a − κa³/6 + …)/√(2π)",
)
def variational_principle(seed: int) -> Measurement:
    """Compare L at the best scale with the formula, on a symmetric and an asymmetric sample; fit the cubic of φ."""
    random = generator(seed)
    x, y = symmetric_sample(NLGP((1.5, 0.3), 3.0, (SITES,)), 40, random)
    fields = torch.randn(20, SITES, generator=random, dtype=torch.float64)

    def least(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (x @ fields.T).clamp(min=0)
        cross, square = (hidden * y[:, None]).mean(dim=0), hidden.square().mean(dim=0)
        mean = (x[y == 1] @ fields.T).abs().mean(dim=0)
        power = ((fields @ (x.T @ x / len(x))) * fields).sum(dim=1)
        return y.square().mean() / 2 - cross.square() / (2 * square), 0.25 - mean.square() / (16 * power)

    true, formula = least(x, y)
    half = len(x) // 2
    lopsided, wrong = least(x[:half] + 0.5, y[:half])
    checks, curves = [], []
    for source in (NLGP((1.5, 0.3), 3.0, (SITES,)), PowerField((1.5, 0.3), 1.5, (SITES,))):
        a = torch.linspace(0.02, 0.12, 6, dtype=torch.float64)
        z = torch.linspace(-10, 10, 40_001, dtype=torch.float64)
        density = (-z.square() / 2).exp()
        values = transformed(source, z)
        phi = torch.stack(
            [
                (density * values * torch.special.ndtr(s * values / sqrt(1 - float(s) ** 2))).sum() / density.sum()
                for s in a
            ]
        )
        cubic = torch.linalg.lstsq(torch.stack([a**3, a**5], dim=1), (phi * sqrt(2 * pi) - a)[:, None]).solution[0, 0]
        kappa = excess_kurtosis(source)
        name = type(source).__name__
        checks.append(
            Check(f"{name}: cubic of φ against −κ/6 = {-kappa / 6:.3g}", abs(float(cubic) + kappa / 6), 0.02, "a fit")
        )
        curves.append(line(f"{name}, κ = {kappa:.2g}", a, phi * sqrt(2 * pi) - a))
    return measurement(
        Plot("a", "√(2π) φ(a) − a", tuple(curves)),
        identity("least L over the scale against the formula", true, formula),
        at_least(
            "their gap where x → −x is no symmetry", float((lopsided - wrong).abs().max()), 0.01, "x shifted by ½"
        ),
        *checks,
        note="Negative κ makes φ grow faster than linearly, so the largest entries of Σ₁w gain: fields become local.",
    )
