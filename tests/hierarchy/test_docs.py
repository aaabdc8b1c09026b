"""The page for newcomers runs as it stands."""

import doctest
import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "hierarchy.md"


def test_the_page_runs():
    torch.set_default_dtype(torch.float32)  # as a reader runs it
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) > 5
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=told.append)
    assert result.attempted > 20
    assert result.failed == 0, "".join(told)
