"""The share of the gradient that normalisation removes, over depth and during training."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.figures import Curve, Panels, Plot
from gatelab.hierarchy.projection_report import BatchNormProjection, batchnorm_projection_report


@dataclass
class ProjectionTracker:
    """Record the share of the gradient that normalisation removes while a network trains.

    Args:
        model: the network; it may train between records.
        x: the batch on which the share is measured.
        loss: maps the model's output on x to a scalar.
        records: step → the report, one entry for each use of a layer.

    Example:
        >>> import torch
        >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), torch.randn(8, 3)
        >>> tracker = ProjectionTracker(net, x, lambda out: out.square().mean())
        >>> tracker.record(0)[0].layer, len(tracker.plot().panels)
        ('1', 2)
    """

    model: nn.Module
    x: Float[Tensor, " n *shape"]
    loss: Callable[[Tensor], Tensor]
    records: dict[int, list[BatchNormProjection]] = field(default_factory=dict)

    def record(self, step: int) -> list[BatchNormProjection]:
        """Measure the network now; ``step`` is the caller's own count."""
        self.records[step] = batchnorm_projection_report(self.model, self.x, self.loss)
        return self.records[step]

    def plot(self) -> Panels:
        """Return the share removed over depth, at the first and last record, and over training, layer by layer."""
        if not self.records:
            raise InputError("nothing is recorded yet; call record(step) in the training loop")
        return projection_plot({step: [layer.share for layer in found] for step, found in self.records.items()})


def projection_plot(shares: dict[int, list[float]], step: str = "step") -> Panels:
    """Return two panels: the share removed over depth at the first, a middle and the last step, and over training.

    Args:
        shares: step → the share at each layer, from the input up.
        step: the name of a step, for the axis.

    Returns:
        The facts of the figure.
    """
    steps = sorted(shares)
    depth = range(1, 1 + len(shares[steps[0]]))
    shown = sorted({steps[0], steps[len(steps) // 2], steps[-1]})
    over_depth = [Curve(f"{step} {at}", tuple(map(float, depth)), tuple(shares[at]), line=True) for at in shown]
    over_steps = [
        Curve(f"layer {place}", tuple(map(float, steps)), tuple(shares[at][place - 1] for at in steps), line=True)
        for place in depth
    ]
    label = "share removed"
    # Shares differ by orders of magnitude: two directions out of v are 2/v. A frozen layer's share is 0: no logarithm.
    log = min(map(min, shares.values()), default=0.0) > 0
    return Panels(
        (
            Plot("layer, from the input up", label, tuple(over_depth), title="Over depth", log_y=log),
            Plot(step, label, tuple(over_steps), title="Over training", log_y=log),
        ),
        2,
    )
