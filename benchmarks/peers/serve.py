"""The peer's side: one request a line, one answer a line. Imported by every peer's process, so: no torch, no jax."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Work = Callable[[], np.ndarray]


class Prepare(Protocol):
    """Makes a computation ready to run."""

    def __call__(self, way: str, problem: dict[str, np.ndarray]) -> tuple[Work, float]:
        """The computation, compiled, and the seconds that compiling took."""
        ...


def pin_threads() -> int:
    """Stay on as many cores as the other side has threads: XLA counts cores and knows no other setting."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return threads


def serve(prepare: Prepare) -> None:
    """Answer requests until the other side closes the pipe."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    work: Work | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            if request["do"] == "prepare":
                with np.load(request["problem"]) as stored:
                    problem = dict(stored)
                problem["x"] = problem["x"][: request["examples"]]
                work, compiling = prepare(request["way"], problem)
                answer = {"compiling": compiling, **_timed(work, request["result"])}
            else:
                assert work is not None
                answer = _timed(work)
        except Exception as error:  # a peer may fail in any way; the other side prints what it said
            said = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {said[0] if said else ''}"}
        print(json.dumps(answer), file=answers, flush=True)


def _timed(work: Work, result: str | None = None) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    kernel = work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if result is not None:
        np.save(Path(result), kernel)
    return {"seconds": seconds, "cpu": cpu}
