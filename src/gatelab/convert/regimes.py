"""Convert a user's model to a deep gated, deep linearly gated or deep linear network."""

from collections.abc import Collection, Mapping
from enum import Enum

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.convert.branch import Branch
from gatelab.convert.match import Parts, Role, match
from gatelab.convert.shallow import ShallowGates, has_own_gates, shallow_gates
from gatelab.convert.twin import Gate, GatedTwin, GraphNetwork, Winner, graft
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate
from gatelab.gates.functions import BoundedGate, GateFunction, refuse_steepness
from gatelab.models.init import glorot_
from gatelab.models.redraw import copied
from gatelab.models.states import load_state
from gatelab.network.evaluation import attribute
from gatelab.network.operations import Kind, module_operation, operation
from gatelab.observe import observable, refuse_generator


class Regime(Enum):
    """Where the gates of a deep gated network come from (npk, Sections 4 and 5).

    A neural path feature (NPF) is an input times the gates on a path; of these, a network learns only the gates.

    Attributes:
        FRNPF_II: fixed random neural path features, independent initialisation: gates and values are drawn separately.
        FRNPF_DI: fixed random neural path features, dependent initialisation: gates and values start with the same
            weights.
        FLNPF: fixed learnt neural path features: the gates come from a trained network.
        DNPFL: decoupled neural path feature learning: soft gates are learnt along with the values.
    """

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
    x: Tensor | None = None,
    output: int | str | None = None,
    generator: torch.Generator | None = None,
) -> GatedTwin:
    r"""Convert any ReLU model to a deep gated network: one copy computes the gates, another carries the values.

    .. math:: z^V_l = \Theta^V_l\, z^V_{l-1} \odot G(q^F_l)                                  (npk, Section 4)

    At a max-pooling the value network takes the winner of the feature network. If both copies are equal and gates are
    hard, the twin computes exactly the same output as the model; this is ``FRNPF_DI`` before training.

    ========  ====================================  =======================================  =============
    regime    the feature network starts as         the value network starts as              gates
    ========  ====================================  =======================================  =============
    FRNPF_II  ``gates_from``, or redrawn            the model                                hard, fixed
    FRNPF_DI  the model                             the model                                hard, fixed
    FLNPF     ``gates_from``, or the model          the model; redrawn if the gates          hard, fixed
                                                    are the model's own
    DNPFL     ``gates_from``, or redrawn            the model                                σ(βq), learnt
    ========  ====================================  =======================================  =============

    "Redrawn" means Glorot-uniform weights, zero biases and a new batch-norm state (npk, Appendix B). :class:`Regime`
    spells out the names of the regimes.

    Args:
        model: any module in evaluation mode whose gates :func:`gatelab.capture_gates` knows and whose other layers are
            linear in the data. It is not changed; the twin owns copies.
        regime: where the gates come from.
        beta: steepness of the soft gates of DNPFL.
        gates_from: a network of the same architecture, or a twin of one, whose gates to use.
        x: examples on which the model runs, needed if something in its forward depends on shapes.
        output: the part of the model's output that the twin returns, if the model returns a tuple or a dict.
        generator: source of the redrawn weights; None uses torch's global generator.

    Returns:
        A module with sub-modules ``feature``, ``value`` and ``gate``, in the mode of the model.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor linear; the message lists all of them.
        InputError: ``gates_from`` does not have the architecture of the model.

    Example:
        >>> model, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(5, 2)
        >>> bool(torch.equal(to_dgn(model, Regime.FRNPF_DI)(x), model(x)))
        True
    """
    parts = match(model, x, output)
    model = parts.model
    _check(regime, beta, gates_from)
    refuse_generator(generator)
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


def to_mixed_dgn(
    model: nn.Module,
    gates_from: nn.Module,
    others_from: nn.Module,
    layers: Collection[str],
    *,
    x: Tensor | None = None,
) -> GatedTwin:
    """Convert a ReLU model to a deep gated network whose fixed, hard gates come from two networks, layer by layer.

    Args:
        model: see :func:`to_dgn`; the value network starts as this one.
        gates_from: a network of the same architecture, which decides the gates of ``layers``.
        others_from: another one, which decides all other gates.
        layers: names of gate layers, as in ``read(model).gates``.
        x: see :func:`to_dgn`.

    Returns:
        The twin; ``gates_from`` is its ``feature.second``.

    Raises:
        InputError: there is no such layer, or a network does not have the architecture of the model.
    """
    parts = match(model, x, None)
    unknown = sorted(set(layers) - set(parts.network.gates.values()))
    if unknown:
        raise InputError(
            f"there is no gate layer {', '.join(unknown)}; the layers are {', '.join(parts.network.gates.values())}"
        )
    first, second = (_with_weights_of(source, parts.model) for source in (others_from, gates_from))
    return _twin(parts, first, parts.model, HardGate(), fixed_gates=True, second=(second, layers))


