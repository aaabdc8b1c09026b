"""Signals that ask the process to stop: all of them end like Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Windows has no SIGHUP.
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in the main thread at each of the signals; yield a list of the signals received.

    Signals that are ignored, as SIGHUP is under nohup, stay ignored. A terminal that closes sends SIGHUP more than
    once: after the first signal only Ctrl-C interrupts the shutdown.
    """
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in _STOPPING}

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for other in set(_STOPPING) - {signal.SIGINT}:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
