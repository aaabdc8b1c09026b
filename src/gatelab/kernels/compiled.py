"""Import code that Numba compiles when it is first needed."""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def compiled(module: str) -> Any:
    """Return a module of compiled functions, or None where Numba cannot be imported.

    Importing Numba takes half a second, which callers that only compute a spectrum should not pay. Numba also supports
    new versions of Python later than torch does; every caller has a slower way without it.
    """
    try:
        return import_module(module)
    except ImportError:
        return None
