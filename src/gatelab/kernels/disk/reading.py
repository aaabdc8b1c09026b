"""Reads ahead: a thread fetches the next items while the caller works on the latest one."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


class _End:
    """What ``next`` returns when no item is left."""


def read_ahead(items: Iterable[Item], depth: int = 2) -> Generator[Item]:
    """Yield the same items, up to ``depth`` of them fetched before they are asked for.

    An error in ``items`` is raised here, at its place in the order. Closing the generator ends the thread.

    Example:
        >>> list(read_ahead(range(4)))
        [0, 1, 2, 3]
    """
    source = iter(items)
    with ThreadPoolExecutor(1, "read ahead") as reader:
        fetched: deque[Future[Item | type[_End]]] = deque(reader.submit(next, source, _End) for _ in range(depth))
        try:
            while (item := fetched.popleft().result()) is not _End:
                fetched.append(reader.submit(next, source, _End))
                yield item  # pyright: ignore[reportReturnType]  the end is excluded above
        finally:
            reader.shutdown(cancel_futures=True)
