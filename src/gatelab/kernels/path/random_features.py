"""Random features whose inner products estimate the path kernel of every model that converts."""

from math import ceil, sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.convert.values import Halves, ValueLayer, halves
from gatelab.errors import InputError
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.kernels.disk.memory import available_bytes, in_words
from gatelab.models.init import bernoulli_
from gatelab.observe import batches, examples, observable, refuse_generator

# Bytes of gates held at a time.
GATE_BYTES = 2**28


@torch.no_grad()
def path_features(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    dim: int,
    generator: torch.Generator | None = None,
    *,
    copies: int | None = None,
    gates: GateChoice = "network",
    batch_size: int | None = None,
    output: int | str | None = None,
) -> Float[Tensor, "n {dim}"]:
    r"""Return features φ̂ of dimension ``dim`` with E⟨φ̂(s), φ̂(s')⟩ = H(s, s'), the normalised path kernel.

    They are the gated activations of random value networks under the model's own gates (npk, Appendix C, read as a
    sketch). There are m independent networks as wide as the model, with weights ±1 in the first layer and ±1/√(fan in)
    after it. Each network's last hidden layer, of w units, gives one unbiased estimate of H; their mean has variance

    .. math:: \operatorname{Var} \langle \hat\phi(s), \hat\phi(s') \rangle = V(s, s') / m, \qquad m = dim / w

    where V, the variance of one network's estimate, is O((H(s,s) H(s',s') + H(s,s')²) Σ_l 1/w_l). The error falls as
    dim^(−1/2), at a cost linear in dim and in n.

    Biases shape the gates but start no paths. Paths pass batch-norm and dropout, and end before a final softmax. The
    rows are ready for a linear model, for example scikit-learn's. **Use two generators with the same seed** for
    training and test features: the features depend on the seed.

    Args:
        model: any module that :func:`gatelab.to_dgn` accepts, and any deep gated network.
        x: examples.
        dim: number of features.
        generator: draws the value weights; torch's global one if None.
        copies: how many networks share the ``dim`` features. The default is the smallest number whose last hidden
            layers have ``dim`` units in all; more networks take more time and give a smaller error.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.
        batch_size: examples at a time; by default as many as have 256 MiB of gates.
        output: the part of the model's output to use, if it returns a tuple or a dict.

    Returns:
        The features, one row for each example.

    Raises:
        UnsupportedModelError: something in the model is neither a gate nor linear.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> path_features(net, torch.randn(5, 2), 64).shape
        torch.Size([5, 64])
    """
    model = observable(model, output)
    x = examples(x, model)
    whole = all(isinstance(number, int) for number in (dim, copies or 1, batch_size or 1))
    if not whole or dim < 1 or (copies is not None and not 1 <= copies <= dim):
        raise InputError(
            f"dim is {dim}, copies {copies}; dim must be at least 1, copies between 1 and dim, whole numbers"
        )
    refuse_generator(generator)
    with torch.autocast(x.device.type, enabled=False):
        return _features(halves(model, x, hard=is_hard(gates)), x, dim, generator, copies, batch_size)


def _features(
    network: Halves,
    x: Float[Tensor, "n ..."],
    dim: int,
    generator: torch.Generator | None,
    copies: int | None,
    batch_size: int | None,
) -> Float[Tensor, "n {dim}"]:
    needed, there = x.shape[0] * dim * x.element_size(), available_bytes()
    if needed > there:
        raise InputError(
            f"{dim:,} features of {x.shape[0]:,} examples take {in_words(needed)}, more than the {in_words(there)} of "
            "memory; use fewer features, or neural_path_kernel for the exact kernel"
        )
    gates = network.deciding.run(x[:1])
    parts = _shares(dim, network.values.run(x[:1], *gates)[0].numel(), copies)
    # Seeds are drawn first, so weights depend neither on the number of examples nor on the batch size.
    device = "cpu" if generator is None else generator.device
    seeds = torch.randint(2**62, (len(parts),), generator=generator, device=device).tolist()
    features = x.new_empty(x.shape[0], dim)
    fitting = max(1, GATE_BYTES // sum(gate.numel() * gate.element_size() for gate in gates))
    size = fitting if batch_size is None else batch_size
    for rows in batches(x.shape[0], size):
        gates = network.deciding.run(x[rows])
        for columns, seed in zip(features[rows].split(parts, dim=1), seeds, strict=True):
            columns.copy_(_share(network, x[rows], gates, columns.shape[1], seed))
            columns.mul_(sqrt(columns.shape[1] / dim))
    return features


def _shares(dim: int, units: int, copies: int | None) -> list[int]:
    """The number of features from each network: all of its units, or ``dim`` split evenly."""
    fewest = ceil(dim / units)
    if copies is None or copies <= fewest:
        return [units] * (dim // units) + [dim % units] * (dim % units > 0)
    return [dim // copies + (place < dim % copies) for place in range(copies)]


def _share(network: Halves, x: Tensor, gates: tuple[Tensor, ...], count: int, seed: int) -> Float[Tensor, "n {count}"]:
    """``count`` features of one random network, whose inner products have the mean H."""
    generator = torch.Generator(x.device).manual_seed(seed)
    for layer in network.layers:
        bernoulli_(layer.weight, _scale(layer), generator)
    units = network.values.run(x, *gates)
    units = units.reshape(len(x), -1)
    scale = sqrt(1 / units.shape[1]) if network.last is None else _scale(network.last)
    if count == units.shape[1]:
        return units * scale
    # Fewer features than units: project them by a random last layer.
    return units @ bernoulli_(units.new_empty(units.shape[1], count), scale / sqrt(count), generator)


def _scale(layer: ValueLayer) -> float:
    return 1.0 if layer.first else sqrt(1 / layer.fan_in)
