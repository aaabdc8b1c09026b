"""Gradients of many examples as factors, checked against plain autograd; explicit where a model has no such form."""

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.kernels.tangent.factors import DenseFactor, ExplicitFactor, Factor, join, layer_factor
from gatelab.kernels.tangent.per_example import PerExample
from gatelab.kernels.tangent.uses import LayerUse, ParameterUses
from gatelab.observe import batches, undisturbed

Outputs = Literal["trace", "full"] | int

# Numbers in the signals of a batch, 64 MB in float32. Larger batches are not faster: the system hands out large blocks
# page by page, anew for every layer, which would take a sixth of the time of a convolutional network.
_SIGNALS = 2**24
# Arrays of that size that a pass holds at a time: signals, outputs kept for them, unfolded inputs, gradients.
_COPIES = 4


class _NoStructureError(Exception):
    """The model uses its layers in a way that has no factored form."""


# The most that half precision may round, relative; a larger difference is a different number.
_MOST_ROUNDING = 0.1
_ALONE = threading.Lock()  # while a model is differentiated, it holds stand-ins for its parameters
_EXPLICIT = "every parameter"  # the one factor of a model without structure


@dataclass(frozen=True)
class GradientRows:
    """Some examples and the factors of their gradients, by the name of the weight."""

    x: Tensor
    factors: dict[str, Factor]


