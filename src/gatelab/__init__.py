"""gatelab: a laboratory for the gates and paths inside ReLU networks.

A ReLU is a gate times a linear unit, so a network is a sum over paths: which paths are open for an input (the gates)
and what each is worth (the weights). The names of ``__init__.pyi`` compute these quantities on any PyTorch model.
"""

import ast
import pathlib  # as a module: ``gatelab.Path`` is a path of a network
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# The stub is the one table of public names: type checkers read it as imports, and so do we, but only when a name is
# first used, so that ``import gatelab`` and ``gatelab --help`` do not wait for torch.
_TABLE = ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
_HOMES = {alias.name: node.module for node in _TABLE if isinstance(node, ast.ImportFrom) for alias in node.names}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gatelab' has no attribute '{name}'")
    return import_module(f"gatelab.{name}") if home == "gatelab" else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
