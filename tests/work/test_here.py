"""Threads of this process."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gatelab.work.here import one_thread_each, threads_for


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