class Gradients:
    """Gradients of a model's outputs for each example, as factors.

    The factored form relies on watching the model's operations, which can miss something. It is therefore checked: the
    first and the last example, run alone, must give the answers and, by plain autograd, the gradients that they have in
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
        self._dtype = example.dtype  # the parameters' as well
        self._signals = 0  # size for one example and all outputs; known after the first rows

    def bytes_making(self, n: int, itemsize: int) -> int:
        """Return the memory of a pass that makes the rows of n examples."""
        return _COPIES * min(n * self._signals, _SIGNALS) * itemsize

    def rows(self, x: Tensor, batch_size: int | None, pairs: int) -> "GradientRows":
        """Return one factor per weight for the examples of x, each of which is paired with ``pairs`` others."""
        with _ALONE, torch.inference_mode(False), torch.enable_grad():  # whatever the caller has switched off
            try:
                return GradientRows(x, self._structured(x, batch_size, pairs))
            except _NoStructureError:
                return GradientRows(x, {_EXPLICIT: self._explicit(x, batch_size)})

    def explicit(self, rows: "GradientRows", batch_size: int | None) -> "GradientRows":
        """Return the same examples with explicit gradients."""
        if _EXPLICIT in rows.factors:
            return rows
        with _ALONE, torch.inference_mode(False), torch.enable_grad():
            return GradientRows(rows.x, {_EXPLICIT: self._explicit(rows.x, batch_size)})

    def _explicit(self, x: Tensor, batch_size: int | None) -> Factor:
        each = [self._each.gradients(x[s : s + 1], self._selected) for s in range(x.shape[0])]
        among_others = torch.cat([self._watch(x[rows])[1].detach() for rows in batches(x.shape[0], batch_size)])
        for position, (alone, _) in enumerate(each):
            self._check_answer(position, alone, among_others)
        return ExplicitFactor(torch.stack([gradients for _, gradients in each]))

    def _structured(self, x: Tensor, batch_size: int | None, pairs: int) -> dict[str, Factor]:
        unstructured, signals = self._survey(x[:1])
        # At least two examples: a batch of one cannot show whether examples depend on each other.
        self._signals = signals * self.outputs
        fitting = max(2, _SIGNALS // max(1, self._signals))
        parts, answers = [], []
        for rows in batches(x.shape[0], fitting if batch_size is None else batch_size):
            part, answer = self._batch_factors(x[rows], unstructured, pairs)
            parts.append(part)
            answers.append(answer)
        names = list(parts[0])
        if any(list(part) != names for part in parts):
            raise _NoStructureError
        factors = {
            name: join([part.pop(name) for part in parts]) for name in names
        }  # pop: no layer is held twice for long
        self._check(x, torch.cat(answers), list(factors.values()))
        return factors

    def _survey(self, example: Tensor) -> tuple[set[str], int]:
        """From one example: parameters not used by a layer with the examples on its first axis; the size of all δ."""
        uses, _ = self._watch(example)
        names = uses.unstructured | _used_in_several_ways(uses.uses)
        for use in uses.uses:
            if use.layer_input.shape[0] != 1 or not use.intact:
                names |= {name for name in (use.weight, use.bias) if name is not None}
        return names, sum(use.probe.numel() for use in uses.uses)

    def _watch(self, batch: Tensor) -> tuple[ParameterUses, Float[Tensor, "n k"]]:
        """Run a batch and record how it uses the parameters."""
        uses = ParameterUses(self._each.wanted)
        with undisturbed(self._model, batch, self._each.parameters) as run, uses:
            answer = self._each.as_matrix(run(batch), batch.shape[0])
        return uses, answer

    def _batch_factors(self, batch: Tensor, unstructured: set[str], pairs: int) -> tuple[dict[str, Factor], Tensor]:
        uses, answer = self._watch(batch)
        layers = [use for use in uses.uses if {use.weight, use.bias} - {None} - unstructured]
        if any(use.layer_input.shape[0] != batch.shape[0] or not use.intact for use in layers):
            raise _NoStructureError
        probes = [use.probe for use in layers]
        signals: list[list[Tensor]] = [[] for _ in probes]
        for position, output in enumerate(self._selected if answer.requires_grad and probes else []):
            again = position + 1 < len(self._selected)
            deltas = torch.autograd.grad(
                answer[:, output].sum(), probes, retain_graph=again, allow_unused=True, materialize_grads=True
            )
            for delta, collected in zip(deltas, signals, strict=True):
                collected.append(delta)
        factors = _layer_factors(layers, signals, unstructured, pairs)
        if unstructured:
            try:
                explicit = self._each.by_torch_func(unstructured, batch, self._selected)
            except RuntimeError as error:  # an operation that torch.func does not know
                raise _NoStructureError from error
            factors["torch.func"] = ExplicitFactor(explicit)
        return factors, answer.detach()

    def _check(self, x: Tensor, answers: Float[Tensor, "n k"], factors: list[Factor]) -> None:
        """Check that the first and the last example have the same answers and gradients alone as in the batch."""
        ends = sorted({0, self.outputs - 1})
        for position in sorted({0, x.shape[0] - 1}):
            one = slice(position, position + 1)
            alone, gradients = self._each.gradients(x[one], [self._selected[end] for end in ends])
            self._check_answer(position, alone, answers)
            wide = torch.promote_types(gradients.dtype, torch.float32)  # sums of squares overflow in half precision
            measured = x.new_zeros(1, 1, self.outputs, self.outputs, dtype=wide)
            for factor in factors:
                factor.add_full(measured, factor, one, one)  # pyright: ignore
            expected = gradients.to(wide) @ gradients.to(wide).T
            if not _close(measured[0, 0, ends][:, ends], expected, expected.abs().max().item(), self._dtype):
                raise _NoStructureError

    def _check_answer(self, position: int, alone: Float[Tensor, " k"], answers: Float[Tensor, "n k"]) -> None:
        # An answer may cancel to zero; its rounding is then that of the other answers, or of numbers of order one.
        scale = answers.abs().max().item() + 1e-3
        if not _close(alone, answers[position], scale, self._dtype):
            raise UnsupportedModelError(
                f"{type(self._model).__name__} gives example {position} different answers alone and among others: "
                "its output depends on the other examples, so it has no tangent kernel over examples"
            )


def _close(a: Tensor, b: Tensor, scale: float, computed_in: torch.dtype) -> bool:
    """Equal up to the rounding of a long sum of terms of this scale, parts of which were computed in a given dtype."""
    eps = max(torch.finfo(dtype).eps for dtype in (a.dtype, computed_in))
    rounding = min(1e4 * eps, _MOST_ROUNDING) * scale + torch.finfo(a.dtype).tiny
    return a.shape == b.shape and bool(((a - b).abs() <= rounding).all())


def _select(outputs: Outputs, available: int) -> list[int]:
    if outputs in ("trace", "full"):
        return list(range(available))
    if not isinstance(outputs, int):
        raise InputError(f'outputs is {outputs!r}; use "trace", "full" or the number of an output')
    if not 0 <= outputs < available:
        raise InputError(f"output {outputs} does not exist; the model has {available}")
    return [outputs]


def _layer_factors(
    uses: list[LayerUse], signals: list[list[Tensor]], unstructured: set[str], pairs: int
) -> dict[str, Factor]:
    by_weight: dict[str, list[int]] = defaultdict(list)
    by_bias: dict[str, list[int]] = defaultdict(list)
    for position, use in enumerate(uses):
        if signals[position] and use.weight is not None and use.weight not in unstructured:
            by_weight[use.weight].append(position)
        if signals[position] and use.bias is not None and use.bias not in unstructured:
            by_bias[use.bias].append(position)
    stacked = {p: uses[p].signals(_outputs_beside(deltas)) for p, deltas in enumerate(signals) if deltas}
    factors: dict[str, Factor] = {}
    for name, positions in by_weight.items():
        inputs = _beside([uses[p].inputs() for p in positions], dim=2)
        deltas = _beside([stacked[p] for p in positions], dim=3)
        bias = uses[positions[0]].bias
        # The bias of a single dense call needs no Gram matrix of its own: a·a' + 1 includes it.
        rides = inputs.shape[1] == inputs.shape[2] == 1 and bias is not None and by_bias.get(bias) == positions
        if rides and bias is not None:
            del by_bias[bias]
        factors[name] = layer_factor(inputs, deltas, bias=rides, pairs_per_example=pairs)
    for name, positions in by_bias.items():
        total = torch.stack([stacked[p].sum(dim=3).flatten(2) for p in positions]).sum(dim=0)
        factors[name] = DenseFactor(None, total, bias=True)
    return factors


def _used_in_several_ways(uses: list[LayerUse]) -> set[str]:
    """Weights used both in dense layers and in convolutions: their gradients have no common factor."""
    kinds: dict[str, set[object]] = defaultdict(set)
    for use in uses:
        if use.weight is not None:
            kinds[use.weight].add(None if use.geometry is None else (use.geometry.kernel, use.geometry.groups))
    return {name for name, seen in kinds.items() if len(seen) > 1}


def _outputs_beside(signals: list[Tensor]) -> Float[Tensor, "n k ..."]:
    return signals[0].unsqueeze(1) if len(signals) == 1 else torch.stack(signals, dim=1)  # one output: no copy


def _beside(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
