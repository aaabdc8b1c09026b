"""Tables as CSV, Markdown and LaTeX."""

import csv
import io

from gatelab.lab.findings import Table

_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "ν": r"$\nu$"}  # fmt: skip


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
