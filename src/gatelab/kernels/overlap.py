"""The overlap Λ of gate patterns: the number of paths that are open for both of two inputs."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.kernels.disk.digest import model_digest
from gatelab.kernels.overlap_tiles import CAPTURED_AT_A_TIME, OverlapTiles
from gatelab.kernels.path.kernel import GraphTiles, has_slopes_by_channel, refuse_early
from gatelab.kernels.tiles import refuse_too_large
from gatelab.network.capture import Capture
from gatelab.observe import examples_for, observable
from gatelab.printing import Brief


def overlap_kernel(
    gates: GatePattern, other: GatePattern | None = None, *, normalise: bool = True
) -> Float[Tensor, "n m"]:
    r"""Count the paths open for both inputs, per starting node (npk, Definitions 2.2 and C.2; halfspace, 3.2).

    .. math:: \Lambda(s, s') = \prod_l \sum_i G_l(s, i)\, G_l(s', i)

    With ``normalise`` each layer's sum is divided by its width. This is the expected product of two outputs of a
    network with these gates and independent value weights of variance 1 / fan in. A closed LeakyReLU gate counts with
    its slope, a soft gate with its number; ``overlap_kernel(gates.hard())`` counts open gates. O(n m Σ w / 64) on
    packed bits, and matrix products of soft gates; no path is enumerated.

    Args:
        gates: gates of fully connected layers.
        other: gates of the same network at other inputs; None compares ``gates`` with itself.
        normalise: divide by widths; otherwise return the count itself, in float64.

    Returns:
        Λ, one row for each example of ``gates`` and one column for each of ``other``.

    Raises:
        PathCountOverflowError: a raw count is larger than float64 holds.
        UnsupportedModelError: a layer has position axes, or the layers do not form a chain; the overlap then depends on
            the architecture, which :class:`OverlapKernel` knows.

    Example:
        >>> ones = GatePattern({"relu": torch.ones(2, 3, dtype=torch.bool)})
        >>> overlap_kernel(ones).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        >>> overlap_kernel(ones, normalise=False).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    for name, pattern in (("gates", gates), ("other", other)):
        if not isinstance(pattern, GatePattern) and not (name == "other" and pattern is None):
            raise InputError(
                f"{name} is {type(pattern).__name__}; give a GatePattern, for example gatelab.capture_gates(model, x)"
            )
    if other is not None:
        gates.check_comparable(other)
        mixed = [n for n in gates if (gates.layer(n).numbers is None) != (other.layer(n).numbers is None)]
        if mixed:
            raise InputError(
                f"layer '{mixed[0]}' has soft gates in one pattern and bits in the other; use .hard() on both"
            )
    function = OverlapTiles(gates.dtype, normalise)
    refuse_too_large(gates.n, gates.n if other is None else other.n, function.dtype)
    left = function.of_gates(gates)
    return function.block(left, left if other is None else function.of_gates(other))


@dataclass(frozen=True, repr=False)
class OverlapKernel(Brief):
    """The overlap Λ of a model's gates, for any number of examples; see :func:`overlap_kernel`.

    Where layers form a chain, packed bits give the overlap. Where signals branch and meet again (skips, concatenation),
    it is the path kernel of an input of ones, divided by the number of inputs: the open paths per starting node.

    Attributes:
        model: a network of dense layers, whose gates are captured.
        normalise: divide by widths.
        batch_size: examples per forward pass when the gates are captured.
        gates: "network" or "hard".

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> OverlapKernel(net).about()["kind"]  # compute(OverlapKernel(net), x, store="K.zarr") writes it to disk
        'overlap'
    """

    model: nn.Module
    normalise: bool = True
    batch_size: int | None = CAPTURED_AT_A_TIME
    gates: GateChoice = "network"

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data."""
        hard = {"gates": "hard"} if is_hard(self.gates) else {}
        return {"kind": "overlap", "normalise": self.normalise, **hard, "model": model_digest(self.model)}

    def on(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None) -> OverlapTiles | GraphTiles:
        """Return the kernel on examples of x against y, to be evaluated block by block."""
        model = observable(self.model)
        x, _ = examples_for(model, x, y)
        capture = Capture(model, self.batch_size, gates=self.gates)
        network = capture.network(x)
        if network.is_chain and not has_slopes_by_channel(network):
            return OverlapTiles(x.dtype, self.normalise, capture)
        if x.ndim != 2:
            raise UnsupportedModelError(
                "the overlap counts paths per starting node, which is defined for dense layers only; use "
                "neural_path_kernel(model, x)"
            )
        refuse_early(network)
        dtype = x.dtype if self.normalise else torch.float64
        return GraphTiles(capture, self.normalise, False, dtype, per_node=True)
