"""Per-example gradients of any model: which parameters have structure, and the factors that they give."""

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.kernels.gradient_factors import DenseFactor, ExplicitFactor, Factor, join, layer_factor
from gatelab.kernels.parameter_uses import LayerUse, ParameterUses
from gatelab.observe import batches, undisturbed

Outputs = Literal["trace", "full"] | int


class Gradients:
    """Per-example gradients of a model's outputs, as factors.

    Attributes:
        outputs: the number of outputs that are differentiated.
    """

    def __init__(self, model: nn.Module, names: list[str], example: Tensor, outputs: Outputs):
        """Learn from one example how the parameters ``names`` enter the model.

        A single example tells which axis holds the examples: a layer that then sees more than one row does not have
        them on the first axis (sequences first, say), and its parameters are left to torch.func.
        """
        self._model = model
        own = dict(model.named_parameters())
        # Stand-ins that require gradients: the model's own flags and .grad stay as they are.
        self._parameters = {
            name: parameter.detach().requires_grad_(name in set(names)) for name, parameter in own.items()
        }
        self._wanted = {name: self._parameters[name] for name in names}
        self._example = example
        self._alone: Tensor | None = None
        uses, answer = self._watch(example)
        self._unstructured = {name for name in uses.unstructured if name in self._wanted}
        for use in uses.uses:
            if use.layer_input.shape[0] != 1 or not use.intact:
                self._unstructured |= {name for name in (use.weight, use.bias) if name is not None}
        self._unstructured |= _used_in_several_ways(uses.uses)
        self._selected = self._select(outputs, answer.shape[1])
        self.outputs = len(self._selected)

    def factors(self, x: Tensor, batch_size: int | None, pairs: int) -> list[Factor]:
        """One factor per weight, for all examples of x."""
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller has switched off
            parts = [self._batch_factors(x[rows], pairs) for rows in batches(x.shape[0], batch_size)]
        if any(list(part) != list(parts[0]) for part in parts):
            raise UnsupportedModelError("the layers that run depend on the data; the tangent kernel needs fixed ones")
        return [join([part[key] for part in parts]) for key in parts[0]]

    def _watch(self, batch: Tensor) -> tuple[ParameterUses, Float[Tensor, "n k"]]:
        """Run a batch and see how it uses the parameters."""
        uses = ParameterUses(self._wanted)
        with undisturbed(self._model, batch, self._parameters) as run:
            if self._alone is None:
                with torch.no_grad():
                    self._alone = self._as_matrix(run(batch), 1)
            with torch.enable_grad(), uses:
                answer = self._as_matrix(run(batch), batch.shape[0])
        self._check_independence(batch, answer)
        return uses, answer

    def _as_matrix(self, answer: object, n: int) -> Float[Tensor, "n k"]:
        if not isinstance(answer, Tensor) or answer.shape[:1] != (n,):
            what = f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
            raise UnsupportedModelError(
                f"{type(self._model).__name__} returned {what} for {n} examples; it must return one tensor with the "
                "examples on the first axis"
            )
        return answer.reshape(n, -1)

    def _check_independence(self, batch: Tensor, answer: Tensor) -> None:
        """The first example must get one and the same answer: again, and among others."""
        if self._alone is None or not torch.equal(batch[:1], self._example):
            return
        tolerance = 1e3 * torch.finfo(answer.dtype).eps * (1 + float(answer[:1].detach().abs().max()))
        if float((self._alone - answer[:1]).detach().abs().max()) > tolerance:
            raise UnsupportedModelError(
                f"{type(self._model).__name__} gives example 0 different answers, run again or among others: its "
                "output depends on chance or on the other examples, and has no tangent kernel over examples"
            )

    def _select(self, outputs: Outputs, available: int) -> list[int]:
        if isinstance(outputs, str):
            if outputs not in ("trace", "full"):
                raise InputError(f'outputs is {outputs!r}; use "trace", "full" or the number of an output')
            return list(range(available))
        if not 0 <= outputs < available:
            raise InputError(f"output {outputs} does not exist; the model has {available}")
        return [outputs]

    def _batch_factors(self, batch: Tensor, pairs: int) -> dict[str, Factor]:
        uses, answer = self._watch(batch)
        probes = [use.probe for use in uses.uses]
        signals: list[list[Tensor]] = [[] for _ in probes]
        for position, output in enumerate(self._selected if answer.requires_grad and probes else []):
            again = position + 1 < len(self._selected)
            deltas = torch.autograd.grad(
                answer[:, output].sum(), probes, retain_graph=again, allow_unused=True, materialize_grads=True
            )
            for use, delta, collected in zip(uses.uses, deltas, signals, strict=True):
                collected.append(use.signals(delta))
        factors = self._layer_factors(uses.uses, signals, pairs)
        if self._unstructured:
            factors["torch.func"] = ExplicitFactor(self._explicit(batch))
        return factors

    def _layer_factors(self, uses: list[LayerUse], signals: list[list[Tensor]], pairs: int) -> dict[str, Factor]:
        by_weight: dict[str, list[int]] = defaultdict(list)
        by_bias: dict[str, list[int]] = defaultdict(list)
        for position, use in enumerate(uses):
            if signals[position] and use.weight is not None and use.weight not in self._unstructured:
                by_weight[use.weight].append(position)
            if signals[position] and use.bias is not None and use.bias not in self._unstructured:
                by_bias[use.bias].append(position)
        stacked = {p: _outputs_beside(collected) for p, collected in enumerate(signals) if collected}
        factors: dict[str, Factor] = {}
        for name, positions in by_weight.items():
            inputs = _beside([uses[p].inputs() for p in positions], dim=2)
            deltas = _beside([stacked[p] for p in positions], dim=3)
            bias = uses[positions[0]].bias
            # A bias that goes with this one dense call rides along: a·a' + 1 instead of a Gram matrix of its own.
            rides = inputs.shape[1] == inputs.shape[2] == 1 and bias is not None and by_bias.get(bias) == positions
            if rides and bias is not None:
                del by_bias[bias]
            factors[name] = layer_factor(inputs, deltas, bias=rides, pairs_per_example=pairs)
        for name, positions in by_bias.items():
            total = torch.stack([stacked[p].sum(dim=3).flatten(2) for p in positions]).sum(dim=0)
            factors[name] = DenseFactor(None, total, bias=True)
        return factors

    def _explicit(self, batch: Tensor) -> Float[Tensor, "n k parameters"]:
        """Gradients of the parameters with no structure, by torch.func, one example at a time in parallel."""
        wanted = {name: self._parameters[name].detach() for name in sorted(self._unstructured)}
        fixed = {name: p.detach() for name, p in self._parameters.items() if name not in wanted}
        fixed |= {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        selected = torch.tensor(self._selected, device=batch.device)

        def answer(parameters: dict[str, Tensor], example: Tensor) -> Tensor:
            out = functional_call(self._model, {**fixed, **parameters}, (example.unsqueeze(0),))
            return out.reshape(-1)[selected]

        jacobian = _per_example(jacrev(answer), wanted, batch)
        return torch.cat([block.flatten(2) for block in jacobian.values()], dim=2)


def _used_in_several_ways(uses: list[LayerUse]) -> set[str]:
    """Weights that serve as dense layer here and convolution there: their gradients have no common factor."""
    kinds: dict[str, set[object]] = defaultdict(set)
    for use in uses:
        if use.weight is not None:
            kinds[use.weight].add(None if use.geometry is None else (use.geometry.kernel, use.geometry.groups))
    return {name for name, seen in kinds.items() if len(seen) > 1}


def _outputs_beside(signals: list[Tensor]) -> Float[Tensor, "n k g p o"]:
    return signals[0].unsqueeze(1) if len(signals) == 1 else torch.stack(signals, dim=1)  # one output: no copy


def _beside(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def _per_example(
    jacobian: Callable[..., dict[str, Tensor]], parameters: dict[str, Tensor], batch: Tensor
) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            # Where vmap has no batched form it loops, which is no news to someone who asked for correctness first.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return vmap(jacobian, in_dims=(None, 0))(parameters, batch)
    except RuntimeError:  # an operation that vmap does not know: the same, one by one
        rows = [jacobian(parameters, example) for example in batch]
        return {name: torch.stack([row[name] for row in rows]) for name in parameters}
