"""The network and the data that a page is about: from objects, from texts, or from the directory of a study."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from gatelab.data.user_data import UserData
from gatelab.errors import InputError, RunError
from gatelab.figures import Curve, Plot
from gatelab.lab.runs import Run
from gatelab.lab.study.config import StudyConfig, Task
from gatelab.lab.study.entry import absolute, examples_of, network_source, read_settings
from gatelab.lab.study.materials import answer_width, materials_of, shaped
from gatelab.lab.study.rows import NETWORK
from gatelab.lab.study.targets import fitted_targets
from gatelab.lab.training_cells import kept_weights
from gatelab.models.states import load_state

UNTRAINED = "The network is not trained: it has the weights that its factory draws."
_PANELS = {
    "test_score": "Score on the test examples",
    "test_loss": "Loss on the test examples",
    "flipped": "Gates that flipped since the look before",
    "cosine": "Mean cosine of two probes under H",
    "complexity": "ν = yᵀĤ⁻¹y",
}


@dataclass(frozen=True, eq=False)
class Subject:
    """What a page is about.

    Attributes:
        name: of the network.
        model: a copy of the network, on the CPU and in evaluation mode.
        data: the data, with targets that fit the outputs.
        is_classifier: whether the targets are classes.
        remarks: sentences about both.
        timeline: what was recorded while the network trained.
    """

    name: str
    model: nn.Module
    data: UserData
    is_classifier: bool
    remarks: tuple[str, ...]
    timeline: tuple[Plot, ...] = ()

    def part(self, name: str | None) -> tuple[str, Tensor, Tensor]:
        """Return the name, the examples and the targets of a part: "train", "test", or all if none was set apart."""
        data = self.data
        parts = {"train": (data.train_x, data.train_y), "test": (data.test_x, data.test_y)}
        if name is None and data.rows is not None:
            order = torch.cat(data.rows).argsort()  # as they were given
            (x, y), (more_x, more_y) = parts.values()
            return "all", torch.cat([x, more_x])[order], torch.cat([y, more_y])[order]
        if name not in (None, *parts):
            raise InputError(f"there is no part '{name}' of {data.title}; use 'train' or 'test'")
        return name or "test", *parts[name or "test"]


def subject_of(
    model: Any, data: Any, test: Any = None, *, weights: str | Path | None = None, **settings: Any
) -> Subject:
    """Bring network and data together, as :func:`gatelab.study` does; the network need not have gates and values.

    Args:
        model: a network, a factory, or ``"file.py:factory"``.
        data: the data, in any form that :func:`gatelab.study` takes.
        test: the test part, if the data have none.
        weights: of ``"file.py:factory"``.
        settings: of the data: label, image_size, standardise, task, data_root.

    Raises:
        InputError: network and data do not fit each other.
    """
    named: dict[str, Any] = dict(settings)
    for key, value in (("model", model), ("data", data), ("test_data", test)):
        if isinstance(value, str | Path):
            named[key] = str(value)
    if weights is not None:
        if not isinstance(model, str):
            raise InputError("weights= is for 'file.py:factory'; load them into your network, and give that")
        named["weights"] = str(weights)
    config = read_settings(absolute(named))
    if model is None:
        raise InputError("there is no network; give an nn.Module, file.py:factory, or the directory of a study")
    source = network_source(config, model)
    assert source is not None
    if any(isinstance(parameter, UninitializedParameter) for parameter in source.template.parameters()):
        raise InputError(f"{source.name} has lazy layers without parameters yet; run the network once first")
    if any(parameter.numel() == 0 for parameter in source.template.parameters()):
        raise InputError(f"{source.name} has empty parameters; check its sizes")
    return _fitted(config, source.name, source.template, shaped(config, examples_of(config, data, test)), source)


def _fitted(config: StudyConfig, name: str, model: nn.Module, data: UserData, source: Any) -> Subject:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    outputs = answer_width(model, data.inputs(data.train_x[:2], dtype), data.title)
    chosen, task = fitted_targets(data, outputs, config.task, None, None)
    remarks = (*chosen.remarks, *(() if source.is_trained else (UNTRAINED,)))
    return Subject(name, copy.deepcopy(model).eval(), chosen, task is Task.CLASSIFICATION, remarks)


def subject_of_run(path: Path, member: int = 0) -> Subject:
    """Return the network that a study trained, or was given, its data, and what was recorded.

    Args:
        path: the directory of a study.
        member: which of its networks.

    Raises:
        RunError: there is no finished network of a study there, or its data have changed.
        InputError: the study's network or data came from Python and are not named by its configuration.
    """
    run = Run.read(path)
    if run.experiment != "study":
        raise RunError(f"{path} is a run of {run.experiment}; give the directory of a study, or a network and data")
    config, results = StudyConfig(**run.config), run.results()
    if NETWORK not in results:
        raise RunError(f"{path}: the study has no trained network yet; run the same command again to go on")
    seeds = config.seeds()
    if not 0 <= member < len(seeds):
        raise InputError(f"{path} has {len(seeds)} runs, numbered from 0; there is no run {member}")
    if config.data == "your data" or (config.model is not None and ".py:" not in config.model):
        raise InputError(
            f"{path} is a study of objects in Python, which the directory does not hold; call gatelab.explore(model, "
            "data, path) with them"
        )
    materials = materials_of(config)
    changed = [key for key, digest in materials.fingerprint().items() if config.fingerprint.get(key, digest) != digest]
    if changed:
        raise RunError(f"{path}: {' and '.join(changed)} have changed since the study; restore them, or run it again")
    network = materials.source.start(seeds[member])
    if not materials.source.is_trained:
        load_state(network, kept_weights(run.folder(NETWORK), config.epochs, member + 1)[member])
    remark = f"Network {member} of {len(seeds)} of the study in {path.name}, after {config.epochs} epochs."
    said = (*materials.data.remarks, *(() if materials.source.is_trained else (remark,)))
    is_classifier = materials.task is Task.CLASSIFICATION
    timeline = study_timeline(results[NETWORK], member)
    return Subject(materials.source.name, network.eval(), materials.data, is_classifier, said, timeline)


def study_timeline(result: Mapping[str, Any], member: int) -> tuple[Plot, ...]:
    """Return what a study recorded while its network trained; gates were looked at in its first network alone."""
    plots = []
    for key in ("test_score", "test_loss"):
        values = result.get(key, [])
        if member < len(values) and len(values[member]) > 1:
            curve = Curve("", tuple(map(float, range(1, 1 + len(values[member])))), tuple(values[member]), line=True)
            plots.append(Plot("epoch", _PANELS[key], (curve,), title=_PANELS[key]))
    records = result.get("records", []) if member == 0 else []
    for key in ("flipped", "cosine", "complexity"):
        points = [(float(record["epoch"]), float(record[key])) for record in records if record[key] is not None]
        if len(points) > 1:
            plots.append(Plot("epoch", _PANELS[key], (_curve("", points),), title=_PANELS[key]))
    layers = records[0]["active"] if records else {}
    curves = [_curve(name, [(float(r["epoch"]), float(r["active"][name])) for r in records]) for name in layers]
    if len(records) > 1:
        plots.append(Plot("epoch", "share of gates", tuple(curves), title="Open gates"))
    return tuple(plots)


def _curve(label: str, points: list[tuple[float, float]]) -> Curve:
    return Curve(label, tuple(x for x, _ in points), tuple(y for _, y in points), line=True)
