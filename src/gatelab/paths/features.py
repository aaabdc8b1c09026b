"""List path features, values and gradients of small networks (npk, Sections 2 and 3)."""

from collections.abc import Callable, Mapping
from functools import partial, reduce

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.func import jacrev

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.network.capture import capture_gates
from gatelab.network.chain import DenseChain, dense_chain
from gatelab.observe import examples, observable
from gatelab.paths.bundles import PathBundles
from gatelab.paths.enumeration import DEFAULT_LIMIT, PathIndex


def neural_path_features(
    model: nn.Module, x: Float[Tensor, "n ..."], *, gates: GateChoice = "network", limit: int = DEFAULT_LIMIT
) -> Float[Tensor, "n paths"]:
    r"""Return the neural path feature φ of each example, one column per path (npk, Definition 2.1).

    .. math:: \phi_x(p) = x(I_0(p)) \prod_{l=1}^{d-1} G_x(l, I_l(p))

    Paths are numbered by :class:`~gatelab.paths.PathIndex`; paths that start at a bias have 1 in place of x. In a
    network that is not a chain of dense layers, a column is a bundle of :class:`~gatelab.paths.PathBundles`: all paths
    that share their weights. ``neural_path_features(model, x) @ neural_path_values(model, x)`` is ``model(x)`` (npk,
    Proposition 2.1), whether its gates G are bits or numbers; for a model that ends with a softmax or another function
    of the logits, it is the logits.

    Args:
        model: a small network of dense and convolutional layers, gates, and other operations that
            :func:`gatelab.top_paths` accepts.
        x: examples.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.
        limit: the largest number of paths to list.

    Returns:
        φ, in the dtype of x.

    Raises:
        TooManyPathsError: there are more than ``limit`` paths; ``neural_path_kernel`` lists none.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> neural_path_features(net, torch.tensor([[3.0, 5.0]])).tolist()
        [[3.0, 0.0, 5.0, 0.0]]
    """
    try:
        chain = dense_chain(model)
    except (InputError, UnsupportedModelError):
        return PathBundles(model, x, limit=limit).features(x, gates=gates)
    index = _guarded(chain, limit)
    nodes = input_nodes(x, model, chain)
    pattern = capture_gates(model, x)
    return _products(index, nodes, gate_factors(pattern.hard() if is_hard(gates) else pattern, chain))


def path_activity(
    model: nn.Module, x: Float[Tensor, "n ..."], *, limit: int = DEFAULT_LIMIT
) -> Bool[Tensor, "n paths"]:
    """Return whether all gates on each path are open, A(x, p) of npk, Definition 2.1."""
    chain = dense_chain(model)
    index = _guarded(chain, limit)
    nodes = torch.ones_like(input_nodes(x, model, chain), dtype=torch.bool)
    pattern = capture_gates(model, x).hard()
    return _products(index, nodes, [pattern[name] for name in chain.gates])


def neural_path_values(
    model: nn.Module, x: Float[Tensor, "n ..."] | None = None, *, limit: int = DEFAULT_LIMIT
) -> Float[Tensor, "paths k"]:
    r"""Return the neural path value v of each path and output (npk, Definition 2.1).

    .. math:: v(p) = \prod_{l=1}^{d} \Theta(l, I_{l-1}(p), I_l(p))

    It depends only on the weights, so there is no argument ``gates``.

    Args:
        model: a small network; see :func:`neural_path_features`.
        x: examples, needed unless the network is fully connected: their size determines the paths.
        limit: the largest number of paths to list.

    Returns:
        The product of the weights on each path or bundle, one row for each and one column per output.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[2.0], [3.0]])), net[2].weight.data.fill_(5.0)
        >>> neural_path_values(net).tolist()
        [[10.0], [15.0]]
    """
    parameters, values = _listed(model, x, limit)
    with torch.no_grad():
        return values(parameters)


