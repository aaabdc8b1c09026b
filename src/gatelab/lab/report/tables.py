"""Tables as CSV, Markdown and LaTeX, and claims as a table."""

import csv
import io
from collections.abc import Iterable

from gatelab.lab.findings import Table
from gatelab.lab.verdicts import Claim
from gatelab.lab.verdicts.verdict import p_text

_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "ν": r"$\nu$"}  # fmt: skip


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return claims as a table: the verdict, the effect with its interval, and the p-value after Holm's correction.

    A comparison without chance has its number as effect and no p-value. What cannot be tested has its reason.
    """
    return Table(
        "Claims",
        ("claim", "verdict", "effect", "95 % interval", "p, Holm"),
        tuple((claim.text, *_decided(claim)) for claim in claims),
    )


def _decided(claim: Claim) -> tuple[str, str, str, str]:
    verdict, needed = claim.verdict, claim.verdict.runs_needed
    if verdict.obstacle:
        return f"{verdict.outcome.value} ({verdict.obstacle})", "", "", ""
    if verdict.is_exact:
        return verdict.outcome.value, f"{verdict.effect:.2g}", "", "exact"
    outcome = verdict.outcome.value + (f" (about {needed} runs would decide)" if needed is not None else "")
    effect = f"{verdict.number(verdict.effect)} {verdict.unit}".strip()
    interval = "" if verdict.interval is None else " to ".join(map(verdict.number, verdict.interval))
    p = p_text(verdict.p if verdict.adjusted is None else verdict.adjusted).removeprefix("= ")
    return outcome, effect, interval, p


def as_csv(table: Table) -> str:
    """Return a table as CSV, one line per row."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([table.columns, *table.rows])
    return buffer.getvalue()


def as_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def as_latex(table: Table) -> str:
    """Return a table as a LaTeX tabular (booktabs)."""

    def line(row: tuple[str, ...]) -> str:
        return " & ".join("".join(_LATEX.get(letter, letter) for letter in cell) for cell in row) + r" \\"

    head = rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}"
    body = [
        head,
        r"\toprule",
        line(table.columns),
        r"\midrule",
        *map(line, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(body) + "\n"
