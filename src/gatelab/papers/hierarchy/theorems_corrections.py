"""Corrections that the paper's statements need: biases in the energy, decorrelation only at gates, softmax."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gatelab.figures import Plot
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    NodeOptions,
    Norm,
    Teacher,
    TopLoss,
    conditions,
    exact_events,
    full_information,
    observe_student,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy.batchnorm import row_energy
from gatelab.hierarchy.budget import CAUSES, error_budget
from gatelab.hierarchy.rules import random_table
from gatelab.lab.measure import EXACT, IDENTITY, ErrorFlow, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, line, measurement


def _lossy(seed: int, depth: int = 2) -> tuple[torch.Generator, Teacher]:
    generator = torch.Generator().manual_seed(seed)
    fields = string_fields(6, [2] * depth, [1] * depth)
    return generator, Teacher(fields, random_table(3, generator), top=random_table(2, generator))


@theorem(
    "hierarchy-Eq6",
    "Equation 6",
    "Decorrelation is about gates: without a ReLU nothing can violate it; with one, a variable that forgets does",
)
def decorrelation_needs_gates(seed: int) -> Measurement:
    """Measure the covariances of f' with f^raw and g^raw: a linear student, a ReLU student, and its linear top."""
    generator, teacher = _lossy(seed)
    found = {}
    for relu in (False, True):
        hidden = NodeOptions(relu=relu)
        student = student_for(teacher, 5, hidden=hidden, dtype=torch.float64, generator=generator)
        found[relu] = conditions(student, teacher).nodes
    top = teacher.fields.top
    gaps = {
        relu: max(gap.max().item() for node in nodes.values() for gap in (node.activation, node.gradient))
        for relu, nodes in found.items()
    }
    at_top = max(gap.max().item() for gap in (found[True][top].activation, found[True][top].gradient))
    names = teacher.fields.inner
    curves = tuple(
        dots("ReLU" if relu else "linear", range(len(names)), [nodes[name].activation.max().item() for name in names])
        for relu, nodes in found.items()
    )
    return measurement(
        Plot("region", "largest gap of the activations", curves, ticks=names),
        Check("linear student: largest gap", gaps[False], IDENTITY, EXACT),
        Check("linear top of a ReLU student: largest gap", at_top, IDENTITY, EXACT),
        at_least("ReLU student: largest gap", gaps[True], 0.05, "three values of z forget; gates and sums covary"),
    )


@theorem(
    "hierarchy-2-budget",
    "Theorem 2, its errors",
    "The error of ΔW is what focus, broadness, decorrelation and the covariance of updates add, and nothing else",
)
def errors_add_up(seed: int) -> Measurement:
    """Add the measured gaps to Theorem 4's recursion: the result is autograd's update, on three layers of regions."""
    generator, teacher = _lossy(seed)
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    found, full = error_budget(student, teacher), full_information(teacher)
    exact = error_budget(student_for(full, 5, dtype=torch.float64, generator=generator), full)
    by_descent = parameters_to_vector(GradientTrainer(student, teacher, 1.0).update().values())
    on_z = parameters_to_vector(reformulate(student, exact_events(teacher), teacher).weights.values())
    measured = ((on_z - by_descent).norm() / by_descent.norm()).item()
    parts = [found.parts[cause] for cause in CAUSES]
    least = min(error for mended, error in found.mended.items() if len(mended) == len(CAUSES) - 1)
    return measurement(
        Plot("cause", "part of the error of ΔW", (dots("Shapley value", range(4), parts),), ticks=CAUSES),
        Check("error of ΔW against trainer and reformulation", abs(found.total - measured), IDENTITY, EXACT),
        Check("parts − error", abs(sum(parts) - found.total), IDENTITY, EXACT),
        Check("full information: error", exact.total, IDENTITY, EXACT),
        at_least("lossy teacher: error", found.total, 0.05, "else there is nothing to split"),
        at_least("error with any one gap left", least, 1e-3, "each assumption is broken here"),
    )


