"""Every global name that the code uses exists.

The linters cannot tell: jaxtyping's axis strings look like undefined names to them, so that check is off.
"""

import builtins
import dis
import importlib
import pkgutil
from collections.abc import Iterator
from types import CodeType

import pytest

import gatelab

MODULES = [name for _, name, _ in pkgutil.walk_packages(gatelab.__path__, "gatelab.") if not name.endswith("__main__")]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@pytest.mark.parametrize("name", MODULES)
def test_names_exist(name):
    module = importlib.import_module(name)
    assert module.__spec__ is not None
    code = module.__spec__.loader.get_code(name)
    known = {*vars(module), *vars(builtins)}
    used = {
        instruction.argval
        for part in _codes(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname == "LOAD_GLOBAL"
    }
    assert used <= known
