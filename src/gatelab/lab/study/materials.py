"""What a study works with: the data, the networks, the augmentation; and whether they fit each other."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gatelab.convert import Regime, to_dgn
from gatelab.data.dataset import evenly
from gatelab.data.places import open_data
from gatelab.data.user_data import Examples, UserData
from gatelab.errors import InputError
from gatelab.kernels.disk.digest import data_digest, model_digest
from gatelab.lab.study.config import OTHER_DATA, StudyConfig, Task
from gatelab.lab.study.source import NORMALISING, NetworkSource, from_factory, from_trained
from gatelab.lab.study.targets import fitted_targets
from gatelab.lab.training import Augment
from gatelab.models.from_file import factory_from_file, load_weights, seeded_network
from gatelab.observe import stand_in, undisturbed
from gatelab.work.user_code import from_file

DEFAULT_NETWORK = "an MLP of 64 and 64 units"


@dataclass(frozen=True)
class Materials:
    """What a study works with.

    Attributes:
        data: examples whose targets fit the network's outputs.
        task: classification or regression.
        source: the networks.
        augment: changes batches of training examples.
        other: data on which gates are learnt elsewhere.
    """

    data: UserData
    task: Task
    source: NetworkSource
    augment: Augment | None = None
    other: UserData | None = None

    @property
    def two(self) -> Tensor:
        """Two examples, for reading the network."""
        return self.data.inputs(self.data.train_x[:2])

    def fingerprint(self) -> dict[str, str]:
        """Digests of the data, of a trained network's weights, and of other data."""
        found = {"data": _data_digest(self.data)}
        if self.source.is_trained:
            found["model"] = model_digest(self.source.template)
        if self.other is not None:
            found["other"] = _data_digest(self.other)
        return found


def _data_digest(data: UserData) -> str:
    return "-".join(data_digest(part)[:8] for part in (data.train_x, data.train_y, data.test_x, data.test_y))


def fitted(
    config: StudyConfig,
    data: Examples,
    source: NetworkSource | None,
    augment: Augment | None = None,
    other: Examples | None = None,
) -> Materials:
    """Bring the parts of a study together, and refuse what does not fit, before anything is trained.

    Args:
        config: the settings.
        data: as it was read.
        source: the networks; None stands for the default network.
        augment: the augmentation.
        other: data on which gates are learnt elsewhere.

    Raises:
        InputError: the data do not fit the network, or each other.
        UnsupportedModelError: the network cannot be taken apart into gates and values.
    """
    config.refuse_contradictions()
    chosen = shaped(config, data)
    source = source or default_source(chosen)
    _refuse_other_dtype(source.template)
    if not source.is_trained and any(parameter.numel() == 0 for parameter in source.template.parameters()):
        raise InputError(f"{source.name} has empty parameters; check its sizes")
    x = chosen.inputs(chosen.train_x[:2])
    outputs = answer_width(source.template, x, chosen.title)
    chosen, task = fitted_targets(chosen, outputs, config.task, config.loss, config.metric)
    to_dgn(source.template, Regime.FRNPF_DI, x=x)  # refuses networks without gates and values
    # Not the first examples: files are often sorted by class.
    source = source.with_examples(chosen.inputs(chosen.train_x[evenly(len(chosen.train_x), NORMALISING)]))
    elsewhere = None
    if other is not None:
        elsewhere = shaped(config, other)
        if elsewhere.train_x.shape[1:] != chosen.train_x.shape[1:]:
            raise InputError(
                f"{other.title} has examples of shape {tuple(elsewhere.train_x.shape[1:])}, {chosen.title} of shape "
                f"{tuple(chosen.train_x.shape[1:])}; gates can be learnt elsewhere on examples of the same shape only"
            )
        elsewhere, _ = fitted_targets(elsewhere, outputs, task, config.loss, config.metric)
    return Materials(chosen, task, source, augment, elsewhere)


def shaped(config: StudyConfig, data: Examples) -> UserData:
    """The part of the data that is asked for, standardised if asked."""
    whole = UserData(
        data.title,
        data.train_x,
        data.train_y,
        data.test_x,
        data.test_y,
        getattr(data, "classes", ()),
        getattr(data, "largest", 255.0),
        getattr(data, "remarks", ()),
        getattr(data, "rows", None),
    )
    part = whole.subset(config.train_size, config.test_size, seed=config.seed)
    return _standardised(part) if config.standardise else part


