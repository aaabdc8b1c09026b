"""Refuse models whose output depends on chance."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.fx import Graph

from gatelab.errors import InputError
from gatelab.network.calls import call_of, operation_of
from gatelab.network.nodes import describe
from gatelab.network.operations import Kind, operation, tensors_in
from gatelab.network.recording import Recording
from gatelab.observe import stand_in, undisturbed

_RUNS_AGAIN = 3


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
    """Run a forward that draws from NumPy or Python again: other numbers are drawn, the output must stay the same.

    Args:
        model: the model.
        recording: what it did.
        drawn: the libraries from which it drew meanwhile; if there are none, nothing is run.

    Raises:
        InputError: the output has changed.
    """
    for _ in range(_RUNS_AGAIN if drawn else 0):
        with undisturbed(stand_in(model), recording.examples) as run, torch.no_grad():
            again = run(recording.examples)
        outputs = zip(tensors_in(recording.answer), tensors_in(again), strict=False)
        if not all(one.shape == other.shape and _same(one, other) for one, other in outputs):
            raise InputError(
                f"the output of {type(model).__name__} depends on random numbers that its forward draws from "
                f"{' and '.join(drawn)}; draw them outside forward"
            )


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
