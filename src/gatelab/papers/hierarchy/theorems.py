"""The theorems of "A theoretical framework for deep and locally connected ReLU network" on training and batch norm.

Every input is visited, so that expectations are sums. Inputs come from a Markov chain, regions overlap.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

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
    build_teacher,
    conditions,
    exact_events,
    full_information,
    function,
    observe_student,
    random_table,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.lab.measure import (
    EXACT,
    IDENTITY,
    against,
    identity,
    relative_error,
)
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check


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
