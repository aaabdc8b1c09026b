"""Import code that Numba compiles when it is first needed."""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def compiled(module: str) -> Any:
    """Return a module of compiled functions, or None where Numba cannot be imported.

    Importing Numba takes half a second, which nobody should pay who only looks at a spectrum. And Numba does not
    support a new version of Python as soon as torch does; every caller has a slower way without it.
    """
    try:
        return import_module(module)
    except ImportError:
        return None
