"""The table of ``make attacks``: for each area, how many cases were tried and how many succeeded, by outcome."""

from collections import defaultdict
from itertools import zip_longest

import pytest

from tests.attacks.commands import command  # noqa: F401  a fixture of all attacks on the command line

_OUTCOMES = ("SilentlyWrongError", "RawError", "ChangedStateError")
_HEADINGS = ("area", "tried", "silently wrong", "raw error", "changed state", "other")


@pytest.fixture(autouse=True)
def _as_a_user(unchecked):
    """Arguments reach the library's own checks, as they do outside the test suite."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    marker = item.get_closest_marker("attack")
    if marker is not None and (report.when == "call" or report.failed):
        error = None if call.excinfo is None else call.excinfo.type.__name__
        report.user_properties.append(("attack", (marker.args[0], error if report.failed else None)))


def pytest_terminal_summary(terminalreporter):
    rows = count(
        _properties(report)["attack"]
        for outcome in ("passed", "failed", "error")
        for report in terminalreporter.stats.get(outcome, ())
        if "attack" in _properties(report)
    )
    if rows:
        terminalreporter.section("attacks")
        for line in table(rows):
            terminalreporter.write_line(line)


def _properties(report):
    """What a report carries; one about a file that cannot be collected carries nothing."""
    return dict(getattr(report, "user_properties", ()))


def count(cases):
    """Return one row per area, and their sum: tried, and succeeded by outcome."""
    rows = defaultdict(lambda: dict.fromkeys(_HEADINGS[1:], 0))
    for area, error in cases:
        for name in (area, "all"):
            rows[name]["tried"] += 1
            if error is not None:
                place = _OUTCOMES.index(error) + 1 if error in _OUTCOMES else -1
                rows[name][_HEADINGS[1:][place]] += 1
    return {name: rows[name] for name in sorted(rows, key=lambda name: (name == "all", name))}


def table(rows):
    """Return the lines of the table, in columns."""
    cells = [_HEADINGS, *((name, *map(str, row.values())) for name, row in rows.items())]
    widths = [max(map(len, column)) for column in zip_longest(*cells)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
