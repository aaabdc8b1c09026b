"""Seeded draws for code that knows only torch's global generator: constructors of layers, dropout, augmentation.

Such code takes no generator. While this is the only thread, the global generators are seeded and put back. While other
threads run, that would give them the same numbers twice. Then nothing global is seeded: a mode, which torch keeps for
each thread, gives every operation that draws a generator of its own. Both ways give the same numbers.
"""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gatelab.errors import InputError

_REMEDY = "draw with a torch.Generator of its own, or call gatelab while no other thread runs"
OWN_THREADS = "gatelab: "  # the names of threads that gatelab starts begin so; they draw no random numbers
# Nor do these: progress bars, queues between processes, notebooks, debuggers, loggers.
_DRAW_NOTHING = (
    *("rich.live", "tqdm._monitor", "multiprocessing.", "concurrent.futures.process"),
    *("ipykernel.", "IPython.", "zmq.", "tornado.", "prompt_toolkit.", "debugpy.", "pydevd", "_pydev", "tensorboard."),
)
_SEEDS = torch.random.manual_seed.__code__
_OTHER_CHANGES = {
    torch.random.seed.__code__: "seed()",
    torch.random.set_rng_state.__code__: "set_rng_state(), as fork_rng() and checkpointing do",
}


def is_alone() -> bool:
    """Whether no other thread runs that may draw random numbers; a progress bar's thread draws none."""
    return not any(_may_draw(thread) for thread in threading.enumerate() if thread is not threading.current_thread())


def _may_draw(thread: threading.Thread) -> bool:
    module = getattr(getattr(thread, "_target", None), "__module__", None) or type(thread).__module__
    return not thread.name.startswith(OWN_THREADS) and not module.startswith(_DRAW_NOTHING)


@contextmanager
def seeded_chance(seed: int) -> Iterator[None]:
    """Draw from torch under a seed within the block, and leave the caller's random state unchanged.

    Raises:
        InputError: other threads run, and the code in the block draws or seeds in a way that would affect them.

    Example:
        >>> before = torch.get_rng_state()
        >>> with seeded_chance(3):
        ...     first = torch.nn.Linear(2, 2).weight
        >>> with seeded_chance(3):
        ...     second = torch.nn.Linear(2, 2).weight
        >>> torch.equal(first, second), torch.equal(torch.get_rng_state(), before)
        (True, True)
    """
    if is_alone():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    else:
        chance = _OwnChance(seed)
        with chance, _watched(chance):
            yield


@contextmanager
def seeded_everywhere(seed: int) -> Iterator[None]:
    """As :func:`seeded_chance`, also for NumPy's and Python's global generators.

    While other threads run these two are not seeded; see :func:`other_states` for whether somebody drew from them.
    """
    with seeded_chance(seed), _other_seeds(seed) if is_alone() else nullcontext():
        yield


def other_states() -> dict[str, Any]:
    """Return the states of NumPy's and Python's global generators, in a form that can be compared with ``==``."""
    kind, numbers, *rest = np.random.get_state()  # noqa: NPY002  the state that a user's code draws from
    states = {"NumPy": (kind, np.asarray(numbers).tobytes(), *rest)}
    # beartype draws from Python's generator in every function that it checks.
    return states if "beartype" in sys.modules else states | {"Python": random.getstate()}


@contextmanager
def _other_seeds(seed: int) -> Iterator[None]:
    held = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        yield
    finally:
        np.random.set_state(held[0])  # noqa: NPY002
        random.setstate(held[1])


class _OwnChance(TorchDispatchMode):
    """Gives every operation that would draw from a global generator one of this mode."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        self.seed = seed

    def reseed(self, seed: int) -> None:
        """Begin anew from a seed."""
        self._generators, self.seed = {}, seed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        if given.get("generator") is not None or _is_idle(given):
            return func(*args, **kwargs)
        return _taking_generator(func)(*args, **{**kwargs, "generator": self._generator(given)})

    def _generator(self, given: dict[str, Any]) -> torch.Generator:
        like = next((value for value in given.values() if isinstance(value, Tensor)), None)
        device = torch.device(given.get("device") or (like.device if like is not None else "cpu"))
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]


def _is_idle(given: dict[str, Any]) -> bool:
    """Whether an operation that can draw does not: attention or dropout with nothing to drop."""
    return 0 in (given.get("p"), given.get("dropout_p")) or given.get("train", given.get("training")) is False


def _taking_generator(func: Any) -> Any:
    """Return the overload of an operation that takes a generator, and otherwise the same arguments."""
    wanted = {argument.name for argument in func._schema.arguments} | {"generator"}
    packet = func.overloadpacket
    for name in (func._overloadname, *packet.overloads()):
        overload = getattr(packet, name)
        if {argument.name for argument in overload._schema.arguments} == wanted:
            return overload
    raise InputError(
        f"{packet.__name__} draws from torch's global generator, and takes no other, while other threads run that "
        f"may draw from it, too; {_REMEDY}"
    )


@contextmanager
def _watched(chance: _OwnChance) -> Iterator[None]:
    """Follow ``torch.manual_seed`` in this thread, and refuse other changes of torch's global state.

    Only the calling thread is watched. An earlier profiler hears nothing meanwhile.
    """
    refused: list[str] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event != "call":
            return
        if frame.f_code is _SEEDS:
            chance.reseed(int(frame.f_locals["seed"]))
        elif frame.f_code in _OTHER_CHANGES:
            refused.append(_OTHER_CHANGES[frame.f_code])
            raise _refusal(refused[0])

    earlier = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(earlier)
    if refused:  # the code may have caught the error
        raise _refusal(refused[0])


def _refusal(change: str) -> InputError:
    return InputError(f"it changes torch's global random state by {change}, while other threads run; {_REMEDY}")
