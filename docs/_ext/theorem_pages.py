"""A page for each theorem: the statement, what was measured, the figure, and which changes of the code make it fail."""

import hashlib
import inspect
import json
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import torch
from sphinx.util import logging

from gatelab.figures.facts import Plot
from gatelab.lab.theorem import TheoremResult
from gatelab.lab.verdicts import Check, Outcome, Side
from gatelab.papers import all_theorems, find_theorems

log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
PAPERS = {
    "npk": "Neural path features and neural path kernel",
    "halfspace": "Half-space feature learning",
    "gdln": "Gated deep linear networks",
    "hierarchy": "Deep and locally connected ReLU networks",
}


# What the letters of a statement mean; (?<![\w^]) and the like keep K^V and K from being taken for each other.
SYMBOLS = {
    "npk": {
        r"φ|Φ": "Φ, φ: neural path features, which paths are open and from which input",
        r"(?<![\w^])v(?![\w])|v̇": "v: neural path values, what each path is worth",
        r"\bH\b": "H: neural path kernel ΦᵀΦ",
        r"K\^V|K\^F": "K^V, K^F: parts of the neural tangent kernel K from value and from feature weights",
        r"\bK\b(?!\^[VF])|K₀": "K: neural tangent kernel, the Gram matrix of the output's gradients",
        r"𝒱": "𝒱: value tangent kernel, the Gram matrix of the gradients of v",
        r"Λ": "Λ: overlap, the paths open for both of two inputs",
        r"Σ ⊙|⊙ Σ|w\^\{d−1\} Σ": "Σ: Gram matrix of the inputs",
        r"ρ": "ρ: eigenvalue",
        r"ė|(?<!\w)e\b": "e: error of the outputs",
        r"ν": "ν: label complexity, low if labels are simple to the kernel",
        r"DGN": "DGN: deep gated network, with separate gates and values",
        r"FRNPF": "FRNPF: fixed random neural path features (gates)",
        r"σ": "±σ: the two values of a random weight",
    },
    "halfspace": {
        r"A_π": "A_π: the inputs for which path π is active",
        r"f_π|g_π": "f_π, g_π: gate and expert of path π",
        r"DLGN": "DLGN: deep linearly gated network, whose gates are half-spaces of the input",
    },
    "gdln": {
        r"A[⁺⁻_w]|singular A|: A is|share A": "A, b: second moments of the gated inputs, and of inputs with targets",
        r"\bK\b": "K: number of units",
        r"NLGP": "NLGP: nonlinear Gaussian process, the data of the notes",
        r"GDLN": "GDLN: gated deep linear network",
    },
    "hierarchy": {
        r"\bF\b|F_": "F: mean activation of each node, for each value of z",
        r"G̃|\bG\b": "G̃: mean gradient that reaches each node, for each value of z",
        r"\bP\b|P_": "P: probabilities between neighbouring variables of the teacher",
        r"\bz\b|z_": "z: the teacher's variable of a region",
        r"ΔW": "ΔW: update of the weights",
    },
}
AT_LEAST = (
    "Numbers with ≥ are contrasts, which a wrong formula or a trivial case would make small: they show that the check "
    "could have failed.\n"
)
PRINTED = (
    ":::{note}\nThe paper prints a formula here that is wrong. This page states how it is wrong; *holds* means that "
    "the printed formula fails in just that way.\n:::\n"
)


@dataclass(frozen=True)
class Row:
    """A theorem's page, its line in the index, and whether it holds."""

    page: str
    line: str
    holds: bool


