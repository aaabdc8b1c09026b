"""Theorems 1 to 4: marginalised gradients and the reformulation.

Every input is visited, so expectations are sums. Inputs come from a Markov chain, and regions overlap.
"""

from copy import deepcopy

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gatelab.figures import Plot
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    NodeOptions,
    Norm,
    ReformulatedTrainer,
    Teacher,
    conditions,
    exact_events,
    full_information,
    observe_student,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy.inputs import MarkovChain
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.rules import from_function, random_table
from gatelab.lab.measure import EXACT, IDENTITY, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, measurement
from gatelab.papers.hierarchy.theorems_gaps import gaps_against_definitions


def markov_bits(generator: torch.Generator) -> MarkovChain:
    """Draw a Markov chain of six bits, each likely to repeat the one before."""
    stay = 0.55 + 0.3 * torch.rand(2, generator=generator, dtype=torch.float64)
    transition = torch.stack([torch.stack([stay[0], 1 - stay[0]]), torch.stack([1 - stay[1], stay[1]])])
    return MarkovChain(6, torch.tensor([0.4, 0.6], dtype=torch.float64), transition)


def _lossy(seed: int) -> tuple[torch.Generator, Teacher, LocalNetwork]:
    """Return a teacher whose variables forget, on overlapping regions of six bits, and a student."""
    generator = torch.Generator().manual_seed(seed)
    inputs = markov_bits(generator)
    teacher = Teacher(string_fields(6, [3, 2], [1, 1]), random_table(3, generator), inputs)
    return generator, teacher, student_for(teacher, 4, dtype=torch.float64, generator=generator)


@theorem(
    "hierarchy-1",
    "Theorem 1",
    "Marginalised gradients are recursive: g_j(x_k) is the average of g_j(x_j) over the part of x_j outside x_k",
)
def marginalised_gradients(seed: int) -> Measurement:
    """Compare both averages for each pair of neighbouring regions; check Eq. 4 at every hidden node, and ΔW."""
    _, teacher, student = _lossy(seed)
    seen = observe_student(student, teacher)
    direct, recursive, collected, own, variations = [], [], [], [], []
    for parent, child in student.fields.edges:
        g = seen.gradients[parent]
        direct.append(seen.given_contents(g, child))
        variations.append([_variation(values, seen.contents[child]) for values in (direct[-1], g)])
        recursive.append(seen.given_contents(seen.given_contents(g, parent), child))
    # E[f_k(x_k) g_j(x_k)]: any multiple of g, and any other average over inputs, would pass the checks before.
    moves = {
        parent: torch.cat([
            seen.output(child).T @ (seen.probability.unsqueeze(1) * seen.given_contents(seen.gradients[parent], child))
            for child in student.fields.children(parent)
        ])
        for parent in student.fields.inner
    }  # fmt: skip
    descent = GradientTrainer(student, teacher, 1.0).update()
    moved = (parameters_to_vector([found[region] for region in student.fields.inner]) for found in (moves, descent))
    for region in student.fields.hidden:
        sums = torch.zeros_like(seen.states[region].raw)
        for parent in student.fields.parents(region):
            given = seen.given_contents(seen.gradients[parent], region)
            sums += given @ student.incoming(parent)[region].detach().T
        collected.append(seen.states[region].gate * sums)
        own.append(seen.given_contents(seen.gradients[region], region))
    direct, recursive, collected, own = map(parameters_to_vector, (direct, recursive, collected, own))
    averaged, raw = (max(column) for column in zip(*variations, strict=True))
    return measurement(
        against(recursive, direct, "g_j(x_k)"),
        identity("g_j(x_k) against the average of g_j(x_j)", recursive, direct),
        identity("Eq. 4: g_k(x_k) against f'_k Σ_j w_jk g_j(x_k)", collected, own),
        identity("E[f_k g_j(x_k)] against the step of gradient descent", *moved),
        Check("variation of g_j(x_k) over inputs with one x_k, rel.", averaged, IDENTITY, EXACT),
        at_least("variation of g_j(x) over the same inputs, rel.", raw, 0.1, "what there is to average over"),
    )


def _variation(values: Float[Tensor, "n w"], contents: Int[Tensor, " n"]) -> float:
    """Return the largest range of a node over inputs with equal contents, relative to the largest value."""
    ranges = [(part := values[contents == code]).amax(dim=0) - part.amin(dim=0) for code in contents.unique()]
    return (torch.stack(ranges).max() / values.abs().max()).item()


