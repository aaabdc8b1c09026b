"""Make examples/*.ipynb of examples/*.py and run them. ``make notebooks``; a script is the source of its notebook.

A script is divided by lines ``# %%`` (code) and ``# %% [markdown]`` (text, as comments).
"""

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parents[1] / "examples"


def cells(script: str) -> list[tuple[str, str]]:
    r"""Divide a script into ("markdown" or "code", text).

    Example:
        >>> cells("# %% [markdown]\n# A title\n\n# %%\nprint(1)\n")
        [('markdown', 'A title'), ('code', 'print(1)')]
    """
    parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    found = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        if "markdown" in kind:
            found.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            found.append(("code", text.strip()))
    return found


def notebook_of(script: str) -> NotebookNode:
    """Return the notebook of a script, without outputs."""
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    for number, (kind, text) in enumerate(cells(script)):
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        book.cells.append(make(text, id=f"cell-{number}"))
    return book


def run(path: Path) -> NotebookNode:
    """Run the notebook of a script in a process of its own, and return it with its outputs."""
    book = notebook_of(path.read_text(encoding="utf-8"))
    NotebookClient(book, timeout=1200, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of this machine
    return book


def main() -> None:
    """Run the named scripts, or all, and write their notebooks."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(EXAMPLES.glob("*.py")):
        nbformat.write(run(path), path.with_suffix(".ipynb"))
        print(f"{path.stem}: {path.with_suffix('.ipynb').stat().st_size / 1000:.0f} kB")  # noqa: T201


if __name__ == "__main__":
    main()
