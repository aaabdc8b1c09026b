"""The network of a seed and its gated twins, for Table 2 of npk and for studies."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from gatelab.convert import Regime, to_dgn
from gatelab.lab.team import StateDict
from gatelab.models.states import load_state

Factory = Callable[[torch.Generator], nn.Module]


def network(factory: Factory, seed: int) -> nn.Module:
    """The network of a seed, in evaluation mode."""
    return factory(torch.Generator().manual_seed(seed)).eval()


def twin(factory: Factory, regime: Regime, seed: int, beta: float, gates: StateDict | None = None) -> nn.Module:
    """Make the DGN (deep gated network) of a seed; gates from ``gates``, or drawn independently of the weights."""
    source = None
    if gates is not None:
        source = network(factory, seed)
        load_state(source, gates)
    elif regime is not Regime.FRNPF_DI:
        source = network(factory, seed + 500_009)  # the same initialiser, another seed
    return to_dgn(network(factory, seed), regime, beta, source)


def learnt_twins(factory: Factory, seeds: Sequence[int], beta: float, gates: Sequence[StateDict]) -> list[nn.Module]:
    """FLNPF (fixed learnt neural path features): the given gates, values drawn from seeds of their own."""
    # Another seed than the network's: values must not start where the gates' own weights started.
    return [twin(factory, Regime.FLNPF, seed + 700_001, beta, state) for seed, state in zip(seeds, gates, strict=True)]
