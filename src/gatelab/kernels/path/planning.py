"""Which pairs of positions each weight layer's covariance is computed at."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from gatelab.kernels.path.pairs import AllPairs, Geometry, Offset, OffsetPairs, Pairs, chosen_pairs, offsets_behind
from gatelab.kernels.path.signals import Signal, Term


@dataclass(frozen=True, eq=False)
class WeightLayer:
    """A weight layer and the signal that reaches it.

    Attributes:
        inputs: the signal, for one set of examples.
        channels: output channels.
        groups: groups of channels that do not mix.
        scale: variance of the weights.
        bias: variance of the bias; 0 if no paths start there.
        geometry: what a convolution reads; None for a dense layer, which sums over all units.
    """

    inputs: Signal
    channels: int
    groups: int
    scale: float
    bias: float
    geometry: Geometry | None

    @property
    def size(self) -> tuple[int, ...]:
        """Positions of the output, along each axis."""
        return () if self.geometry is None else self.geometry.out_size


def plan(layers: list[WeightLayer], output: Signal, known: Mapping[int, object]) -> dict[int, Pairs]:
    """Return, for each layer that is needed, the pairs of positions at which its covariance is needed.

    Args:
        layers: the weight layers, first to last.
        output: the final signal, of which one unit is used.
        known: layers whose kernel is already known.
    """
    wanted: dict[int, frozenset[Offset] | None] = {}

    def ask(signal: Signal, offsets: frozenset[Offset] | None) -> None:
        for term in signal.terms:
            for origin in term.origins if not term.is_input else ():
                new = offsets_wanted(term, offsets, layers[origin].size)
                old = wanted.get(origin, frozenset())
                wanted[origin] = None if old is None or new is None else old | new

    ask(output, frozenset({(0,) * len(output.size)}))
    forms = {}
    for number in reversed(range(len(layers))):
        if number not in wanted:
            continue
        layer, offsets = layers[number], wanted[number]
        uneven = layer.geometry is not None and layer.geometry.filter is None
        if uneven and offsets != {(0,) * len(layer.size)}:
            offsets = None  # pairs at one offset come from pairs at many
        forms[number] = chosen_pairs(layer.size, offsets)
        if number not in known:
            inner = pairs_read(layer, forms[number])
            ask(layer.inputs, None if isinstance(inner, AllPairs) else frozenset(inner.offsets))
    return dict(sorted(forms.items()))


def offsets_wanted(term: Term, offsets: frozenset[Offset] | None, size: tuple[int, ...]) -> frozenset[Offset] | None:
    """Return the offsets in a field that a term reads, for pairs of node positions at some offsets; None means all."""
    if term.simple or offsets is None:
        return offsets
    if term.reach is None:
        return None
    reach = term.reach
    if term.maps is not None:
        reach = tuple(b.after(a) for a, b in zip(term.reach, term.maps.reach, strict=True))
    return offsets_behind(offsets, reach, size)


def pairs_read(layer: WeightLayer, form: Pairs) -> Pairs:
    """The pairs of input positions that a layer reads for some pairs of output positions."""
    size = layer.inputs.size
    zero = (0,) * len(size)
    if layer.geometry is None:
        return OffsetPairs(size, (zero,))
    if isinstance(form, AllPairs):
        return AllPairs(size)
    if form.offsets == (zero,):
        return OffsetPairs(size, form.offsets)
    if layer.geometry.filter is None:
        return AllPairs(size)
    stride = layer.geometry.filter.stride
    return OffsetPairs(size, tuple(tuple(s * d for s, d in zip(stride, one, strict=True)) for one in form.offsets))


def last_reads(layers: list[WeightLayer], output: Signal, forms: Mapping[int, Pairs]) -> dict[int, list[int]]:
    """Return, for each layer, the fields that nothing after it reads, so that they can be freed."""
    last: dict[int, int] = {}
    for number in forms:
        for term in layers[number].inputs.terms:
            last.update(dict.fromkeys(term.origins, number))
    kept = {origin for term in output.terms for origin in term.origins}
    found: dict[int, list[int]] = {}
    for origin, number in last.items():
        if origin not in kept:
            found.setdefault(number, []).append(origin)
    return found


def takes_patches(layer: WeightLayer, form: Pairs) -> bool:
    """Whether a first convolution is one product of the patches it reads, for all pairs of positions."""
    return layer.inputs.is_input and layer.geometry is not None and isinstance(form, AllPairs)


def takes_product(layer: WeightLayer) -> bool:
    """Whether a first dense layer is one product of the inputs it reads, over channels and positions at once."""
    terms = layer.inputs.terms
    return layer.geometry is None and len(terms) == 1 and terms[0].is_input and terms[0].simple


def reads_most_positions(term: Term, positions: int) -> bool:
    """Whether a term has more taps than its field has positions, so that it is better written as a matrix."""
    shared = term.index is not None and term.index.shape[:2] == (1, 1)
    return shared and term.multiplier.shape[2] * term.multiplier.shape[3] > positions


def largest_covariance(layers: list[WeightLayer], forms: Mapping[int, Pairs], without: Collection[int] = ()) -> int:
    """Return the number of entries of the largest array, per pair of examples; some layers may be left out."""
    sizes = [1]
    for number, form in forms.items():
        layer = layers[number]
        if number in without:
            continue
        sizes.append(layer.groups * prod(form.shape))
        for term in layer.inputs.terms if not (takes_patches(layer, form) or takes_product(layer)) else ():
            fine = term.multiplier.shape[2] * term.multiplier.shape[3]
            inner = pairs_read(layer, form)
            entries = fine**2 if isinstance(inner, AllPairs) else prod(inner.shape)
            positions = 1 if term.is_input else prod(layers[term.origins[0]].size)
            if isinstance(inner, AllPairs) and reads_most_positions(term, positions):
                entries = len(term.channels) * term.multiplier.shape[2] * positions
            origin_groups = 1 if term.is_input else layers[term.origins[0]].groups
            sizes.append(max(layer.groups, origin_groups) * entries)
    return max(sizes)
