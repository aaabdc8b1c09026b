"""A model, read once: its operations, what each does to paths, and its line in the source."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates.layer import Slope
from gatelab.network.abilities import abilities
from gatelab.network.calls import Call, call_of, operation_of
from gatelab.network.chance import refuse_active_chance, refuse_used_draws
from gatelab.network.drawing import picture, table
from gatelab.network.evaluation import Interpreter, held, run_node
from gatelab.network.example import made_up_examples
from gatelab.network.gating import Gating, gating_of, slopes
from gatelab.network.hand_written import write_activations, write_global_maxima
from gatelab.network.nodes import ancestors, describe, is_affine, is_shape, module_path, used_twice, value_sources
from gatelab.network.operations import Kind, module_operation, operation
from gatelab.network.recording import Recording, record, same_calls
from gatelab.network.rewriting import (
    write_concatenations,
    write_dense_layers,
    write_gated_linear_units,
    write_sums_of_products,
)
from gatelab.observe import examples, observable, plain_surroundings, refuse_unless_finite, stand_in


@dataclass(frozen=True, eq=False)
class Network:
    """A model as a graph of operations; printed, it is a table, and in a notebook a picture.

    Attributes:
        model: the model that was read.
        graph: its operations, as a torch.fx graph whose nodes know their shapes, modules and lines.
        modules: the model's modules by path.
        gates: the name of each gate, as in a GatePattern.
        recording: the two examples on which it was read, and the model's output.

    Example:
        >>> import torch
        >>> network = read(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.zeros(1, 2))
        >>> print(network)
        node  operation  kind          shape
        x                input         2
        0     linear     weight layer  3
        1     relu       gate          3
        2     linear     weight layer  1
        >>> network.abilities()["path kernel (neural_path_kernel)"]
        'yes'
    """

    model: nn.Module
    graph: Graph
    modules: Mapping[str, nn.Module]
    gates: Mapping[Node, str]
    recording: Recording

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes that the output depends on, in order; parameters and sizes are left out."""
        needed = ancestors(self.end)
        return [node for node in self.graph.nodes if node in needed and node.op != "get_attr" and not is_shape(node)]

    def abilities(self) -> dict[str, str]:
        """Return, for each part of gatelab, "yes" or the node that prevents it, with its line in the source."""
        return abilities(self)

    def draw(self, path: str | Path | None = None) -> str:
        """Return the network as an SVG picture, one row for each operation; write it to ``path`` if given."""
        svg = picture(self)
        if path is not None:
            try:
                Path(path).write_text(svg, encoding="utf-8")
            except OSError as error:
                raise InputError(f"{path} cannot be written: {error.strerror}; give the path of a file") from error
        return svg

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return f"Network of {type(self.model).__name__}: {len(self.nodes) - 2} operations, {len(self.gates)} gates"

    def _repr_svg_(self) -> str:
        return picture(self)

    @cached_property
    def end(self) -> Node:
        """The last node, which holds what the model returns."""
        (end,) = (node for node in self.graph.nodes if node.op == "output")
        return end

    @cached_property
    def answer(self) -> Node:
        """The node of the one tensor that the model returns."""
        answer = self.end.args[0]
        if not isinstance(answer, Node):
            raise UnsupportedModelError(
                f"the model returns a {_plain_name(answer)}, not one tensor; choose a part of it with "
                f"output={_first_key(answer)!r}, or pass a module that returns one part"
            )
        if not answer.meta.get("data"):
            raise UnsupportedModelError("the model's output does not depend on its input, x")
        return answer

    @cached_property
    def output(self) -> Node:
        """The node at which paths end: the model's output, or the input of a final softmax or sigmoid."""
        node = self.answer
        while node.op != "placeholder" and self.kind(node) is Kind.HEAD:
            (node,) = (source for source in node.all_input_nodes if source.meta.get("data"))
        return node

    @cached_property
    def value_nodes(self) -> list[Node]:
        """The nodes that values pass on their way from the input to the output, in order."""
        wanted = ancestors(self.output, sources=value_sources)
        return [node for node in self.graph.nodes if node in wanted and node.meta.get("data")]

    @cached_property
    def path_gates(self) -> dict[Node, str]:
        """The gates that values pass on their way to what the model returns; gates that only decide are left out."""
        passed = ancestors(self.end, sources=value_sources)
        return {node: name for node, name in self.gates.items() if node in passed}

    @cached_property
    def is_chain(self) -> bool:
        """Whether every path passes every layer, one after another, so the gates determine which paths are open."""
        passed, just_gated = ancestors(self.end, sources=value_sources), False
        for node in self.graph.nodes:
            if node.op == "placeholder" or node not in passed or not (node.meta.get("data") or node.op == "output"):
                continue
            sources = [source for source in value_sources(node) if source.meta.get("data")]
            if node.op == "output":  # several outputs may separate only after the last gate
                behind = [ancestors(source, sources=value_sources) & set(self.gates) for source in sources]
                return all(gates == behind[0] for gates in behind)
            if len(sources) > 1 or used_twice(node) or (node in self.gates and just_gated):
                return False
            just_gated = (just_gated or node in self.gates) and self.kind(node) not in (Kind.WEIGHT, Kind.PRODUCT)
        return True

    @cached_property
    def interpreter(self) -> Interpreter:
        """The interpreter that runs the graph, with the network's own gates or chosen ones."""
        gates = {node: (name, self.gating(node).value, self.gating(node).q) for node, name in self.gates.items()}
        return Interpreter(self.graph, gates, self.recording.examples.dtype)

    def call(self, node: Node) -> Call:
        """Return a node's operation with its arguments by name."""
        return call_of(node, self.modules)

    def kind(self, node: Node) -> Kind:
        """Return what a node does to the signals that pass it."""
        return operation(self.operation(node)).kind

    def operation(self, node: Node) -> str:
        """Return the plain name of a node's operation."""
        return operation_of(node, self.modules)

    def gating(self, node: Node) -> Gating:
        """Return how a gate decides."""
        return node.meta["gating"]

    def slope(self, node: Node, model: nn.Module | None = None) -> Slope:
        """Return what a gate passes when it is closed; for a PReLU its current slopes, in ``model`` if given."""
        slope = self.gating(node).slope
        if isinstance(slope, Tensor) and model is not None:
            slope = model.get_parameter(f"{node.target}.weight")
        if isinstance(slope, Node):
            slope = run_node(slope, model or self.model, self.constant)
        return slopes(slope, len(node.meta["shape"])) if isinstance(slope, Tensor) else slope

    def is_obstacle(self, node: Node) -> bool:
        """Whether a node is neither a gate nor affine in the data."""
        if node.op in ("placeholder", "output") or not node.meta.get("data") or node in self.gates:
            return False
        several = "shape" not in node.meta  # nodes that pick one of several results know its dtype
        return self.kind(node) is not Kind.START and not (
            is_affine(node, self.modules) or (several and self.kind(node) is Kind.SELECTION)
        )

    def constant(self, node: Node) -> object:
        """Return the value of a node that does not depend on the data."""
        return run_node(node, self.model, self.constant)

    def where(self, node: Node) -> str:
        """Return a node's name and place in the source, for error messages."""
        return describe(node, self.modules)


