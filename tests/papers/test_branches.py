"""Every setting of every experiment leads to findings: a run of hours must not fail when it writes its report.

Findings look results up by the names of cells, and these depend on settings. So each experiment runs on little with
each choice that a setting offers, and with those values of its larger profiles that make cells of another kind.
"""

import enum
import re
import types
import typing

import pytest
import torch

from gatelab.errors import DataError, InputError
from gatelab.lab.report import write_report
from gatelab.lab.runs import Run, execute
from gatelab.papers import all_experiments, find_experiment
from tests.lab.runs.test_runs import Log

# Settings that make a smoke run smaller still, where they exist.
TINY = {"runs": 2, "epochs": 4, "frozen_epochs": 4, "train_size": 200, "test_size": 100, "shrink": 4, "width": 8}
OWN_TESTS = {"study"}  # tests/lab/study goes through its settings
# Values that settings without a list of choices are given: a single run, a growing β, other seeds.
NUMBERS = {"runs": 1, "final_beta": 100.0, "seed": 3}
# Two settings at once, and the network of the paper's Table 2, beside which there are published numbers.
MORE = [("npk-table2", {"arch": "gconv", "optimiser": "sgd"}), ("halfspace-table2", {"depth": 34})]


def choices(annotation) -> list:
    """The values of a setting that offers a few."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [value for part in typing.get_args(annotation) for value in choices(part)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [member.value for member in annotation]
    return [False, True] if annotation is bool else []


def kinds(experiment, settings) -> set[str]:
    """The names of cells without their numbers."""
    return {re.sub(r"[\d.]+", "#", cell.name) for cell in experiment.cells(experiment.configure("smoke", settings))}


def accepts(experiment, settings) -> bool:
    """Whether a setting is one; some experiments need several runs."""
    try:
        experiment.configure("smoke", settings)
    except InputError:
        return False
    return True


def branches():
    """Each experiment with each choice that is not the smoke profile's, and each value that makes other cells."""
    for experiment in all_experiments():
        if experiment.id in OWN_TESTS:
            continue
        smoke = experiment.configure("smoke", {})
        for key, field in experiment.config.model_fields.items():
            if key == "smoke":
                continue
            for value in [*choices(field.annotation), *([NUMBERS[key]] if key in NUMBERS else [])]:
                if value != getattr(smoke, key) and accepts(experiment, {key: value}):
                    yield experiment.id, {key: value}
            for profile in ("quick", "paper"):
                value = getattr(experiment.configure(profile, {}), key)
                if value != getattr(smoke, key) and kinds(experiment, {key: value}) != kinds(experiment, {}):
                    yield experiment.id, {key: value}


def conclude(name, settings, path):
    experiment = find_experiment(name)
    fields, smoke = experiment.config.model_fields, experiment.configure("smoke", {})
    small = {
        key: value
        for key, value in TINY.items()
        if key in fields and isinstance(old := getattr(smoke, key), int) and (old > value or key == "shrink")
    }
    config = experiment.configure("smoke", {**small, **settings})
    run = Run.open(path, experiment.id, config.model_dump(mode="json"))
    try:
        execute(run, config, experiment.cells(config), experiment.work, Log())
    except DataError as missing:
        pytest.skip(str(missing))
    return write_report(run, experiment)


BRANCHES = sorted({repr(branch): branch for branch in [*branches(), *MORE]}.values(), key=repr)


def test_the_branches_that_once_failed_are_among_them():
    """npk-table2 looked for one cell where convolutional networks have one for each run, a race for seed 0."""
    assert ("npk-table2", {"arch": "gconv"}) in BRANCHES
    assert ("halfspace-table1", {"straight_through": True}) in BRANCHES
    assert ("gdln-shared-pathways", {"seed": 3}) in BRANCHES


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), BRANCHES, ids=[f"{name} {settings}" for name, settings in BRANCHES])
def test_every_setting_leads_to_findings(name, settings, tmp_path):
    torch.set_default_dtype(torch.float32)  # as the command runs
    path, findings = conclude(name, settings, tmp_path / "run")
    assert path.exists()
    assert findings.answer
    assert findings.tables
