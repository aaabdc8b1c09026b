"""Observations of networks while they train."""

import pytest
import torch

from gatelab import models
from gatelab.errors import RunError
from gatelab.lab.looks import gate_looks
from gatelab.lab.team import teams
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