def read(model: nn.Module, x: Tensor | None = None, *, output: int | str | None = None) -> Network:
    """Read a model as a graph of operations, by running it on two examples.

    Args:
        model: any module in evaluation mode, or without batch-norm and dropout.
        x: examples; the first and the last are run. Without examples gatelab makes up two of a shape that the model
            accepts: its first dense layer gives the shape, or the size of a square image is found by trial.
        output: which part of its output to read, if the model returns a tuple or a dict.

    Returns:
        The network.

    Raises:
        UnsupportedModelError: control flow depends on values, or a signal cannot be followed.
        InputError: the model cannot run on x, or no shape of examples is found.

    Example:
        >>> import torch
        >>> read(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.zeros(1, 2))
        Network of Sequential: 3 operations, 1 gates
    """
    model = observable(model, output)
    modules = dict(model.named_modules(remove_duplicate=False))
    recording = _recorded(model, x)
    _rewrite(recording.graph, modules)
    gates = gate_names(recording.graph, modules)
    if any(not node.users and node.op not in ("placeholder", "output") for node in recording.graph.nodes):
        recording.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
    living = set(recording.graph.nodes)
    refuse_active_chance(recording.graph, modules)
    refuse_weights_unless_finite(recording.graph, model)
    return Network(
        model, recording.graph, modules, {node: name for node, name in gates.items() if node in living}, recording
    )


