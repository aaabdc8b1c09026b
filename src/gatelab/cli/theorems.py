"""``gatelab theorems``."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli.app import app

if TYPE_CHECKING:
    from rich.console import Console

    from gatelab.lab.theorem import Theorem, TheoremResult


@app.command()
def theorems(
    identifier: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A theorem (npk-5.1) or a paper (npk); all if left out."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Save the theorem's figure to this file (.png, .svg, .pdf).", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="List the theorems without checking them.")] = False,
    seed: Annotated[int, typer.Option(help="The seed of all random networks and data.")] = 0,
) -> None:
    """Check the papers' theorems numerically; print the measured numbers, their bounds and verdicts.

    The exit code is 1 if a theorem fails.
    """
    from rich.console import Console

    from gatelab.errors import InputError
    from gatelab.papers import all_theorems, find_theorems

    chosen = all_theorems() if identifier is None else find_theorems(identifier)
    if plot is not None and len(chosen) != 1:
        raise InputError("--plot draws one theorem: name it, e.g. gatelab theorems npk-5.1 --plot figure.png")
    # A pipe or a file has no width of its own; the table needs about this much to stay readable.
    console = Console(width=None if sys.stdout.isatty() else 150)
    if only_list:
        width = max(len(theorem.id) for theorem in chosen)
        for theorem in chosen:
            typer.echo(f"{theorem.id:<{width}}  {theorem.name}: {theorem.statement}")
        return

    results = _check_all(chosen, seed)
    if plot is not None:
        results[0].save_figure(plot)
    if as_json:
        typer.echo(json.dumps([_as_record(result) for result in results], indent=2, ensure_ascii=False))
    elif len(results) == 1:
        _print_detail(console, results[0])
    else:
        _print_table(console, results)
    if plot is not None and not as_json:
        typer.echo(f"figure: {plot}")
    if not all(map(_holds, results)):
        raise typer.Exit(1)


def _check_all(chosen: "list[Theorem]", seed: int) -> "list[TheoremResult]":
    from gatelab.cli.progress import reporter

    results = []
    with reporter(shortest=1.0) as progress:
        progress.start({theorem.id: 1.0 for theorem in chosen}, ())
        for theorem in chosen:
            progress.update(theorem.id, 0.0, theorem.name)
            results.append(theorem.check(seed))
            progress.finish(theorem.id)
    return results


def _as_record(result: "TheoremResult") -> dict[str, object]:
    record = asdict(result)
    measurement = record.pop("measurement")
    checks = [asdict(check) | {"holds": check.holds} for check in result.measurement.checks]
    return record | {"verdict": result.outcome.value, "checks": checks, "notes": measurement["notes"]}


def _print_table(console: "Console", results: "list[TheoremResult]") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for name in ("id", "statement", "measured", "value", "must be", "verdict"):
        wide = name in ("statement", "measured")
        justify = "right" if name in ("value", "must be") else "left"
        table.add_column(name, ratio=3 if wide else None, no_wrap=not wide, justify=justify)
    for result in results:
        for row, check in enumerate(result.measurement.checks):
            first = row == 0
            table.add_row(
                result.id if first else "",
                escape(f"{result.name}. {result.statement}") if first else "",
                escape(check.what),
                f"{check.value:.2g}",
                f"{check.side.value} {check.bound:.2g}",
                _coloured(result) if first else "",
                end_section=row == len(result.measurement.checks) - 1,
            )
    console.print(table)
    holding = sum(map(_holds, results))
    seconds = sum(result.seconds for result in results)
    console.print(f"{holding} of {len(results)} hold, seed {results[0].seed}, {seconds:.1f} s")


def _print_detail(console: "Console", result: "TheoremResult") -> None:
    console.print(f"[bold]{result.id}[/bold]  {result.name}: {_coloured(result)}")
    console.print(result.statement, end="\n\n", highlight=False, markup=False)
    for check in result.measurement.checks:
        mark = "holds" if check.holds else "FAILS"
        console.print(
            f"  {check.what}: {check.value:.3g}, must be {check.side.value} {check.bound:.3g}: {mark}",
            highlight=False,
            markup=False,
        )
        console.print(f"    why this bound: {check.because}", style="dim", highlight=False, markup=False)
    for note in result.measurement.notes:
        console.print(f"  note: {note}", highlight=False, markup=False)
    console.print(f"\nseed {result.seed}, {result.seconds:.1f} s", highlight=False)


def _coloured(result: "TheoremResult") -> str:
    return "[green]holds[/green]" if _holds(result) else "[bold red]FAILS[/bold red]"


def _holds(result: "TheoremResult") -> bool:
    return result.outcome.value == "holds"
