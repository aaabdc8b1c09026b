"""Peak memory of a call, in a process of its own."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def peak_of(function: Callable[[], object]) -> int:
    """Bytes by which the resident set rises at most above its level before the call (Linux only)."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = status("VmRSS")
    function()
    return status("VmHWM") - before


def in_fresh_process(module: str) -> str:
    """What ``python -m module`` prints, on the threads of this process's environment; arguments may follow."""
    command = [sys.executable, "-m", *module.split()]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout


def status(field: str) -> int:
    """Bytes that the kernel reports of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")
