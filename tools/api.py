"""Write the list of public names, one line each. ``make api`` writes docs/api.md."""

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import gatelab

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# Public names

Made from the code by `make api`. Everything that is not listed here is private: it may change without notice.

"""


def packages() -> list[str]:
    """Return the packages that export names, as dotted paths below ``gatelab``, those of ``gatelab.lab`` included."""
    top = [name for name in gatelab.__all__ if isinstance(getattr(gatelab, name), ModuleType)]
    return sorted([*top, "lab.report", "lab.runs"])


def exported(package: str) -> list[str]:
    """Return the names that a package exports; a module's public classes, if it is no package."""
    module = import_module(f"gatelab.{package}")
    own = [name for name, held in vars(module).items() if inspect.isclass(held) and held.__module__ == module.__name__]
    return sorted(getattr(module, "__all__", own))


def purpose(held: object) -> str:
    """Return the first paragraph of the docstring of a class, function or module."""
    text = inspect.getdoc(held) if callable(held) or inspect.ismodule(held) else None
    return "" if text is None else text.split("\n\n")[0].replace("\n", " ").replace("|", r"\|")


def page() -> str:
    """Return the whole page."""
    top = [name for name in gatelab.__all__ if not isinstance(getattr(gatelab, name), ModuleType) and name[0] != "_"]
    parts = [HEAD, "## gatelab\n\n", _table([(f"gl.{name}", purpose(getattr(gatelab, name))) for name in top])]
    for package in packages():
        module = import_module(f"gatelab.{package}")
        rows = [(name, purpose(getattr(module, name))) for name in exported(package)]
        parts += [f"\n## gatelab.{package}\n\n{purpose(module)}\n\n", _table(rows)]
    return "".join(parts)


def _table(rows: list[tuple[str, str]]) -> str:
    lines = ["| name | purpose |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {sum(len(exported(package)) for package in packages())} names in packages")  # noqa: T201
