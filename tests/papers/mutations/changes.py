"""A way to break the code, and what such ways are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

Patch = Callable[[pytest.MonkeyPatch], Any]


@dataclass(frozen=True)
class Mutation:
    """A way to break the code, and the theorems that must fail."""

    what: str
    rows: tuple[str, ...]
    apply: Patch


def scaled(owner: Any, name: str, factor: float = 1.05) -> Patch:
    """The function with its result multiplied."""
    right = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *args, **kwargs: factor * right(*args, **kwargs))


def replaced(owner: Any, name: str, wrong: Any) -> Patch:
    """The name bound to something else."""
    return lambda patch: patch.setattr(owner, name, wrong)


def together(*patches: Patch) -> Patch:
    """Several changes at once."""
    return lambda patch: [apply(patch) for apply in patches]
