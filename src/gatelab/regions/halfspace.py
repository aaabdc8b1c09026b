"""Every gate of a deep linearly gated network as a half-space of the input (halfspace, Section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GateKind
from gatelab.observe import batches
from gatelab.regions.plan import Plan
from gatelab.regions.receptive import ReceptiveField, receptive_field
from gatelab.regions.replay import Replay
from gatelab.regions.units import Unit, unit_number

# Entries of the normals that are worked out at a time.
BLOCK_ENTRIES = 2**24
# Entries of normals() for all units: 2 GiB in float64.
MOST_ENTRIES = 2**28


@dataclass(frozen=True)
class Filters:
    """What the gates of a convolutional layer see: one filter for each channel, shifted from position to position.

    At position p the gate of channel c is open where ⟨filter_c, window of x⟩ + offset_c > 0, the window beginning at
    ``window.start + p · window.step``, for all positions whose window lies inside the image (``window.is_interior``).
    At the border a gate is another half-space: zero padding, of this layer or an earlier one, takes away taps of the
    filter and biases of earlier layers. :meth:`HalfSpaceLayer.normals` gives those exactly.

    Attributes:
        weight: the filters.
        offset: the offsets.
        window: the receptive field.
    """

    weight: Float[Tensor, "c inputs *size"]
    offset: Float[Tensor, " c"]
    window: ReceptiveField


@dataclass(frozen=True)
class HalfSpaceLayer:
    """The half-spaces of one layer of gates: gate i is open where ⟨normal_i, x⟩ + offset_i > 0.

    A unit is named by its number in a dense layer and by (channel, *position) in a convolutional one. A gate whose
    normal is zero is open everywhere (offset > 0) or nowhere.

    Attributes:
        gate: the name of the layer in a GatePattern.
        shape: (w,) of a dense layer, (c, *positions) of a convolutional one.
        offsets: η(0).
        filters: the compact form of a convolutional layer; None for a dense layer, or if the layer is no stack of
            convolutions, average poolings, batch-norms and sums.
    """

    gate: str
    shape: tuple[int, ...]
    offsets: Float[Tensor, "*shape"]
    filters: Filters | None
    _replay: Replay = field(repr=False)
    _inputs: tuple[int, ...] = field(repr=False)

    def normals(self, units: Sequence[Unit] | None = None) -> Float[Tensor, " units *inputs"]:
        r"""The normals ∂η/∂x of some units, or of all, (units, *shape of an example).

        .. math:: \eta_\ell = W_\ell \cdots W_1 x + \ldots

        Exact also at the borders of an image. One backward pass for all units together.
        """
        return self._unrounded(units).to(self._replay.dtype)

    def faces(self, units: Sequence[Unit]) -> tuple[Float[Tensor, "units d"], Float[Tensor, " units"]]:
        """Flattened normals and offsets of some units in float64, not rounded to the model's own dtype."""
        origin = torch.zeros(1, *self._inputs, dtype=torch.float64, device=self._replay.device)
        offsets = self._replay.pre_activations([self.gate], origin)[0].flatten()
        return self._unrounded(units).flatten(1), offsets[self.numbers(units)]

    def _unrounded(self, units: Sequence[Unit] | None) -> Float[Tensor, " units *inputs"]:
        chosen = self.numbers(range(prod(self.shape)) if units is None else units)
        size = prod(self._inputs)
        if len(chosen) * size > MOST_ENTRIES:
            raise InputError(
                f"layer '{self.gate}': {len(chosen):,} normals of {size:,} entries do not fit memory; ask for some "
                "units, normals([(channel, row, column), …]), or use .filters"
            )
        rows = [
            _normals(self._replay, self.gate, chosen[part], self._inputs)
            for part in batches(len(chosen), max(1, BLOCK_ENTRIES // size))
        ]
        empty = torch.empty(0, *self._inputs, dtype=torch.float64, device=self._replay.device)
        return torch.cat([empty, *rows])

    def numbers(self, units: Sequence[Unit]) -> list[int]:
        """The units' places among all of the layer, flattened."""
        return [unit_number(unit, self.shape, self.gate) for unit in units]

    def is_open(self, x: Float[Tensor, "n ..."]) -> Bool[Tensor, " n *shape"]:
        """Whether each example lies in each half-space."""
        return self._replay.pre_activations([self.gate], x.to(self._replay.device, torch.float64))[0] > 0


def half_spaces(
    dlgn: nn.Module, shape: Sequence[int] | None = None, *, plan: Plan | None = None
) -> dict[str, HalfSpaceLayer]:
    """The half-space of every gate of a deep linearly gated network, layer by layer.

    Takes :class:`gatelab.models.DeepLinearlyGatedNetwork` in all its variants, what :func:`gatelab.to_dlgn` makes of a
    dense, convolutional or residual network, and any model in which every gate is ``gated(value, q, gate)`` with a q
    that is affine in x. The result is a snapshot: it does not follow later training. A LeakyReLU's twin counts as open
    where q > 0, too.

    Args:
        dlgn: the network.
        shape: of one example; needed when the first layer is a convolution.
        plan: of a network of the same make, to look at one again and again while it trains.

    Raises:
        UnsupportedModelError: some gate is not a half-space of the input.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> import gatelab
        >>> layers = half_spaces(gatelab.to_dlgn(net))
        >>> [(name, tuple(layer.normals().shape)) for name, layer in layers.items()]
        [('gate.1.gated', (3, 2)), ('gate.3.gated', (3, 2))]
    """
    replay = linear_gates(dlgn, plan)
    inputs = replay.input_shape(None if shape is None else tuple(shape))
    origin = torch.zeros(1, *inputs, dtype=torch.float64, device=replay.device)
    offsets = replay.pre_activations(replay.gates, origin)
    return {
        name: HalfSpaceLayer(
            name,
            tuple(offset.shape[1:]),
            offset[0].to(replay.dtype),
            _filters(replay, name, inputs) if offset.ndim > 2 else None,
            replay,
            inputs,
        )
        for name, offset in zip(replay.gates, offsets, strict=True)
    }


def linear_gates(dlgn: nn.Module, plan: Plan | None = None) -> Replay:
    """The replay of a network all of whose gates are half-spaces; a refusal of any other."""
    replay = Replay(dlgn, plan)
    remedy = "gatelab.to_dlgn(model) makes a deep linearly gated network of a ReLU model"
    if not replay.gates:
        raise UnsupportedModelError(f"{type(dlgn).__name__} has no gates, hence no half-spaces; {remedy}")
    for name in replay.gates:
        deciding = replay.plan.deciding_gates(name)
        if replay.plan.kind(name) is not GateKind.GATED or deciding:
            why = f"depends on gate '{deciding[0]}'" if deciding else "gates its own signal"
            raise UnsupportedModelError(
                f"{type(dlgn).__name__} is not a deep linearly gated network: gate '{name}' {why}, so that its gates "
                f"are not half-spaces of the input; {remedy}"
            )
        replay.plan.check_affine(name)
    return replay


def _normals(replay: Replay, gate: str, numbers: list[int], inputs: tuple[int, ...]) -> Tensor:
    """∂η_i/∂x for some units; η is affine, so that any x will do."""
    x = torch.zeros(len(numbers), *inputs, dtype=torch.float64, device=replay.device, requires_grad=True)
    with torch.enable_grad():
        eta = replay.pre_activations([gate], x)[0].flatten(1)
        chosen = eta.gather(1, torch.tensor(numbers, device=replay.device).unsqueeze(1)).sum()
        if not chosen.requires_grad:  # every way from x was cut
            return torch.zeros_like(x)
        return torch.autograd.grad(chosen, x)[0]


def _filters(replay: Replay, name: str, inputs: tuple[int, ...]) -> Filters | None:
    """The half-space of a unit whose window touches no border, on an image just large enough to have one."""
    window = receptive_field(replay.plan.affine_nodes(name), replay.modules, replay.constants(name, inputs), inputs)
    if window is None:
        return None
    position = tuple(-(start // step) for start, step in zip(window.start, window.step, strict=True))
    first = tuple(s + p * step for s, p, step in zip(window.start, position, window.step, strict=True))
    canvas = (inputs[0], *(begin + size for begin, size in zip(first, window.size, strict=True)))
    offsets = replay.pre_activations([name], torch.zeros(1, *canvas, dtype=torch.float64, device=replay.device))[0][0]
    place = (slice(None), *position)
    numbers = torch.arange(offsets.numel(), device=replay.device).view(offsets.shape)[place].tolist()
    cut = tuple(slice(begin, begin + size) for begin, size in zip(first, window.size, strict=True))
    weight = _normals(replay, name, numbers, canvas)[(slice(None), slice(None), *cut)]
    return Filters(weight.to(replay.dtype), offsets[place].to(replay.dtype), window)
