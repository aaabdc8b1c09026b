"""Signals: the sums of gated random fields that reach a node, for one set of examples.

With the gates fixed and the value weights random, the output of a weight layer is a random field u_c(p) over channels c
and positions p. Fields are independent over channels and over layers; the covariance S(p, p') between two examples is
the same for all channels. The operations between two weight layers (gates, pooling, sums, concatenation) turn fields
into Σ_t Σ_{p in window} a_t,c(p) u_t,c(p). A term keeps the field's origin, the multipliers a, and the window.
"""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from gatelab.errors import UnsupportedModelError

INPUT = -1  # the origin of the input, a field that is 1 everywhere; the input itself is the multiplier


@dataclass(frozen=True)
class Term:
    """One field on its way to a node.

    Attributes:
        origin: the weight layer that made the field, or INPUT.
        multiplier: a, at the field's own resolution; a first axis of length 1 stands for all examples.
        window: height and width of the windows over which the field's positions are summed.
        channel: the node's channel that holds the field's first channel.
    """

    origin: int
    multiplier: Float[Tensor, "n c h w"]
    window: tuple[int, int] = (1, 1)
    channel: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Height and width at the node."""
        return self.multiplier.shape[2] // self.window[0], self.multiplier.shape[3] // self.window[1]

    def times(self, factor: Float[Tensor, "n c h w"]) -> "Term":
        """Multiply pointwise, at the node's resolution and over all of the node's channels."""
        own = factor[:, self.channel : self.channel + self.multiplier.shape[1]]
        fine = own.repeat_interleave(self.window[0], dim=2).repeat_interleave(self.window[1], dim=3)
        return replace(self, multiplier=self.multiplier * fine)


@dataclass(frozen=True)
class Signal:
    """Everything that reaches a node.

    Attributes:
        terms: the fields; no two share origin, window and channels.
        channels: the number of channels of the node.
        size: height and width of the node; (1, 1) for dense layers.
        flat: whether channels and positions are flattened into one axis.
    """

    terms: tuple[Term, ...]
    channels: int
    size: tuple[int, int]
    flat: bool = False

    def times(self, factor: Tensor) -> "Signal":
        """Multiply every term pointwise by a gate."""
        shaped = factor.reshape(factor.shape[0], self.channels, *self.size)
        return replace(self, terms=tuple(term.times(shaped) for term in self.terms))

    def pooled(self, window: tuple[int, int], scale: float) -> "Signal":
        """Sum over windows that do not overlap."""
        terms = tuple(
            replace(
                term,
                multiplier=term.multiplier * scale,
                window=(term.window[0] * window[0], term.window[1] * window[1]),
            )
            for term in self.terms
        )
        size = (self.size[0] // window[0], self.size[1] // window[1])
        return replace(self, terms=terms, size=size)

    def plus(self, other: "Signal", where: str) -> "Signal":
        """Return the sum of two signals. Terms of one origin hold the same field, so their multipliers add."""
        if (self.channels, self.size, self.flat) != (other.channels, other.size, other.flat):
            raise UnsupportedModelError(f"{where} adds signals of different shapes, for which there is no rule")
        terms = list(self.terms)
        for term in other.terms:
            terms = _merged(terms, term, where)
        return replace(self, terms=tuple(terms))

    def channel_range(self, start: int, count: int) -> "Signal":
        """Return some consecutive channels, the input of one group of a convolution."""
        terms = []
        for term in self.terms:
            low, high = max(start, term.channel), min(start + count, term.channel + term.multiplier.shape[1])
            if low < high:
                part = term.multiplier[:, low - term.channel : high - term.channel]
                terms.append(replace(term, multiplier=part, channel=low - start))
        return replace(self, terms=tuple(terms), channels=count)

    def beside(self, other: "Signal") -> "Signal":
        """Return the concatenation of two signals along channels."""
        moved = tuple(replace(term, channel=term.channel + self.channels) for term in other.terms)
        return replace(self, terms=self.terms + moved, channels=self.channels + other.channels)


def _merged(terms: list[Term], new: Term, where: str) -> list[Term]:
    for position, term in enumerate(terms):
        if term.origin != new.origin:
            continue
        if (term.window, term.channel, term.multiplier.shape[1:]) != (
            new.window,
            new.channel,
            new.multiplier.shape[1:],
        ):
            raise UnsupportedModelError(
                f"{where} adds two versions of one signal, shifted or pooled differently, for which there is no rule"
            )
        both = replace(term, multiplier=term.multiplier + new.multiplier)
        return [*terms[:position], both, *terms[position + 1 :]]
    return [*terms, new]


def input_signal(x: Tensor) -> Signal:
    """Return the input as a signal: images keep channels and positions, anything else is one flat vector."""
    if x.ndim == 4:
        return Signal((Term(INPUT, x),), x.shape[1], (x.shape[2], x.shape[3]))
    flat = x.reshape(x.shape[0], -1, 1, 1)
    return Signal((Term(INPUT, flat),), flat.shape[1], (1, 1), flat=True)


def field(origin: int, channels: int, size: tuple[int, int], like: Tensor, *, channel: int = 0) -> Term:
    """Return the term of a field as it leaves its weight layer."""
    return Term(origin, like.new_ones(1, channels, *size), channel=channel)
