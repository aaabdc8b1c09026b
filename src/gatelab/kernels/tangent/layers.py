"""Signals of all layers in one backward pass, and the factors made from them."""

import warnings
from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from gatelab.kernels.tangent.factors import DenseFactor, Factor, layer_factor
from gatelab.kernels.tangent.uses import LayerUse

# Up to this many numbers in the signals of one output, outputs are propagated back together. Small passes wait for
# Python and for the weights to be read: together, ResNet-18 on two images (0.8 million) takes half the time, GCONV (1.6
# million) the same.
_SMALL = 2**20

Names = tuple[str, ...]  # the parameters that a factor covers, in the order of its gradients


def signals_of(
    answer: Float[Tensor, "n all"], probes: list[Tensor], outputs: Sequence[int]
) -> list[Float[Tensor, "n k ..."]]:
    """Propagate some outputs back to the probes.

    Args:
        answer: the outputs of a batch of examples.
        probes: tensors that the outputs depend on, with the examples on the first axis.
        outputs: the numbers of the outputs.
    """
    if not answer.requires_grad or not probes:
        return [probe.new_zeros(()).expand(probe.shape[0], len(outputs), *probe.shape[1:]) for probe in probes]
    if len(outputs) > 1 and sum(probe.numel() for probe in probes) <= _SMALL:
        try:
            return _all_at_once(answer, probes, outputs)
        except RuntimeError:  # vmap lacks an operation; if the model itself fails, the next line raises
            pass
    signals: list[list[Tensor]] = [[] for _ in probes]
    for position, output in enumerate(outputs):
        deltas = torch.autograd.grad(
            answer[:, output].sum(),
            probes,
            retain_graph=position + 1 < len(outputs),
            allow_unused=True,
            materialize_grads=True,
        )
        for delta, collected in zip(deltas, signals, strict=True):
            collected.append(delta)
    # One output needs no copy.
    return [deltas[0].unsqueeze(1) if len(deltas) == 1 else torch.stack(deltas, dim=1) for deltas in signals]


def _all_at_once(
    answer: Float[Tensor, "n all"], probes: list[Tensor], outputs: Sequence[int]
) -> list[Float[Tensor, "n k ..."]]:
    selected = torch.tensor(outputs, device=answer.device)
    one_hot = torch.zeros(len(outputs), *answer.shape, dtype=answer.dtype, device=answer.device)
    one_hot.scatter_(2, selected.view(-1, 1, 1).expand(-1, answer.shape[0], 1), 1)

    def back(cotangent: Tensor) -> tuple[Tensor, ...]:
        # Keep the graph: it is needed again if this fails.
        return torch.autograd.grad(
            answer, probes, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        # Not autograd's is_grads_batched, which loops over convolutions and batch norms.
        return list(vmap(back, out_dims=1)(one_hot))


def layer_factors(
    uses: list[LayerUse], signals: list[Float[Tensor, "n k ..."]], loose: frozenset[str], pairs: int
) -> dict[Names, Factor]:
    """Return the factors of all weights and biases that layers use, apart from the ``loose``, by what they cover."""
    by_weight: dict[str, list[int]] = defaultdict(list)
    by_bias: dict[str, list[int]] = defaultdict(list)
    for position, use in enumerate(uses):
        if use.weight is not None and use.weight not in loose:
            by_weight[use.weight].append(position)
        if use.bias is not None and use.bias not in loose:
            by_bias[use.bias].append(position)
    stacked = [use.signals(deltas) for use, deltas in zip(uses, signals, strict=True)]
    factors: dict[Names, Factor] = {}
    for name, positions in by_weight.items():
        inputs = _beside([uses[p].inputs() for p in positions], dim=2)
        deltas = _beside([stacked[p] for p in positions], dim=3)
        bias = uses[positions[0]].bias
        # The bias of a single dense call needs no Gram matrix of its own: a·a' + 1 includes it.
        rides = inputs.shape[1] == inputs.shape[2] == 1 and bias is not None and by_bias.get(bias) == positions
        if rides and bias is not None:
            del by_bias[bias]
        covered = (name, bias) if rides and bias is not None else (name,)
        factors[covered] = layer_factor(inputs, deltas, bias=rides, pairs_per_example=pairs)
    for name, positions in by_bias.items():
        total = torch.stack([stacked[p].sum(dim=3).flatten(2) for p in positions]).sum(dim=0)
        factors[name,] = DenseFactor(None, total, bias=True)
    return factors


def used_in_several_ways(uses: list[LayerUse]) -> set[str]:
    """Return weights used both in dense layers and in convolutions: their gradients have no common factor."""
    kinds: dict[str, set[object]] = defaultdict(set)
    for use in uses:
        if use.weight is not None:
            kinds[use.weight].add(use.kind)
    return {name for name, seen in kinds.items() if len(seen) > 1}


def _beside(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
