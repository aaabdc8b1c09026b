"""Keeps signals from child processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Let no process or thread that is started here receive the signals for which this process has a handler.

    A terminal or a batch system sends its signals to all processes of a group. Children must not end on their own
    before their parent does: it would take their end for an error. A signal that comes meanwhile reaches this thread
    afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    handled = {number for number in signal.valid_signals() if callable(signal.getsignal(number))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
