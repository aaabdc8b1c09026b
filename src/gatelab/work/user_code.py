"""Load a function or class from a user's Python file: a network, a data set, an augmentation."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from gatelab.errors import InputError
from gatelab.work.executor import USER_MODULE


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
    if not Path(path).is_file():
        raise InputError(f"'{place}': there is no file {path}; check the path")
    spec = importlib.util.spec_from_file_location(f"{USER_MODULE}{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(Path(path).resolve().parent))  # like a script, it may import files next to it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{path} has no '{name}'; it has {', '.join(public[:10]) or 'nothing'}")
    return getattr(module, name)
