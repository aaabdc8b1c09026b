"""Distributions of discrete inputs: x has d positions, each with one of v values (hierarchy, Section 2.2)."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import ENUMERATION_LIMIT, all_values, check_strings, places
from gatelab.models.init import check_counts

ROW_TOLERANCE = 1e-6


class Inputs(ABC):
    """A distribution over strings of d = ``n_positions`` positions, each with one of v = ``values`` values."""

    n_positions: int
    values: int

    @property
    def support_size(self) -> int:
        """Number of strings; :meth:`support` leaves out those of probability zero."""
        return self.values**self.n_positions

    def support(self, limit: int = ENUMERATION_LIMIT) -> tuple[Int[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return every input with positive probability, and its probability in float64; refuse to visit too many."""
        x = all_values((self.values,) * self.n_positions, limit)
        probability = self.probability(x)
        return x[probability > 0], probability[probability > 0]

    @abstractmethod
    def probability(self, x: Int[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return the probability of each input, in float64."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Int[Tensor, "n d"]:
        """Draw n independent inputs."""


class Independent(Inputs):
    """Independent positions; each row of ``probabilities`` is the distribution of one."""

    def __init__(self, probabilities: Float[Tensor, "d v"]):
        self.probabilities = _normalised("the probabilities of the positions", probabilities)
        self.n_positions, self.values = self.probabilities.shape

    def probability(self, x: Int[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return Π_i p_i(x_i)."""
        check_strings(x, self.n_positions, self.values)
        table = self.probabilities.to(x.device)
        return table[torch.arange(self.n_positions, device=x.device), x].prod(dim=1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Int[Tensor, "n d"]:
        """Draw n independent inputs."""
        check_counts(n=n)
        return torch.multinomial(self.probabilities, n, replacement=True, generator=generator).T.contiguous()


class Uniform(Independent):
    """All strings equally likely.

    Example:
        >>> x, p = Uniform(3).support()
        >>> x.tolist()[:2], p[0].item()
        ([[0, 0, 0], [0, 0, 1]], 0.125)
    """

    def __init__(self, n_positions: int, values: int = 2):
        check_counts(n_positions=n_positions, values=values)
        if values < 2:
            raise InputError(f"{n_positions} positions with {values} values each; use at least 1 position and 2 values")
        super().__init__(torch.full((n_positions, values), 1 / values, dtype=torch.float64))


class MarkovChain(Inputs):
    """A Markov chain along the string.

    Args:
        n_positions: d.
        initial: (v,), the distribution of the first position.
        transition: (v, v); row a is the distribution of the value that follows a.
    """

    def __init__(self, n_positions: int, initial: Float[Tensor, " v"], transition: Float[Tensor, "v v"]):
        check_counts(n_positions=n_positions)
        self.initial = _normalised("the initial distribution", initial.unsqueeze(0))[0]
        self.transition = _normalised("the transition matrix", transition)
        self.n_positions, self.values = n_positions, len(initial)
        if self.transition.shape != (self.values, self.values):
            raise InputError(
                f"the transition matrix is {tuple(transition.shape)}; for {self.values} values use a square one"
            )

    def probability(self, x: Int[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return p(x_0) Π_i T(x_{i−1}, x_i)."""
        check_strings(x, self.n_positions, self.values)
        initial, transition = self.initial.to(x.device), self.transition.to(x.device)
        return initial[x[:, 0]] * transition[x[:, :-1], x[:, 1:]].prod(dim=1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Int[Tensor, "n d"]:
        """Draw n independent strings."""
        check_counts(n=n)
        columns = [torch.multinomial(self.initial, n, replacement=True, generator=generator)]
        for _ in range(self.n_positions - 1):
            columns.append(torch.multinomial(self.transition[columns[-1]], 1, generator=generator)[:, 0])
        return torch.stack(columns, dim=1)


class Empirical(Inputs):
    """The examples of a data set, equally likely.

    Args:
        x: (n, d) values; :func:`discretise` makes them from real data.
        values: v; by default the largest value plus one.
        labels: the class of each example, from 0; a teacher on these data uses them as z_ω unless it has another rule.
    """

    def __init__(self, x: Int[Tensor, "n d"], values: int | None = None, labels: Int[Tensor, " n"] | None = None):
        if x.ndim != 2 or not x.numel() or x.is_floating_point() or int(x.min()) < 0:
            raise InputError(
                f"a data set needs examples with values 0, 1, …; x is {x.dtype} of shape {tuple(x.shape)}: give (n, d) "
                "whole numbers, for example by discretise(x)"
            )
        self.n_positions = x.shape[1]
        self.values = int(x.max()) + 1 if values is None else values
        if int(x.max()) >= self.values:
            raise InputError(f"x holds the value {int(x.max())}, but values = {self.values}; values run from 0")
        self._x, counts = torch.unique(x, dim=0, return_counts=True)
        self._probability = counts.double() / len(x)
        self._labels = None if labels is None else self._one_label_each(x, labels)

    def _one_label_each(self, x: Int[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
        """Return the label of each distinct example; refuse examples with two labels."""
        if labels.shape != x.shape[:1] or labels.is_floating_point() or int(labels.min()) < 0:
            raise InputError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}; give a whole number from 0 for each of "
                f"{len(x)} examples"
            )
        index = places(self._x, x)
        found = torch.zeros(len(self._x), dtype=torch.int64, device=x.device).index_copy_(0, index, labels.long())
        clash = (found[index] != labels).nonzero()
        if len(clash):
            raise InputError(
                f"example {int(clash[0])} has the label {int(labels[clash[0]])}, an equal one "
                f"{int(found[index][clash[0]])} ({len(clash)} such examples): the label must be a function of x; "
                "use more levels, or drop them"
            )
        return found

    @property
    def classes(self) -> int | None:
        """Number of labels; None without labels."""
        return None if self._labels is None else int(self._labels.max()) + 1

    def label(self, x: Int[Tensor, "n d"]) -> Int[Tensor, " n"]:
        """Return the label of each x, which must be among the data."""
        assert self._labels is not None
        index = places(self._x.to(x.device), x)
        if int(index.max()) == len(self._x):
            first = int((index == len(self._x)).nonzero()[0])
            raise InputError(f"example {first} is not in the data, so its label is unknown; give a rule for the top")
        return self._labels.to(x.device)[index]

    @property
    def support_size(self) -> int:
        """Number of different examples."""
        return len(self._x)

    def support(self, limit: int = ENUMERATION_LIMIT) -> tuple[Int[Tensor, "n d"], Float[Tensor, " n"]]:
        """Return the different examples and their frequencies; they are in memory, so no limit applies."""
        del limit
        return self._x, self._probability

    def probability(self, x: Int[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Return the frequency of each x in the data."""
        together, index = torch.unique(torch.cat([self._x, x]), dim=0, return_inverse=True)
        table = torch.zeros(len(together), dtype=torch.float64, device=x.device)
        table[index[: len(self._x)]] = self._probability
        return table[index[len(self._x) :]]

    def sample(self, n: int, generator: torch.Generator | None = None) -> Int[Tensor, "n d"]:
        """Draw n examples with replacement."""
        check_counts(n=n)
        return self._x[torch.multinomial(self._probability, n, replacement=True, generator=generator)]


def discretise(x: Float[Tensor, " n *shape"], levels: int = 2) -> Int[Tensor, "n d"]:
    """Cut real data into the values 0 … levels−1: equal parts of the range from the smallest to the largest value.

    Example:
        >>> discretise(torch.tensor([[0.0, 0.4], [0.6, 1.0]])).tolist()
        [[0, 0], [1, 1]]
    """
    check_counts(levels=levels)
    if not x.numel():
        raise InputError(f"x has shape {tuple(x.shape)}, without any value; give one or more examples")
    low, high = x.min(), x.max()
    if levels < 2 or not bool(high > low):
        raise InputError(f"cannot cut values from {low.item():g} to {high.item():g} into {levels} levels")
    scaled = (x.flatten(1) - low) / (high - low) * levels
    return scaled.floor().clamp(max=levels - 1).long()


def check_distributions(what: str, rows: Float[Tensor, "m k"]) -> None:
    """Raise an InputError unless every row is a distribution."""
    if rows.ndim != 2 or not rows.numel():
        raise InputError(f"{what}: the shape is {tuple(rows.shape)}; give a matrix with one distribution in each row")
    sums = rows.sum(dim=1)
    bad = ((rows < 0).any(dim=1) | ((sums - 1).abs() > ROW_TOLERANCE) | sums.isnan()).nonzero()
    if len(bad):
        row = int(bad[0])
        raise InputError(
            f"{what}: row {row} sums to {sums[row].item():g} with least entry {rows[row].min().item():g}; a row must "
            "have no negative entry and must sum to one"
        )


def _normalised(what: str, rows: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    """Return the rows in float64 with the rounding of their sums removed."""
    rows = rows.double()
    check_distributions(what, rows)
    return rows / rows.sum(dim=1, keepdim=True)
