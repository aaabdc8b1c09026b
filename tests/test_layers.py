"""Imports only point down. Walks the syntax tree of every module."""

import ast
import importlib
from pathlib import Path

import pytest

import gatelab

ROOT = Path(gatelab.__file__).parent

LAYERS = {
    "errors": 0, "observe": 0, "printing": 0,
    "work": 1, "figures": 1, "gates": 1, "data": 2,
    "network": 2, "models": 2,
    "convert": 3, "paths": 3, "regions": 3,
    "kernels": 4, "hierarchy": 4,
    "dynamics": 5, "estimators": 5,
    "lab": 6,
    "papers": 7,
    "cli": 8, "__main__": 9,
}  # fmt: skip
# Within a layer, what each may use besides itself.
SIDEWAYS = {"observe": {"errors"}, "gates": {"work"}}


def home(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    """gatelab packages that a file imports, those for type checkers included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {home(alias.name) for alias in node.names if alias.name.split(".")[0] == "gatelab"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gatelab":
            packages = {home(node.module)} if home(node.module) else {alias.name for alias in node.names}
            found |= packages
    return found - {"", "__version__"}


def files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for other in imports(path) - {package}:
        allowed = LAYERS[other] < LAYERS[package] or other in SIDEWAYS.get(package, set())
        assert allowed, f"{package} (layer {LAYERS[package]}) imports {other} (layer {LAYERS[other]})"


def test_the_walk_sees_imports():
    """The check above must be able to fail."""
    assert {"gates", "network", "kernels", "observe"} <= imports(ROOT / "kernels" / "path" / "kernel.py") | {"kernels"}
    assert "papers" in imports(ROOT / "cli" / "theorems.py")


def test_every_package_has_a_layer():
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in files()}
    assert packages <= set(LAYERS)


def test_top_level_names_exist_and_are_lazy():
    for name, home in gatelab._HOMES.items():
        module = importlib.import_module(home if home != "gatelab" else f"gatelab.{name}")
        assert getattr(gatelab, name) is (module if home == "gatelab" else getattr(module, name))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gatelab.nonsense
