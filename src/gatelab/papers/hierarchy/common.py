"""The training loop of the experiments that score a student on its way."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from gatelab.lab.runs import Context


def train_and_score(
    steps: int, looks: int, context: Context, train: Callable[[], object], score: Callable[[], dict[str, float]]
) -> dict[str, list[Any]]:
    """Train for some steps; score the student ``looks`` times on the way, at the start and at the end."""
    every = max(1, steps // looks)
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            context.tell(step / steps, f"step {step}")
            for name, value in {"steps": step, **score()}.items():
                seen[name].append(value)
        if step < steps:
            train()
    return dict(seen)
