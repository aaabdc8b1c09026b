"""Send a tracker's numbers to TensorBoard and Lightning."""

import sys
from collections.abc import Callable
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any

from gatelab.dynamics.tracker import GateTracker
from gatelab.errors import InputError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def tensorboard_listener(writer: "SummaryWriter", prefix: str = "gates/") -> Callable[[dict[str, float]], None]:
    """Return a function for a tracker's ``on_epoch`` that writes every number as a scalar.

    Args:
        writer: a ``torch.utils.tensorboard.SummaryWriter``.
        prefix: put before every name.

    Returns:
        The function; it logs under the tracker's step.

    Example:
        >>> class Printer:
        ...     def add_scalar(self, name, value, step): print(name, value, step)
        >>> tensorboard_listener(Printer())({"step": 3, "cosine": 0.5})
        gates/cosine 0.5 3
    """

    def write(metrics: dict[str, float]) -> None:
        step = int(metrics["step"])
        for name, value in metrics.items():
            if name != "step":
                writer.add_scalar(f"{prefix}{name}", value, step)

    return write


def lightning_callback(tracker: GateTracker, every: int = 1, prefix: str = "gates/") -> Any:
    """Return a Lightning callback that records at the start of training and after every few epochs.

    The numbers go to the trainer's loggers and to its metrics, where for example
    ``EarlyStopping(monitor="gates/flip_rate")`` finds them. The tracker's network must be the module that trains, or a
    part of it. Works with the packages ``lightning`` and ``pytorch_lightning``, and prefers the one already imported.

    Args:
        tracker: records the network.
        every: epochs between records.
        prefix: put before every name.

    Returns:
        A callback for ``Trainer(callbacks=[…])``.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        >>> try:
        ...     lightning_callback(GateTracker(net, torch.randn(4, 2)), every=0)
        ... except InputError as error:
        ...     print(error)
        every is 0; give a number of epochs, at least 1
    """
    if every < 1:
        raise InputError(f"every is {every}; give a number of epochs, at least 1")

    class GateCallback(_lightning().Callback):
        """Record gates and kernels while Lightning trains."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Record the network before its first epoch, or where training resumes."""
            del pl_module
            metrics = self._record(trainer.current_epoch)
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.global_step)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            """Record after an epoch."""
            done = trainer.current_epoch + 1
            if done % every == 0 or done == trainer.max_epochs:
                pl_module.log_dict(self._record(done))

        def _record(self, epoch: int) -> dict[str, float]:
            metrics = tracker.record(epoch).metrics()
            return {f"{prefix}{name}": value for name, value in metrics.items() if isfinite(value)}

    return GateCallback()


def _lightning() -> Any:
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise InputError("the callback needs Lightning; pip install 'gatelab[lightning]'")
