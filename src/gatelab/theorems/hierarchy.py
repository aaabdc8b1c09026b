"""The theorems of "A theoretical framework for deep and locally connected ReLU network" on training and batch norm.

Every input is visited, so that expectations are sums. Inputs come from a Markov chain, regions overlap.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.figures import Curve, Plot
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    MarkovChain,
    Norm,
    Observation,
    ReformulatedTrainer,
    Teacher,
    Unit,
    batch_norm_backward,
    batch_norm_jacobian,
    build_teacher,
    conditions,
    exact_events,
    full_information,
    function,
    observe_student,
    projection,
    random_table,
    reformulate,
    row_energy,
    standardise,
    string_fields,
    student_for,
)
from gatelab.theorems._measure import (
    EXACT,
    IDENTITY,
    ErrorFlow,
    against,
    fitted_order,
    identity,
    moved,
    relative_error,
)
from gatelab.theorems._registry import theorem
from gatelab.theorems._result import Check, Measurement


def _lossy(seed: int) -> tuple[torch.Generator, Teacher, LocalNetwork]:
    """A teacher whose variables forget, on overlapping regions of six bits, and a student."""
    generator = torch.Generator().manual_seed(seed)
    stay = 0.55 + 0.3 * torch.rand(2, generator=generator, dtype=torch.float64)
    transition = torch.stack([torch.stack([stay[0], 1 - stay[0]]), torch.stack([1 - stay[1], stay[1]])])
    inputs = MarkovChain(6, torch.tensor([0.4, 0.6], dtype=torch.float64), transition)
    teacher = build_teacher(string_fields(6, [3, 2], [1, 1]), random_table(3, generator), inputs)
    return generator, teacher, student_for(teacher, 4, dtype=torch.float64, generator=generator)


@theorem(
    "hierarchy-1",
    "Theorem 1",
    "Marginalised gradients are recursive: g_j(x_k) is the average of g_j(x_j) over what x_j has beyond x_k",
)
def marginalised_gradients(seed: int) -> Measurement:
    """For each pair of neighbouring regions; and Eq. 4, which climbs down with them, at every hidden node."""
    _, teacher, student = _lossy(seed)
    seen = observe_student(student, teacher)
    direct, recursive, collected, own = [], [], [], []
    for parent, child in student.fields.edges:
        g = seen.gradients[parent]
        direct.append(seen.given_contents(g, child).flatten())
        recursive.append(seen.given_contents(seen.given_contents(g, parent), child).flatten())
    for region, state in seen.states.items():
        if region != student.fields.top:
            sums = torch.zeros_like(state.raw)
            for parent in student.fields.parents(region):
                given = seen.given_contents(seen.gradients[parent], region)
                sums += given @ student.incoming(parent)[region].detach().T
            collected.append((state.gate * sums).flatten())
            own.append(seen.given_contents(seen.gradients[region], region).flatten())
    return Measurement(
        (
            identity("g_j(x_k) against the average of g_j(x_j)", torch.cat(recursive), torch.cat(direct)),
            identity("Eq. 4: g_k(x_k) against f'_k Σ_j w_jk g_j(x_k)", torch.cat(collected), torch.cat(own)),
        ),
        against(torch.cat(recursive), torch.cat(direct), "g_j(x_k)"),
    )


@dataclass(frozen=True)
class _Departure:
    """How far Eq. 7 is from true at one region, and what the conditions' gaps predict for it."""

    measured: Float[Tensor, "m w"]
    predicted: Float[Tensor, "m w"]
    size: float


def _upward(student: LocalNetwork, seen: Observation, region: str) -> _Departure:
    """f_j(z_α) − f'_j Σ w E[f_k(z_β)|z_α] = Cov(f', f^raw | z_α) − f'_j · (gap of focus)."""
    state, gate = seen.states[region], seen.gate(region)
    formula, gap = (torch.zeros_like(gate) for _ in range(2))
    if region in student.biases:
        formula += student.biases[region].detach()
    for child, weight in student.incoming(region).items():
        leaf = child in student.encodings
        f = student.encodings[child].detach()[seen.z[child]] if leaf else seen.states[child].output
        through = seen.given_z(seen.given_z(f, child)[seen.z[child]], region)
        formula += through @ weight.detach()
        gap += (through - seen.given_z(f, region)) @ weight.detach()
    covariance = seen.given_z(state.gate * state.raw, region) - gate * seen.given_z(state.raw, region)
    if not student.units[region].relu:
        gate, covariance = torch.ones_like(gate), torch.zeros_like(covariance)
    measured = seen.activation(region) - gate * formula
    return _Departure(measured, covariance - gate * gap, seen.activation(region).abs().max().item())


