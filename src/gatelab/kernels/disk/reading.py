"""Reading ahead: what comes next is fetched in a thread while what came last is worked on."""

import queue
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
_PATIENCE = 0.1  # seconds after which a waiting reader looks whether it is still wanted


@dataclass(frozen=True)
class _End:
    """The last thing in the queue: nothing more comes, or reading failed."""

    error: BaseException | None = None


def read_ahead(items: Iterable[Item], depth: int = 2) -> Generator[Item]:
    """The same items, up to ``depth`` of them fetched before they are asked for.

    An error in ``items`` is raised here, in its place in the order. Whoever stops early stops the thread as well.

    Example:
        >>> list(read_ahead(range(4)))
        [0, 1, 2, 3]
    """
    fetched: queue.Queue[Item | _End] = queue.Queue(depth)
    unwanted = threading.Event()

    def put(item: "Item | _End") -> None:
        while not unwanted.is_set():
            try:
                fetched.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for item in items:
                put(item)
                if unwanted.is_set():
                    return
            put(_End())
        except BaseException as error:
            put(_End(error))

    reader = threading.Thread(target=read, name="read ahead", daemon=True)
    reader.start()
    try:
        while not isinstance(item := fetched.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        unwanted.set()
        reader.join()
