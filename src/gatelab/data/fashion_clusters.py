"""Fashion-MNIST with five simple and five complex classes (halfspace, Section 5)."""

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.data.dataset import Dataset
from gatelab.errors import InputError

SIMPLE = 5  # the number of classes that keep their labels


def modified_fashion(fashion: Dataset, *, clusters: int = 5, seed: int = 0) -> Dataset:
    """Keep the labels of the first five classes; split the others into clusters and deal these to labels 5 to 9.

    The paper does not name its clustering. We use k-means on the training images of a class; a test image belongs to
    the nearest centre. Clusters are dealt at random, equally many to each label.

    Args:
        fashion: Fashion-MNIST, or a part of it.
        clusters: number of clusters in each class.
        seed: seed of the clustering and the dealing.

    Returns:
        The same images with new labels.

    Example:
        >>> from gatelab.data import load
        >>> modified_fashion(load("digits").subset(500, 100)).classes[-2:]
        ('mixture 4', 'mixture 5')
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415  slow to import, and needed here only

    if not isinstance(fashion, Dataset):
        raise InputError(f"fashion is {type(fashion).__name__}; give a data set, such as load('fashion-mnist')")
    if not isinstance(clusters, Integral) or clusters < 1:
        raise InputError(f"clusters is {clusters!r}; give the number of clusters in each class, at least 1")
    if len(fashion.classes) <= SIMPLE:
        raise InputError(
            f"{fashion.title} has {len(fashion.classes)} classes, and the first {SIMPLE} keep their labels; "
            "give a data set with more"
        )
    complex_classes = range(SIMPLE, len(fashion.classes))
    generator = torch.Generator().manual_seed(seed)
    dealt = torch.arange(len(complex_classes) * clusters) % len(complex_classes) + SIMPLE
    dealt = dealt[torch.randperm(len(dealt), generator=generator)].view(-1, clusters)
    train_y, test_y = fashion.train_y.clone(), fashion.test_y.clone()
    for row, label in enumerate(complex_classes):
        train, test = fashion.train_y == label, fashion.test_y == label
        if int(train.sum()) < clusters:
            raise InputError(
                f"class {label} has {int(train.sum())} training examples, fewer than {clusters} clusters; use more data"
            )
        machine: Any = KMeans(clusters, n_init="auto", random_state=seed).fit(_pixels(fashion.train_x[train]))
        train_y[train] = dealt[row][torch.from_numpy(machine.labels_).long()]
        if test.any():
            nearest = torch.from_numpy(machine.predict(_pixels(fashion.test_x[test]))).long()
            test_y[test] = dealt[row][nearest]
    simple = fashion.classes[:SIMPLE]
    names = (*simple, *(f"mixture {number}" for number in range(1, len(complex_classes) + 1)))
    return replace(fashion, title=f"{fashion.title}, modified", train_y=train_y, test_y=test_y, classes=names)


def _pixels(images: Tensor) -> np.ndarray:
    return images.flatten(1).float().numpy(force=True)