def _downward(student: LocalNetwork, seen: Observation, region: str) -> _Departure:
    """g_k(z_β) − f'_k Σ w E[g_j(z_α)|z_β] = Cov(f', g^raw | z_β) − f'_k · (gap of broadness)."""
    state, gate, raw = seen.states[region], seen.gate(region), seen.raw_gradients[region]
    formula, gap = (torch.zeros_like(gate) for _ in range(2))
    for parent in student.fields.parents(region):
        weight = student.incoming(parent)[region].detach()
        g = seen.gradients[parent]
        through = seen.given_z(seen.given_z(g, parent)[seen.z[parent]], region)
        formula += through @ weight.T
        gap += (through - seen.given_z(g, region)) @ weight.T
    covariance = seen.given_z(state.gate * raw, region) - gate * seen.given_z(raw, region)
    measured = seen.gradient(region) - gate * formula
    return _Departure(measured, covariance - gate * gap, seen.gradient(region).abs().max().item())


def _departures(student: LocalNetwork, teacher: Teacher) -> list[_Departure]:
    seen = observe_student(student, teacher)
    hidden = [region for region in student.fields.inner if region != student.fields.top]
    return [
        *(_upward(student, seen, region) for region in student.fields.inner),
        *(_downward(student, seen, region) for region in hidden),
    ]


def _noisy(seed: int) -> tuple[Teacher, LocalNetwork]:
    """A teacher that forgets noise and nothing else: odd positions are coins that no variable above remembers.

    The student starts with weights that do not see them either. Then all conditions hold between hidden regions and the
    top, although z_α is far from telling all of x_α.
    """
    generator = torch.Generator().manual_seed(seed)
    signal = function(lambda z: z[:, 0], 2)
    pair = function(lambda z: 2 * z[:, 0] + z[:, 1], 4)
    teacher = build_teacher(string_fields(4, [2]), {"h1_0": signal, "h1_1": signal, "top": pair})
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        for region in ("h1_0", "h1_1"):
            student.incoming(region)[student.fields.children(region)[1]].zero_()
    return teacher, student


@theorem(
    "hierarchy-2",
    "Theorem 2",
    "Under focus, broadness and decorrelation, f_j(z_α) and g_k(z_β) follow from their neighbours' (Eq. 7)",
)
def reformulation(seed: int) -> Measurement:
    """Where they hold (forgotten noise) Eq. 7 is exact; where not, it departs by exactly the measured gaps."""
    teacher, student = _noisy(seed)
    gaps = conditions(student, teacher)
    between = [edge for (_, child), edge in gaps.edges.items() if child not in student.fields.leaves]
    largest = max(max(edge.focus, edge.broadness) for edge in between)
    largest = max([largest, *(node.activation.max().item() for node in gaps.nodes.values())])
    largest = max([largest, *(node.gradient.max().item() for node in gaps.nodes.values())])
    exact = max(d.measured.abs().max().item() / d.size for d in _departures(student, teacher))
    _, lossy, other = _lossy(seed)
    departures = _departures(other, lossy)
    measured = torch.cat([departure.measured.flatten() for departure in departures])
    predicted = torch.cat([departure.predicted.flatten() for departure in departures])
    share = max(d.measured.abs().max().item() / d.size for d in departures)
    return Measurement(
        (
            Check("forgotten noise: largest gap of the conditions", largest, IDENTITY, EXACT),
            Check("forgotten noise: error of Eq. 7, rel.", exact, IDENTITY, EXACT),
            identity("lossy teacher: error of Eq. 7 against the gaps", measured, predicted),
        ),
        against(measured, predicted, "error of Eq. 7, lossy teacher"),
        (f"with the lossy teacher Eq. 7 is wrong by up to {share:.0%} of the largest entry.",),
    )


@theorem(
    "hierarchy-3",
    "Theorem 3",
    "If z_α tells all of x_α, the conditions hold, and training on z is training on x",
)
def exactness(seed: int) -> Measurement:
    """Twenty steps of both, on overlapping regions, from the same weights; with and without batch norm."""
    generator, lossy, _ = _lossy(seed)
    teacher = full_information(lossy)
    events = exact_events(teacher)
    worst, differences, losses = 0.0, [], {}
    for norm in (Norm.NONE, Norm.AFTER_LINEAR):
        student = student_for(teacher, 5, hidden=Unit(norm=norm), dtype=torch.float64, generator=generator)
        worst = max(worst, *conditions(student, teacher).worst.values())
        twin = deepcopy(student)
        ours, theirs = ReformulatedTrainer(twin, events, 0.3), GradientTrainer(student, teacher, 0.3)
        losses[norm] = [(ours.step(), theirs.step()) for _ in range(20)]
        differences.append(relative_error(*(_flat(p.detach() for p in net.parameters()) for net in (twin, student))))
    curves = [
        Curve(f"batch norm: {norm.value}", tuple(b for _, b in pairs), tuple(a for a, _ in pairs))
        for norm, pairs in losses.items()
    ]
    return Measurement(
        (
            Check("largest gap of the conditions", worst, IDENTITY, EXACT),
            Check("parameters after 20 steps, rel. error", max(differences), IDENTITY, EXACT),
        ),
        Plot("loss on inputs", "loss on z", tuple(curves), diagonal="equal"),
        ("the top's variable must tell everything, too: with z_ω the label alone, back-propagation is not exact.",),
    )


