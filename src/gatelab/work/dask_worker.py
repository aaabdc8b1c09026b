"""What runs in a Dask worker."""

import pickle
import signal
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from gatelab.errors import RunError
from gatelab.work.held import Held
from gatelab.work.here import one_thread_each


def keep(held: Held) -> Held:
    """Its answer is what all tasks need, and what Dask therefore brings to each worker, once."""
    return held


def do(held: Held, task: bytes) -> Any:
    """Do a task, with one thread for linear algebra, so that its answer is the same everywhere."""
    function, common = held.open()
    with one_thread_each():
        return function(common, pickle.loads(task))


@dataclass(frozen=True)
class Say:
    """Sends plain data from a task to whoever hears its crew."""

    topic: str

    def __call__(self, message: Any) -> None:
        """Send it, from a worker.

        Raises:
            RunError: nobody waits for the task any more; it should end.
        """
        worker = get_worker()
        own = worker.state.tasks.get(worker.get_current_task())
        if own is None or own.state == "cancelled":
            raise RunError("the task was given up by those who asked for it")
        worker.log_event(self.topic, message)


def dask_setup(_: Any) -> None:
    """In workers of our own, at their start: Ctrl-C reaches them as well, but the client ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