def _departure(
    seen: Observation,
    region: str,
    value: Float[Tensor, "n w"],
    gate: Float[Tensor, "n w"],
    raw: Float[Tensor, "n w"],
    neighbours: list[tuple[str, Tensor, Tensor]],
    bias: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor, float]:
    """Return the error of Eq. 7 at a region, the error that the conditions' gaps predict, and the largest value.

    value(z) − f'(z) Σ w E[neighbour(z')|z] = Cov(f', raw | z) − f'(z) · (gap of focus or broadness); neighbours are
    (region, values at the inputs, weights).
    """
    mean, gate_mean = seen.given_z(value, region), seen.given_z(gate, region)
    formula, gap = (torch.zeros_like(mean) for _ in range(2))
    for neighbour, values, weight in neighbours:
        through = seen.given_z(seen.given_z(values, neighbour)[seen.z[neighbour]], region)
        formula += through @ weight.detach()
        gap += (through - seen.given_z(values, region)) @ weight.detach()
    covariance = seen.given_z(gate * raw, region) - gate_mean * seen.given_z(raw, region)
    return mean - gate_mean * (formula + bias), covariance - gate_mean * gap, mean.abs().max().item()


def _departures(student: LocalNetwork, teacher: Teacher) -> list[tuple[Tensor, Tensor, float]]:
    """Apply Eq. 7 upwards at every inner region, and downwards at every hidden one."""
    seen = observe_student(student, teacher)
    outputs = {leaf: student.encodings[leaf].detach()[seen.z[leaf]] for leaf in student.fields.leaves}
    outputs |= {region: state.output for region, state in seen.states.items()}
    found = []
    for region, state in seen.states.items():
        children = [(child, outputs[child], weight) for child, weight in student.incoming(region).items()]
        bias = student.biases[region].detach()
        found.append(_departure(seen, region, state.output, state.gate, state.raw, children, bias))
    for region in student.fields.hidden:
        parents = [(p, seen.gradients[p], student.incoming(p)[region].T) for p in student.fields.parents(region)]
        gradient, raw = seen.gradients[region], seen.raw_gradients[region]
        found.append(_departure(seen, region, gradient, seen.states[region].gate, raw, parents))
    return found


def _noisy(seed: int) -> tuple[Teacher, LocalNetwork]:
    """Return a teacher that forgets only noise: odd positions are coins that no variable above them remembers.

    The student starts with weights that ignore the coins as well. All conditions then hold between hidden regions and
    the top, although z_α is far from determining x_α.
    """
    generator = torch.Generator().manual_seed(seed)
    signal = from_function(lambda z: z[:, 0], 2)
    pair = from_function(lambda z: 2 * z[:, 0] + z[:, 1], 4)
    teacher = Teacher(string_fields(4, [2]), signal, top=pair)
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        for region in student.fields.hidden:
            student.incoming(region)[student.fields.children(region)[1]].zero_()
    return teacher, student


def _not_met(worst: dict[str, float]) -> list[Check]:
    """Check that a lossy teacher violates focus and broadness: else their gaps would not be measured at all."""
    because = "a variable with three values forgets: some contents are not independent of their neighbours"
    return [at_least(f"lossy teacher: gap of {name}", worst[name], 0.01, because) for name in ("focus", "broadness")]


@theorem(
    "hierarchy-2",
    "Theorem 2",
    "Under focus, broadness and decorrelation, f_j(z_α) and g_k(z_β) follow from their neighbours' (Eq. 7)",
)
def reformulation(seed: int) -> Measurement:
    """Check that Eq. 7 is exact if the conditions hold (forgotten noise), and otherwise wrong by exactly the gaps."""
    teacher, student = _noisy(seed)
    found = conditions(student, teacher)
    gaps = [
        gap for (_, c), e in found.edges.items() if c not in student.fields.leaves for gap in (e.focus, e.broadness)
    ]
    gaps += [gap.max().item() for node in found.nodes.values() for gap in (node.activation, node.gradient)]
    exact = max(measured.abs().max().item() / size for measured, _, size in _departures(student, teacher))
    _, lossy, other = _lossy(seed)
    departures, worst = _departures(other, lossy), conditions(other, lossy).worst
    measured = parameters_to_vector(found for found, _, _ in departures)
    predicted = parameters_to_vector(expected for _, expected, _ in departures)
    share = max(m.abs().max().item() / size for m, _, size in departures)
    return measurement(
        against(measured, predicted, "error of Eq. 7, lossy teacher"),
        Check("forgotten noise: largest gap of the conditions", max(gaps), IDENTITY, EXACT),
        Check("forgotten noise: error of Eq. 7, rel.", exact, IDENTITY, EXACT),
        identity("lossy teacher: error of Eq. 7 against the gaps", measured, predicted),
        *_not_met(worst),
        *gaps_against_definitions(other, lossy),
        note=f"with the lossy teacher Eq. 7 is wrong by up to {share:.0%} of the largest entry.",
    )


