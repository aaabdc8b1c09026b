"""A way to break the code, and what such ways are made of."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from types import CodeType
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


def edited(function: Callable[..., Any], *changes: tuple[str, str]) -> Patch:
    """The function with parts of its source replaced, wherever it was imported; each part occurs once."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        plain = inspect.unwrap(getattr(function, "__func__", function))
        source = dedent(inspect.getsource(plain))
        for old, new in changes:
            assert source.count(old) == 1, (
                f"{plain.__qualname__}: {source.count(old)} times {old!r}; adapt the mutation"
            )
            source = source.replace(old, new)
        tree = ast.parse(source)
        assert isinstance(tree.body[0], ast.FunctionDef)
        tree.body[0].decorator_list = []
        compiled = compile(tree, inspect.getfile(plain), "exec").co_consts
        (code,) = (c for c in compiled if isinstance(c, CodeType) and c.co_name == plain.__name__)
        patch.setattr(plain, "__code__", code)

    return apply


def together(*patches: Patch) -> Patch:
    """Several changes at once."""
    return lambda patch: [apply(patch) for apply in patches]
