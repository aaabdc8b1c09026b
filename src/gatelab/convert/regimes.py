"""A user's model as a deep gated, deep linearly gated or deep linear network."""

import copy
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.fx import Graph

from gatelab.convert.branch import Branch
from gatelab.convert.match import Parts, Role, attribute, match
from gatelab.convert.twin import Gate, GatedTwin, GraphNetwork, Winner, graft
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate
from gatelab.gates.functions import GateFunction
from gatelab.models.init import glorot_
from gatelab.network.nodes import max_pooling
from gatelab.observe import observable


class Regime(Enum):
    """Where a deep gated network's gates come from (npk, Sections 4 and 5)."""

    FRNPF_II = "fixed random features, initialised independently of the values"
    FRNPF_DI = "fixed random features, initialised as the values are"
    FLNPF = "fixed learnt features, those of a trained network"
    DNPFL = "decoupled feature learning: soft gates learn along with the values"


def to_dgn(
    model: nn.Module,
    regime: Regime,
    beta: float = 8.0,
    gates_from: nn.Module | None = None,
    *,
    generator: torch.Generator | None = None,
) -> GatedTwin:
    r"""The deep gated network of any ReLU model: one copy decides over the gates, another carries the values.

    .. math:: z^V_l = \Theta^V_l\, z^V_{l-1} \odot G(q^F_l)                                  (npk, Section 4)

    At a max-pooling the value network takes the feature network's winner. With both copies alike and hard gates the
    twin computes exactly what the model does: that is ``FRNPF_DI`` before training.

    ========  ====================================  =======================================  =============
    regime    the feature network begins as         the value network begins as              gates
    ========  ====================================  =======================================  =============
    FRNPF_II  ``gates_from``, or drawn afresh       the model                                hard, fixed
    FRNPF_DI  the model                             the model                                hard, fixed
    FLNPF     ``gates_from``, or the model          the model; drawn afresh if the           hard, fixed
                                                    gates are the model's own
    DNPFL     ``gates_from``, or drawn afresh       the model                                σ(βq), learnt
    ========  ====================================  =======================================  =============

    "Drawn afresh" is Glorot-uniform weights, zero biases, batch-norm as new (npk, Appendix B).

    Args:
        model: any module of ReLU, LeakyReLU and max-pooling gates and layers linear in the data, in evaluation mode.
            It stays as it is; the twin owns copies.
        regime: where the gates come from.
        beta: steepness of the soft gates of DNPFL.
        gates_from: a network of the same architecture, or a twin of one, whose gates to take.
        generator: where fresh weights come from; torch's global one if None.

    Raises:
        UnsupportedModelError: something in the model is neither a gate nor linear; all of it is listed with its place.
        InputError: ``gates_from`` does not fit.
    """
    parts = match(model)
    model = parts.model
    _check(regime, beta, gates_from)
    fresh_values = regime is Regime.FLNPF and gates_from is None
    value = _drawn(parts, generator) if fresh_values else model
    if gates_from is not None:
        feature = _with_weights_of(gates_from, model)
    elif regime in (Regime.FRNPF_DI, Regime.FLNPF):
        feature = model
    else:
        feature = _drawn(parts, generator)
    gate = SoftGate(beta) if regime is Regime.DNPFL else HardGate()
    return _twin(parts, feature, value, gate, fixed_gates=regime is not Regime.DNPFL)


def to_dlgn(
    model: nn.Module,
    beta: float = 10.0,
    piecewise_constant: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> GatedTwin:
    """The deep linearly gated network of a ReLU model: every gate is a half-space of the input (halfspace, Thm. 2).

    The feature network has no gates of its own; where the model pools by maximum it passes on the window's average, so
    that it stays linear, and the value network takes the winner. The value network begins as the model, the feature
    network is drawn afresh, gates are σ(βq) and learn; ``.set_gates(HardGate())`` for analysis.

    Args:
        model: see :func:`to_dgn`.
        beta: steepness of the soft gates.
        piecewise_constant: the value network sees ones instead of x, which acts through the gates alone (DLGN-PWC).
        generator: where the feature network's weights come from.
    """
    parts = match(model)
    parts.refuse_curved_heads("to_dlgn")
    _check(Regime.DNPFL, beta, None)
    feature = _drawn(parts, generator)
    return _twin(
        parts,
        feature,
        parts.model,
        SoftGate(beta),
        fixed_gates=False,
        linear_features=True,
        constant_input=piecewise_constant,
    )


def to_dln(model: nn.Module) -> GraphNetwork:
    """The deep linear network of a ReLU model: all gates open, maxima as averages; parameters keep their names."""
    parts = match(model)
    parts.refuse_curved_heads("to_dln")
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, "")
    for node, role in parts.roles.items():
        if role is Role.INPUT:
            branch.made[node] = graph.placeholder("x")
        elif role is Role.OUTPUT:
            graph.output(branch.source(node))
        else:
            branch.carry_linear(node)
    return _ready(GraphNetwork(graph, root), parts)