@theorem(
    "hierarchy-4",
    "Theorem 4",
    "F = D ∘ Σ P F W, G̃ = D ∘ Σ Pᵀ G̃ Wᵀ and ΔW = (P F)ᵀ G̃ are the passes of Theorem 2 as matrices",
)
def matrix_form(seed: int) -> Measurement:
    """F, D, G̃ against averages over inputs, ΔW against autograd; the misprint in Eq. 60c resolved by Bayes."""
    generator, lossy, _ = _lossy(seed)
    teacher = full_information(lossy)
    events = exact_events(teacher)
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    found, seen = reformulate(student, events), observe_student(student, teacher)
    target = teacher.target(seen.x)
    (seen.probability @ (target - student(seen.x)).square().sum(dim=1) / 2).backward()
    gradients = {region: student.weights[region].grad for region in student.fields.inner}
    regions = student.fields.inner
    bayes = [
        relative_error(
            events.priors[child].unsqueeze(1) * events.backward(parent, child).to_dense().T,
            events.matrix(parent, child).to_dense().T * events.priors[parent],
        )
        for parent, child in student.fields.edges
    ]
    moves = _flat(found.weights[region] for region in regions)
    descent = _flat(-g for g in gradients.values() if g is not None)
    hidden = [region for region in regions if student.units[region].relu]
    return Measurement(
        (
            identity("F", _flat(found.activations[r] for r in regions), _flat(seen.activation(r) for r in regions)),
            identity("D", _flat(found.gates[r] for r in hidden), _flat(seen.gate(r) for r in hidden)),
            identity(
                "G̃", _flat(found.gradients[r] for r in regions), _flat(seen.weighted_gradient(r) for r in regions)
            ),
            identity("ΔW against autograd", moves, descent),
            Check("Λ_β (P^b)ᵀ = Pᵀ Λ_α, rel. error", max(bayes), IDENTITY, EXACT),
        ),
        against(moves, descent, "Δw_jk"),
    )


def _flat(tensors: Iterable[Tensor]) -> Float[Tensor, " n"]:
    return torch.cat([tensor.flatten() for tensor in tensors])