def to_dlgn(
    model: nn.Module,
    beta: float = 10.0,
    piecewise_constant: bool = False,
    *,
    shallow: bool = False,
    x: Tensor | None = None,
    output: int | str | None = None,
    generator: torch.Generator | None = None,
) -> GatedTwin:
    """Convert a ReLU model to a deep linearly gated network: each gate is a half-space of the input.

    See halfspace, Theorem 2. The feature network has no gates of its own. At a max-pooling it passes on the average of
    the window, to stay linear, and the value network takes the winner. The value network starts as the model, the
    feature network is redrawn, and gates are σ(βq) and learnt; call ``.set_gates(HardGate())`` for analysis.

    Args:
        model: see :func:`to_dgn`.
        beta: steepness of the soft gates.
        piecewise_constant: feed ones to the value network, so that x acts through the gates alone (DLGN-PWC).
        shallow: every layer of gates reads x directly, by one affine map of its own (DLGN-SF): a dense layer, or for an
            image of gates a convolution of x, averaged to the image's size, with the kernel of the model's layer. Its
            parameters are under ``feature``, with the names of the gates. A max-pooling behind a gate chooses by the
            gate's map. Elsewhere it has a map of its own, which stays as it was drawn: a choice has no gradient.
        x: see :func:`to_dgn`.
        output: see :func:`to_dgn`.
        generator: source of the feature network's weights.

    Returns:
        A module with sub-modules ``feature``, ``value`` and ``gate``, in the mode of the model.

    Example:
        >>> twin = to_dlgn(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
        >>> [name for name, _ in twin.named_parameters()]
        ['feature.0.weight', 'feature.0.bias', 'value.0.weight', 'value.0.bias', 'value.2.weight', 'value.2.bias']
    """
    parts = match(model, x, output)
    parts.refuse_curved_heads("to_dlgn")
    _check(Regime.DNPFL, beta, None)
    refuse_generator(generator)
    gates = [node for node in parts.roles if has_own_gates(parts, node)] if shallow else []
    return _twin(
        parts,
        parts.model if shallow else _drawn(parts, generator),
        parts.model,
        SoftGate(beta),
        fixed_gates=False,
        linear_features=True,
        constant_input=piecewise_constant,
        shallow={gate: shallow_gates(parts, gate, generator) for gate in gates},
    )


def to_dln(model: nn.Module, *, x: Tensor | None = None, output: int | str | None = None) -> GraphNetwork:
    """Convert a ReLU model to a deep linear network: gates are open, averages replace maxima, parameters keep names.

    Args:
        model: see :func:`to_dgn`.
        x: see :func:`to_dgn`.
        output: see :func:`to_dgn`.

    Returns:
        The linear network, in the mode of the model.

    Example:
        >>> linear = to_dln(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
        >>> bool(torch.isclose(linear(torch.ones(1, 2)) + linear(-torch.ones(1, 2)), 2 * linear(torch.zeros(1, 2))))
        True
    """
    parts = match(model, x, output)
    parts.refuse_curved_heads("to_dln")
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, "")
    for node, role in parts.roles.items():
        if role is Role.INPUT:
            branch.made[node] = graph.placeholder("x")
        elif role is Role.OUTPUT:
            graph.output(branch.source(node))
        elif role is not Role.DECIDING:
            branch.carry_linear(node)
    return GraphNetwork(graph, root).train(parts.model.training)


def _twin(
    parts: Parts,
    feature: nn.Module,
    value: nn.Module,
    gate: GateFunction,
    *,
    fixed_gates: bool,
    linear_features: bool = False,
    constant_input: bool = False,
    second: tuple[nn.Module, Collection[str]] | None = None,
    shallow: Mapping[Node, ShallowGates] | None = None,
) -> GatedTwin:
    """Write a twin; ``second`` is a further feature network with the gate layers that it decides."""
    graph, root = Graph(), nn.Module()
    for name in ("feature", "value", "gate"):
        root.add_module(name, nn.Module())
    features, values = (
        Branch(parts, source, graph, root, name) for source, name in ((feature, "feature"), (value, "value"))
    )
    deciders = [features]
    decided: dict[Node, Node] = {}
    if second is not None:  # below "feature", so that it is fixed, and in evaluation mode, along with it
        deciders.append(Branch(parts, second[0], graph, root, "feature.second"))
    for node, role in parts.roles.items():
        if role is Role.INPUT:
            x = graph.placeholder("x")
            for decider in deciders:
                decider.made[node] = x
            values.made[node] = graph.call_function(torch.ones_like, (x,)) if constant_input else x
        elif role is Role.OUTPUT:
            graph.output(values.source(node))
        elif role in (Role.GATE, Role.MAX_POOL):
            path = parts.gate_paths[node]
            graft(root, path, _gate_module(parts, node, gate))
            chosen = second is not None and parts.network.gates[node] in second[1]
            if shallow and node in shallow:
                decided[node] = _shallow(graph, root, path, shallow[node])
            else:  # a maximum behind a shallow gate chooses by the gate's map
                decided[node] = decided[parts.network.gating(node).q] if shallow else deciders[chosen].decides(node)
            values.made[node] = graph.call_module(path, (values.source(node), decided[node]))
        elif role is not Role.DECIDING:
            values.carry(node)
        if role is not Role.INPUT and node in parts.deciding and not shallow:
            for decider in deciders:
                _ = decider.carry_linear(node) if linear_features else decider.carry(node)
    return GatedTwin(graph, root, fixed_gates=fixed_gates).train(parts.model.training)