def _twin(
    parts: Parts,
    feature: nn.Module,
    value: nn.Module,
    gate: GateFunction,
    *,
    fixed_gates: bool,
    linear_features: bool = False,
    constant_input: bool = False,
) -> GatedTwin:
    graph, root = Graph(), nn.Module()
    for name in ("feature", "value", "gate"):
        root.add_module(name, nn.Module())
    features, values = (
        Branch(parts, source, graph, root, name) for source, name in ((feature, "feature"), (value, "value"))
    )
    for node, role in parts.roles.items():
        if role is Role.INPUT:
            x = graph.placeholder("x")
            features.made[node] = x
            values.made[node] = graph.call_function(torch.ones_like, (x,)) if constant_input else x
        elif role is Role.OUTPUT:
            graph.output(values.source(node))
        elif role in (Role.GATE, Role.MAX_POOL):
            module = Gate(gate, features.slope(node)) if role is Role.GATE else Winner(max_pooling(node, parts.modules))
            path = parts.gate_paths[node]
            graft(root, path, module)
            values.made[node] = graph.call_module(path, (values.source(node), features.source(node)))
        else:
            values.carry(node)
        if role is not Role.INPUT and node in parts.deciding:
            _ = features.carry_linear(node) if linear_features else features.carry(node)
    return _ready(GatedTwin(graph, root, fixed_gates=fixed_gates), parts)


def _check(regime: Regime, beta: float, gates_from: nn.Module | None) -> None:
    if not isinstance(regime, Regime):
        names = ", ".join(f"Regime.{known.name}" for known in Regime)
        raise InputError(f"regime is {regime!r}; it must be one of {names}")
    if regime is Regime.FRNPF_DI and gates_from is not None:
        raise InputError(
            "FRNPF_DI takes the gates from the model that the values begin with; gates_from has no place there: "
            "use FRNPF_II or FLNPF"
        )
    if not isinstance(beta, int | float) or not beta > 0:
        raise InputError(f"beta is {beta}; it must be positive")


@torch.no_grad()
def _drawn(parts: Parts, generator: torch.Generator | None) -> nn.Module:
    """The model with fresh weights."""
    loose = parts.loose_parameters()
    if loose:
        raise UnsupportedModelError(
            f"{', '.join(loose)}: parameters outside Linear and Conv layers, for which no initialiser is known; give a "
            "freshly initialised network of the same architecture as gates_from"
        )
    model = _copied(parts.model)
    for weight, bias in parts.weights.values():
        glorot_(model.get_parameter(weight), generator)
        if bias is not None:
            attribute(model, bias).zero_()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_parameters()  # ones, zeros and new statistics: nothing random
    return model


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # a user's module may hold anything
        raise UnsupportedModelError(f"{type(model).__name__} cannot be copied: {error}") from error


def _with_weights_of(other: nn.Module, model: nn.Module) -> nn.Module:
    """The model with another network's parameters and buffers."""
    other = observable(other) if isinstance(other, nn.Module) else other
    if not isinstance(other, nn.Module):
        raise InputError(f"gates_from is a {type(other).__name__}; it must be a network like the model")
    twin = isinstance(other, GatedTwin)
    theirs = (other.feature if twin else other).state_dict()
    ours = model.state_dict()
    # A twin's feature network ends at its last gate; what lies behind is not needed here either.
    missing = [] if twin else sorted(ours.keys() - theirs.keys())
    wrong = sorted(theirs.keys() - ours.keys()) + missing
    wrong += sorted(key for key in ours.keys() & theirs.keys() if ours[key].shape != theirs[key].shape)
    if wrong or not theirs:
        raise InputError(
            f"gates_from ({type(other).__name__}) has not the architecture of the model ({type(model).__name__}); they "
            f"differ at {', '.join(wrong[:5]) or 'everything'}{'…' if len(wrong) > 5 else ''}"
        )
    made = _copied(model)
    made.load_state_dict({**ours, **theirs})
    return made


def _ready(network: Any, parts: Parts) -> Any:
    """In the model's own mode, with its graph checked."""
    network.graph.lint()
    return network.train(parts.model.training)
