"""What workers do in the tests; a module that they can import."""

import itertools
import os
import threading
import time
from pathlib import Path

import torch


class Counting:
    """Something that all tasks need, and that caches inside itself."""

    def __init__(self, size: int = 10):
        self.weights = torch.linspace(-1, 1, size * size, dtype=torch.float32).reshape(size, size)
        self.uses = itertools.count(1)  # two threads never get the same number from it

    def __getstate__(self):
        return {"weights": self.weights}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.uses = itertools.count(1)


def product(common: Counting, task: tuple[slice, slice]) -> torch.Tensor:
    rows, columns = task
    return torch.tanh(common.weights[rows]) @ common.weights[:, columns]


def who(common: Counting, task: int) -> tuple[int, int, int]:
    """The process, its number of threads, and how often it has seen this very object."""
    return os.getpid(), torch.get_num_threads(), next(common.uses)


def patient(folder: str, task: int) -> tuple[int, int]:
    """Leaves a note that it began, and ends when it may."""
    (Path(folder) / f"began-{task}-{os.getpid()}").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return 10 * task, os.getpid()


def report(_: None, task) -> None:
    """Tells its client something."""
    number, say = task
    say(number, "half")


def fail(folder: str, task: int) -> int:
    (Path(folder) / f"tried-{time.time_ns()}").touch()
    raise FileNotFoundError(f"no file for task {task}")


def unsendable(_: None, task: int) -> object:
    return (task, threading.Lock())


def die(folder: str, task: int) -> None:
    os._exit(1)


def count_in_steps(steps: int, cell, context):
    """A cell that keeps its state after every step, and waits in the middle until it may go on."""
    log = context.folder / "steps"
    while (done := len(log.read_text().split()) if log.exists() else 0) < steps:
        context.tell(done / steps, "counting")
        if done == steps // 2 and cell.name == "first":
            patient(str(context.folder.parent), 0)
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
    return {"total": steps + sum(result["total"] for result in context.results.values())}
