"""Models with unusual activations, factors and in-place writes."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.attacks.models.cases import EVERYTHING, case, forward_of
from tests.attacks.models.dense_models import chain


def layers(function, **parts):
    """A dense layer of three units, ``function`` of its output, and a dense layer."""
    return forward_of(
        lambda m, x: m.head(function(m, m.first(x))), first=nn.Linear(2, 3), head=nn.Linear(3, 1), **parts
    )


def activations(*functions):
    """Register one model per activation, a function of a tensor."""
    for name, function in functions:
        case(name=name)(lambda function=function: layers(lambda _m, q: function(q)))


for slope in (-1.0, -0.5, 0.0, 2.0):
    case(documented=EVERYTHING, name=f"leaky_relu_with_slope_{slope}")(lambda slope=slope: chain(nn.LeakyReLU(slope)))
case(name="prelu_shared")(lambda: chain(nn.PReLU(init=0.3)))
case(name="prelu_per_channel")(lambda: chain(nn.PReLU(2, init=0.3), nn.ReLU()))
case(name="prelu_behind_the_last_relu")(lambda: chain(nn.ReLU(), nn.PReLU(2, init=0.3)))
case(name="prelu_with_a_negative_slope")(lambda: chain(nn.PReLU(init=-0.4), nn.ReLU()))
case(name="relu6_that_saturates", documented=("gates", "path kernel", "raw path kernel", "tangent kernel"))(
    lambda: layers(lambda _m, q: F.relu6(8 * q))
)
case(name="hardtanh_with_odd_bounds", documented=("gates", "path kernel", "raw path kernel", "tangent kernel"))(
    lambda: chain(nn.Hardtanh(-0.3, 0.4), nn.ReLU())
)

activations(
    ("clamp_between_odd_bounds", lambda q: q.clamp(0.1, 0.9)),
    ("clamp_from_below_zero", lambda q: q.clamp(min=-0.2)),
    ("clamp_from_above_zero", lambda q: q.clamp(min=0.2)),
    ("clamp_at_a_maximum", lambda q: q.clamp(max=0.5)),
    ("clamp_max_zero", lambda q: q.clamp(max=0.0)),
    ("clamp_with_bounds_in_a_tensor", lambda q: q.clamp(min=torch.zeros(3))),
    ("clamp_with_crossed_bounds", lambda q: q.clamp(0.5, 0.1)),
    ("threshold_above_zero", lambda q: F.threshold(q, 0.3, 0.0)),
    ("threshold_with_a_value", lambda q: F.threshold(q, 0.0, -1.0)),
    ("absolute_value", torch.abs),
    ("relu_by_absolute_value", lambda q: (q + q.abs()) / 2),
    ("relu_by_minimum", lambda q: -torch.minimum(-q, torch.zeros(3))),
    ("relu_by_a_sign", lambda q: q * (1 + torch.sign(q)) / 2),
    ("relu_by_a_step", lambda q: q * torch.heaviside(q, torch.zeros(3))),
    ("relu_of_a_relu", lambda q: F.relu(F.relu(q))),
    ("relu_of_the_negative", lambda q: F.relu(-q)),
    ("a_relu_and_its_mirror", lambda q: F.relu(q) - F.relu(-q)),
    ("leaky_relu_of_a_relu", lambda q: F.leaky_relu(F.relu(q) - 0.1, 0.3)),
    ("a_hard_shrink", F.hardshrink),
    ("a_soft_shrink", lambda q: F.softshrink(q, 0.2)),
    ("a_signal_gated_by_another", lambda q: q * (q.flip(1) > 0)),
    ("a_squared_relu", lambda q: F.relu(q) ** 2),
    ("the_largest_unit", lambda q: q.max(1, keepdim=True).values.expand(-1, 3)),
    ("a_sorted_layer", lambda q: F.relu(q).sort(1).values),
    ("a_cumulative_sum", lambda q: F.relu(q).cumsum(1)),
    ("a_divided_layer", lambda q: F.relu(q) / 4),
    ("a_layer_divided_by_itself", lambda q: F.relu(q) / (1 + F.relu(q))),
    ("a_softmax_between_layers", lambda q: F.softmax(F.relu(q), 1)),
)


@case(documented=("twin", "tangent kernel", "paths"), soft=True)
def a_gate_times_a_signal():
    return layers(lambda _m, q: F.relu(q) * q)


@case(documented=EVERYTHING)
def a_constant_vector_of_factors():
    return layers(lambda m, q: F.relu(q) * m.factors, factors=torch.tensor([1.0, -2.0, 0.5]))


@case(documented=EVERYTHING)
def a_factor_of_zero():
    return layers(lambda m, q: F.relu(q) * m.factors, factors=torch.tensor([1.0, 0.0, 0.5]))


@case(documented=EVERYTHING)
def a_constant_before_the_gate():
    return layers(lambda _m, q: F.relu(-2 * q + 0.3))


@case(documented=("gates", "tangent kernel"))
def a_parameter_as_a_factor():
    return layers(lambda m, q: F.relu(q) * m.factor, factor=nn.Parameter(torch.tensor(1.0)))


@case(documented=("gates", "tangent kernel"))
def a_vector_of_parameters_as_factors():
    return layers(lambda m, q: m.factors * F.relu(q), factors=nn.Parameter(torch.ones(3)))


@case(documented=("gates", "tangent kernel"))
def a_parameter_added():
    return layers(lambda m, q: F.relu(q + m.shift), shift=nn.Parameter(torch.randn(3)))


@case(documented=EVERYTHING)
def a_gate_at_the_output():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())


@case(documented=EVERYTHING)
def a_gate_at_the_input():
    return nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))


@case()
def a_write_through_a_view():
    def forward(m, x):
        h = m.first(x)
        h.view(-1).relu_()
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def a_write_to_a_part():
    def forward(m, x):
        h = m.first(x)
        h[:, :2].relu_()
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def a_write_by_index():
    def forward(m, x):
        h = F.relu(m.first(x)).clone()
        h[:, 0] = 2 * h[:, 1]
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def a_write_that_a_skip_sees():
    def forward(m, x):
        h = m.first(x)
        return m.head(m.second(h.relu_()) + h)

    return forward_of(forward, first=nn.Linear(2, 2), second=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case(plain=lambda m: nn.Sequential(m.first, nn.ReLU(), m.head))
def a_write_with_out():
    def forward(m, x):
        h = m.first(x)
        return m.head(torch.clamp(h.detach(), min=0, out=torch.empty_like(h)))

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def data_overwritten():
    def forward(m, x):
        h = m.first(x)
        h.data = h.data.relu()
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case(plain=lambda m: nn.Sequential(*m[:-1]), documented=("gates", "twin", "path kernel", "tangent kernel"))
def log_probabilities_at_the_end():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.LogSoftmax(1))
