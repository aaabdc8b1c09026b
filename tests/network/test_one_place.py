"""Only ``gatelab.network`` knows torch's operations: no other room has a table of them, or tells modules apart."""

import ast
from pathlib import Path

import gatelab
from gatelab.network.operations import OPERATIONS

ROOT = Path(gatelab.__file__).parent
# Rooms that build networks, of layers that they choose.
BUILDERS = ("network", "models", "papers")
# Layers of torch that are told apart elsewhere, and why.
REASONS = {
    ("observe.py", "_BatchNorm"): "refuses statistics of the batch before anything is read",
    ("observe.py", "_DropoutNd"): "refuses chance before anything is read",
    ("observe.py", "RReLU"): "refuses chance before anything is read",
    ("observe.py", "DataParallel"): "looks through a wrapper",
    ("convert/shallow.py", "Linear"): "tells its own two kinds of maps apart",
    ("convert/widen.py", "_BatchNorm"): "makes a wider one",
    ("convert/branch.py", "_DropoutNd"): "writes a functional dropout as a module",
    ("lab/team.py", "Linear"): "puts a stacked layer in its place",
    ("lab/team.py", "Flatten"): "puts one behind the axis of members in its place",
    ("hierarchy/field_builders.py", "Sequential"): "reads receptive fields off a list of layers",
}
NOT_LAYERS = frozenset({"Module", "Parameter"})


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] not in BUILDERS:
            yield place.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def layers_told_apart(tree):
    """Classes of torch.nn in isinstance, and imports from its private modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.nn.modules"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            leaves = ast.walk(node.args[1])
            yield from (leaf.attr for leaf in leaves if getattr(getattr(leaf, "value", None), "id", "") == "nn")


def tables(tree):
    """Strings, sets, tuples and dictionaries with three or more names of operations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            words = [part.value for part in node.elts if isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Dict):
            words = [part.value for part in node.keys if isinstance(part, ast.Constant)]
        else:
            continue
        known = [word for word in words if word in OPERATIONS]
        if len(known) >= 3 and len(known) >= len(words) / 2:
            yield " ".join(known)


def test_layers_are_told_apart_in_one_place():
    found = {(place, name) for place, tree in sources() for name in layers_told_apart(tree) if name not in NOT_LAYERS}
    assert found == REASONS.keys()


def test_there_is_one_table_of_operations():
    found = {(place, words) for place, tree in sources() for words in tables(tree)}
    assert found == {
        ("convert/branch.py", "dropout dropout1d dropout2d dropout3d"),  # the modules of these functions
        ("gates/activations.py", "silu gelu hardswish mish elu celu selu softplus"),  # the gate of each, as a formula
        ("kernels/tangent/uses.py", "linear conv2d batch_norm"),  # those whose gradients have a known form
    }


def test_the_search_finds_what_it_is_for():
    tree = ast.parse("isinstance(m, nn.ReLU | nn.Conv2d); A = set('add sub neg'.split()); B = {'relu', 'add', 'cat'}")
    assert set(layers_told_apart(tree)) == {"ReLU", "Conv2d"}
    assert len(list(tables(tree))) == 2
