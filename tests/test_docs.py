"""The code in the documents runs as it stands."""

import doctest
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
# Pages whose blocks of Python follow one another as one program, and how many blocks they have at least.
PAGES = {
    "README.md": 1,
    "docs/hierarchy.md": 6,
    "docs/papers/halfspace.md": 3,
    "docs/papers/gdln.md": 1,
    "docs/kernels-at-scale.md": 5,
    "docs/verdicts.md": 1,
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page, tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)  # as a reader runs it
    monkeypatch.chdir(tmp_path)  # whatever it may write
    assert len(blocks(page)) >= PAGES[page]
    program = "\n".join(blocks(page))
    if ">>>" in program:
        run_dialogue(program, page)
    else:
        exec(compile(program, page, "exec"), {"__name__": page})


# Examples in a dialogue, at least; a short page has fewer.
EXAMPLES = {"docs/verdicts.md": 5}


def run_dialogue(program: str, page: str) -> None:
    """Run what stands behind >>> and compare what it says."""
    example = doctest.DocTestParser().get_doctest(program, {}, page, str(ROOT / page), 0)
    told: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=told.append)
    assert result.attempted >= EXAMPLES.get(page, 21)
    assert result.failed == 0, "".join(told)
