"""One page for each package: what it is for, its names as a table, then each name in full."""

import inspect
from importlib import import_module
from types import ModuleType

from tools import api

import gatelab


def pages() -> dict[str, str]:
    """Return the pages by their names below docs/generated."""
    top = [name for name in gatelab.__all__ if not isinstance(getattr(gatelab, name), ModuleType) and name[0] != "_"]
    texts = {"api/gatelab.rst": _page("gatelab", gatelab, top, frozenset())}
    at_top = frozenset(id(getattr(gatelab, name)) for name in top)
    for package in api.packages():
        if package == "errors":
            continue  # they have a page of their own
        module = import_module(f"gatelab.{package}")
        texts[f"api/gatelab.{package}.rst"] = _page(f"gatelab.{package}", module, api.exported(package), at_top)
    entries = "\n".join(f"   {name.removeprefix('api/').removesuffix('.rst')}" for name in texts)
    index = f"{_title('API')}The names of :doc:`gatelab <gatelab>` are the ones to start with.\n\n"
    return texts | {"api/index.rst": f"{index}.. toctree::\n   :maxdepth: 1\n\n{entries}\n"}


def _page(path: str, module: ModuleType, names: list[str], elsewhere: frozenset[int]) -> str:
    """Return a page; names that ``gatelab`` itself exports are listed here, and told in full there."""
    here = [name for name in names if id(getattr(module, name)) not in elsewhere and _documented(getattr(module, name))]
    there = [name for name in names if id(getattr(module, name)) in elsewhere]
    parts = [_title(path), f".. py:module:: {path}\n\n", inspect.getdoc(module) or "", "\n\n"]
    if there:
        links = ", ".join(f":py:obj:`gatelab.{name}`" for name in there)
        parts.append(f"Also here: {links}.\n\n")
    for name in here:
        held = getattr(module, name)
        directive = "autoclass" if inspect.isclass(held) else "autofunction"
        options = "   :members:\n" if inspect.isclass(held) else ""
        parts.append(f".. {directive}:: {path}.{name}\n{options}\n")
    return "".join(parts)


def _documented(held: object) -> bool:
    return inspect.isclass(held) or inspect.isroutine(held)


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"
