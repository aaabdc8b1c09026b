"""Ours against a peer, in turn; the kernels are compared before any time is."""

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.peers.environment import NotAvailableError
from benchmarks.peers.remote import Measured, Peer
from benchmarks.timing import Ratio

# A way that needs this many times the best one's time for a part of the examples is not tried on all of them.
HOPELESS = 2


def speed_up(
    peer: Peer, name: str, ways: tuple[str, ...], ours: Callable[[], Tensor], *, sample: int, n: int, rounds: int
) -> float:
    """The best time of the peer's best way over our best time, and a line about each way.

    All ways run on ``sample`` examples first. Those that are not hopeless run on all n, in turn with ours. Every cost
    that is skipped by this grows at least as fast with n as that of the ways that stay.
    """
    mine = ours()
    first: dict[str, float] = {}
    for way in ways if len(ways) > 1 else ():
        run, kernel = peer.prepare(way, sample)
        check(kernel, mine[:sample, :sample], f"{name} {way}")
        first[way] = min(run.seconds, peer.round().seconds)
        print(f"  {name} {way}: n = {sample}, {first[way]:.2f} s, compiled in {run.compiling:.1f} s", flush=True)
    best = own = own_cpu = math.inf
    for way in ways:
        if first and first[way] > HOPELESS * min(first.values()):
            continue
        run, kernel = peer.prepare(way, n)
        check(kernel, mine, f"{name} {way}")
        theirs: list[Measured] = []
        for _ in range(rounds):
            start, cpu_start = time.perf_counter(), time.process_time()
            ours()
            own = min(own, time.perf_counter() - start)
            own_cpu = min(own_cpu, time.process_time() - cpu_start)
            theirs.append(peer.round())
        seconds, cpu = min(run.seconds for run in theirs), min(run.cpu for run in theirs)
        print(
            f"  {name} {way}: n = {n}, {seconds:.2f} s ({cpu:.2f} s of processor), compiled in {run.compiling:.1f} s; "
            f"ours {own:.2f} s ({own_cpu:.2f} s of processor)",
            flush=True,
        )
        best = min(best, seconds)
    return best / own


def check(theirs: Tensor, ours: Tensor, name: str) -> None:
    """Refuse to compare the speed of different things."""
    gap = float((theirs - ours).abs().max() / ours.abs().max())
    if not gap < 1e-4:
        raise RuntimeError(f"{name}: the two kernels differ by {gap:.1e} of the largest entry")


def measured(work: str, against: str, target: str, at_least: float | None, measure: Callable[[], float]) -> Ratio:
    """A line of the table, or what kept the peer away."""
    print(f"{work}, {torch.get_num_threads()} threads:", flush=True)
    try:
        ratio = measure()
    except NotAvailableError as error:
        return Ratio(work, against, math.nan, target, reached=False, missing=str(error))
    return Ratio(work, against, ratio, target, at_least is None or ratio >= at_least)
