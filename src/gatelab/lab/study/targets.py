"""Do the labels fit the network's outputs? Classes or real targets, and what each must look like."""

from dataclasses import replace

import torch
from torch import Tensor

from gatelab.data.user_data import UserData
from gatelab.errors import InputError
from gatelab.lab.objectives import NEEDS_CLASSES, Loss, Metric
from gatelab.lab.study.config import Task


def fitted_targets(
    data: UserData, outputs: int, task: Task, loss: Loss | None, metric: Metric | None
) -> tuple[UserData, Task]:
    """Return the data with targets that fit the outputs, and what the task is.

    One column of whole numbers for several outputs can only be classes; for one output, two values are classes, and
    more are a quantity. ``task`` overrides that.

    Raises:
        InputError: the targets do not fit; the message gives the remedy.
    """
    found = _task(data, outputs) if task is Task.AUTO else task
    checked = _classes(data, outputs) if found is Task.CLASSIFICATION else _quantities(data, outputs)
    if found is Task.REGRESSION and loss in NEEDS_CLASSES:
        raise InputError(f"{data.title}: the targets are real numbers, and loss '{loss}' is for classes; use 'squared'")
    if (metric is Metric.R2) != (found is Task.REGRESSION) and metric is not None:
        fitting = "r2" if found is Task.REGRESSION else "accuracy or balanced"
        raise InputError(f"{data.title}: metric '{metric}' does not fit {found}; use {fitting}")
    return checked, found


def _is_whole(targets: Tensor) -> bool:
    return not targets.is_floating_point() or bool((targets == targets.round()).all())


def _task(data: UserData, outputs: int) -> Task:
    y = data.train_y
    if data.classes or (y.ndim == 1 and outputs > 1):
        return Task.CLASSIFICATION
    if y.ndim == 2 or y.is_floating_point():
        return Task.REGRESSION
    return Task.CLASSIFICATION if len(y.unique()) <= 2 else Task.REGRESSION


def _classes(data: UserData, outputs: int) -> UserData:
    title, parts = data.title, {"training": data.train_y, "test": data.test_y}
    for name, y in parts.items():
        if y.ndim != 1:
            raise InputError(
                f"{title}: {name} labels have shape {tuple(y.shape)}; a class is one number for each example"
            )
        if not _is_whole(y):
            place = int((y != y.round()).nonzero()[0])
            raise InputError(
                f"{title}: {name} label {place} is {float(y[place]):g}, no class, and the network has {outputs} "
                "outputs. For classes give whole numbers from 0; for real targets a network with one output for each"
            )
    train, test = (y.long() for y in parts.values())
    limit = 2 if outputs == 1 else outputs
    needed = max(len(data.classes), int(torch.cat([train, test]).max()) + 1)
    for name, y in (("training", train), ("test", test)):
        outside = ((y < 0) | (y >= limit)).nonzero()
        if len(outside) or len(data.classes) > limit:
            place = int(outside[0]) if len(outside) else int(y.argmax())
            raise InputError(
                f"{title}: {name} label {place} is {int(y[place])}, and there are {needed} classes, but the network "
                f"gives (2, {outputs}) for two examples, classes 0 to {limit - 1}; it must give (2, {needed}), or "
                "labels must be numbered from 0"
            )
    if len(train.unique()) < 2:
        raise InputError(
            f"{title}: all training labels are {int(train[0])}: there is one class only, and nothing to learn; give "
            "examples of two classes at least"
        )
    names = data.classes or tuple(str(label) for label in range(limit))
    return replace(data, train_y=train, test_y=test, classes=names)


def _quantities(data: UserData, outputs: int) -> UserData:
    columns = 1 if data.train_y.ndim == 1 else data.train_y.shape[1]
    if columns != outputs:
        raise InputError(
            f"{data.title}: there are {columns} real targets for each example, and the network has {outputs} outputs; "
            "give it one output for each target"
        )
    dtype = torch.get_default_dtype()
    train, test = data.train_y.to(dtype), data.test_y.to(dtype)
    constant = (test.reshape(len(test), -1).std(dim=0) == 0).nonzero()
    if len(constant):
        raise InputError(f"{data.title}: target {int(constant[0])} is the same in all test examples; R² has no meaning")
    return replace(data, train_y=train, test_y=test, classes=())
