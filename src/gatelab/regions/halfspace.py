"""Every gate of a deep linearly gated network as a half-space of the input (halfspace, Section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates.layer import GateKind
from gatelab.observe import batches
from gatelab.printing import Brief
from gatelab.regions.plan import RegionPlan
from gatelab.regions.receptive import ReceptiveField, receptive_field
from gatelab.regions.replay import Replay
from gatelab.regions.units import Unit, unit_number

BLOCK_ENTRIES = 2**24  # entries of the normals that are computed at a time
MOST_ENTRIES = 2**28  # entries that normals() returns at most: 2 GiB in float64


@dataclass(frozen=True)
class Filters:
    """The gates of a convolutional layer: one filter for each channel, shifted from position to position.

    At position p the gate of channel c is open where ⟨filter_c, window of x⟩ + offset_c > 0. The window begins at
    ``window.start + p · window.step``. This holds at the positions whose window lies inside the image
    (``window.is_interior``). At the border a gate is another half-space: zero padding, of this layer or an earlier one,
    removes taps of the filter and biases of earlier layers. :meth:`HalfSpaceLayer.normals` is exact there too.

    Attributes:
        weight: the filters.
        offset: the offsets.
        window: the receptive field.
    """

    weight: Float[Tensor, "c inputs *size"]
    offset: Float[Tensor, " c"]
    window: ReceptiveField


@dataclass(frozen=True, repr=False)
class HalfSpaceLayer(Brief):
    """The half-spaces of one layer of gates: gate i is open where ⟨normal_i, x⟩ + offset_i > 0.

    A unit's name is its number in a dense layer and (channel, *position) in a convolutional one. A gate with a zero
    normal is open everywhere (offset > 0) or nowhere.

    Attributes:
        gate: the name of the layer in a GatePattern.
        shape: (w,) of a dense layer, (c, *positions) of a convolutional one.
        offsets: η(0).
    """

    gate: str
    shape: tuple[int, ...]
    offsets: Float[Tensor, "*shape"]
    _exact_offsets: Float[Tensor, "*shape"] = field(repr=False)
    _replay: Replay = field(repr=False)
    _inputs: tuple[int, ...] = field(repr=False)

    @cached_property
    def filters(self) -> Filters | None:
        """The compact form of a convolutional layer.

        None for a dense layer, and for a layer that is not a stack of convolutions, average poolings, batch-norms and
        sums.
        """
        return _filters(self._replay, self.gate, self._inputs) if len(self.shape) > 1 else None

    def normals(self, units: Sequence[Unit] | None = None) -> Float[Tensor, " units *inputs"]:
        r"""Return the normals ∂η/∂x of some units (None: of all), (units, *shape of an example).

        .. math:: \eta_\ell = W_\ell \cdots W_1 x + \ldots

        Exact also at the borders of an image. One backward pass serves all units.
        """
        return self._exact_normals(range(prod(self.shape)) if units is None else units).to(self._replay.dtype)

    def faces(self, units: Sequence[Unit]) -> tuple[Float[Tensor, "units d"], Float[Tensor, " units"]]:
        """Return flattened normals and offsets of some units in float64, not rounded to the model's dtype."""
        return self._exact_normals(units).flatten(1), self._exact_offsets.flatten()[self._numbers(units)]

    def is_open(self, x: Float[Tensor, "n ..."]) -> Bool[Tensor, " n *shape"]:
        """Whether each example lies in each half-space."""
        return self._replay.pre_activations([self.gate], x.to(self._replay.device, torch.float64))[0] > 0

    def _exact_normals(self, units: Sequence[Unit]) -> Float[Tensor, " units *inputs"]:
        chosen, size = self._numbers(units), prod(self._inputs)
        if len(chosen) * size > MOST_ENTRIES:
            raise InputError(
                f"layer '{self.gate}': {len(chosen):,} normals of {size:,} entries do not fit memory; ask for some "
                "units, normals([(channel, row, column), …]), or use .filters"
            )
        rows = [
            _normals(self._replay, self.gate, chosen[part], self._inputs)
            for part in batches(len(chosen), max(1, BLOCK_ENTRIES // size))
        ]
        return torch.cat([self._replay.zeros(0, *self._inputs), *rows])

    def _numbers(self, units: Sequence[Unit]) -> list[int]:
        return [unit_number(unit, self.shape, self.gate) for unit in units]


@torch.inference_mode(False)  # derivatives are needed, whatever the caller's mode
def half_spaces(
    dlgn: nn.Module, shape: Sequence[int] | None = None, *, plan: RegionPlan | None = None
) -> dict[str, HalfSpaceLayer]:
    """Return the half-space of every gate of a deep linearly gated network, layer by layer.

    Supports :class:`gatelab.models.DeepLinearlyGatedNetwork` in all its variants, the result of :func:`gatelab.to_dlgn`
    for a dense, convolutional or residual network, and any model in which every gate is ``gated(value, q, gate)`` with
    a q that is affine in x. The result is a snapshot: it does not follow later training. A gate made from a LeakyReLU
    also counts as open where q > 0.

    Args:
        dlgn: the network.
        shape: the shape of one example; needed when the first layer is a convolution.
        plan: the plan of a network of the same structure; saves the trace.

    Returns:
        The layers by the names of their gates in a GatePattern.

    Raises:
        UnsupportedModelError: some gate is not a half-space of the input.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> import gatelab
        >>> layers = half_spaces(gatelab.to_dlgn(net))
        >>> [(name, tuple(layer.normals().shape)) for name, layer in layers.items()]
        [('gate.1.gated', (3, 2)), ('gate.3.gated', (3, 2))]
    """
    replay = Replay(dlgn, plan, shape)
    _refuse_other_gates(replay, type(dlgn).__name__)
    inputs = replay.input_shape(shape)
    offsets = (q[0] for q in replay.pre_activations(replay.gates, replay.zeros(1, *inputs)))
    return {
        name: HalfSpaceLayer(name, tuple(offset.shape), offset.to(replay.dtype), offset, replay, inputs)
        for name, offset in zip(replay.gates, offsets, strict=True)
    }


def _refuse_other_gates(replay: Replay, model: str) -> None:
    """Refuse a network with gates that are not half-spaces of the input."""
    remedy = "gatelab.to_dlgn(model) makes a deep linearly gated network of a ReLU model"
    if not replay.gates:
        raise UnsupportedModelError(f"{model} has no gates, hence no half-spaces; {remedy}")
    for name in replay.gates:
        if replay.plan.kind(name) in (GateKind.MAX_POOL, GateKind.BOUNDED):
            raise UnsupportedModelError(
                f"{replay.plan.where(name)} is decided by several comparisons, not by one half-space of the input; use "
                "average pooling in place of max-pooling, and ReLU in place of a gate with two bounds"
            )
        deciding = replay.plan.deciding_gates(name)
        if replay.plan.kind(name) is not GateKind.GATED or deciding:
            factor = "is a signal itself, such as a sigmoid"
            own = factor if replay.plan.kind(name) is GateKind.FACTOR else "gates its own signal"
            why = f"depends on gate '{deciding[0]}'" if deciding else own
            raise UnsupportedModelError(
                f"{model} is not a deep linearly gated network: gate '{name}' {why}, so it is not a half-space of the "
                f"input; {remedy}"
            )
        replay.plan.check_affine(name)


def _normals(replay: Replay, gate: str, numbers: list[int], inputs: tuple[int, ...]) -> Tensor:
    """∂η_i/∂x for some units; η is affine, so any x will do."""
    x = replay.zeros(len(numbers), *inputs).requires_grad_()
    with torch.enable_grad():
        eta = replay.pre_activations([gate], x)[0].flatten(1)
        chosen = eta.gather(1, torch.tensor(numbers, device=replay.device).unsqueeze(1)).sum()
        if not chosen.requires_grad:  # η does not depend on x, as after x.detach()
            return torch.zeros_like(x)
        return torch.autograd.grad(chosen, x)[0]


def _filters(replay: Replay, name: str, inputs: tuple[int, ...]) -> Filters | None:
    """The half-space of a unit whose window touches no border, on an image just large enough to have one."""
    window = receptive_field(
        replay.plan.network, replay.plan.affine_nodes(name), replay.constants(name, inputs), inputs
    )
    if window is None:
        return None
    position = tuple(-(start // step) for start, step in zip(window.start, window.step, strict=True))
    first = tuple(s + p * step for s, p, step in zip(window.start, position, window.step, strict=True))
    canvas = (inputs[0], *(begin + size for begin, size in zip(first, window.size, strict=True)))
    offsets = replay.pre_activations([name], replay.zeros(1, *canvas))[0][0]
    place = (slice(None), *position)
    numbers = torch.arange(offsets.numel(), device=replay.device).view(offsets.shape)[place].tolist()
    cut = tuple(slice(begin, begin + size) for begin, size in zip(first, window.size, strict=True))
    weight = _normals(replay, name, numbers, canvas)[(slice(None), slice(None), *cut)]
    return Filters(weight.to(replay.dtype), offsets[place].to(replay.dtype), window)
