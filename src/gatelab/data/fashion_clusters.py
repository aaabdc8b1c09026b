"""Fashion-MNIST with five simple and five complex classes (halfspace, Section 5)."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from gatelab.data.dataset import Dataset
from gatelab.errors import InputError

SIMPLE = 5  # the first so many classes keep their labels


def modified_fashion(fashion: Dataset, *, clusters: int = 5, seed: int = 0) -> Dataset:
    """Keep the labels of the first five classes; cut each of the others into clusters and deal those to labels 5 to 9.

    The paper does not name its clustering: ours is k-means on the training images of a class, a test image going to the
    nearest centre. The clusters are dealt at random, as many to each label.

    Args:
        fashion: Fashion-MNIST, or a part of it.
        clusters: in each class.
        seed: of the clustering and the dealing.

    Raises:
        InputError: a class has fewer training examples than clusters.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415  slow to import, and needed here only

    complex_classes = range(SIMPLE, len(fashion.classes))
    generator = torch.Generator().manual_seed(seed)
    dealt = torch.arange(len(complex_classes) * clusters) % len(complex_classes) + SIMPLE
    dealt = dealt[torch.randperm(len(dealt), generator=generator)].view(-1, clusters)
    train_y, test_y = fashion.train_y.clone(), fashion.test_y.clone()
    for row, label in enumerate(complex_classes):
        mine, others = fashion.train_y == label, fashion.test_y == label
        if int(mine.sum()) < clusters:
            raise InputError(
                f"class {label} has {int(mine.sum())} training examples, fewer than {clusters} clusters; take more data"
            )
        machine = KMeans(clusters, n_init="auto", random_state=seed).fit(_pixels(fashion.train_x[mine]))
        train_y[mine] = dealt[row][_labels(machine.labels_)]
        if others.any():
            test_y[others] = dealt[row][_labels(machine.predict(_pixels(fashion.test_x[others])))]
    simple = fashion.classes[:SIMPLE]
    names = (*simple, *(f"mixture {number}" for number in range(1, len(complex_classes) + 1)))
    return replace(fashion, title=f"{fashion.title}, modified", train_y=train_y, test_y=test_y, classes=names)


def _pixels(images: Tensor) -> np.ndarray:
    return images.flatten(1).float().numpy(force=True)


def _labels(found: Any) -> Int64[Tensor, " n"]:
    return torch.from_numpy(found).long()
