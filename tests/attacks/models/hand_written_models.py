"""Activations as people write them: by masks and maxima, by maxout, in hooks."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.attacks.models.cases import EVERYTHING, NO_REGION, case, forward_of
from tests.attacks.models.gate_models import layers


def plain_layers(function):
    """Return what makes the plain network of a model with layers ``first`` and ``head``."""

    def plain(model):
        return forward_of(lambda m, x: m.head(function(m.first(x))), first=model.first, head=model.head)

    return plain


def by_hand(name, function, plain=F.relu, documented=EVERYTHING):
    """Register a hand-written activation and what it stands for."""
    case(name=name, documented=documented, plain=plain_layers(plain))(lambda: layers(lambda _m, q: function(q)))


by_hand("where_above_zero", lambda q: torch.where(q > 0, q, 0))
by_hand("where_with_zeros_like", lambda q: torch.where(q > 0, q, torch.zeros_like(q)))
by_hand("where_at_least_zero", lambda q: torch.where(q >= 0, q, torch.tensor(0.0)))
by_hand("where_the_other_way_round", lambda q: torch.where(q < 0, torch.zeros_like(q), q))
by_hand("where_zero_is_less", lambda q: torch.where(0 < q, q, 0.0))  # noqa: SIM300
by_hand("maximum_with_zeros_like", lambda q: torch.maximum(q, torch.zeros_like(q)))
by_hand("maximum_with_a_tensor", lambda q: torch.maximum(torch.tensor(0.0), q))
by_hand("binary_max", lambda q: torch.max(q, torch.tensor(0.0)))
by_hand("times_its_mask", lambda q: q * (q > 0))
by_hand("times_its_mask_as_floats", lambda q: q * (q > 0).float())
by_hand("times_its_mask_of_its_type", lambda q: q.gt(0).to(q.dtype) * q)
by_hand("a_mask_written_in_place", lambda q: q.mul_(q > 0))
by_hand("masked_fill_below_zero", lambda q: q.masked_fill(q < 0, 0.0))
by_hand("masked_fill_where_not_above", lambda q: q.masked_fill(~(q > 0), 0))
by_hand("masked_fill_in_place", lambda q: q.masked_fill_(q <= 0, 0))
by_hand("threshold_function", lambda q: F.threshold(q, 0, 0))
by_hand("threshold_module", nn.Threshold(0, 0))
by_hand("clamp_min_method", lambda q: q.clamp_min(0))
by_hand("relu_underscore", F.relu_)
by_hand("relu_of_aten", torch.ops.aten.relu)
by_hand("half_of_the_sum_with_its_size", lambda q: (q + q.abs()) / 2, documented=())
by_hand("leaky_by_where", lambda q: torch.where(q > 0, q, 0.2 * q), lambda q: F.leaky_relu(q, 0.2))
by_hand("leaky_by_maximum", lambda q: torch.maximum(q, 0.2 * q), lambda q: F.leaky_relu(q, 0.2))
case(name="leaky_by_two_relus")(lambda: layers(lambda _m, q: F.relu(q) - 0.2 * F.relu(-q)))


def _pooled(model):
    return forward_of(
        lambda m, x: m.head(F.adaptive_max_pool2d(F.relu(m.first(x)), 1).flatten(1)),
        first=model.first,
        head=model.head,
    )


@case((1, 4, 4), documented=EVERYTHING, plain=_pooled)
def a_global_maximum_by_amax():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x)).amax((2, 3))), first=nn.Conv2d(1, 2, 1), head=nn.Linear(2, 1)
    )


@case((1, 4, 4), documented=EVERYTHING, plain=_pooled)
def a_global_maximum_that_keeps_its_axes():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x)).amax(dim=(-2, -1), keepdim=True).flatten(1)),
        first=nn.Conv2d(1, 2, 1),
        head=nn.Linear(2, 1),
    )


@case((1, 4, 4), documented=EVERYTHING, plain=_pooled)
def a_global_maximum_by_flattening():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x)).flatten(2).max(-1).values),
        first=nn.Conv2d(1, 2, 1),
        head=nn.Linear(2, 1),
    )


@case(documented=EVERYTHING)
def concatenated_relus():
    def forward(m, x):
        h = m.first(x)
        return m.head(F.relu(torch.cat([h, -h], dim=1)))

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Linear(4, 1))


@case((1, 3, 3), documented=NO_REGION)
def concatenated_relus_of_images():
    def forward(m, x):
        h = m.first(x)
        return m.head(torch.cat([F.relu(h), F.relu(-h)], dim=1)).flatten(1)

    return forward_of(forward, first=nn.Conv2d(1, 1, 2), head=nn.Conv2d(2, 1, 2))


def _with_pooling(model):
    return forward_of(
        lambda m, x: m.head(F.max_pool1d(m.first(x).view(-1, 2, 2), 2).flatten(1)), first=model.first, head=model.head
    )


@case(documented=("gates", "twin", "tangent kernel", "paths", "region"), plain=_with_pooling)
def maxout_over_a_view():
    return forward_of(
        lambda m, x: m.head(m.first(x).view(-1, 2, 2).max(dim=2).values), first=nn.Linear(2, 4), head=nn.Linear(2, 1)
    )


@case(documented=())
def maxout_by_maximum():
    return forward_of(
        lambda m, x: m.head(torch.maximum(m.first(x), m.second(x))),
        first=nn.Linear(2, 2),
        second=nn.Linear(2, 2),
        head=nn.Linear(2, 1),
    )


@case(documented=())
def maxout_by_pooling():
    return forward_of(
        lambda m, x: m.head(F.max_pool1d(m.first(x).unsqueeze(1), 2).squeeze(1)),
        first=nn.Linear(2, 4),
        head=nn.Linear(2, 1),
    )


def _with_half(model):
    return forward_of(lambda m, x: m.head(0.5 * F.relu(m.first(x))), first=model[0], head=model[2])


@case(documented=EVERYTHING, plain=_with_half)
def a_hook_that_halves_an_activation():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model[1].register_forward_hook(lambda _m, _args, result: 0.5 * result)
    return model


def _with_another_relu(model):
    first = nn.Linear(2, 3)
    first.load_state_dict(model[0].state_dict())
    return forward_of(lambda m, x: m.head(F.relu(m.first(x))), first=first, head=model[1])


@case(documented=EVERYTHING, plain=_with_another_relu)
def a_hook_that_is_the_activation():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].register_forward_hook(lambda _m, _args, result: F.relu(result))
    return model
