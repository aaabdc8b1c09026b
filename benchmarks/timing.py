"""Ratios that survive a noisy machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """One line of the table.

    Attributes:
        work: what was done.
        against: the peer or the bound.
        value: the ratio.
        target: what it should be, in words.
        reached: whether it is.
        missing: why there is no ratio, if there is none; such a line counts as not reached.
    """

    work: str
    against: str
    value: float
    target: str
    reached: bool
    missing: str = ""


def interleaved(
    *functions: Callable[[], object], rounds: int = 7, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The best time of each function, measured in turn so that a busy moment hits all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:  # warm up: compilation, page faults, thread pools
        function()
    for _ in range(rounds):
        for function, collected in zip(functions, times, strict=True):
            start = clock()
            function()
            collected.append(clock() - start)
    return [min(collected) for collected in times]