def _rewrite(graph: Graph, modules: Mapping[str, nn.Module]) -> None:
    """Write what models spell in several ways in one."""
    write_dense_layers(graph)
    write_sums_of_products(graph)
    write_gated_linear_units(graph, modules)
    write_concatenations(graph)
    write_activations(graph)
    write_global_maxima(graph)


def _recorded(model: nn.Module, x: Tensor | None) -> Recording:
    if x is not None:
        x = examples(x, model)
        with plain_surroundings(x) as drawn:
            recording = record(stand_in(model), x)
        refuse_used_draws(model, recording, drawn)
        return recording
    failure: InputError | None = None
    for made_up, larger in made_up_examples(model):
        try:
            with plain_surroundings(made_up) as drawn:
                recording = record(stand_in(model), made_up)
                if larger is not None and not same_calls(recording.graph, record(stand_in(model), larger).graph):
                    raise UnsupportedModelError(
                        f"what {type(model).__name__}.forward does depends on the size of the images; pass examples "
                        "as x="
                    )
        except InputError as error:
            failure = error
            continue
        refuse_used_draws(model, recording, drawn)
        return recording
    raise InputError(
        f"found no shape of examples that {type(model).__name__} accepts; pass examples as x="
    ) from failure


def gate_names(graph: Graph, modules: Mapping[str, nn.Module]) -> dict[Node, str]:
    """Return the name of each gate: the path of its module, or of the module around it and its operation, and a count.

    Each gate's node records how it decides, under "gating".

    Args:
        graph: the graph, including nodes that the output does not need.
        modules: the model's modules by path.
    """
    calls: Counter[str] = Counter()
    names = {}
    for node in graph.nodes:
        gating = gating_of(node, modules) if node.meta.get("data") else None
        if gating is None:
            continue
        node.meta["gating"] = gating
        base = _gate_base(node, modules)
        calls[base] += 1
        names[node] = base if calls[base] == 1 else f"{base}#{calls[base]}"
    return names


def _gate_base(node: Node, modules: Mapping[str, nn.Module]) -> str:
    if node.op == "call_module":
        return str(node.target)
    path = module_path(node)
    around = operation(module_operation(modules[path])).kind
    if path and around in (Kind.GATE, Kind.SELECTION):  # a gate module with further operations, such as one with hooks
        return path
    return ".".join(filter(None, (path, operation_of(node, modules))))


def refuse_weights_unless_finite(graph: Graph, model: nn.Module) -> None:
    """Refuse NaN and infinite values among the weights and statistics that the output depends on."""
    modules = dict(model.named_modules(remove_duplicate=False))
    weights: dict[str, Tensor] = {}
    variances: dict[str, tuple[Tensor, float]] = {}
    for node in graph.nodes:
        path = str(node.target)
        if node.op == "call_module":
            if path not in modules:
                raise InputError(f"module '{path}' is gone: the model was changed while it was read")
            module = modules[path]
            for name, value in (*module._parameters.items(), *module._buffers.items()):
                if value is not None:
                    weights[f"{path}.{name}"] = value
            variance = module._buffers.get("running_var")
            if variance is not None:
                variances[f"{path}.running_var"] = variance, getattr(module, "eps", 0.0)
        elif node.op == "get_attr" and isinstance(value := held(node, model), Tensor):
            weights[path] = value
    refuse_unless_finite(weights)
    if variances and float(torch.cat([variance for variance, _ in variances.values()]).min()) <= 0:
        for path, (variance, eps) in variances.items():
            if float(variance.min()) + eps <= 0:
                raise InputError(f"'{path}' is negative, so the model has no output; load its statistics")


def _plain_name(answer: object) -> str:
    """The type of an answer, without fx's own kinds of lists and dictionaries."""
    return next((kind.__name__ for kind in (dict, tuple, list) if isinstance(answer, kind)), type(answer).__name__)


def _first_key(answer: object) -> object:
    return next(iter(answer), 0) if isinstance(answer, Mapping) else 0
