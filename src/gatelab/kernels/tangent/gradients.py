"""Gradients of many examples as factors, checked against plain autograd; explicit where a model has no such form."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.kernels.tangent.factors import ExplicitFactor, Factor, join
from gatelab.kernels.tangent.layers import Names, layer_factors, signals_of, used_in_several_ways
from gatelab.kernels.tangent.per_example import PerExample
from gatelab.kernels.tangent.sums import widest
from gatelab.kernels.tangent.uses import ParameterUses
from gatelab.kernels.tiles import bytes_of
from gatelab.observe import batches, undisturbed

Outputs = Literal["trace", "full"] | int

# Numbers in the signals of a pass, 64 MB in float32: first as many outputs as fit for two examples, then as many
# examples. Larger passes are not faster: the system allocates large blocks page by page, again for every layer, which
# would take a sixth of the time of a convolutional network.
_SIGNALS = 2**24
# Arrays of that size that a pass holds at a time: signals, outputs kept for them, unfolded inputs, gradients.
_COPIES = 4
# Factors of all outputs are kept up to this many bytes. Beyond it, every block recomputes them, a group of outputs at a
# time: judging by its shapes, a ResNet-18 with 1,000 outputs needs about 0.6 GB per example.
_KEPT = 2**29


class NoStructureError(Exception):
    """The model uses its layers in a way that has no factored form."""


# The largest relative rounding of half precision; a larger difference is a real one.
_MOST_ROUNDING = 0.1
_NEIGHBOURS = 16  # examples on each side, when float64 decides whether an example depends on others
_ALONE = threading.Lock()  # a model that is being differentiated holds stand-ins for its parameters


@dataclass(frozen=True)
class GradientRows:
    """Some examples and the factors of their gradients.

    Attributes:
        x: the examples.
        loose: parameters that no layer uses, whose gradients are explicit; None if all gradients are explicit.
        kept: for each group of outputs, the factors by the name of the weight; empty if every block recomputes them.
        pair_entries: the entries of the largest array that a tile makes, for each pair of examples.
        group_bytes: the memory of one group of outputs.
    """

    x: Tensor
    loose: frozenset[str] | None
    kept: list[dict[Names, Factor]]
    pair_entries: int
    group_bytes: int


class Gradients:
    """Gradients of a model's outputs for each example, as factors.

    The factored form relies on watching the model's operations, which can miss something. It is therefore checked: run
    alone, the first and the last example must give the same outputs and, by plain autograd, the same gradients as in
    the batch. Where the gradients differ (custom autograd functions, derivatives inside forward, layers whose rows are
    not the examples), all gradients are computed one example at a time.

    Attributes:
        outputs: the number of outputs that are differentiated.
    """

    def __init__(self, model: nn.Module, names: list[str], example: Tensor, outputs: Outputs):
        """Count the outputs on one example; ``names`` are the parameters to differentiate by."""
        self._model = model
        self._each = PerExample(model, names)
        self._selected = _select(outputs, self._each.count_outputs(example))
        self.outputs = len(self._selected)
        self._dtype = example.dtype  # also the parameters' dtype
        self._keep_all = outputs == "full"  # every pair of groups is needed
        self._signals = 0  # numbers per example and output; known after the first rows

    def bytes_making(self, n: int, itemsize: int) -> int:
        """Return the memory of a pass that makes the rows of n examples, for one group of outputs."""
        group, batch = self._pass_sizes(self._signals)
        return _COPIES * min(n, batch) * group * self._signals * itemsize

    def sizes(self) -> dict[str, int]:
        """Return the parameters to differentiate by, in the model's order, with the number of their entries."""
        return {name: parameter.numel() for name, parameter in self._each.wanted.items()}

    def rows(self, x: Tensor, batch_size: int | None, pairs: int) -> "GradientRows":
        """Return one factor per weight for the examples of x, each of which is paired with ``pairs`` others."""
        with _gradients_on():
            loose, signals = self._survey(x[:1])
        self._signals = self._signals or signals  # set once: groups of outputs must agree between rows
        try:
            return self._rows(x, batch_size, pairs, loose)
        except NoStructureError:
            return self._rows(x, batch_size, pairs, None)

    def explicit(self, rows: "GradientRows", batch_size: int | None) -> "GradientRows":
        """Return the same examples with explicit gradients."""
        return rows if rows.loose is None else self._rows(rows.x, batch_size, 1, None)

    def groups(self, rows: "GradientRows", batch_size: int | None, pairs: int) -> Iterator[dict[Names, Factor]]:
        """Yield the factors of each group of outputs: those that are kept, or new ones."""
        if rows.kept:
            yield from rows.kept
            return
        for group in self._groups(rows.loose):
            yield self._factors(rows.x, batch_size, pairs, group, rows.loose)

    def group_size(self, rows: "GradientRows") -> int:
        """Return the number of outputs in each group but the last."""
        return len(self._groups(rows.loose)[0])

    def _rows(self, x: Tensor, batch_size: int | None, pairs: int, loose: frozenset[str] | None) -> "GradientRows":
        groups = self._groups(loose)
        kept = [self._factors(x, batch_size, pairs, groups[0], loose)]
        of_one = sum(bytes_of(*factor.tensors()) for factor in kept[0].values())
        entries = max((factor.pair_entries() for factor in kept[0].values()), default=1)
        if len(groups) > 1 and len(groups) * of_one > _KEPT and not self._keep_all:
            kept = []
        else:
            kept += [self._factors(x, batch_size, pairs, group, loose) for group in groups[1:]]
        return GradientRows(x, loose, kept, entries, of_one)

    def _pass_sizes(self, numbers: int) -> tuple[int, int]:
        """Return how many outputs and examples fit in a pass, given the numbers per output and example.

        At least two examples: a batch of one cannot show whether examples depend on each other.
        """
        most = max(1, _SIGNALS // (2 * max(1, numbers)))
        groups = -(-self.outputs // most)
        group = -(-self.outputs // groups)
        return group, max(2, _SIGNALS // (group * max(1, numbers)))

    def _groups(self, loose: frozenset[str] | None) -> list[list[int]]:
        """The outputs of each pass, of almost equal number; the same for all examples."""
        size, _ = self._pass_sizes(self._each.count_parameters() if loose is None else self._signals)
        return [self._selected[start : start + size] for start in range(0, self.outputs, size)]

    def _factors(
        self, x: Tensor, batch_size: int | None, pairs: int, group: list[int], loose: frozenset[str] | None
    ) -> dict[Names, Factor]:
        with _gradients_on():
            if loose is None:
                return self._explicit(x, batch_size, group)
            return self._structured(x, batch_size, pairs, group, loose)

    def _explicit(self, x: Tensor, batch_size: int | None, group: list[int]) -> dict[Names, Factor]:
        each = [self._each.gradients(x[s : s + 1], group) for s in range(x.shape[0])]
        if group[0] == self._selected[0]:
            among = torch.cat([self._watch(x[rows])[1].detach() for rows in batches(x.shape[0], batch_size)])
            for position, (alone, _) in enumerate(each):
                self._check_answer(position, alone, among, x)
        return {tuple(self._each.wanted): ExplicitFactor(torch.stack([gradients for _, gradients in each]))}

    def _structured(
        self, x: Tensor, batch_size: int | None, pairs: int, group: list[int], loose: frozenset[str]
    ) -> dict[Names, Factor]:
        _, fitting = self._pass_sizes(self._signals)
        parts, answers = [], []
        for rows in batches(x.shape[0], fitting if batch_size is None else batch_size):
            part, answer = self._batch_factors(x[rows], group, pairs, loose)
            parts.append(part)
            answers.append(answer)
        names = list(parts[0])
        if any(list(part) != names for part in parts):
            raise NoStructureError
        factors = {
            name: join([part.pop(name) for part in parts]) for name in names
        }  # pop, so that no layer is held twice for long
        self._check(x, torch.cat(answers), list(factors.values()), group, every=bool(loose))
        return factors

    def _survey(self, example: Tensor) -> tuple[frozenset[str], int]:
        """From one example: parameters that no layer with the examples on its first axis uses; numbers per output."""
        uses, _ = self._watch(example)
        names = uses.unstructured | used_in_several_ways(uses.uses)
        for use in uses.uses:
            if use.layer_input.shape[0] != 1 or not use.intact:
                names |= {name for name in (use.weight, use.bias) if name is not None}
        explicit = sum(self._each.wanted[name].numel() for name in names)
        return frozenset(names), explicit + sum(use.probe.numel() for use in uses.uses)

    def _watch(self, batch: Tensor) -> tuple[ParameterUses, Float[Tensor, "n k"]]:
        """Run a batch and record how it uses the parameters."""
        uses = ParameterUses(self._each.wanted, self._each.replaced)
        with undisturbed(self._model, batch, self._each.parameters) as run, uses:
            answer = self._each.as_matrix(run(batch), batch.shape[0])
        return uses, answer

    def _batch_factors(
        self, batch: Tensor, group: list[int], pairs: int, loose: frozenset[str]
    ) -> tuple[dict[Names, Factor], Tensor]:
        uses, answer = self._watch(batch)
        layers = [use for use in uses.uses if {use.weight, use.bias} - {None} - loose]
        if any(use.layer_input.shape[0] != batch.shape[0] or not use.intact for use in layers):
            raise NoStructureError
        try:
            signals = signals_of(answer, [use.probe for use in layers], group)
        except RuntimeError as error:  # an operation without a derivative; a run on one example identifies it
            raise NoStructureError from error
        factors = layer_factors(layers, signals, loose, pairs)
        if loose:
            try:
                explicit = self._each.by_torch_func(loose, batch, group)
            except RuntimeError as error:  # an operation that torch.func does not know
                raise NoStructureError from error
            factors[tuple(sorted(loose))] = ExplicitFactor(explicit)
        return factors, answer.detach()

    def _check(
        self, x: Tensor, answers: Float[Tensor, "n k"], factors: list[Factor], group: list[int], *, every: bool
    ) -> None:
        """Check that the first and the last example have the same outputs and gradients alone as in the batch.

        Only the first and the last output are compared, or every output where torch.func was used: its vmap is wrong
        for some outputs of a PReLU.
        """
        compared = group if every else (self._selected[0], self._selected[-1])
        ends = sorted({end for end in compared if end in group})
        places = [group.index(end) for end in ends]
        for position in sorted({0, x.shape[0] - 1}) if ends else []:
            one = slice(position, position + 1)
            alone, expected = self._each.gram(x[one], ends)
            self._check_answer(position, alone, answers, x)
            measured = x.new_zeros(1, 1, len(ends), len(ends), dtype=widest(x.device))
            for factor in factors:
                part = factor.part(one, places)
                part.add_full(measured, part, slice(None), slice(None))  # pyright: ignore
            if not _close(measured[0, 0], expected, expected.abs().max().item(), self._dtype):
                raise NoStructureError

    def _check_answer(
        self, position: int, alone: Float[Tensor, " k"], answers: Float[Tensor, "n k"], x: Float[Tensor, "n ..."]
    ) -> None:
        # An output may cancel to zero; its rounding then scales with the other outputs, or with numbers of order one.
        scale = answers.abs().max().item() + 1e-3
        if _close(alone, answers[position], scale, self._dtype) or self._only_rounding(position, x):
            return
        raise UnsupportedModelError(
            f"{type(self._model).__name__} gives example {position} different answers alone and among others: "
            "its output depends on the other examples, so it has no tangent kernel over examples"
        )

    @torch.no_grad()
    def _only_rounding(self, position: int, x: Float[Tensor, "n ..."]) -> bool:
        """Whether a float64 copy of the model gives an example the same output alone as among its neighbours."""
        first = max(0, position - _NEIGHBOURS)
        neighbours = x[first : position + _NEIGHBOURS].double()
        parameters = {name: parameter.detach().double() for name, parameter in self._each.parameters.items()}
        try:
            model = copy.deepcopy(self._model).double()
            with undisturbed(model, neighbours, parameters) as run:
                among = self._each.as_matrix(run(neighbours), len(neighbours))
                alone = self._each.as_matrix(run(neighbours[position - first : position - first + 1]), 1)[0]
        except Exception:  # a model that cannot be copied, or that fixes its dtype
            return False
        return _close(alone, among[position - first], among.abs().max().item() + 1e-3, torch.float64)


@contextmanager
def _gradients_on() -> Iterator[None]:
    """Enable gradients whatever the caller's settings, for one model at a time."""
    with _ALONE, torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        yield


def _close(a: Tensor, b: Tensor, scale: float, computed_in: torch.dtype) -> bool:
    """Whether a and b agree up to the rounding of a long sum of terms of this scale, partly computed in a dtype."""
    eps = max(torch.finfo(dtype).eps for dtype in (a.dtype, computed_in))
    rounding = min(1e4 * eps, _MOST_ROUNDING) * scale + torch.finfo(a.dtype).tiny
    return a.shape == b.shape and bool(((a - b).abs() <= rounding).all())


def _select(outputs: Outputs, available: int) -> list[int]:
    if outputs in ("trace", "full"):
        return list(range(available))
    if not isinstance(outputs, int) or isinstance(outputs, bool):
        raise InputError(f'outputs is {outputs!r}; use "trace", "full" or the number of an output')
    if not 0 <= outputs < available:
        raise InputError(f"output {outputs} does not exist; the model has {available}")
    return [outputs]
