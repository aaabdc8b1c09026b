"""Optimisers by name, and how their step size changes during training."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import cos, pi

import torch
from torch import Tensor

from gatelab.errors import InputError


class Optimiser(StrEnum):
    """The optimisers of torch.optim that need only gradients."""

    SGD = "sgd"
    ADAM = "adam"
    RMSPROP = "rmsprop"
    ADAMW = "adamw"
    ADAMAX = "adamax"
    NADAM = "nadam"
    RADAM = "radam"
    ADAGRAD = "adagrad"
    ADADELTA = "adadelta"
    ASGD = "asgd"
    RPROP = "rprop"
    ADAFACTOR = "adafactor"


class Schedule(StrEnum):
    """The step size over the course of training, relative to the learning rate.

    Attributes:
        CONSTANT: 1.
        LINEAR: from 1 to 0.
        COSINE: half a cosine from 1 to 0.
        STEPS: 1, then 1/10 from one half of training on, 1/100 from three quarters on.
    """

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    STEPS = "steps"

    def factor(self, share: float, warm_up: float = 0.0) -> float:
        """The factor after a share of training; it rises linearly while ``warm_up`` lasts.

        Example:
            >>> [Schedule.LINEAR.factor(share, warm_up=0.2) for share in (0.1, 0.2, 0.6)]
            [0.5, 1.0, 0.5]
        """
        if share < warm_up:
            return share / warm_up
        rest = (share - warm_up) / (1 - warm_up)
        if self is Schedule.LINEAR:
            return 1 - rest
        if self is Schedule.COSINE:
            return (1 + cos(pi * rest)) / 2
        if self is Schedule.STEPS:
            return 1.0 if rest < 0.5 else 0.1 if rest < 0.75 else 0.01
        return 1.0


# All other optimisers move each weight by its own gradients alone, so networks may be stacked into one tensor.
_MIX_WEIGHTS = frozenset({Optimiser.ADAFACTOR})
_CLASSES = {name.lower(): held for name, held in vars(torch.optim).items() if isinstance(held, type)}


def can_stack_under(optimiser: Optimiser) -> bool:
    """Whether networks stacked into one tensor train exactly as they would alone."""
    return optimiser not in _MIX_WEIGHTS


def make_optimiser(
    parameters: Sequence[Tensor] | Sequence[dict[str, list[Tensor]]],
    optimiser: Optimiser,
    rate: float,
    momentum: float = 0.0,
    options: Mapping[str, float] | None = None,
) -> torch.optim.Optimizer:
    """Make an optimiser by name.

    Args:
        parameters: the parameters, or groups of them.
        optimiser: its name.
        rate: the learning rate.
        momentum: of SGD and RMSprop.
        options: further arguments of torch's class, such as ``weight_decay``.

    Raises:
        InputError: an option does not exist, or its value is not allowed.
    """
    arguments: dict[str, object] = {"lr": rate, **(options or {})}
    if optimiser in (Optimiser.SGD, Optimiser.RMSPROP):
        arguments.setdefault("momentum", momentum)
    if optimiser in (Optimiser.SGD, Optimiser.ADAM, Optimiser.ADAMW):
        arguments["fused"] = True
    try:
        return _CLASSES[optimiser.value](parameters, **arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimiser {optimiser.value} does not take {dict(options or {})}: {error}") from error