@theorem("hierarchy-3", "Theorem 3", "If z_α determines x_α, the conditions hold, and training on z is training on x")
def exactness(seed: int) -> Measurement:
    """Train twenty steps both ways from the same weights, on overlapping regions, with batch norm in each place."""
    generator, lossy, forgetful = _lossy(seed)
    teacher = full_information(lossy)
    events = exact_events(teacher)
    worst, differences, losses, curves = 0.0, [], [], []
    for norm in Norm:
        hidden = NodeOptions(norm=norm, eps=1e-6)  # ε = 0 would refuse a node that no input opens
        student = student_for(teacher, 5, hidden=hidden, dtype=torch.float64, generator=generator)
        worst = max(worst, *conditions(student, teacher).worst.values())
        twin = deepcopy(student)
        on_z, on_x = ReformulatedTrainer(twin, events, 0.3), GradientTrainer(student, teacher, 0.3)
        losses_x, losses_z = zip(*((on_x.step(), on_z.step()) for _ in range(20)), strict=True)
        pair = (torch.tensor(values, dtype=torch.float64) for values in (losses_z, losses_x))
        losses.append(identity(f"batch norm: {norm.value}; losses on z against losses on x", *pair))
        curves.append(dots(f"batch norm: {norm.value}", losses_x, losses_z))
        differences.append(relative_error(*(parameters_to_vector(n.parameters()).detach() for n in (twin, student))))
    return measurement(
        Plot("loss on inputs", "loss on z", tuple(curves), diagonal="equal"),
        Check("largest gap of the conditions", worst, IDENTITY, EXACT),
        Check("parameters after 20 steps, rel. error", max(differences), IDENTITY, EXACT),
        *losses,
        *_not_met(conditions(forgetful, lossy).worst),
        *gaps_against_definitions(forgetful, lossy),
        note=(
            "the top variable must determine the input, too: with z_ω the label alone, back-propagation is not exact."
        ),
    )


@theorem(
    "hierarchy-4",
    "Theorem 4",
    "F = D ∘ Σ P F W, G̃ = D ∘ Σ Pᵀ G̃ Wᵀ and ΔW = (P F)ᵀ G̃ are the passes of Theorem 2 as matrices",
)
def matrix_form(seed: int) -> Measurement:
    """Compare F, D, G̃ with averages over inputs and ΔW with autograd; Bayes resolves the misprint in Eq. 60c."""
    generator, lossy, forgetful = _lossy(seed)
    teacher = full_information(lossy)
    events = exact_events(teacher)
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    found, seen = reformulate(student, events), observe_student(student, teacher)
    bayes, without_priors = [], []
    for parent, child in student.fields.edges:
        forward, backward = events.matrix(parent, child).to_dense().T, events.backward(parent, child).to_dense().T
        bayes.append(relative_error(events.priors[child].unsqueeze(1) * backward, forward * events.priors[parent]))
        without_priors.append(relative_error(backward, forward))
    inner = student.fields.inner
    pairs = {
        "F": ([found.activations[r] for r in inner], [seen.activation(r) for r in inner]),
        "D": ([found.gates[r] for r in student.fields.hidden], [seen.gate(r) for r in student.fields.hidden]),
        "G̃": ([found.gradients[r] for r in inner], [seen.weighted_gradient(r) for r in inner]),
    }
    moves = parameters_to_vector(found.weights.values())
    descent = parameters_to_vector(GradientTrainer(student, teacher, 1.0).update().values())
    hidden = NodeOptions(norm=Norm.AFTER_RELU, eps=1e-6)
    normed = student_for(teacher, 5, hidden=hidden, dtype=torch.float64, generator=generator)
    normed_moves = parameters_to_vector(reformulate(normed, events).weights.values())
    normed_descent = parameters_to_vector(GradientTrainer(normed, teacher, 1.0).update().values())
    on_lossy = parameters_to_vector(reformulate(forgetful, exact_events(lossy), lossy).weights.values())
    exact = parameters_to_vector(GradientTrainer(forgetful, lossy, 1.0).update().values())
    return measurement(
        against(moves, descent, "Δw_jk"),
        *(identity(name, parameters_to_vector(a), parameters_to_vector(b)) for name, (a, b) in pairs.items()),
        identity("ΔW against autograd", moves, descent),
        identity("ΔW under batch norm behind the ReLU, against autograd", normed_moves, normed_descent),
        Check("Λ_β (P^b)ᵀ = Pᵀ Λ_α, rel. error", max(bayes), IDENTITY, EXACT),
        at_least("(P^b)ᵀ against Pᵀ, rel. error", max(without_priors), 0.1, "G_β and G̃_α differ by the priors"),
        at_least("lossy teacher: ΔW against autograd, rel.", relative_error(on_lossy, exact), 0.02, "Theorem 2 fails"),
    )