def pages(folder: Path) -> dict[str, str]:
    """Return the pages by their names below ``folder``, and draw the figures there.

    Measuring takes half a minute. The pages are kept until the source changes.
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
    for identifier, row in zip(identifiers, rows, strict=True):
        if not row.holds:
            log.warning("theorem %s does not hold", identifier)
    texts = {f"theorems/{name}.md": row.page for name, row in zip(identifiers, rows, strict=True)}
    texts["theorems/index.md"] = _index({name: row.line for name, row in zip(identifiers, rows, strict=True)})
    kept.write_text(json.dumps({"digest": digest, "pages": texts}), encoding="utf-8")
    return texts


def _digest() -> str:
    """Digest the source of the package and of these pages."""
    total = hashlib.sha256()
    for path in (*sorted((ROOT / "src").rglob("*.py")), Path(__file__), ROOT / "docs" / "mutations.md"):
        total.update(path.read_bytes())
    return total.hexdigest()


def _measured(identifier: str, drawings: Path) -> Row:
    """Measure one theorem, draw it, and return its page and its line in the index."""
    torch.set_num_threads(1)
    mpl.rcParams["svg.hashsalt"] = "gatelab"
    (theorem,) = (found for found in find_theorems(identifier) if found.id == identifier)
    result = theorem.check(seed=0)
    result.save_figure(drawings / f"{identifier}.svg")
    verdict = result.outcome.value + (", as an error of the paper" if _is_printed(identifier) else "")
    line = (f"[{identifier}]({identifier}.md)", _cell(result.name), _cell(result.statement), verdict)
    page = _page(result, inspect.getdoc(theorem.measure) or "")
    return Row(page, f"| {' | '.join(line)} |", result.outcome is Outcome.HOLDS)


def _is_printed(identifier: str) -> bool:
    """Whether the theorem is about a formula of the paper that is wrong."""
    return identifier.endswith("-printed")


def _page(result: TheoremResult, how: str) -> str:
    paper = result.id.split("-")[0]
    checks = result.measurement.checks
    within = sum(check.holds for check in checks)
    symbols = _symbols(paper, f"{result.statement} {' '.join(check.what for check in checks)}")
    parts = [
        f"# {result.name[:1].upper()}{result.name[1:]} ({result.id})\n",
        f"> {result.statement}.\n",
        f"From [{paper}](../../papers/{paper}.md): {PAPERS[paper]}.\n",
        PRINTED if _is_printed(result.id) else "",
        f"**{result.outcome.value.capitalize()}**: {within} of {len(checks)} checks are within their bounds (seed "
        f"{result.seed}). `gatelab theorems {result.id}` measures it again, `--seed 1` with other random numbers.\n",
        f"Symbols: {'; '.join(symbols)}.\n" if symbols else "",
        "| measured | value | must be | why this bound |\n|---|---|---|---|\n" + "".join(map(_check_line, checks)),
        AT_LEAST if any(check.side is Side.AT_LEAST for check in checks) else "",
        f"![{result.id}]({result.id}.svg)\n",
        f"*{_caption(result)}*\n",
        f"## How it is measured\n\n{how}\n" if how else "",
        _remarks(result.measurement.notes),
        _broken(result.id),
    ]
    return "\n".join(part for part in parts if part)


def _symbols(paper: str, text: str) -> list[str]:
    """Say what the letters in ``text`` mean."""
    return [meaning for pattern, meaning in SYMBOLS[paper].items() if re.search(pattern, text)]


def _check_line(check: Check) -> str:
    """Return a line of the table."""
    bounded = f"{check.side.value}\N{NO-BREAK SPACE}{_number(check.bound)}"
    return f"| {_cell(check.what)} | {_number(check.value)} | {bounded} | {_cell(check.because)} |\n"


def _number(value: float) -> str:
    """Return three digits; with a minus sign in place of the hyphen, at which a browser would break the line."""
    return re.sub(r"e([-+])0?", r"e\1", f"{value:.3g}").replace("-", "−")


def _caption(result: TheoremResult) -> str:
    """Say what is drawn along which axis."""
    plot = result.measurement.plot
    if not isinstance(plot, Plot):
        return "What was measured, panel by panel."
    shown = "; ".join(curve.label for curve in plot.curves if curve.label)
    scale = "; both axes logarithmic" if plot.log else ""
    return f"Horizontal: {plot.x_label}. Vertical: {plot.y_label}{scale}. Shown: {shown}."


def _remarks(notes: tuple[str, ...]) -> str:
    if not notes:
        return ""
    printed = any("printed" in note or "paper" in note for note in notes)
    title = "Where the printed text fails" if printed else "What else was seen"
    return f"## {title}\n\n" + "".join(f"- {note[:1].upper()}{note[1:].rstrip('.')}.\n" for note in notes)


def _broken(identifier: str) -> str:
    lines = "".join(f"- {line}\n" for line in _mutations(identifier))
    introduction = "The tests change the code in each of these ways and see it fail ([all](../../mutations.md)):"
    return f"## What would make it fail\n\n{introduction}\n\n{lines}" if lines else ""


def _mutations(identifier: str) -> list[str]:
    """Return what can be broken so that this row fails, from docs/mutations.md."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (ROOT / "docs" / "mutations.md").read_text(), flags=re.MULTILINE)
    return [what for what, red in rows if identifier in re.split(r",\s*", red)]


def _index(lines: dict[str, str]) -> str:
    parts = [
        "# Theorems\n\nEvery theorem, proposition, lemma and corollary of the papers is a measurement that can fail. "
        "`gatelab theorems` runs them all, `gatelab theorems npk-2.1` one. The site measures them again when the code "
        "changes.\n\nA page has the statement, the numbers with their bounds, the figure, and the changes of the code "
        "that would make it fail. A *contrast* is a number that must be large: without it the check could not fail. "
        "Names with *-printed* are about formulas that the paper prints and that are wrong.\n"
    ]
    for paper, title in PAPERS.items():
        rows = [line for name, line in lines.items() if name.startswith(f"{paper}-")]
        head = "| id | in the paper | statement | measured |\n|---|---|---|---|"
        parts.append("\n".join((f"\n## {title}\n", head, *rows, "")))
    entries = "\n".join(lines)
    return "".join(parts) + f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
