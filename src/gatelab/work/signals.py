"""Keeps signals from child processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Block the signals that this process handles, so that processes and threads started here do not receive them.

    A terminal or a batch system sends its signals to all processes of a group. Children must not end before their
    parent, which would take that for an error. A signal that arrives in the meantime reaches this thread
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
