"""Only ``gatelab.network`` knows torch's operations: no other room has a table of them, or tells modules apart."""

import ast
from pathlib import Path

import pytest
from torch import nn

import gatelab
from gatelab.network.operations import OPERATIONS

ROOT = Path(gatelab.__file__).parent
# Rooms that build networks, of layers that they choose.
BUILDERS = ("network", "models", "papers")
LAYERS = frozenset(
    name for name, value in vars(nn).items() if isinstance(value, type) and issubclass(value, nn.Module)
) - {"Module"}
# Names that other things have, too: of devices, of attributes of data sets, of statistics.
COMMON = frozenset({"cpu", "cuda", "data", "cat", "H", "T", "t", "tile", "real", "gated", "to"})
# Layers of torch that are named elsewhere, and why.
REASONS = {
    ("observe/checks.py", "_BatchNorm"): "refuses statistics of the batch before anything is read",
    ("observe/checks.py", "_DropoutNd"): "refuses chance before anything is read",
    ("observe/checks.py", "RReLU"): "refuses chance before anything is read",
    ("observe/checks.py", "DataParallel"): "looks through a wrapper",
    ("convert/shallow.py", "Linear"): "tells its own two kinds of maps apart",
    ("convert/shallow.py", "Conv1d Conv2d Conv3d"): "builds one",
    ("convert/widen.py", "_BatchNorm"): "makes a wider one",
    ("convert/branch.py", "_DropoutNd"): "writes a functional dropout as a module",
    ("convert/branch.py", "Dropout Dropout1d Dropout2d Dropout3d"): "the modules of these functions",
    ("lab/team.py", "Linear"): "puts a stacked layer in its place",
    ("lab/team.py", "Flatten"): "puts one behind the axis of members in its place",
    ("hierarchy/field_builders.py", "Sequential"): "reads receptive fields off a list of layers",
}
# Operations of the table that are named elsewhere: a rule for one operation of a kind.
NAMED = {
    "convert/branch.py": "dropout dropout1d dropout2d dropout3d",  # the modules of these functions
    "convert/values.py": "contiguous",  # may be left out
    "convert/widen.py": "flatten mean neg reshape stack sum view",  # what keeps wide channels side by side
    "gates/activations.py": "celu elu gelu hardswish mish selu silu softplus",  # the gate of each, as a formula
    "hierarchy/field_builders.py": "flatten",  # ends what is local
    "hierarchy/projection_report.py": "batch_norm",  # the only norm that may keep its statistics
    "kernels/path/layers.py": "linear",  # has no positions
    "kernels/path/joining_rules.py": "mean stack sum",  # over branches
    "kernels/path/rules.py": "mean sum",  # over groups of channels
    "kernels/tangent/uses.py": "batch_norm conv2d linear",  # those whose gradients have a known form
    "lab/team.py": "flatten identity linear",  # what stacked networks have
    # what may draw random numbers is told before anything is read
    "observe/chance.py": "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout feature_dropout",
    "paths/filters.py": "linear",  # has no positions
    "regions/counting.py": "mean sum",  # over positions
}
# Functions of torch that are looked up by a name that is put together, where something is built or run.
BUILT = {
    ("convert/branch.py", "F"): "writes the average over the windows of a max-pooling",
    ("convert/branch.py", "nn"): "writes a functional pooling or batch-norm as a module",
    ("convert/shallow.py", "F"): "runs its own pooling",
    ("gates/pattern.py", "torch"): "reads a dtype from a file",
    ("gates/pooling.py", "F"): "finds the winners of a max-pooling",
    ("hierarchy/projection_report.py", "functional"): "runs a norm again",
    ("kernels/path/rules.py", "F"): "runs a fixed filter on images",
}


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] not in BUILDERS:
            yield place.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def layers_told_apart(tree):
    """Classes of torch.nn in isinstance, issubclass, match, type comparisons and tables, and private imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.nn"):
            private = (node.module or "").startswith("torch.nn.modules")
            yield from (alias.name for alias in node.names if private or alias.name in LAYERS)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            yield from _layers_in(node.args[1])
        elif isinstance(node, ast.MatchClass):
            yield from _layers_in(node.cls)
        elif isinstance(node, ast.Compare):  # type(m) is nn.ReLU
            for part in (node.left, *node.comparators):
                yield from _layers_in(part)
        elif isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            values = node.values if isinstance(node, ast.Dict) else []
            found = [part.attr for part in (*parts, *values) if isinstance(part, ast.Attribute) and _is_layer(part)]
            if len(found) > 1:
                yield " ".join(found)


def _layers_in(tree):
    return [leaf.attr for leaf in ast.walk(tree) if isinstance(leaf, ast.Attribute) and _is_layer(leaf)]


def _is_layer(node):
    """``nn.ReLU``, ``torch.nn.ReLU``, or a class of another alias of torch.nn."""
    return node.attr in LAYERS and getattr(node.value, "attr", getattr(node.value, "id", "")) not in ("self", "cls")


def operations_named(tree):
    """Names of operations that are compared with, looked up, or kept in a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [leaf for part in (node.left, *node.comparators) for leaf in ast.walk(part)]
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = node.keys
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith", "split"):
            parts = [leaf for part in (node.func, *node.args) for leaf in ast.walk(part)]
        else:
            continue
        words = [
            word
            for part in parts
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
            for word in part.value.split()
        ]
        yield from (word for word in words if word in OPERATIONS and word not in COMMON)


