"""Refuse models whose output depends on chance."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import Graph

from gatelab.errors import InputError
from gatelab.network.calls import call_of, operation_of
from gatelab.network.nodes import describe
from gatelab.network.operations import Kind, operation, tensors_in
from gatelab.network.recording import Recording
from gatelab.observe import plain_surroundings, stand_in, undisturbed
from gatelab.observe.chance import OwnGenerators

_RUNS_AGAIN = 44  # finds a forward whose output changes in one of ten runs with probability 1 - 0.9^44 = 99 %


def refuse_active_chance(graph: Graph, modules: Mapping[str, nn.Module]) -> None:
    """Refuse dropout and batch-norm that a forward calls in training mode."""
    for node in graph.nodes:
        if node.op == "call_module" or not node.meta.get("data"):  # modules were checked before they ran
            continue
        if operation(operation_of(node, modules)).kind in (Kind.DROPOUT, Kind.NORMALISATION):
            call = call_of(node, modules)
            if call.drops_units or call.mixes_examples:
                raise InputError(
                    f"{describe(node, modules)}: {call.operation} runs in training mode, so the output for one "
                    "example depends on chance or on the other examples; pass training=self.training and call "
                    "model.eval()"
                )


def refuse_used_draws(model: nn.Module, recording: Recording, drawn: Sequence[str]) -> None:
    """Refuse a model whose output for the recorded examples depends on draws from NumPy or Python.

    If it drew, it runs 44 more times. Other numbers are drawn each time, and the output must stay the same.

    Args:
        model: the model.
        recording: what it did.
        drawn: the libraries from which it drew meanwhile.

    Raises:
        InputError: the output has changed.
    """
    _compare_runs(model, recording.examples, recording.answer, drawn)


def refuse_chance(model: nn.Module, x: Tensor) -> None:
    """Run a model that is not recorded on examples, and refuse it as :func:`refuse_used_draws` does.

    Raises:
        InputError: the output depends on draws from NumPy or Python.

    Example:
        >>> refuse_chance(nn.Linear(2, 1), torch.ones(2, 2))
    """
    # A record finds writes into parameters; here copies keep the caller's own as they are.
    copies = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with plain_surroundings(x) as drawn, torch.no_grad():
        answer = functional_call(stand_in(model), copies, (x.detach().clone(),))
    _compare_runs(model, x, answer, drawn, copies)


def _compare_runs(
    model: nn.Module, x: Tensor, answer: Any, drawn: Sequence[str], parameters: dict[str, Tensor] | None = None
) -> None:
    sources = [*drawn, *_own_draws(model, x, parameters)]
    for _ in range(_RUNS_AGAIN if sources else 0):
        copied = stand_in(model)
        OwnGenerators(copied).renew()
        outputs = zip(tensors_in(answer), tensors_in(_run(copied, x, parameters)), strict=False)
        if not all(one.shape == other.shape and _same(one, other) for one, other in outputs):
            raise InputError(
                f"the output of {type(model).__name__} depends on random numbers that its forward draws from "
                f"{' and '.join(sources)}; draw them outside forward"
            )


def _own_draws(model: nn.Module, x: Tensor, parameters: dict[str, Tensor] | None) -> list[str]:
    """Return the generators among the model's attributes from which its forward draws."""
    if not OwnGenerators(model):
        return []
    copied = stand_in(model)
    generators = OwnGenerators(copied)
    _run(copied, x, parameters)
    return [f"its generator '{path}'" for path in generators.moved()]


def _run(copied: nn.Module, x: Tensor, parameters: dict[str, Tensor] | None) -> Any:
    with undisturbed(copied, x, parameters) as run, torch.no_grad():
        return run(x)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
