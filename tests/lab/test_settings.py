"""Settings of another type than theirs are refused, from the command line as from Python: nothing is coerced."""

import json
import sys

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.cli import main
from gatelab.errors import InputError
from gatelab.lab.study.entry import read_settings
from gatelab.papers import all_experiments, find_experiment

WHOLE, FINITE, EITHER = (
    "is not a whole number; give one",
    "is not a finite number; give one",
    "is neither true nor false",
)
REFUSED = [
    ("epochs", True, WHOLE), ("epochs", 2.0, WHOLE), ("epochs", 2.5, WHOLE), ("epochs", "3", WHOLE),
    ("epochs", "many", WHOLE), ("epochs", [3], WHOLE), ("epochs", None, WHOLE), ("seed", False, WHOLE),
    ("refit", True, WHOLE), ("image_size", True, WHOLE),
    ("learning_rate", True, FINITE), ("learning_rate", "0.1", FINITE), ("learning_rate", float("inf"), FINITE),
    ("stages", [0, True], FINITE), ("stages", True, FINITE), ("stages", ["0.5"], FINITE),
    ("optimiser_options", {"weight_decay": "0.1"}, FINITE),
    ("decoupled", 1, EITHER), ("decoupled", "yes", EITHER), ("layers", 0.0, EITHER),
]  # fmt: skip
TAKEN = [
    ("epochs", 3, 3), ("epochs", np.int64(3), 3), ("learning_rate", 1, 1.0), ("learning_rate", np.float32(0.5), 0.5),
    ("stages", (0, 1), (0.0, 1.0)), ("stages", 0.5, (0.5,)), ("decoupled", False, False),
    ("optimiser_options", {"nesterov": True, "weight_decay": 0.1}, {"nesterov": True, "weight_decay": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "fault"), REFUSED)
def test_another_type_is_refused_with_the_fact_the_place_and_the_remedy(key, value, fault):
    with pytest.raises(InputError) as error:
        read_settings({key: value})
    held = list(value.values()) if isinstance(value, dict) else value
    given = held[-1] if isinstance(held, list) and key != "epochs" else held
    assert str(error.value).startswith(f"study: {key}: {given!r} {fault}")


@pytest.mark.parametrize(("key", "value", "taken"), TAKEN)
def test_its_own_type_is_taken(key, value, taken):
    found = getattr(read_settings({key: value}), key)
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize("value", [True, 2.0, "2"])
def test_on_the_command_line(value, capsys, tmp_path, monkeypatch):
    setting = ["--set", f"draws={json.dumps(value)}", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["gatelab", "run", "npk-theorem51", "--profile", "smoke", *setting])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"npk-theorem51: draws: {value!r} is not a whole number; give one, such as" in said, said
    assert not (tmp_path / "run").exists()


def test_in_python():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.ReLU(), torch.nn.Linear(4, 10))
    with pytest.raises(InputError, match="study: epochs: True is not a whole number; give one, such as 15"):
        gl.study(net, "digits", epochs=True, progress=False)


def test_an_example_is_a_setting_that_would_be_taken():
    with pytest.raises(InputError, match="such as 15\n"):
        read_settings({"epochs": True})
    assert read_settings({"epochs": 15}).epochs == 15


@pytest.mark.parametrize("name", [experiment.id for experiment in all_experiments()])
def test_every_profile_survives_its_own_record(name):
    """What a run records is read again as it was: no setting changes its type on the way."""
    experiment = find_experiment(name)
    for profile in experiment.profiles:
        config = experiment.configure(profile, {})
        assert experiment.read(json.loads(json.dumps(config.model_dump(mode="json")))) == config