def follows_operations(tree):
    """Whether a module sees operations at all: nodes of a graph, or calls of functions; elsewhere "mean" is a word."""
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return any(
        name.startswith(("gatelab.network", "torch.fx", "torch.overrides", "torch.utils._python_dispatch"))
        for name in modules
    )


def looked_up(tree):
    """Places where a function or class of torch is found by a name that is no constant, or through torch.ops."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            owner = getattr(node.args[0], "id", getattr(node.args[0], "attr", ""))
            if owner in ("F", "nn", "torch", "functional", "ops", "aten", "Tensor"):
                yield owner
        elif isinstance(node, ast.Attribute) and node.attr == "ops":
            yield "ops"


def test_layers_are_told_apart_in_one_place():
    found = {(place, name) for place, tree in sources() for name in layers_told_apart(tree)}
    assert found == REASONS.keys()


def test_operations_are_named_in_one_place():
    found = {place: sorted(set(operations_named(tree))) for place, tree in sources() if follows_operations(tree)}
    everywhere = {place: sorted(set(operations_named(tree))) for place, tree in sources()}
    found |= {place: names for place, names in everywhere.items() if len(names) > 2}
    assert {place: " ".join(names) for place, names in found.items() if names} == NAMED


def test_functions_are_looked_up_where_something_is_built():
    assert {(place, owner) for place, tree in sources() for owner in looked_up(tree)} == BUILT.keys()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("isinstance(m, nn.ReLU | nn.Conv2d)", {"ReLU", "Conv2d"}),
        ("isinstance(m, torch.nn.ReLU)", {"ReLU"}),
        ("import torch.nn as tnn\nissubclass(type(m), (tnn.ReLU,))", {"ReLU"}),
        ("from torch.nn import ReLU", {"ReLU"}),
        ("type(m) is nn.ReLU", {"ReLU"}),
        ("GATES = (nn.ReLU, nn.PReLU)", {"ReLU PReLU"}),
        ("RULES = {nn.ReLU: 1, nn.PReLU: 2}", {"ReLU PReLU"}),
        ("match m:\n    case nn.ReLU(): pass", {"ReLU"}),
    ],
)
def test_the_search_finds_layers(code, names):
    assert set(layers_told_apart(ast.parse(code))) == names


@pytest.mark.parametrize(
    "code",
    [
        "name == 'relu'",
        "'relu' in name",
        "name in ('relu', 'x')",
        "A = 'relu add'.split()",
        "B = {'relu'}",
        "C = {'relu': 1}",
        "name.startswith('relu')",
        "match name:\n    case 'relu': pass",
    ],
)
def test_the_search_finds_operations(code):
    assert "relu" in set(operations_named(ast.parse(code)))


@pytest.mark.parametrize("code", ["getattr(F, name)", "getattr(torch.nn.functional, n)", "torch.ops.aten.relu"])
def test_the_search_finds_functions(code):
    assert list(looked_up(ast.parse(code)))
