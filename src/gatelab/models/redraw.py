"""The same architecture with new random weights, whatever weights it has."""

import copy
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError

_BATCH = 128  # examples of which a normalisation takes the mean and the variance at a time
_OTHER = 15_485_863  # the offset from a draw's seed to the seed of the draw it is compared with


@dataclass(frozen=True)
class Redrawn:
    """A copy of a network with random weights of its own.

    Attributes:
        network: the copy, in evaluation mode.
        by_rule: parameters that their layer redrew with its own ``reset_parameters``.
        permuted: parameters of layers without such a rule; their entries got a random order and random signs.
        kept: unchanged parameters: constants, and frozen parameters of layers without a rule.
    """

    network: nn.Module
    by_rule: tuple[str, ...]
    permuted: tuple[str, ...]
    kept: tuple[str, ...]

    def text(self) -> str:
        """Return a sentence on how the weights were drawn."""
        parts = [f"{len(self.by_rule)} tensors by their layers' own rule (reset_parameters)"]
        if self.permuted:
            parts.append(f"{len(self.permuted)} by permuting and re-signing their entries ({_some(self.permuted)})")
        if self.kept:
            parts.append(f"{len(self.kept)} constants kept ({_some(self.kept)})")
        return ", ".join(parts)


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a network that shares nothing with it.

    Raises:
        UnsupportedModelError: the network cannot be copied.
    """
    try:
        return copy.deepcopy(model)
    except Exception as error:  # a user's module may hold anything: locks, open files
        remedy = "; leave out of it what cannot be copied"
        if "weight_norm" in str(error):
            remedy = ". Use torch.nn.utils.parametrizations.weight_norm, or torch.nn.utils.remove_weight_norm first"
        raise UnsupportedModelError(f"{type(model).__name__} cannot be copied: {error}{remedy}") from error


@torch.no_grad()
def measure_statistics(network: nn.Module, x: Tensor) -> int:
    """Set the running statistics of a network's normalisations to those of some examples, as training would.

    The network is changed in place, and left in evaluation mode.

    Returns:
        The number of layers that keep statistics.
    """
    layers: list[Any] = [m for m in network.eval().modules() if getattr(m, "running_mean", None) is not None]
    held = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain average over batches
        layer.train()
    if layers:
        for batch in x.split(_BATCH):
            network(batch)
    for layer, momentum in zip(layers, held, strict=True):
        layer.momentum = momentum
        layer.eval()
    return len(layers)


def redrawn(model: nn.Module, seed: int) -> Redrawn:
    """Redraw a network's weights; the result depends only on the architecture, the sizes of the weights and the seed.

    Every layer with ``reset_parameters`` draws its own; a module that also draws for its parts overrides them. Other
    parameters, and those that a rule left unchanged, are permuted and re-signed: this keeps their sizes, and erases
    what they have learnt. Running statistics of normalisations are reset.

    Raises:
        UnsupportedModelError: the network cannot be copied.
    """
    network = copied(model).cpu().eval()
    before = _copies(network)
    # Freezing marks a mask only if some other parameter is not frozen.
    frozen = any(parameter.requires_grad for parameter in network.parameters())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _follow_rules(network, seed + _OTHER)
        other = _copies(network)  # rules that seed themselves or need arguments give the same weights again
        _follow_rules(network, seed)
        generator = torch.Generator().manual_seed(seed)
        by_rule, permuted, kept = [], [], []
        for name, parameter in network.named_parameters():
            untouched = torch.equal(before[name], parameter)
            mask = frozen and untouched and not parameter.requires_grad
            if _is_constant(parameter) or mask:
                (kept if untouched else by_rule).append(name)
            elif torch.equal(other[name], parameter):
                parameter.copy_(_shuffled(parameter, generator))
                permuted.append(name)
            else:
                by_rule.append(name)
    return Redrawn(network, tuple(by_rule), tuple(permuted), tuple(kept))


def _copies(network: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


def _follow_rules(network: nn.Module, seed: int) -> None:
    """Let every layer draw its weights from its own seed, so that a layer that seeds torch affects no other."""
    # Reversed order: parts draw before the module that contains them, which may then override them.
    for place, module in enumerate(reversed(list(network.modules()))):
        rule = getattr(module, "reset_parameters", None)
        if callable(rule):
            torch.manual_seed(seed * 1009 + place)
            with suppress(Exception):  # the rule needs arguments or is broken: these parameters are permuted
                rule()


def _is_constant(tensor: Tensor) -> bool:
    return tensor.numel() == 0 or bool((tensor == tensor.flatten()[0]).all())


def _shuffled(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return the entries in random order, with random signs; a vector of one sign (scales, say) keeps its signs."""
    flat = tensor.flatten()
    mixed = flat[torch.randperm(len(flat), generator=generator)]
    if tensor.ndim > 1 or bool((flat < 0).any() and (flat > 0).any()):
        mixed = mixed * (2 * torch.randint(2, mixed.shape, generator=generator) - 1)
    return mixed.view_as(tensor)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