def path_gradients(
    model: nn.Module, x: Float[Tensor, "n ..."] | None = None, *, limit: int = 2**14
) -> Float[Tensor, "paths k parameters"]:
    r"""Return the gradient of each path's value with respect to the weights, φ_p of npk, Definition 3.1.

    Args:
        model: a small network; see :func:`neural_path_features`.
        x: examples, as in :func:`neural_path_values`.
        limit: the largest number of paths to list.

    Returns:
        Gradients with respect to the parameters in the order of the layers, weight before bias, each flattened.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
        >>> _ = net[0].weight.data.fill_(2.0), net[2].weight.data.fill_(5.0)
        >>> path_gradients(net).tolist()
        [[[5.0, 2.0]]]
    """
    parameters, values = _listed(model, x, limit)
    if not parameters:
        return values(parameters).unsqueeze(2)[:, :, :0]
    jacobian = jacrev(values)(parameters)
    return torch.cat([block.flatten(2) for block in jacobian.values()], dim=2)


def _values(chain: DenseChain, parameters: Mapping[str, Tensor]) -> Float[Tensor, "paths k"]:
    weights = [parameters[layer.weight_name] for layer in chain.layers]
    blocks = [extended(weights[0].T, weights[1:])]
    for position, layer in enumerate(chain.layers):
        if layer.bias_name is not None:
            blocks.append(extended(parameters[layer.bias_name][None, :], weights[position + 1 :]))
    return torch.cat(blocks)


def extended(values: Float[Tensor, "*n prefixes w"], weights: list[Tensor]) -> Float[Tensor, "*n paths k"]:
    """Extend every path, layer by layer, through every unit of the next layer."""
    for weight in weights:
        values = (values.unsqueeze(-1) * weight.T).flatten(-3, -2)
    return values


def _parameters(chain: DenseChain) -> dict[str, Tensor]:
    parameters: dict[str, Tensor] = {}
    for layer in chain.layers:
        parameters[layer.weight_name] = layer.weight.detach()
        if layer.bias_name is not None and layer.bias is not None:
            parameters[layer.bias_name] = layer.bias.detach()
    return parameters


def _products(index: PathIndex, nodes: Shaped[Tensor, "n d"], gates: list[Tensor]) -> Shaped[Tensor, "n paths"]:
    """Return input node times gates for every path; paths that start at a bias have 1 for the input node."""
    later = [(torch.ones_like(nodes[:, :1]), gates[layer - 1 :]) for layer in index.starts[1:]]
    return torch.cat([reduce(outer, factors, first) for first, factors in [(nodes, gates), *later]], dim=1)


def outer(rows: Shaped[Tensor, "n a"], factor: Shaped[Tensor, "n b"]) -> Shaped[Tensor, "n ab"]:
    """Return, per example, all products of an entry of ``rows`` (slowest) with an entry of ``factor`` (fastest)."""
    return (rows.unsqueeze(-1) * factor.unsqueeze(1)).flatten(1)


def gate_factors(pattern: GatePattern, chain: DenseChain) -> list[Float[Tensor, "n w"]]:
    """Return the factor of each gate: 1 or 0, the slope of a LeakyReLU, or the number of a soft gate."""
    return [pattern.layer(name).factors(pattern.dtype).flatten(1) for name in chain.gates]


def input_nodes(x: Tensor, model: nn.Module, chain: DenseChain) -> Float[Tensor, "n d"]:
    """Return the values of the input nodes: x flattened, or ones in a network with constant input."""
    x = examples(x, model).flatten(1)
    if x.shape[1] != chain.widths[0]:
        raise InputError(f"x has {x.shape[1]} values per example, but the first layer takes {chain.widths[0]}")
    return torch.ones_like(x) if chain.constant_input else x


def _listed(
    model: nn.Module, x: Tensor | None, limit: int
) -> tuple[dict[str, Tensor], Callable[[Mapping[str, Tensor]], Tensor]]:
    """Return the parameters that paths pass, and the function that makes the values of paths or bundles from them."""
    try:
        chain = dense_chain(model)
    except (InputError, UnsupportedModelError) as error:
        if x is None:
            raise type(error)(
                f"{error}. The paths of other networks depend on the size of an example: give x="
            ) from error
        bundles = PathBundles(model, x, limit=limit)
        held = dict(observable(model).named_parameters())
        return {name: held[name].detach() for name in bundles.parameters}, bundles.values_of
    _guarded(chain, limit)
    if x is not None:
        input_nodes(x, model, chain)  # refuses examples of another size
    return _parameters(chain), partial(_values, chain)


def _guarded(chain: DenseChain, limit: int) -> PathIndex:
    index = PathIndex.of(chain)
    index.guard(limit, "use neural_path_kernel or top_paths, which enumerate none")
    return index
