"""Definitions 3 to 5 on a network: do nodes stand for single factors of z, and do weights keep factors apart?"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx import Node

from gatelab.hierarchy.cells import CellSums
from gatelab.hierarchy.codes import all_values
from gatelab.hierarchy.disentangle import factor_marginals, nearest_disentangled
from gatelab.hierarchy.reading import RegionNetwork
from gatelab.hierarchy.scores import match
from gatelab.network import Network
from gatelab.network.operations import Kind


@dataclass(frozen=True)
class FactorScores:
    """How well a layer's nodes represent the binary factors of z; means over regions.

    Attributes:
        definition: share of Var E[f_j | z] that the factor matched with node j explains (Definition 3).
        variance: the same share of Var f_j.
        entangled: relative distances of the matched nodes' F and G̃ from disentangled (Definitions 3 and 4).
        nodes: the node matched with each factor, by the mean over regions.
    """

    definition: float
    variance: float
    entangled: tuple[float, float]
    nodes: Int[Tensor, " k"]

    def inseparable(self, below: "FactorScores", energy: Float[Tensor, "o i"]) -> float:
        """Return the relative distance of the weights between matched nodes from separable (Definition 5).

        Each factor below belongs to the factor above that reads it most; other weights from it count as distance.
        """
        above, children = (nodes[nodes >= 0] for nodes in (self.nodes, below.nodes))
        part = energy.to(above.device)[above][:, children]
        total = part.sum()
        return ((total - part.amax(dim=0).sum()).clamp(min=0) / total.clamp(min=1e-300)).sqrt().item()


def factor_scores(sums: CellSums) -> FactorScores | None:
    """Score a layer; None if z does not consist of binary factors, or there are fewer nodes than factors."""
    values = sums.shape[2]
    k = values.bit_length() - 1
    means, priors = sums.means(), sums.priors()
    if values != 2**k or k < 2 or "g" not in means or means["f"].shape[2] < k:
        return None
    f, g, power = means["f"], means["g"], sums.power("f")
    bits = all_values((2,) * k).to(f.device)
    explained = torch.stack([_explained(f, priors, bits[:, i]) for i in range(k)], dim=2)  # r, c, k
    middle = (priors.unsqueeze(2) * f).sum(dim=1)
    of_means = (priors.unsqueeze(2) * f.square()).sum(dim=1) - middle.square()
    of_nodes = power - middle.square()
    shares = [_share(explained, whole.unsqueeze(2)) for whole in (of_means, of_nodes)]
    nodes = match(shares[0].mean(dim=0)).nodes
    definition, variance = (match(share.mean(dim=0)).score for share in shares)
    chosen = f[:, :, nodes], g[:, :, nodes] * priors.unsqueeze(2)
    forward = [nearest_disentangled(own).relative for own in chosen[0]]
    backward = [
        nearest_disentangled(own, factor_marginals(prior)).relative
        for own, prior in zip(chosen[1], priors, strict=True)
    ]
    return FactorScores(definition, variance, (sum(forward) / len(forward), sum(backward) / len(backward)), nodes)


def _explained(f: Float[Tensor, "r m c"], priors: Float[Tensor, "r m"], bit: Int[Tensor, " m"]) -> Float[Tensor, "r c"]:
    """Return Var E[f | bit]."""
    weights = priors.unsqueeze(2)
    middle, found = (weights * f).sum(dim=1), torch.zeros_like(f[:, 0])
    for value in (0, 1):
        own = weights * (bit == value).view(1, -1, 1)
        mass = own.sum(dim=1)
        mean = (own * f).sum(dim=1) / mass.clamp(min=1e-12)
        found += mass * (mean - middle).square()
    return found


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, 0 for nodes that do not vary."""
    return torch.where(whole > 1e-12 * whole.max(), part / whole.clamp(min=1e-300), torch.zeros_like(part)).clamp(0, 1)


def weight_energies(own: RegionNetwork) -> dict[int, Float[Tensor, "o i"]]:
    """Return layer (from 0) → Σ over taps of w², by channels above and below, where one weight layer feeds it."""
    found = {}
    for index, target in enumerate([*(layer.before for layer in own.layers), own.network.output]):
        node = _weight_layer(own.network, target)
        weight = None if node is None else own.network.call(node)["weight"]
        below = own.layers[index - 1].channels if index else own.channels
        if isinstance(weight, Tensor) and weight.shape[1] % below == 0:
            energy = weight.detach().double().square().flatten(1)
            found[index] = energy.view(len(energy), below, -1).sum(dim=2)
    return found


def _weight_layer(network: Network, node: Node) -> Node | None:
    """Return the weight layer that feeds a node, with only normalisations in between; None if there is none."""
    while node.op != "placeholder":
        if network.kind(node) is Kind.WEIGHT:
            return node
        sources = [source for source in node.all_input_nodes if source.meta.get("data")]
        if len(sources) != 1 or network.kind(node) is not Kind.NORMALISATION:
            return None
        (node,) = sources
    return None
