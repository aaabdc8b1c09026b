"""Section 8.6.2: the energy that gradient flow conserves with batch norm behind the ReLU, without and with biases."""

from copy import deepcopy
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.figures import Plot
from gatelab.hierarchy import LocalNetwork, NodeOptions, Norm, Teacher, string_fields
from gatelab.hierarchy.batchnorm import row_energy
from gatelab.hierarchy.rules import random_table
from gatelab.lab.measure import ErrorFlow, identity, moved, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.papers.common import agrees, at_least, dots, first_suitable, line, measurement

_STEPS = 25
_FOURTH_ORDER = "fourth-order steps that move no weight by more than 1e-3 of the largest"


class _Followed(NamedTuple):
    """A gradient flow, its parameters after each step, the start first, and the step."""

    flow: ErrorFlow
    path: list[dict[str, Tensor]]
    step: float


def _follow(generator: torch.Generator, options: NodeOptions) -> _Followed:
    """Follow the flow of a student whose hidden nodes are open for some inputs and closed for others, by Runge-Kutta.

    Draws on which a gate switches on the way are left out: Runge-Kutta loses its order at the kink of such a flow.
    """

    def drawn() -> tuple[_Followed, bool]:
        teacher = Teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
        x, _ = teacher.inputs.support()
        student = LocalNetwork(teacher.fields, 4, 1, hidden=options, dtype=torch.float64, generator=generator)
        _set_gates(student, x, generator)
        flow = ErrorFlow(student, x, teacher.label(x).double())
        # The leaves' encodings are data (F_β = I), not weights.
        flow.parameters = {name: p for name, p in flow.parameters.items() if not name.startswith("encodings")}
        path, velocity = [flow.parameters], flow.velocity(flow.parameters)
        largest = max(float(v.abs().max()) for v in velocity.values())
        step = 1e-3 * float(_stacked(flow.parameters, "weights").abs().max()) / largest
        twin, gates = deepcopy(student), _gates(student, x, flow.parameters)
        for _ in range(_STEPS):
            path.append(flow.stages(path[-1], step)[-1])
            if not torch.equal(_gates(twin, x, path[-1]), gates):
                return _Followed(flow, path, step), False
        return _Followed(flow, path, step), True

    what = f"a flow with {options} on which no gate switches"
    return first_suitable((drawn() for _ in count()), lambda draw: draw[1], what)[0]


@torch.no_grad()
def _set_gates(student: LocalNetwork, x: Tensor, generator: torch.Generator) -> None:
    """Draw the hidden weights, and move each node's sums so that a quarter of the inputs or more are on each side of 0.

    After a gate that is always open, batch norm removes the bias, which would then not move. Without a bias the shift
    goes to the weights of one leaf, whose encodings sum to one. Zero lies in the widest gap of the sums.
    """
    for region in student.fields.hidden:
        student.weights[region].uniform_(0.1, 1.0, generator=generator)
    states = student.states(x)
    for region in student.fields.hidden:
        sums = states[region].raw.sort(dim=0).values
        quarter = len(x) // 4
        inner = sums[quarter - 1 : len(x) - quarter + 1]
        widest = inner.diff(dim=0).argmax(dim=0, keepdim=True)
        zero = (inner.gather(0, widest) + inner.gather(0, widest + 1))[0] / 2
        if student.options[region].bias:
            student.biases[region] -= zero
        else:
            student.incoming(region)[student.fields.children(region)[0]].sub_(zero)


@torch.no_grad()
def _gates(student: LocalNetwork, x: Tensor, parameters: dict[str, Tensor]) -> Bool[Tensor, "n w"]:
    """Give the student these parameters, and return which hidden nodes are then open."""
    student.load_state_dict(parameters, strict=False)
    states = student.states(x)
    return torch.cat([states[region].gate > 0 for region in student.fields.hidden], dim=1)


