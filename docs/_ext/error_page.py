"""The page of errors, from the docstrings that ``gatelab explain`` prints."""

import inspect

from gatelab import errors


def pages() -> dict[str, str]:
    """Return the page by its name below docs/generated."""
    parts = [
        "# Errors and warnings\n\n",
        "`gatelab explain NAME` prints the same text in a terminal. In Python every error of gatelab is a "
        "`gatelab.errors.GatelabError`, and the message gives the fact, the place and the remedy.\n",
    ]
    for name, held in vars(errors).items():
        if inspect.isclass(held) and held.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in held.__bases__)
            parts.append(f"\n## {name}\n\nA kind of {bases}. {inspect.getdoc(held)}\n")
    return {"errors.md": "".join(parts)}
