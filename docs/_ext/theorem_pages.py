"""A page for each theorem: the statement, what was measured, the figure, and what turns the row red."""

import hashlib
import inspect
import json
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib as mpl
import torch
from sphinx.util import logging

from gatelab.lab.theorem import TheoremResult
from gatelab.lab.verdicts import Outcome
from gatelab.papers import all_theorems, find_theorems

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
PAPERS = {
    "npk": "Neural path features and neural path kernel",
    "halfspace": "Half-space feature learning",
    "gdln": "Gated deep linear networks",
    "hierarchy": "Deep and locally connected ReLU networks",
}


def pages(folder: Path) -> dict[str, str]:
    """Return the pages by their names below ``folder``, and draw the figures there.

    Measuring takes half a minute, so that pages are kept for as long as the source does not change.
    """
    kept = folder / "theorems.json"
    digest = _digest()
    if kept.exists() and (known := json.loads(kept.read_text(encoding="utf-8")))["digest"] == digest:
        return known["pages"]
    drawings = folder / "theorems"
    drawings.mkdir(parents=True, exist_ok=True)
    identifiers = [theorem.id for theorem in all_theorems()]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(_measured, identifiers, [drawings] * len(identifiers)))
    for identifier, (_, line) in zip(identifiers, rows, strict=True):
        if not line.endswith(f"| {Outcome.HOLDS.value} |"):
            log.warning("theorem %s does not hold", identifier)
    texts = {f"theorems/{name}.md": text for name, (text, _) in zip(identifiers, rows, strict=True)}
    texts["theorems/index.md"] = _index({name: line for name, (_, line) in zip(identifiers, rows, strict=True)})
    kept.write_text(json.dumps({"digest": digest, "pages": texts}), encoding="utf-8")
    return texts


def _digest() -> str:
    """Digest the source of the package and of these pages."""
    total = hashlib.sha256()
    for path in (*sorted((ROOT / "src").rglob("*.py")), Path(__file__), ROOT / "docs" / "mutations.md"):
        total.update(path.read_bytes())
    return total.hexdigest()


def _measured(identifier: str, drawings: Path) -> tuple[str, str]:
    """Measure one theorem, draw it, and return its page and its line in the index."""
    torch.set_num_threads(1)
    mpl.rcParams["svg.hashsalt"] = "gatelab"
    (theorem,) = (found for found in find_theorems(identifier) if found.id == identifier)
    result = theorem.check(seed=0)
    result.save_figure(drawings / f"{identifier}.svg")
    line = (f"[{identifier}]({identifier}.md)", _cell(result.name), _cell(result.statement), result.outcome.value)
    return _page(result, inspect.getdoc(theorem.measure) or ""), f"| {' | '.join(line)} |"


def _page(result: TheoremResult, how: str) -> str:
    checks = "".join(
        f"| {_cell(check.what)} | {check.value:.3g} | ≤ {check.tolerance:.3g} | {_cell(check.because)} |\n"
        for check in result.measurement.checks
    )
    notes = "".join(f"- {note}\n" for note in result.measurement.notes)
    broken = "".join(f"- {line}\n" for line in _mutations(result.id))
    parts = [
        f"# {result.id}\n\n**{result.name}.** {result.statement}.\n",
        f"Measured: **{result.outcome.value}**, seed {result.seed}. `gatelab theorems {result.id}` measures it again, "
        "`--seed` on other networks.\n",
        f"| measured | value | tolerance | why this tolerance |\n|---|---|---|---|\n{checks}",
        f"![{result.id}: predicted and measured]({result.id}.svg)\n",
    ]
    if how:
        parts.append(f"## How it is measured\n\n{how}\n")
    if notes:
        parts.append(f"## What the numbers alone do not say\n\n{notes}")
    if broken:
        introduction = "Each of these changes of the code does ([all](../../mutations.md)):"
        parts.append(f"## What would turn it red\n\n{introduction}\n\n{broken}")
    return "\n".join(parts)


def _mutations(identifier: str) -> list[str]:
    """Return what can be broken so that this row fails, from docs/mutations.md."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (ROOT / "docs" / "mutations.md").read_text(), flags=re.MULTILINE)
    return [what for what, red in rows if identifier in re.split(r",\s*", red)]


def _index(lines: dict[str, str]) -> str:
    parts = [
        "# Theorems\n\nEvery theorem, proposition, lemma and corollary of the papers as a measurement that can fail: "
        "`gatelab theorems`. The pages are measured anew when the code changes.\n"
    ]
    for paper, title in PAPERS.items():
        rows = [line for name, line in lines.items() if name.startswith(f"{paper}-")]
        head = "| id | in the paper | statement | measured |\n|---|---|---|---|"
        parts.append("\n".join((f"\n## {title}\n", head, *rows, "")))
    entries = "\n".join(lines)
    return "".join(parts) + f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
