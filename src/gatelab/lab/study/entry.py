"""``gl.study``: the study of a network and data that are at hand, in Python."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import nn

from gatelab.data.dataset import names
from gatelab.data.objects import UNNAMED, WHOLE, gathered
from gatelab.data.places import open_data
from gatelab.data.user_data import Examples
from gatelab.errors import InputError
from gatelab.lab.experiment import read_config
from gatelab.lab.runs import Run, execute
from gatelab.lab.study.config import OTHER_DATA, StudyConfig
from gatelab.lab.study.findings import StudyFindings, study_findings
from gatelab.lab.study.materials import Materials, augmentation, fitted, read_anew, source_of
from gatelab.lab.study.preview import preview, time_preview
from gatelab.lab.study.rows import cells
from gatelab.lab.study.sizing import choose_kernels, measured, sized
from gatelab.lab.study.source import NetworkSource, from_factory, from_trained
from gatelab.lab.study.work import setting_facts, study_work, study_work_with
from gatelab.lab.training import Augment
from gatelab.work.progress import LogLines, Reporter, Silent
from gatelab.work.user_code import is_there

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskExecutor

# What sized() and choose_kernels() fill in; a run that goes on keeps what it chose when it began.
_PLACES = ("model", "weights", "data", "test_data", "augment", "other_data")
_CHOSEN = ("runs", "epochs", "batch_size", "stages", "dependent", "decoupled", "kernels", "layer_names")


def study(
    model: nn.Module | Callable[[], Any] | str | None,
    train: Any = "digits",
    test: Any = None,
    *,
    label: str | None = None,
    weights: str | Path | None = None,
    augment: Augment | str | None = None,
    other_data: Any = None,
    out: str | Path | None = None,
    progress: bool | Reporter = True,
    **settings: Any,
) -> StudyFindings:
    """Measure how much of what a network knows is in its gates.

    Fixes the network's gates and trains fresh values on them; trains the same values on random gates, which are the
    control; and compares both with the network itself. All networks are trained alike, several times.

    Args:
        model: a network, which is taken as trained, studied as it is and never changed; or a function or class that
            makes one, which is then trained; or ``"file.py:factory"``; None for a small MLP.
        train: training examples: (x, y) as arrays or tensors, a torch ``Dataset`` or ``DataLoader``, a DataFrame, the
            name of a data set, a file, a folder of images, or ``"file.py:function"``.
        test: test examples, in the same forms; if left out, a fifth of ``train`` is held out, unless a named data set
            has a test part of its own.
        label: the column of a table or DataFrame that holds the labels.
        weights: of ``"file.py:factory"``: safetensors, or a state dict; the network is then studied as it is.
        augment: changes a batch of training examples: a function of a tensor (b, …), or ``"file.py:function"``.
        other_data: examples on which gates are learnt elsewhere, for ``gates_from="data"``.
        out: a directory that keeps the run; the same call continues a run that was stopped. Without it, nothing stays.
        progress: whether to write lines to standard error; or a reporter of your own.
        settings: see :class:`gatelab.lab.study.StudyConfig`: runs, epochs, batch_size, optimiser, learning_rate,
            schedule, loss, metric, kernels, stages, layers, gates_from, refit, amounts and more. Those left out are
            chosen so that the study takes some minutes.

    Returns:
        The findings: ``.answer``, ``.table()``, ``.plot()``, ``.report("study.html")``.

    Raises:
        InputError: data, labels, weights or settings do not fit; nothing was trained.
        UnsupportedModelError: the network cannot be taken apart into gates and values.

    Example:
        >>> found = study(None, "digits", epochs=1, runs=2, train_size=100, kernels="off", progress=False)
        >>> found.records()[0]["gates"]
        'the network itself'
    """
    reporter = progress if isinstance(progress, Reporter) else LogLines() if progress else Silent()
    config, materials = _prepared(model, train, test, label, weights, augment, other_data, settings)
    return run_study(config, materials, out, reporter)


def _prepared(
    model: Any,
    train: Any,
    test: Any,
    label: str | None,
    weights: Any,
    augment: Any,
    other: Any,
    settings: Mapping[str, Any],
) -> tuple[StudyConfig, Materials | None]:
    """The configuration, and the materials unless the configuration names them all."""
    named: dict[str, Any] = {"label": label}
    if isinstance(model, str):
        named["model"] = model
    if weights is not None:
        if not isinstance(model, str):
            raise InputError("weights= is for 'file.py:factory'; load them into your network, and give that")
        named["weights"] = str(weights)
    held = {"train": train, "test": test, "augment": augment, "other": other}
    for key, name in (("train", "data"), ("test", "test_data"), ("augment", "augment"), ("other", "other_data")):
        if isinstance(held[key], str | Path):
            named[name] = str(held[key])
    texts = all(value is None or isinstance(value, str | Path) for value in (model, *held.values()))
    if not texts:
        named.setdefault("data", getattr(train, "title", UNNAMED))
        named.setdefault("model", None if model is None else _name(model))
        named["trained"] = isinstance(model, nn.Module)
        if other is not None:
            named.setdefault("other_data", "other data")
    config = read_settings(absolute({**named, **settings}) if texts else {**named, **settings})
    return config, None if texts else _gather(config, model, train, test, augment, other)


def absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose files are named by absolute paths, which processes elsewhere understand, too."""
    return {
        key: _absolute(value) if key in _PLACES and isinstance(value, str) else value for key, value in values.items()
    }


