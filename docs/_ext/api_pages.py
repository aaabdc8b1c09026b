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
    lists = {"gatelab": _names("gatelab", gatelab, top)}
    at_top = frozenset(id(getattr(gatelab, name)) for name in top)
    for package in api.packages():
        if package == "errors":
            continue  # they have a page of their own
        path, module = f"gatelab.{package}", import_module(f"gatelab.{package}")
        texts[f"api/{path}.rst"] = _page(path, module, api.exported(package), at_top)
        names = [name for name in api.exported(package) if id(getattr(module, name)) not in at_top]
        lists[path] = _names(path, module, names)
    return texts | {"api/index.rst": _index(lists)}


def _index(lists: dict[str, str]) -> str:
    """Return the page that lists every public name; its own names come first, then one package after the other."""
    start = "Every public name, with its first line. Start with those of :doc:`gatelab <gatelab>`.\n\n"
    entries = "\n".join(f"   {path}" for path in lists)
    parts = [f"{path}\n{'-' * len(path)}\n\nIn full: :doc:`{path}`\n\n{names}\n" for path, names in lists.items()]
    return f"{_title('API')}{start}.. toctree::\n   :hidden:\n\n{entries}\n\n{''.join(parts)}"


def _names(path: str, module: ModuleType, names: list[str]) -> str:
    """Return the documented names as a list of links with the first line of each docstring."""
    shown = [name for name in names if _documented(getattr(module, name))]
    lines = [(name, (inspect.getdoc(getattr(module, name)) or "").split("\n")[0]) for name in shown]
    return "".join(f"- :py:obj:`{name} <{path}.{name}>`: {line}\n" for name, line in lines)


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
