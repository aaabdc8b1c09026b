"""Ways to break the code that theorems name, and the theorems that must notice.

``python -m tests.papers.mutations`` writes docs/mutations.md; test_mutations.py checks every line of it.
"""

from pathlib import Path

from gatelab.papers import all_theorems
from tests.papers.mutations.gdln import GDLN
from tests.papers.mutations.halfspace import HALFSPACE
from tests.papers.mutations.hierarchy import HIERARCHY
from tests.papers.mutations.npk import NPK

PAGE = Path(__file__).parents[3] / "docs" / "mutations.md"
HEAD = """# Mutations

Each line changes the code in one way. The theorems beside it must then fail. `tests/papers/test_mutations.py` makes
each change and checks that they do (seed 1), and that every theorem has a line. `python -m tests.papers.mutations`
writes this page.

DGN is a deep gated network, DLGN a deep linearly gated one, and FRNPF (DI) means fixed random neural path features with
dependent initialisation; the [glossary](understand/glossary.md) has the symbols.

| change of the code | theorems that fail |
|---|---|
"""
MUTATIONS = (*NPK, *HALFSPACE, *GDLN, *HIERARCHY)


def page() -> str:
    """Return docs/mutations.md."""
    lines = [f"| {mutation.what} | {', '.join(mutation.rows)} |" for mutation in MUTATIONS]
    return HEAD + "\n".join(lines) + f"\n\n{len(MUTATIONS)} mutations, {len(all_theorems())} rows.\n"
