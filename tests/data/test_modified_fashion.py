"""The modified Fashion-MNIST."""

import pytest
import torch

from gatelab.data import Dataset, load, modified_fashion
from gatelab.errors import DataError, InputError


def blobs(per_class=40, seed=0):
    """Ten classes of 4 × 4 images; each class is five bright squares, one for each of its clusters."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(10).repeat_interleave(per_class)
    kind = torch.arange(per_class).repeat(10) % 5
    images = torch.randint(0, 20, (len(labels), 1, 4, 4), generator=generator, dtype=torch.uint8)
    images.flatten(1)[torch.arange(len(labels)), 3 * kind] += 200
    return images, labels, kind


def dataset():
    (x, y, _), (a, b, _) = blobs(), blobs(10, seed=1)
    return Dataset("fashion-mnist", "Fashion-MNIST", x, y, a, b, tuple("abcdefghij"))


def test_simple_classes_stay_and_clusters_are_dealt_evenly():
    data = dataset()
    made = modified_fashion(data)
    simple = data.train_y < 5
    assert torch.equal(made.train_y[simple], data.train_y[simple])
    assert torch.equal(made.train_x, data.train_x)
    _, labels, kind = blobs()
    clusters = {(c, k): set(made.train_y[(labels == c) & (kind == k)].tolist()) for c in range(5, 10) for k in range(5)}
    assert all(len(labels) == 1 for labels in clusters.values())  # a cluster has one label
    dealt = [next(iter(labels)) for labels in clusters.values()]
    assert [dealt.count(label) for label in range(5, 10)] == [5] * 5
    _, tests, test_kind = blobs(10, seed=1)
    for place in range(len(tests)):
        if tests[place] >= 5:
            assert int(made.test_y[place]) in clusters[int(tests[place]), int(test_kind[place])]
    assert made.title == "Fashion-MNIST, modified"
    assert made.classes[4:6] == ("e", "mixture 1")


def test_dealing_depends_on_the_seed_only():
    data = dataset()
    first, again, other = (modified_fashion(data, seed=seed).train_y for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_too_few_examples_are_refused():
    with pytest.raises(InputError, match="class 5 has 40 training examples, fewer than 41 clusters"):
        modified_fashion(dataset(), clusters=41)


@pytest.mark.data
def test_on_the_real_images():
    try:
        fashion = load("fashion-mnist")
    except DataError:
        pytest.skip("fashion-mnist is not here: run 'make data'")
    made = modified_fashion(fashion.subset(5000, 1000))
    assert int((made.train_y >= 5).sum()) == int((fashion.subset(5000, 1000).train_y >= 5).sum())
    assert set(made.train_y.tolist()) == set(range(10))
