"""Keeps signals from child processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


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
        # Python before 3.12.9 unblocks SIGINT and SIGTERM in the thread that starts multiprocessing's resource tracker
        # (python/cpython issue 127586). Dask's first worker would start it and then receive them.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
