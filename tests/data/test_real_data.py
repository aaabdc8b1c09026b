"""The real data sets, if they are present."""

import time

import pytest

from gatelab import data
from gatelab.errors import DataError


def loaded(name):
    try:
        return data.load(name)
    except DataError as error:
        pytest.skip(f"{name} is not here: run 'make data' ({str(error)[:60]}…)")


@pytest.mark.data
@pytest.mark.parametrize(("name", "train", "classes"), [("mnist", 60000, 10), ("fashion-mnist", 60000, 10)])
def test_idx_sets(name, train, classes):
    loaded(name)
    start = time.perf_counter()
    whole = data.load(name)
    assert time.perf_counter() - start < 2  # under one alone; two leaves room for a busy machine
    assert whole.train_x.shape == (train, 1, 28, 28)
    assert len(whole.test_x) == 10000
    assert len(whole.train_y.unique()) == classes


@pytest.mark.data
def test_fours_and_sevens():
    pair = loaded("mnist-4-7")
    assert pair.train_y.bincount().tolist() == [5842, 6265]


@pytest.mark.slow  # without a cache it decodes 60,000 JPEG images; test_data.py decodes three
@pytest.mark.data
def test_cifar10():
    whole = loaded("cifar10")
    assert whole.train_x.shape == (50000, 3, 32, 32)
    assert whole.train_y.bincount().tolist() == [5000] * 10
    assert whole.title in ("CIFAR-10", "CIFAR-10 (JPEG)")
