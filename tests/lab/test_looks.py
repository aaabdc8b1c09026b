"""Observations of networks while they train."""

import pytest
import torch
from torch import nn

from gatelab import models
from gatelab.data import load
from gatelab.errors import InputError, RunError
from gatelab.lab.looks import gate_looks
from gatelab.lab.runs import Context
from gatelab.lab.team import teams
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import records_of, train_and_track
from gatelab.work.checksums import Condition, condition


def test_the_gates_of_an_observation_carry_a_checksum(tmp_path):
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    team = teams([models.mlp([3, 4, 2])])[0]
    looks = gate_looks(tmp_path, x, y, epochs=2, every=1, tangent=False, kernels="off")
    looks.at(0, team, 0)
    gates = tmp_path / "gates-0.safetensors"
    assert condition(gates.read_bytes()) is Condition.WHOLE
    assert not list(tmp_path.glob("*.partial"))
    looks.at(1, team, 0)
    assert looks._read(1, 0)["flipped"] == 0.0
    content = bytearray(gates.read_bytes())
    content[-1] ^= 1
    (tmp_path / "gates-1.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="--redo-damaged"):
        looks.at(2, team, 0)


def test_a_network_that_diverged_is_seen_until_then(tmp_path):
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    model = models.mlp([3, 4, 2])
    (team,) = teams([model])
    looks = gate_looks(tmp_path, x, y, epochs=1, every=1, tangent=False)
    looks.at(0, team, 0)
    with torch.no_grad():
        next(iter(team.parameters())).fill_(float("nan"))
    looks.at(1, team, 0)
    assert [look["epoch"] for look in records_of(looks)] == [0]
    assert len(looks.seen()) == 2


def test_an_experiment_that_tracks_a_diverging_network_says_what_to_change(tmp_path):
    data = load("digits").subset(60, 20)
    model = nn.Sequential(nn.Flatten(), *models.mlp([64, 8, 10]))
    config = TrainConfig(epochs=2, learning_rate=1e300, optimiser="sgd")
    probes = data.inputs(data.train_x[:6]), data.train_y[:6].float()
    with pytest.raises(InputError, match=r"diverged.*learning_rate below 1e\+300"):
        train_and_track([model], [0], data, config, Context(tmp_path, {}, {}, print), probes, every=1, tangent=False)
