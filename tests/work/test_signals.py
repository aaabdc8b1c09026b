"""Child processes do not receive the signals that their parent handles."""

import multiprocessing
import signal
from multiprocessing import resource_tracker

import pytest

from gatelab.work.signals import kept_from_children

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no signal masks")


def test_signals_stay_blocked_when_multiprocessing_starts_its_tracker(monkeypatch):
    """A child inherits the mask of the thread that starts it."""
    tracker = resource_tracker._resource_tracker
    for name in ("_fd", "_pid"):  # as in a process that has started none
        monkeypatch.setattr(tracker, name, None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with kept_from_children():
        multiprocessing.get_context("spawn").SimpleQueue()
        inside = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    tracker._stop()
    assert signal.SIGINT in inside - before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
