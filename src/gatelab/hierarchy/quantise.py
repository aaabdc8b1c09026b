"""Turn a region's nodes into a discrete variable: clusters, product codes, or which gates are open."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float, Int
from sklearn.cluster import KMeans
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import encode
from gatelab.models.init import check_counts

_CHUNK = 2**18  # vectors that are compared with all centres at once


class Codebook(ABC):
    """Maps a vector of nodes to one of ``values`` values."""

    values: int

    @abstractmethod
    def encode(self, nodes: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
        """Return the value of each vector."""


class Quantiser(ABC):
    """A way to make codebooks from examples of vectors."""

    @abstractmethod
    def fit(self, nodes: Float[Tensor, "n c"], generator: torch.Generator | None = None) -> Codebook:
        """Return the codebook of these examples."""


@dataclass(frozen=True)
class NearestCentre(Codebook):
    """The nearest of several centres."""

    centres: Float[Tensor, "m c"]

    @property
    def values(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of centres."""
        return len(self.centres)

    def encode(self, nodes: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
        """Return the nearest centre of each vector."""
        centres = self.centres.to(nodes)
        half = centres.square().sum(dim=1) / 2
        return torch.cat([(part @ centres.T - half).argmax(dim=1) for part in nodes.split(_CHUNK)])


@dataclass(frozen=True)
class Clusters(Quantiser):
    """z_α is the k-means cluster of the region's nodes.

    Args:
        values: number of clusters; fewer if there are fewer different vectors.
    """

    values: int = 16

    def __post_init__(self) -> None:
        check_counts(values=self.values)

    def fit(self, nodes: Float[Tensor, "n c"], generator: torch.Generator | None = None) -> NearestCentre:
        """Return the centres of k-means."""
        points = nodes.detach().cpu().double()
        different = torch.unique(points, dim=0)
        if len(different) <= self.values:
            return NearestCentre(different.to(nodes))
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
        means = KMeans(self.values, n_init=1, random_state=seed, max_iter=50)  # pyright: ignore[reportArgumentType]
        found = means.fit(points.numpy())
        return NearestCentre(torch.as_tensor(found.cluster_centers_).to(nodes))


@dataclass(frozen=True)
class ProductBook(Codebook):
    """Several codebooks, each of a part of the nodes."""

    parts: tuple[tuple[tuple[int, ...], Codebook], ...]

    @property
    def values(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of combinations."""
        return prod(book.values for _, book in self.parts)

    def encode(self, nodes: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
        """Return the combination of the parts' values; the first is the most significant."""
        codes = [book.encode(nodes[:, list(columns)]) for columns, book in self.parts]
        return encode(torch.stack(codes, dim=1), [book.values for _, book in self.parts])


@dataclass(frozen=True)
class ProductCodes(Quantiser):
    """z_α is a tuple: the nodes are dealt into parts, and each part has its own clusters.

    Args:
        parts: number of parts, at most the number of nodes.
        values: clusters in each.
    """

    parts: int = 2
    values: int = 4

    def __post_init__(self) -> None:
        check_counts(parts=self.parts, values=self.values)

    def fit(self, nodes: Float[Tensor, "n c"], generator: torch.Generator | None = None) -> ProductBook:
        """Return the clusters of each part."""
        chosen = [tuple(range(first, nodes.shape[1], self.parts)) for first in range(min(self.parts, nodes.shape[1]))]
        clusters = Clusters(self.values)
        return ProductBook(tuple((columns, clusters.fit(nodes[:, list(columns)], generator)) for columns in chosen))


@dataclass(frozen=True)
class GateBits(Codebook):
    """Which of some nodes are positive, as bits; the first is the most significant."""

    columns: tuple[int, ...]

    @property
    def values(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """2^k for k nodes."""
        return 2 ** len(self.columns)

    def encode(self, nodes: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
        """Return the bits as a number."""
        return encode((nodes[:, list(self.columns)] > 0).long(), [2] * len(self.columns))


@dataclass(frozen=True)
class SignPattern(Quantiser):
    """z_α is the sign pattern: which of the region's gates are open. It consists of binary factors (Definition 3).

    Args:
        bits: how many gates to use: those open closest to half the time, which carry the most information.
    """

    bits: int = 4

    def __post_init__(self) -> None:
        check_counts(bits=self.bits)
        if self.bits > 20:
            raise InputError(f"{self.bits} gates have {2**self.bits:,} patterns; choose up to 20")

    def fit(self, nodes: Float[Tensor, "n c"], generator: torch.Generator | None = None) -> GateBits:
        """Choose the gates."""
        del generator
        share = (nodes > 0).double().mean(dim=0)
        order = (share - 0.5).abs().argsort(stable=True)[: self.bits]
        return GateBits(tuple(sorted(order.tolist())))
