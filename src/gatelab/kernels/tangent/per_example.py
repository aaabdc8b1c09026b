"""Gradients of one example at a time: slow, but correct for every model."""

import warnings
from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from gatelab.errors import GatelabError, InputError, UnsupportedModelError
from gatelab.kernels.tangent.sums import inner_products, widest
from gatelab.observe import undisturbed


class PerExample:
    """Outputs and gradients of a model for single examples.

    Attributes:
        parameters: detached copies of all parameters by name, so that the model's flags and .grad stay unchanged.
        wanted: those to differentiate by.
        replaced: the model's own parameters by name.
    """

    def __init__(self, model: nn.Module, names: Iterable[str]):
        """Prepare to differentiate with respect to the parameters ``names``."""
        self._model = model
        wanted = set(names)
        self.replaced = dict(model.named_parameters())
        with torch.inference_mode(False):
            # Copies: an optimiser may write to the model in the meantime.
            self.parameters = {
                name: parameter.detach().clone().requires_grad_(name in wanted)
                for name, parameter in self.replaced.items()
            }
        self.wanted = {name: tensor for name, tensor in self.parameters.items() if name in wanted}

    def as_matrix(self, answer: object, n: int) -> Float[Tensor, "n k"]:
        """Return the model's output with one row per example; refuse any other form."""
        if not isinstance(answer, Tensor):
            what = type(answer).__name__
        elif not answer.is_floating_point() or answer.layout is not torch.strided:
            what = f"{answer.dtype} ({answer.layout})"
        elif n == 1 or answer.shape[:1] == (n,):
            return answer.reshape(n, -1)  # a model that squeezes may return no axis at all for one example
        else:
            what = f"shape {tuple(answer.shape)}"
        raise UnsupportedModelError(
            f"{type(self._model).__name__} returned {what} for {n} examples; it must return one dense floating-point "
            "tensor with the examples on the first axis; of a tuple or a dict choose a part with output="
        )

    def count_outputs(self, example: Float[Tensor, "1 ..."]) -> int:
        """Count the outputs; run the example twice to detect randomness, and beside NaN to detect mixed examples."""
        with undisturbed(self._model, example, self.parameters) as run, torch.enable_grad():
            first, second = (self.as_matrix(self._answer(run, example), 1) for _ in range(2))
            nan = torch.full_like(example, torch.nan)
            try:
                beside = self.as_matrix(run(torch.cat([nan, example, nan, nan])), 4)[1]
            except (RuntimeError, ValueError, IndexError):  # takes no NaN, or not four examples: compared later
                beside = first[0]
        if bool((beside.isnan() & ~first[0].isnan()).any()):
            raise UnsupportedModelError(
                f"{type(self._model).__name__} gives example 0 different answers alone and among others (of NaN): its "
                "output depends on the other examples, so it has no tangent kernel over examples"
            )
        if not torch.equal(first, second):
            raise UnsupportedModelError(
                f"{type(self._model).__name__} gives different answers to the same input; remove the randomness "
                "(dropout, noise) from its evaluation mode"
            )
        return first.shape[1]

    def _answer(self, run: Callable[[Tensor], object], example: Float[Tensor, "1 ..."]) -> object:
        """Run the model for the first time; if it fails, the error states the shape it was given."""
        try:
            return run(example)
        except GatelabError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            raise InputError(
                f"{type(self._model).__name__} does not run on one example of shape {tuple(example.shape)}: {error}"
            ) from error

    def count_parameters(self) -> int:
        """Count the numbers to differentiate by."""
        return sum(parameter.numel() for parameter in self.wanted.values())

    def gradients(
        self, example: Float[Tensor, "1 ..."], outputs: Sequence[int]
    ) -> tuple[Float[Tensor, " all"], Float[Tensor, "k parameters"]]:
        """Return the outputs for one example, and the gradients of some of them by plain autograd."""
        answer, rows = self._differentiate(example, outputs)
        return answer, torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])

    def gram(
        self, example: Float[Tensor, "1 ..."], outputs: Sequence[int]
    ) -> tuple[Float[Tensor, " all"], Float[Tensor, "k k"]]:
        """Return the outputs for one example, and the inner products of the gradients of some of them."""
        answer, rows = self._differentiate(example, outputs)
        total = answer.new_zeros(len(outputs), len(outputs), dtype=widest(answer.device))
        for parts in zip(*rows, strict=True):  # one parameter at a time: no copy of all gradients
            matrix = torch.stack([part.flatten() for part in parts])
            wide = torch.promote_types(matrix.dtype, torch.float32)  # squares overflow in half precision
            total += inner_products(matrix.to(wide), matrix.to(wide))
        return answer, total

    def _differentiate(
        self, example: Float[Tensor, "1 ..."], outputs: Sequence[int]
    ) -> tuple[Float[Tensor, " all"], list[tuple[Tensor, ...]]]:
        with undisturbed(self._model, example, self.parameters) as run, torch.enable_grad():
            answer = self.as_matrix(run(example), 1)[0]
        leaves = tuple(self.wanted.values())
        if not answer.requires_grad:
            return answer, [tuple(torch.zeros_like(leaf) for leaf in leaves) for _ in outputs]
        try:
            rows = [
                torch.autograd.grad(answer[k], leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
                for k in outputs
            ]
        except RuntimeError as error:
            raise UnsupportedModelError(f"{type(self._model).__name__} has no gradients: {error}") from error
        return answer.detach(), rows

    def by_torch_func(
        self, names: Iterable[str], batch: Tensor, outputs: Sequence[int]
    ) -> Float[Tensor, "n k parameters"]:
        """Return gradients with respect to some parameters, all examples in parallel; RuntimeError where vmap fails."""
        wanted = {name: self.parameters[name].detach() for name in sorted(names)}
        fixed = {name: p.detach() for name, p in self.parameters.items() if name not in wanted}
        fixed |= {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        selected = torch.tensor(outputs, device=batch.device)

        def answer(parameters: dict[str, Tensor], example: Tensor) -> Tensor:
            out = functional_call(self._model, {**fixed, **parameters}, (example.unsqueeze(0),))
            return out.reshape(-1)[selected]

        with warnings.catch_warnings():
            # vmap warns when it has to loop; a slow exact result is what this function is for.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            jacobian = vmap(jacrev(answer), in_dims=(None, 0))(wanted, batch)
        return torch.cat([block.reshape(*block.shape[:2], -1) for block in jacobian.values()], dim=2)
