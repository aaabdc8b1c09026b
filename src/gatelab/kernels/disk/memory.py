"""Memory: available, requested, used."""

import re
from pathlib import Path

import psutil

from gatelab.errors import InputError

# Files in which Linux states the limit of a container or batch job, in version 2 and version 1 of control groups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_budget(memory: str | int | None) -> int:
    """Convert "4GB", "800 MiB" or a number to bytes; None means half of the available memory.

    Example:
        >>> memory_budget("4GB"), memory_budget("1.5 GiB")
        (4000000000, 1610612736)
    """
    if memory is None:
        return available_bytes() // 2
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
    if match is None or float(match[1]) == 0:
        raise InputError(f"memory is {memory!r}; write a size such as 4GB, 800MB or 2GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " "))


def available_bytes() -> int:
    """Return the memory of the machine, or the limit of this job if that is less."""
    limits = [Path(place).read_text().strip() for place in _LIMITS if Path(place).is_file()]
    return min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdecimal())])


def free_bytes() -> int:
    """Return the memory that is free for this job now."""
    return min(psutil.virtual_memory().available, max(0, available_bytes() - resident_bytes()))


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return psutil.Process().memory_info().rss


def in_words(count: float) -> str:
    """Return a number of bytes as text.

    Example:
        >>> in_words(7_200_000_000), in_words(512)
        ('7.2 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
