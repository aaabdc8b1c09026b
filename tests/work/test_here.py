"""Threads of this process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gatelab.work.here import in_order, one_thread_each, threads_for


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_only_large_computations_get_several_threads():
    for multiplications, threads in ((0, 1), (2**25 - 1, 1), (2**25, 2), (10**12, 2)):
        with threads_for(multiplications):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("_two_threads")
def test_a_large_computation_inside_a_one_threaded_one_has_one_thread():
    """On a cluster every task has one thread, or its answer would depend on the machine."""
    with one_thread_each(), threads_for(10**12):
        assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("_two_threads")
def test_threads_come_back_when_the_last_user_leaves():
    """Torch gives a new thread the number that was set last, by whatever thread."""

    def in_new_thread(function):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function).result()

    first, second = one_thread_each(), one_thread_each()
    first.__enter__()
    in_new_thread(second.__enter__)
    first.__exit__(None, None, None)
    assert in_new_thread(torch.get_num_threads) == 1
    in_new_thread(lambda: second.__exit__(None, None, None))
    assert in_new_thread(torch.get_num_threads) == 2


def test_reading_and_work_overlap():
    read = [threading.Event() for _ in range(8)]

    def items():
        for item, event in enumerate(read):
            event.set()
            yield item

    def work(item):
        # Work on this item ends only when the next has been read: for ever, if one waited for the other.
        return all(event.wait(timeout=20) for event in read[: item + 2])

    assert list(in_order(work, items(), threads=1)) == [(item, True) for item in range(8)]


def test_no_more_is_read_than_the_threads_can_use():
    read = []

    def items():
        for item in range(100):
            read.append(item)
            yield item

    before = threading.active_count()
    answers = in_order(abs, items(), threads=3)
    next(answers)
    time.sleep(0.3)
    assert len(read) <= 4  # three at work, one waiting
    answers.close()
    assert threading.active_count() == before


def test_errors_of_the_items_arrive():
    def items():
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(in_order(abs, items(), threads=1))
