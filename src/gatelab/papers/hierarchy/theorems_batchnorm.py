"""Theorem 5, Eq. 81 and Section 8.6.2: batch norm as a projection, and the energy that it conserves."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.figures import Plot
from gatelab.hierarchy import LocalNetwork, NodeOptions, Norm, Teacher, string_fields
from gatelab.hierarchy.batchnorm import batch_norm_backward, batch_norm_jacobian, projection, row_energy, standardise
from gatelab.hierarchy.rules import random_table
from gatelab.lab.measure import EXACT, IDENTITY, ErrorFlow, against, identity, moved, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.papers.common import at_least, dots, line, measurement


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
    # Eq. 83 projects g = Λ⁻¹ ∂L/∂f, in the inner product of Λ.
    projected = [batch_norm_jacobian(f[:, j], scale[j].item(), weights) @ (g[:, j] / weights) for j in range(3)]
    return measurement(
        against(ours, exact, "∂L/∂f, ε = 0"),
        identity("ε = 0: (c₁/σ) P^⊥ g against BatchNorm1d", ours, exact),
        identity("ε = 0: S(f)ᵀ g against BatchNorm1d", parameters, torch.stack([to_scale, to_shift])),
        identity("Eq. 83, weighted by P(z), against autograd", by_formula, weighted),
        identity("Eq. 83 as a projection", torch.stack(projected, dim=1) * weights.unsqueeze(1), weighted),
        identity("ε = 1e-5, with ε in the formula", with_eps, smoothed),
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
    checks, products = [], []
    for name, given in (("uniform", None), ("weighted", weights / weights.sum())):
        jacobian = batch_norm_jacobian(f, 1.7, given)
        output = 1.7 * standardise(f.unsqueeze(1), given).values[:, 0] + 0.3
        vectors = torch.stack([output, torch.ones_like(f), f], dim=1)
        products.append(jacobian @ vectors)
        largest = (products[-1].abs().max() / jacobian.abs().max()).item()
        onto = projection(f, given)
        checks += [
            Check(f"{name}: |J [f_bn, 1, f]|, rel. to |J|", largest, IDENTITY, EXACT),
            identity(f"{name}: P^⊥ P^⊥ = P^⊥", onto @ onto, onto),
            Check(f"{name}: |rank P^⊥ − (n − 2)|", abs(onto.trace().item() - 8), IDENTITY, "the trace of a projection"),
        ]
    curves = [dots(f"J {name}", range(10), products[0][:, i].abs()) for i, name in enumerate(("f_bn", "1", "f"))]
    return measurement(Plot("entry", "absolute value", tuple(curves)), *checks)


@theorem(
    "hierarchy-8.6.2",
    "Section 8.6.2",
    "With batch norm behind the ReLU, gradient flow conserves the energy ½‖w_j‖² of every node",
)
def conserved_energy(seed: int) -> Measurement:
    """Follow the flow by Runge-Kutta; one step of descent raises the energy by ½ η² ‖Δw_j‖², which has order 2."""
    generator = torch.Generator().manual_seed(seed)
    teacher = Teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
    x, _ = teacher.inputs.support()
    flows, drifts, travelled = {}, {}, {}
    for norm in (Norm.AFTER_RELU, Norm.NONE):
        hidden = NodeOptions(norm=norm, bias=False)
        student = LocalNetwork(teacher.fields, 4, 1, hidden=hidden, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            for region in student.fields.hidden:
                # Positive weights: no node starts closed for all inputs.
                student.weights[region].uniform_(0.1, 1.0, generator=generator)
        flows[norm] = flow = ErrorFlow(student, x, teacher.label(x).double())
        parameters = flow.parameters
        for _ in range(25):
            parameters = flow.stages(parameters, 1e-4)[-1]
        drifts[norm] = relative_error(_energies(parameters), _energies(flow.parameters))
        travelled[norm] = relative_error(_hidden(parameters), _hidden(flow.parameters))
    flow = flows[Norm.AFTER_RELU]
    velocity, steps = flow.velocity(flow.parameters), [1e-2, 3e-3, 1e-3, 3e-4]
    before = _energies(flow.parameters)
    after = [_energies(moved(flow.parameters, velocity, step)) - before for step in steps]
    sizes = [change.abs().max().item() for change in after]
    order = fitted_power(steps, sizes)
    predicted = steps[0] ** 2 * _energies(velocity)
    drift, at_rest = drifts[Norm.AFTER_RELU], "weights at rest conserve everything"
    small = "the change is a small difference of energies"
    squares = [sizes[0] * (step / steps[0]) ** 2 for step in steps]
    curves = (dots(f"measured, order {order:.2f}", steps, sizes), line("η²", steps, squares))
    return measurement(
        Plot("step η", "largest change of ½‖w_j‖² in one step", curves, log=True),
        Check("flow: drift of ½‖w_j‖², rel.", drift, 1e-6, "fourth-order steps of 1e-4"),
        at_least("how far the weights moved, rel.", travelled[Norm.AFTER_RELU], 1e-2, at_rest),
        Check("descent: |order of one step's drift − 2|", abs(order - 2), 1e-3, "η² exactly, up to rounding"),
        Check("descent: drift against ½ η² ‖Δw_j‖², rel.", relative_error(after[0], predicted), 1e-8, small),
        note=f"without batch norm the same flow changes the energy by {drifts[Norm.NONE]:.1%}.",
    )


def _hidden(parameters: dict[str, Tensor]) -> Float[Tensor, "k w"]:
    return torch.cat([parameters["weights.h1_0"], parameters["weights.h1_1"]], dim=1)


def _energies(parameters: dict[str, Tensor]) -> Float[Tensor, " w"]:
    return row_energy(_hidden(parameters))
