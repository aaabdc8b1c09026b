"""Theorem 5 and Eq. 81: batch norm as a projection."""

import torch
from torch import Tensor, nn

from gatelab.figures import Plot
from gatelab.hierarchy.batchnorm import batch_norm_backward, batch_norm_jacobian, projection, standardise
from gatelab.lab.measure import EXACT, IDENTITY, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, measurement


@theorem(
    "hierarchy-5", "Theorem 5", "Batch norm passes back (c₁/σ) P^⊥_{f,1} of a gradient; its parameters get S(f)ᵀ g"
)
def batch_norm_projects(seed: int) -> Measurement:
    """Compare with torch.nn.BatchNorm1d at ε = 0 and 1e-5, and the form weighted by P(z) (Eq. 83) with autograd."""
    generator = torch.Generator().manual_seed(seed)
    f, g = (torch.randn(12, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    scale = torch.rand(3, generator=generator, dtype=torch.float64) + 0.5
    exact, to_scale, to_shift = _autograd_batch_norm(f, g, scale, 0.0)
    ours = torch.stack([batch_norm_jacobian(f[:, j], scale[j].item()) @ g[:, j] for j in range(3)], dim=1)
    parameters = torch.stack([(standardise(f).values.T @ g).diagonal(), g.sum(dim=0)])
    smoothed, *_ = _autograd_batch_norm(f, g, scale, 1e-5)
    with_eps, *_ = batch_norm_backward(standardise(f, eps=1e-5), g, scale)
    weights = torch.rand(12, generator=generator, dtype=torch.float64)
    weights /= weights.sum()
    leaf = f.clone().requires_grad_()
    (weighted,) = torch.autograd.grad((scale * standardise(leaf, weights).values * g).sum(), leaf)
    by_formula, *_ = batch_norm_backward(standardise(f, weights), g, scale, weights)
    unprojected, (unweighted, *own) = (
        g * scale / standardise(f).deviation,
        batch_norm_backward(standardise(f), g, scale),
    )
    # Eq. 83 projects g = Λ⁻¹ ∂L/∂f, in the inner product of Λ.
    projected = [batch_norm_jacobian(f[:, j], scale[j].item(), weights) @ (g[:, j] / weights) for j in range(3)]
    return measurement(
        against(ours, exact, "∂L/∂f, ε = 0"),
        identity("ε = 0: (c₁/σ) P^⊥ g against BatchNorm1d", ours, exact),
        identity("ε = 0: S(f)ᵀ g against BatchNorm1d", parameters, torch.stack([to_scale, to_shift])),
        identity(
            "ε = 0: gradients of c₁ and c₀ against BatchNorm1d", torch.stack(own), torch.stack([to_scale, to_shift])
        ),
        identity("Eq. 83, weighted by P(z), against autograd", by_formula, weighted),
        identity("Eq. 83 as a projection", torch.stack(projected, dim=1) * weights.unsqueeze(1), weighted),
        identity("ε = 1e-5, with ε in the formula", with_eps, smoothed),
        at_least("(c₁/σ) g without P^⊥: rel. error", relative_error(unprojected, exact), 0.05, "P^⊥ removes a part"),
        at_least("Eq. 83 with equal weights: rel. error", relative_error(unweighted, weighted), 0.05, "P(z) counts"),
        note=f"ε = 1e-5 changes the gradient by {relative_error(smoothed, exact):.1e}: it is not a projection then.",
    )


def _autograd_batch_norm(f: Tensor, g: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, ...]:
    eps = max(eps, 1e-300)  # torch refuses ε = 0; next to any variance this changes no bit
    layer = nn.BatchNorm1d(f.shape[1], eps=eps, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(scale)
    leaf = f.clone().requires_grad_()
    return torch.autograd.grad((layer(leaf) * g).sum(), [leaf, layer.weight, layer.bias])


@theorem(
    "hierarchy-81",
    "Equation 81",
    "J^BN f_bn = J^BN 1 = J^BN f = 0: batch norm passes back nothing along its own output",
)
def null_space(seed: int) -> Measurement:
    """Check the three products, uniform and weighted, and that P^⊥ is a projection of rank n − 2."""
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(10, generator=generator, dtype=torch.float64)
    weights = torch.rand(10, generator=generator, dtype=torch.float64)
    other = torch.randn(10, generator=generator, dtype=torch.float64)
    checks, products = [], []
    for name, given in (("uniform", None), ("weighted", weights / weights.sum())):
        jacobian = batch_norm_jacobian(f, 1.7, given)
        output = 1.7 * standardise(f.unsqueeze(1), given).values[:, 0] + 0.3
        vectors = torch.stack([output, torch.ones_like(f), f], dim=1)
        products.append(jacobian @ vectors)
        largest = (products[-1].abs().max() / jacobian.abs().max()).item()
        passed = float((jacobian @ other).abs().max() / jacobian.abs().max())
        onto = projection(f, given)
        checks += [
            Check(f"{name}: |J [f_bn, 1, f]|, rel. to |J|", largest, IDENTITY, EXACT),
            identity(f"{name}: P^⊥ P^⊥ = P^⊥", onto @ onto, onto),
            at_least(f"{name}: |J g| of a random g, rel. to |J|", passed, 0.3, "other gradients pass"),
            Check(f"{name}: |rank P^⊥ − (n − 2)|", abs(onto.trace().item() - 8), IDENTITY, "the trace of a projection"),
        ]
    curves = [dots(f"J {name}", range(10), products[0][:, i].abs()) for i, name in enumerate(("f_bn", "1", "f"))]
    return measurement(Plot("entry", "absolute value", tuple(curves)), *checks)
