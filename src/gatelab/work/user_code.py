"""Load a function or class from a user's Python file: a network, a data set, an augmentation."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from gatelab.errors import InputError
from gatelab.work.executor import USER_MODULE


def is_there(place: str) -> bool:
    """Whether a text names a file or folder; one that is too long for a path, or holds a zero byte, does not."""
    try:
        return Path(place).exists()
    except OSError:
        return False


def from_file(place: str, what: str) -> Any:
    """Return the object that ``file.py:name`` names; messages call it ``what``.

    Raises:
        InputError: there is no such file or name, or the file cannot be imported.
    """
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise InputError(
            f"'{place}' does not name a {what}; write file.py:factory, where factory is a function or class"
        )
    if not is_there(path) or not Path(path).is_file():
        raise InputError(f"'{place:.200}': there is no file {path:.200}; check the path")
    spec = importlib.util.spec_from_file_location(f"{USER_MODULE}{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"'{place}': {path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    sys.path.insert(0, str(Path(path).resolve().parent))  # like a script, it may import files next to it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(spec.name, None)
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:] = before
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{path} has no '{name}'; it has {', '.join(public[:10]) or 'nothing'}")
    return getattr(module, name)
