"""What runs in a Dask worker."""

import threading
from dataclasses import dataclass
from typing import Any

import cloudpickle
from distributed import get_worker

from gatelab import __version__
from gatelab.errors import InputError, RunError
from gatelab.work.here import one_thread_each

_opening = threading.Lock()


def do_task(name: str, task: bytes, version: str) -> Any:
    """Run a task with one thread for linear algebra, so that its answer is the same on every machine."""
    if version != __version__:
        raise InputError(f"worker {this_worker()} has gatelab {__version__}, the client {version}; install the same")
    plugin: Any = get_worker().plugins[name]
    with _opening:
        if plugin.content is not None:
            plugin.opened, plugin.content = cloudpickle.loads(plugin.content), None
    function, common = plugin.opened
    with one_thread_each():
        return function(common, cloudpickle.loads(task))


def this_worker() -> str:
    """Return the name and address of the worker that runs the current task."""
    worker = get_worker()
    return f"{worker.name} ({worker.address})"


@dataclass(frozen=True)
class Say:
    """Sends plain data from a running task to the client that started its crew."""

    topic: str

    def __call__(self, *message: Any) -> None:
        """Send a message from a worker.

        Raises:
            RunError: the client no longer waits for the task, which should end.
        """
        worker = get_worker()
        own = worker.state.tasks.get(worker.get_current_task())
        if own is None or own.state == "cancelled":
            raise RunError("the client no longer waits for this task")
        worker.log_event(self.topic, message)