def _absolute(place: str) -> str:
    path, colon, name = place.rpartition(":")
    if colon and is_there(path):
        return f"{Path(path).resolve()}:{name}"
    return str(Path(place).resolve()) if is_there(place) and place not in names() else place


def _name(model: Any) -> str:
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", "factory")


def _gather(config: StudyConfig, model: Any, train: Any, test: Any, augment: Any, other: Any) -> Materials:
    return fitted(
        config,
        examples_of(config, train, test),
        network_source(config, model),
        augmentation(augment),
        None if other is None or OTHER_DATA not in config.gates_from else examples_of(config, other, None),
    )


def network_source(config: StudyConfig, model: Any) -> NetworkSource | None:
    """The networks that the caller gave, or that the configuration names; None: the default network."""
    if model is None or isinstance(model, str):
        return source_of(config)
    if isinstance(model, nn.Module):
        return from_trained(_name(model), model)
    if not callable(model):
        raise InputError(
            f"model is a {type(model).__name__}; give an nn.Module, a function that makes one, or file.py:name"
        )
    return from_factory(_name(model), model)


def examples_of(config: StudyConfig, train: Any, test: Any) -> Examples:
    """The data that the caller gave, or named."""
    if isinstance(train, str | Path):
        if test is not None and not isinstance(test, str | Path):
            raise InputError("train is a text, and test an object; give both in the same form")
        place = {"label": config.label, "root": config.data_root, "image_size": config.image_size}
        return open_data(str(train), test=None if test is None else str(test), **place)
    title = train.title if isinstance(train, WHOLE) else UNNAMED
    return gathered(train, test, label=config.label, title=title)


def read_settings(values: Mapping[str, Any]) -> StudyConfig:
    """Make a configuration; unknown keys and wrong values raise an InputError that names them."""
    return read_config(StudyConfig, "study", values)


def prepared(config: StudyConfig, materials: Materials | None, out: Path | None, reporter: Reporter) -> StudyConfig:
    """Fill in what was left open, and say what will be done.

    A run that goes on keeps what was chosen when it began, and is not measured again.
    """
    reporter.note("reading the network and the data")
    held = materials or read_anew(config)
    facts = setting_facts(config, held)
    refit = min(config.refit, facts["train"])
    config = config.model_copy(update={"fingerprint": held.fingerprint(), "refit": refit})
    begun = Run.read(out).config if out is not None and (out / "run.json").exists() else {}
    recorded = {key: begun[key] for key in _CHOSEN if key in begun and key not in config.model_fields_set}
    config = StudyConfig(**{**config.model_dump(), **recorded}) if recorded else sized(config, held)
    for line in preview(config, facts):
        reporter.note(line)
    estimate = None
    if not recorded:
        reporter.note("timing a few steps of each kind of network")
        estimate = measured(config, held)
        config = choose_kernels(config, estimate)
    for line in time_preview(config, estimate):
        reporter.note(line)
    return config


def run_study(
    config: StudyConfig,
    materials: Materials | None,
    out: str | Path | None,
    reporter: Reporter,
    workers: int = 1,
    cluster: "DaskExecutor | None" = None,
) -> StudyFindings:
    """Do a study, or what is left of it, and return its findings.

    Args:
        config: the settings.
        materials: network and data; None if the configuration names them.
        out: the run's directory; None for one that does not stay.
        reporter: receives the progress.
        workers: number of processes; more than one needs a configuration that names everything.
        cluster: Dask workers that take the place of processes on this machine.
    """
    path = None if out is None else Path(out)
    config = prepared(config, materials, path, reporter)
    with TemporaryDirectory() if path is None else nullcontext(path) as folder:
        run = Run.open(Path(folder) / "run" if path is None else path, "study", config.model_dump(mode="json"))
        do = study_work if materials is None else partial(study_work_with, materials)
        results = execute(run, config, cells(config), do, reporter, workers, cluster)
        about = {"Configuration": {"experiment": "study", **run.config}, "Environment": run.environment()}
        return replace(study_findings(config, results), about=about)