def _standardised(data: UserData) -> UserData:
    train, test = data.inputs(data.train_x), data.inputs(data.test_x)
    mean, spread = train.mean(dim=0), train.std(dim=0)
    scale = torch.where(spread > 0, spread, torch.ones_like(spread))
    said = "Features are standardised with the training part's mean and standard deviation."
    return replace(data, train_x=(train - mean) / scale, test_x=(test - mean) / scale, remarks=(*data.remarks, said))


def answer_width(model: nn.Module, x: Tensor, title: str) -> int:
    """The number of outputs for each example; refuse a network that does not take them."""
    shown = tuple(x.shape[1:])
    try:
        with torch.no_grad(), undisturbed(stand_in(model), x) as run:
            answers = run(x)
    except Exception as error:
        raise InputError(
            f"the network does not accept {title}: examples of shape {shown} gave {type(error).__name__}: {error}; "
            "reshape the data, or let the network's first layer do it; image_size (--set image_size=32) resizes the "
            "images of a folder"
        ) from error
    if not isinstance(answers, Tensor) or answers.ndim != 2 or len(answers) != 2:
        got = tuple(answers.shape) if isinstance(answers, Tensor) else type(answers).__name__
        raise InputError(
            f"the network gives {got} for two examples of {title}; it must give (2, k), a number for each class or "
            "target"
        )
    return answers.shape[1]


def _refuse_other_dtype(model: nn.Module) -> None:
    wanted = torch.get_default_dtype()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != wanted:
            raise InputError(
                f"parameter '{name}' is {parameter.dtype}, and torch's default is {wanted}; call model.to({wanted}), "
                f"or torch.set_default_dtype({parameter.dtype})"
            )


def default_source(data: UserData) -> NetworkSource:
    """An MLP of two hidden layers that fits the data."""
    inputs = data.train_x[0].numel()
    if data.train_y.is_floating_point():
        outputs = 1 if data.train_y.ndim == 1 else data.train_y.shape[1]
    else:
        outputs = len(data.classes) or int(torch.cat([data.train_y, data.test_y]).max()) + 1

    def make() -> nn.Module:
        hidden = (nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, outputs))

    return from_factory(DEFAULT_NETWORK, make)


@lru_cache(maxsize=1)  # a process works on one study at a time, cell after cell
def _materials_of(text: str) -> Materials:
    config = StudyConfig.model_validate_json(text)
    place = {"label": config.label, "root": config.data_root, "image_size": config.image_size}
    data = open_data(config.data, test=config.test_data, **place)
    other = None if config.other_data is None else open_data(config.other_data, **place)
    if OTHER_DATA not in config.gates_from:
        other = None
    return fitted(config, data, source_of(config), augmentation(config.augment), other)


def read_anew(config: StudyConfig) -> Materials:
    """Load the materials of a study from files that may have changed since this process read them."""
    _materials_of.cache_clear()
    return materials_of(config)


def materials_of(config: StudyConfig) -> Materials:
    """Load the materials of a study whose configuration names them all.

    Raises:
        InputError: something cannot be found, or does not fit.
    """
    return _materials_of(config.model_dump_json(exclude={"fingerprint"}))


def source_of(config: StudyConfig) -> NetworkSource | None:
    """The networks that a configuration names; None: the default network."""
    if config.model is None:
        return None
    function, name = factory_from_file(config.model), _short(config.model)
    if config.weights is None:
        return from_factory(name, function)
    network = seeded_network(function, 0)
    load_weights(network, Path(config.weights))
    return from_trained(name, network, function)


def _short(place: str) -> str:
    path, _, name = place.rpartition(":")
    return f"{Path(path).name}:{name}"


def augmentation(given: Any) -> Augment | None:
    """The function that ``file.py:function`` names, or the function itself."""
    function: Any = from_file(given, "augmentation") if isinstance(given, str) else given
    if not (function is None or callable(function)):
        raise InputError(f"augment is a {type(function).__name__} ({given}); give a function of a batch")
    return cast("Augment | None", function)
