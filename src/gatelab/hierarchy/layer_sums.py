"""The sums of a diagnosis at one layer of a network, built batch by batch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.hierarchy.cells import CellSums
from gatelab.hierarchy.diagnosis import Patches

GROUPS = 20  # groups of examples, for confidence intervals


class LayerSums:
    """The sums at one layer: of f and g by value of z at every position, and of more quantities at some positions."""

    def __init__(self, codes: Int[Tensor, "n p"], values: int, regions: int):
        self.codes, self.values = codes, values
        places = torch.linspace(0, codes.shape[1] - 1, min(regions, codes.shape[1]), device=codes.device)
        self.chosen = places.round().long().unique()
        self.sums = CellSums(GROUPS, len(self.chosen), values)
        self.labels: Tensor | None = None
        self._totals: dict[str, Tensor] = {}
        cells = codes.long() + values * torch.arange(codes.shape[1], device=codes.device)
        self._counts = torch.bincount(cells.flatten(), minlength=values * codes.shape[1]).clamp(min=1).unsqueeze(1)

    def add(self, rows: Int[Tensor, " b"], **quantities: Float[Tensor, "b p _"]) -> None:
        """Add quantities at every position."""
        cells = self._cells(rows)
        for name, values in quantities.items():
            if name not in self._totals:
                shape = (len(self._counts), values.shape[2])
                self._totals[name] = torch.zeros(shape, dtype=torch.float64, device=values.device)
            self._totals[name].index_add_(0, cells, values.flatten(0, 1).double())

    def mean(self, name: str, rows: Int[Tensor, " b"], like: Tensor) -> Float[Tensor, "b p c"]:
        """Return a quantity's mean given z, at every position of some examples."""
        table = self._totals[name] / self._counts
        return table[self._cells(rows)].view(len(rows), self.codes.shape[1], -1).to(like.dtype)

    def _cells(self, rows: Int[Tensor, " b"]) -> Int[Tensor, " _"]:
        codes = self.codes[rows].long()
        return (codes + self.values * torch.arange(codes.shape[1], device=codes.device)).flatten()


class Strongest:
    """The strongest examples of each node, one place for each example."""

    def __init__(self, count: int):
        self.count = count
        self.kept: tuple[Tensor, Tensor, Tensor] | None = None
        self.names: list[str] = []

    def see(self, rows: Int[Tensor, " b"], f: Float[Tensor, "b r c"], names: list[str]) -> None:
        """Compare a batch with the best so far."""
        self.names = names
        strength, place = f.max(dim=1)  # over regions: (b, c)
        example = rows.unsqueeze(1).expand_as(strength)
        new = strength, example, place
        if self.kept is not None:
            new = tuple(torch.cat(pair) for pair in zip(self.kept, new, strict=True))
        order = new[0].argsort(dim=0, descending=True)[: self.count]
        first, second, third = (values.gather(0, order) for values in new)
        self.kept = first, second, third

    def found(self, layer: str) -> Patches:
        """Return the best."""
        assert self.kept is not None
        strength, example, place = (values.T.contiguous() for values in self.kept)
        return Patches(layer, strength, example, tuple(tuple(self.names[i] for i in row) for row in place.tolist()))


def event_correlations(
    means: Float[Tensor, "r m c"], priors: Float[Tensor, "r m"], power: Float[Tensor, "r c"]
) -> Float[Tensor, "c m"]:
    """Return Corr(f_j, [z = a]) = (E[f_j | a] − E f_j) √(p_a / (1 − p_a)) / σ_j, averaged over regions."""
    middle = (priors.unsqueeze(2) * means).sum(dim=1)
    deviation = (power - middle.square()).clamp(min=0).sqrt()
    odds = (priors / (1 - priors).clamp(min=1e-12)).sqrt() * ((priors > 0) & (priors < 1))
    found = (means - middle.unsqueeze(1)) * odds.unsqueeze(2) / deviation.clamp(min=1e-12).unsqueeze(1)
    found = torch.where(deviation.unsqueeze(1) > 1e-6 * deviation.max(), found, torch.zeros_like(found))
    return found.mean(dim=0).T
