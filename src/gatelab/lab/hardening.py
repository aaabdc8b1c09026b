"""A note for reports on networks with soft gates: what hard gates would cost them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from gatelab.data.dataset import Dataset, evenly
from gatelab.lab.looks import Look
from gatelab.lab.verdicts import Sample
from gatelab.paths.hardening import hardening_gap

_EXAMPLES = 1000  # test examples that the gap is measured on


def hardening_look(model: nn.Module, data: Dataset) -> Look:
    """Compare a network that has soft gates with its hard-gated version, on up to 1,000 test examples.

    A network that has diverged has no gates; it counts as one without soft ones.
    """
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (*model.parameters(), *model.buffers())):
        return {"soft_gates": 0}
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        rows = evenly(len(data.test_x), _EXAMPLES)
        gap = hardening_gap(model, data.inputs(data.test_x[rows]), data.test_y[rows])
    finally:
        for module, mode in training.items():
            module.training = mode
    return asdict(gap)


def hardening_note(name: str, gaps: Sequence[Look | None]) -> list[str]:
    """Describe what hard gates would cost the runs of one kind of network; empty if its gates are bits.

    Args:
        name: the kind of network, such as "DLGN" (deep linearly gated network).
        gaps: the result of :func:`hardening_look` for each run, or None.

    Returns:
        One sentence or two, or an empty list.

    Example:
        >>> gap = {"soft_gates": 2, "soft_loss": 0.1, "hard_loss": 0.4, "soft_accuracy": 0.98, "hard_accuracy": 0.9}
        >>> hardening_note("DLGN", [{**gap, "agreement": 0.75, "same_class": 0.91}] * 2)[0][:62]
        'The gates of DLGN are soft. Made hard, with the same weights, '
    """
    known: list[Any] = [gap for gap in gaps if gap is not None and gap["soft_gates"]]
    if not known:
        return []

    def over_runs(part: str, *, percent: bool = False) -> str:
        return Sample(tuple(gap[part] for gap in known), percent=percent).text()

    changes = []
    if all(gap["soft_loss"] is not None for gap in known):
        changes.append(f"the loss goes from {over_runs('soft_loss')} to {over_runs('hard_loss')}")
    if all(gap["soft_accuracy"] is not None for gap in known):
        soft, hard = (over_runs(part, percent=True) for part in ("soft_accuracy", "hard_accuracy"))
        changes.append(
            f"the accuracy from {soft} to {hard} %" if changes else f"the accuracy goes from {soft} to {hard} %"
        )
    same = f"{over_runs('same_class', percent=True)} % of the examples keep their class"
    agree = f"outputs agree to {over_runs('agreement')} (1: hard gates change nothing)"
    return [
        f"The gates of {name} are soft. Made hard, with the same weights, {', '.join([*changes, same])}; {agree}. "
        "Half-spaces and active paths belong to the hard network."
    ]
