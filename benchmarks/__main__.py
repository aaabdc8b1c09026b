"""Prints every ratio. Exits with 1 if a target is missed."""

import importlib
import os
import platform
import sys

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# A new benchmark is a module with run(), named here.
BENCHMARKS = (
    "tangent", "tangent_peers", "overlap", "notebooks", "growth", "paths", "convolutional", "max_pooling", "residual",
    "training", "products", "regions", "circle", "gdln", "hierarchy", "scale",
)  # fmt: skip


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    wanted = sys.argv[1:] or BENCHMARKS
    unknown = set(wanted) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    ratios = [ratio for name in wanted for ratio in importlib.import_module(f"benchmarks.{name}").run()]
    table = Table(title=f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}, "
                        f"{platform.machine()}")  # fmt: skip
    for column in ("work", "against", "ratio", "target", ""):
        table.add_column(column)
    for ratio in ratios:
        verdict = "reached" if ratio.reached else "MISSED"
        if ratio.missing:
            verdict = f"not available: {escape(ratio.missing)}"
        elif ratio.target == "none":
            verdict = "shown"
        table.add_row(ratio.work, ratio.against, "" if ratio.missing else f"{ratio.value:.2f}", ratio.target, verdict)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 0 if all(ratio.reached for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