@theorem(
    "hierarchy-4-softmax",
    "Theorem 4 under a softmax",
    "With cross-entropy on top G_ω = T − softmax(F_ω); training on z is exact if z_ω determines x, and not otherwise",
)
def softmax_on_top(seed: int) -> Measurement:
    """Compare ΔW with autograd under full information; a lossy z_ω takes the softmax of a mean for the mean of one."""
    generator, lossy = _lossy(seed)
    full = full_information(lossy)
    student = student_for(full, 5, loss=TopLoss.CROSS_ENTROPY, dtype=torch.float64, generator=generator)
    found, descent = reformulate(student, exact_events(full)), GradientTrainer(student, full, 1.0).update()
    ours, theirs = (parameters_to_vector(moves.values()) for moves in (found.weights, descent))
    seen = observe_student(student, lossy)
    with torch.no_grad():
        rows = seen.states["top"].output
        mean_of = seen.given_z(torch.softmax(rows, dim=1), "top")
        of_mean = torch.softmax(seen.given_z(rows, "top"), dim=1)
    return measurement(
        against(ours, theirs, "Δw_jk under cross-entropy"),
        identity("ΔW against autograd", ours, theirs),
        Check("loss on z − loss on x", abs(found.loss - observe_student(student, full).loss), IDENTITY, EXACT),
        at_least(
            "lossy z_ω: softmax of the mean − mean of the softmax", relative_error(of_mean, mean_of), 1e-3, "convexity"
        ),
    )


@theorem(
    "hierarchy-8.6.2-bias",
    "Section 8.6.2 with biases",
    "With biases gradient flow conserves ½(‖w_j‖² + b_j²), not the paper's ½‖w_j‖²",
)
def energy_with_biases(seed: int) -> Measurement:
    """Follow the flow of nodes with biases and batch norm behind the ReLU, by Runge-Kutta."""
    generator = torch.Generator().manual_seed(seed)
    teacher = Teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
    x, _ = teacher.inputs.support()
    hidden = NodeOptions(norm=Norm.AFTER_RELU)
    student = LocalNetwork(teacher.fields, 4, 1, hidden=hidden, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        for region in student.fields.hidden:
            # Every node is open for some inputs and closed for others: after gates that are always open, batch norm
            # removes the bias, which would then not move.
            student.weights[region].uniform_(0.1, 1.0, generator=generator)
            student.biases[region].uniform_(-1.0, -0.6, generator=generator)
    flow = ErrorFlow(student, x, teacher.label(x).double())
    parameters, whole, paper = flow.parameters, [], []
    before = {biased: _energies(parameters, biased=biased) for biased in (True, False)}
    for _ in range(6):
        parameters = flow.stages(parameters, _STEP)[-1]
        whole.append(relative_error(_energies(parameters, biased=True), before[True]))
        paper.append(relative_error(_energies(parameters, biased=False), before[False]))
    velocity = flow.velocity(flow.parameters)
    # Along the flow dE/dt = Σ_k w_jk ẇ_jk + b_j ḃ_j = E[g_j f_j] = 0: the two parts cancel.
    power = (_stacked(flow.parameters, "weights") * _stacked(velocity, "weights")).sum(dim=0)
    from_bias = (_stacked(flow.parameters, "biases") * _stacked(velocity, "biases")).sum(dim=0)
    speed = (_stacked(velocity, "biases").norm() / _stacked(velocity, "weights").norm()).item()
    rate = (power.abs() / before[False]).max().item()
    times = [_STEP * (step + 1) for step in range(6)]
    curves = (line("½(‖w‖² + b²)", times, whole), line("½‖w‖² alone", times, paper))
    return measurement(
        Plot("time", "relative drift", curves),
        Check("flow: drift of ½(‖w_j‖² + b_j²), rel.", whole[-1], 1e-6, "fourth-order steps of 1e-4"),
        identity("w·ẇ against −b ḃ", power, -from_bias),
        at_least("rate at which ½‖w_j‖² alone drifts, rel.", rate, 1e-3, "the bias takes what the weights lose"),
        at_least("speed of the biases, of the weights'", speed, 1e-4, "biases at rest conserve everything"),
        note='the paper\'s footnote, "all analysis still holds with bias terms", needs this care.',
    )


_STEP = 1e-4


def _stacked(parameters: dict[str, Tensor], kind: str) -> Float[Tensor, "k w"]:
    parts = [parameters[f"{kind}.{region}"] for region in ("h1_0", "h1_1")]
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts], dim=1)


def _energies(parameters: dict[str, Tensor], *, biased: bool) -> Float[Tensor, " w"]:
    bias = _stacked(parameters, "biases")[0] if biased else None
    return row_energy(_stacked(parameters, "weights"), bias)