@theorem(
    "hierarchy-5",
    "Theorem 5",
    "Batch norm passes back (c₁/σ) P^⊥_{f,1} of a gradient; its parameters get S(f)ᵀ g",
)
def batch_norm_projects(seed: int) -> Measurement:
    """Against torch.nn.BatchNorm1d's autograd at ε = 0; weighted by P(z) (Eq. 83) against autograd; ε = 1e-5 shown."""
    generator = torch.Generator().manual_seed(seed)
    f, g = (torch.randn(12, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    scale = torch.rand(3, generator=generator, dtype=torch.float64) + 0.5
    exact, to_scale, to_shift = _autograd_batch_norm(f, g, scale, 0.0)
    ours = torch.stack([batch_norm_jacobian(f[:, j], scale[j].item()) @ g[:, j] for j in range(3)], dim=1)
    parameters = torch.stack([standardise(f).values.T @ g, torch.ones(3, 12, dtype=torch.float64) @ g], dim=0)
    stacked = torch.stack([parameters[0].diagonal(), parameters[1, 0]])
    smoothed, *_ = _autograd_batch_norm(f, g, scale, 1e-5)
    with_eps, *_ = batch_norm_backward(standardise(f, eps=1e-5), g, scale)
    weights = torch.rand(12, generator=generator, dtype=torch.float64)
    weights /= weights.sum()
    leaf = f.clone().requires_grad_()
    (weighted,) = torch.autograd.grad((scale * standardise(leaf, weights).values * g).sum(), leaf)
    by_formula, *_ = batch_norm_backward(standardise(f, weights), g, scale, weights)
    # g = Λ⁻¹ ∂L/∂f is what Eq. 83 projects, in the inner product of Λ.
    projected = [batch_norm_jacobian(f[:, j], scale[j].item(), weights) @ (g[:, j] / weights) for j in range(3)]
    return Measurement(
        (
            identity("ε = 0: (c₁/σ) P^⊥ g against BatchNorm1d", ours, exact),
            identity("ε = 0: S(f)ᵀ g against BatchNorm1d", stacked, torch.stack([to_scale, to_shift])),
            identity("Eq. 83, weighted by P(z), against autograd", by_formula, weighted),
            identity("Eq. 83 as a projection", torch.stack(projected, dim=1) * weights.unsqueeze(1), weighted),
            identity("ε = 1e-5, with ε in the formula", with_eps, smoothed),
        ),
        against(ours, exact, "∂L/∂f, ε = 0"),
        (f"ε = 1e-5 moves the gradient by {relative_error(smoothed, exact):.1e}: it is no exact projection then.",),
    )


def _autograd_batch_norm(f: Tensor, g: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, ...]:
    eps = max(eps, 1e-300)  # torch refuses ε = 0; beside any variance this changes no bit
    layer = nn.BatchNorm1d(f.shape[1], eps=eps, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(scale)
    leaf = f.clone().requires_grad_()
    return torch.autograd.grad((layer(leaf) * g).sum(), [leaf, layer.weight, layer.bias])


@theorem(
    "hierarchy-81",
    "Equation 81",
    "J^BN f_bn = J^BN 1 = J^BN f = 0: what batch norm gives out, it does not take back",
)
def null_space(seed: int) -> Measurement:
    """The three products, uniform and weighted; and that P^⊥ is a projection of rank n − 2."""
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
    rows = tuple(float(row) for row in range(10))
    names = ("J f_bn", "J 1", "J f")
    curves = tuple(Curve(name, rows, tuple(products[0][:, i].abs().tolist())) for i, name in enumerate(names))
    return Measurement(tuple(checks), Plot("entry", "absolute value", curves))


@theorem(
    "hierarchy-8.6.2",
    "Section 8.6.2",
    "With batch norm behind the ReLU gradient flow conserves the energy ½‖w_j‖² of every node",
)
def conserved_energy(seed: int) -> Measurement:
    """Flow by Runge-Kutta; one step of descent raises the energy by ½ η² ‖Δw_j‖²: order 2, shown beside."""
    generator = torch.Generator().manual_seed(seed)
    teacher = build_teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
    # Weights below are positive at first, so that no node starts closed for all inputs.
    flows = {}
    for norm in (Norm.AFTER_RELU, Norm.NONE):
        hidden = Unit(norm=norm, bias=False)
        student = LocalNetwork(teacher.fields, 4, 1, hidden=hidden, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            for region in ("h1_0", "h1_1"):
                student.weights[region].uniform_(0.1, 1.0, generator=generator)
        x, _ = teacher.inputs.support()
        flows[norm] = ErrorFlow(student, x, teacher.label(x).double())
    drifts, travelled = {}, 0.0
    for norm, flow in flows.items():
        start = parameters = flow.parameters
        for _ in range(100):
            parameters = flow.stages(parameters, 1e-4)[-1]
        drifts[norm] = relative_error(_energies(parameters), _energies(start))
        if norm is Norm.AFTER_RELU:
            travelled = relative_error(_hidden(parameters), _hidden(start))
    flow = flows[Norm.AFTER_RELU]
    velocity, steps = flow.velocity(flow.parameters), [1e-2, 3e-3, 1e-3, 3e-4]
    before = _energies(flow.parameters)
    after = [_energies(moved(flow.parameters, velocity, step)) - before for step in steps]
    sizes = [change.abs().max().item() for change in after]
    order = fitted_order(steps, sizes)
    predicted = steps[0] ** 2 * _energies(velocity)
    return Measurement(
        (
            Check(
                "flow: drift of ½‖w_j‖², rel.",
                drifts[Norm.AFTER_RELU],
                1e-6,
                "steps of 1e-4, order 2 where a gate switches",
            ),
            Check("−(how far the weights moved, rel.)", -travelled, -1e-2, "weights that rest conserve everything"),
            Check("descent: |order of one step's drift − 2|", abs(order - 2), 1e-3, "η² exactly, up to rounding"),
            Check(
                "descent: drift against ½ η² ‖Δw_j‖², rel.",
                relative_error(after[0], predicted),
                1e-8,
                "the change is a small difference of energies",
            ),
        ),
        Plot(
            "step η",
            "largest change of ½‖w_j‖² in one step",
            (
                Curve(f"measured, order {order:.2f}", tuple(steps), tuple(sizes)),
                Curve("η²", tuple(steps), tuple(sizes[0] * (s / steps[0]) ** 2 for s in steps), line=True),
            ),
            log=True,
        ),
        (f"without batch norm the same flow changes the energy by {drifts[Norm.NONE]:.1%}.",),
    )


def _hidden(parameters: dict[str, Tensor]) -> Float[Tensor, "k w"]:
    return torch.cat([parameters["weights.h1_0"], parameters["weights.h1_1"]], dim=1)


def _energies(parameters: dict[str, Tensor]) -> Float[Tensor, " w"]:
    return row_energy(_hidden(parameters))
