"""Kernels of all 60,000 MNIST digits to disk: memory, the disk's share of the time, and growth with n."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Ratio
from gatelab.errors import DataError
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.work.files import write_durably

N = 60_000
GROWTH = (2_000, 4_000, 8_000, 16_000, 32_000)
GIB = 2**30


def computed(kind: str, n: int, memory: str, folder: Path) -> dict[str, Any]:
    """What a process of its own measures."""
    command = [sys.executable, "-m", "benchmarks.scale_process", kind, str(n), memory, str(folder / f"{kind}-{n}.zarr")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return json.loads(answer.stdout.splitlines()[-1])


def disk_seconds(folder: Path, files: int, size: int) -> float:
    """Writing as many files of the same size, each durably, and nothing else."""
    content = np.random.default_rng(0).bytes(size)
    start = time.perf_counter()
    for number in range(files):
        write_durably(folder / "written" / str(number), content)
    seconds = time.perf_counter() - start
    for number in range(files):
        (folder / "written" / str(number)).unlink()
    return seconds


def run() -> list[Ratio]:
    """Measure; needs MNIST and 20 GB of disk."""
    try:
        return [*_overlap(), *_tangent(), *_growth()]
    except DataError as error:
        print(f"scale: not measured, {error}")
        return []


def _overlap() -> list[Ratio]:
    with tempfile.TemporaryDirectory(dir=".") as name:
        told = computed("overlap", N, "3GB", Path(name))
        disk = disk_seconds(Path(name), told["tiles"], told["tile_bytes"])
    bound = max(disk, told["in_memory"])
    _tell("overlap", told, disk)
    work = f"overlap to disk, n = {N}, 4 layers of 128"
    ratio, memory = told["seconds"] / bound, told["peak"] / GIB
    return [
        Ratio(work, "writing the same bytes, or the tiles in memory (time)", ratio, "≤ 2", ratio <= 2),
        Ratio(work, "one GiB (peak memory)", memory, "≤ 3", memory <= 3),
    ]


def _tangent() -> list[Ratio]:
    with tempfile.TemporaryDirectory(dir=".") as name:
        told = computed("ntk", N, "4GB", Path(name))
        disk = disk_seconds(Path(name), told["tiles"], told["tile_bytes"])
    _tell("tangent", told, disk)
    work = f"tangent kernel to disk, n = {N}, 784-128⁴-1"
    rate, memory = told["in_memory"] / told["seconds"], told["peak"] / GIB
    return [
        Ratio(work, "the tiles in memory (rate)", rate, "≥ 0.6", rate >= 0.6),
        Ratio(work, "one GiB (peak memory)", memory, "≤ 4", memory <= 4),
    ]


def _tell(kind: str, told: dict[str, Any], disk: float) -> None:
    alone = f"the disk alone {disk:.1f} s, the tiles alone {told['in_memory']:.1f} s"
    print(f"{kind}, n = {N}: {told['seconds']:.1f} s; {alone}")


def _growth() -> list[Ratio]:
    ratios = []
    for kind in ("overlap", "ntk"):
        with tempfile.TemporaryDirectory(dir=".") as name:
            seconds = [computed(kind, n, "4GB", Path(name))["seconds"] for n in GROWTH]
        print(f"{kind}: " + ", ".join(f"n = {n}: {s:.2f} s" for n, s in zip(GROWTH, seconds, strict=True)))
        power = fitted_power(GROWTH, seconds)
        work = f"{kind} to disk, n from {GROWTH[0]} to {GROWTH[-1]}"
        ratios.append(Ratio(work, "growth of time with n (exponent)", power, "≤ 2.05", power <= 2.05))
    return ratios