@theorem(
    "hierarchy-8.6.2",
    "Section 8.6.2",
    "With batch norm behind the ReLU, gradient flow conserves the energy ½‖w_j‖² of every node",
)
def conserved_energy(seed: int) -> Measurement:
    """Follow the flow by Runge-Kutta; one step of descent raises the energy by ½ η² ‖Δw_j‖², which has order 2."""
    generator = torch.Generator().manual_seed(seed)
    found = {norm: _follow(generator, NodeOptions(norm=norm, bias=False)) for norm in (Norm.AFTER_RELU, Norm.NONE)}
    drifts = {norm: relative_error(_energies(path[-1]), _energies(path[0])) for norm, (_, path, _) in found.items()}
    flow, path, step = found[Norm.AFTER_RELU]
    travelled = relative_error(_stacked(path[-1], "weights"), _stacked(path[0], "weights"))
    velocity, steps = flow.velocity(flow.parameters), [100 * step, 30 * step, 10 * step, 3 * step]
    before = _energies(flow.parameters)
    after = [_energies(moved(flow.parameters, velocity, size)) - before for size in steps]
    sizes = [change.abs().max().item() for change in after]
    order = fitted_power(steps, sizes)
    predicted = steps[0] ** 2 * _stacked(velocity, "weights").square().sum(dim=0) / 2
    small = "the change is a small difference of energies"
    squares = [sizes[0] * (size / steps[0]) ** 2 for size in steps]
    curves = (dots(f"measured, order {order:.2f}", steps, sizes), line("η²", steps, squares))
    return measurement(
        Plot("step η", "largest change of ½‖w_j‖² in one step", curves, log=True),
        Check("flow: drift of ½‖w_j‖², rel.", drifts[Norm.AFTER_RELU], 1e-6, _FOURTH_ORDER),
        at_least("how far the weights moved, rel.", travelled, 1e-3, "weights at rest conserve everything"),
        Check("descent: |order of one step's drift − 2|", abs(order - 2), 1e-3, "η² exactly, up to rounding"),
        Check("descent: drift against ½ η² ‖Δw_j‖², rel.", relative_error(after[0], predicted), 1e-8, small),
        at_least("without batch norm: drift of ½‖w_j‖², rel.", drifts[Norm.NONE], 1e-4, "batch norm conserves it"),
    )


@theorem(
    "hierarchy-8.6.2-bias",
    "Section 8.6.2 with biases",
    "With biases gradient flow conserves ½(‖w_j‖² + b_j²), not the paper's ½‖w_j‖², for nodes that are not always open",
)
def energy_with_biases(seed: int) -> Measurement:
    """Follow the flow of nodes with biases and batch norm behind the ReLU, by Runge-Kutta."""
    flow, path, step = _follow(torch.Generator().manual_seed(seed), NodeOptions(norm=Norm.AFTER_RELU))
    whole, paper = (
        [relative_error(_energies(point, biased=biased), _energies(path[0], biased=biased)) for point in path[1:]]
        for biased in (True, False)
    )
    velocity = flow.velocity(flow.parameters)
    after = _energies(moved(flow.parameters, velocity, 100 * step), biased=True)
    raised = after - _energies(flow.parameters, biased=True)
    squares = (_stacked(velocity, "weights").square().sum(dim=0) + _stacked(velocity, "biases").square()[0]) / 2
    # Along the flow dE/dt = Σ_k w_jk ẇ_jk + b_j ḃ_j = E[g_j f_j] = 0: the two parts cancel.
    power = (_stacked(flow.parameters, "weights") * _stacked(velocity, "weights")).sum(dim=0)
    from_bias = (_stacked(flow.parameters, "biases") * _stacked(velocity, "biases")).sum(dim=0)
    speed = (_stacked(velocity, "biases").norm() / _stacked(velocity, "weights").norm()).item()
    times = [step * (number + 1) for number in range(_STEPS)]
    curves = (line("½(‖w‖² + b²)", times, whole), line("½‖w‖² alone", times, paper))
    return measurement(
        Plot("time", "relative drift", curves),
        Check("flow: drift of ½(‖w_j‖² + b_j²), rel.", whole[-1], 1e-6, _FOURTH_ORDER),
        identity("w·ẇ against −b ḃ", power, -from_bias),
        agrees("descent: drift against ½ η² (‖Δw_j‖² + Δb_j²)", raised, (100 * step) ** 2 * squares, 1e-8,
               "the change is a small difference of energies"),
        at_least("flow: drift of ½‖w_j‖² alone, rel.", paper[-1], 1e-4, "the bias takes what the weights lose"),
        at_least("speed of the biases, of the weights'", speed, 1e-3, "biases at rest conserve everything"),
        note='the paper\'s footnote, "all analysis still holds with bias terms", needs this care.',
    )  # fmt: skip


def _stacked(parameters: dict[str, Tensor], kind: str) -> Float[Tensor, "k w"]:
    parts = [parameters[f"{kind}.{region}"] for region in ("h1_0", "h1_1")]
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts], dim=1)


def _energies(parameters: dict[str, Tensor], *, biased: bool = False) -> Float[Tensor, " w"]:
    bias = _stacked(parameters, "biases")[0] if biased else None
    return row_energy(_stacked(parameters, "weights"), bias)