def _shallow(graph: Graph, root: nn.Module, path: str, gates: ShallowGates) -> Node:
    """Write the map from the input to a layer of gates, under the gates' own name."""
    (x,) = (node for node in graph.nodes if node.op == "placeholder")
    own = f"feature.{path.partition('.')[2]}"
    graft(root, own, gates)
    return graph.call_module(own, (x,))


def _gate_module(parts: Parts, node: Node, gate: GateFunction) -> Gate | Winner:
    """Return the gate of a twin: the regime's gate function where the model has a ReLU, the model's own elsewhere."""
    gating = parts.network.gating(node)
    if gating.pool is not None:
        return Winner(gating.pool)
    if gating.bounds is not None:
        return Gate(BoundedGate(*gating.bounds))
    return Gate(gating.gate or gate, parts.network.slope(node))


def _check(regime: Regime, beta: float, gates_from: nn.Module | None) -> None:
    if not isinstance(regime, Regime):
        names = ", ".join(f"Regime.{known.name}" for known in Regime)
        raise InputError(f"regime is {regime!r}; it must be one of {names}")
    if regime is Regime.FRNPF_DI and gates_from is not None:
        raise InputError(
            "FRNPF_DI takes its gates from the model itself, so it does not accept gates_from; use FRNPF_II or FLNPF"
        )
    refuse_steepness(beta)


@torch.no_grad()
def _drawn(parts: Parts, generator: torch.Generator | None) -> nn.Module:
    """Return the model with new weights."""
    neutral = {name: parts.neutral(name) for name in sorted(set(parts.loose_parameters()))}
    unknown = [name for name, start in neutral.items() if start is None and not parts.makes_weights(name)]
    if unknown:
        raise UnsupportedModelError(
            f"{', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''}: no initialiser is known for parameters that "
            "are not weights of Linear or Conv layers, scales or shifts; make them buffers, or give to_dgn a new "
            "network of the same architecture as gates_from"
        )
    model = copied(parts.model)
    for weight, bias in parts.weights.values():
        glorot_(model.get_parameter(weight), generator)
        if bias is not None:
            attribute(model, bias).zero_()
    for name, start in neutral.items():
        parameter = model.get_parameter(name)
        if not parameter.requires_grad:  # such as a mask
            continue
        if start is not None:
            parameter.fill_(start)
        else:
            _ = glorot_(parameter, generator) if parameter.ndim > 1 else parameter.zero_()
    for module in model.modules():
        if operation(module_operation(module)).kind is Kind.NORMALISATION:
            module.reset_parameters()  # pyright: ignore[reportCallIssue]  # ones, zeros and empty statistics; draws no random numbers
    for path, start in parts.normalisation_state().items():
        attribute(model, path).fill_(start)
    return model


def _with_weights_of(other: nn.Module, model: nn.Module) -> nn.Module:
    """Return the model with another network's parameters and buffers."""
    other = observable(other) if isinstance(other, nn.Module) else other
    if not isinstance(other, nn.Module):
        raise InputError(f"gates_from is a {type(other).__name__}; give a network like the model")
    twin = isinstance(other, GatedTwin)
    given, own = (other.feature if twin else other).state_dict(), model.state_dict()
    # The feature network of a twin ends at its last gate; later layers are not needed here either.
    missing = [] if twin else sorted(own.keys() - given.keys())
    wrong = sorted(given.keys() - own.keys()) + missing
    wrong += sorted(key for key in own.keys() & given.keys() if own[key].shape != given[key].shape)
    if wrong or not given:
        raise InputError(
            f"gates_from ({type(other).__name__}) does not have the architecture of the model "
            f"({type(model).__name__}); they differ at {', '.join(wrong[:5]) or 'everything'}"
            f"{'…' if len(wrong) > 5 else ''}"
        )
    filled = copied(model)
    load_state(filled, {**own, **given})
    return filled
