"""Tensors of a network are loaded into another of its class, also if it asks for the version of what it loads."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import gatelab as gl
from gatelab.lab.team import SingleTeam
from gatelab.models.from_file import load_weights
from gatelab.models.states import load_state


class Versioned(nn.Sequential):
    """A network that loads tensors of version 2 only, as torchvision's MNASNet does."""

    _version = 2

    def __init__(self):
        super().__init__(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") != 2:
            raise ValueError(f"version should be set to 2 instead of {local_metadata.get('version')}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def with_gates(source, network, folder):
    twin = gl.to_dgn(network, gl.Regime.FLNPF, gates_from=source)
    load_state(network, source.state_dict() | twin.feature.state_dict())


def from_safetensors(source, network, folder):
    save_file(source.state_dict(), folder / "w.safetensors")
    load_weights(network, folder / "w.safetensors")


def of_a_team(source, network, folder):
    SingleTeam(network).load(SingleTeam(source).tensors())


@pytest.mark.parametrize("carry", [with_gates, from_safetensors, of_a_team])
def test_a_network_that_asks_for_a_version_gets_its_own(carry, tmp_path):
    source, network = Versioned(), Versioned()
    with pytest.raises(ValueError, match="instead of None"):
        network.load_state_dict(dict(source.state_dict()))
    carry(source, network, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), network.parameters(), strict=True))


def test_a_version_that_is_there_stays():
    source, network = Versioned(), Versioned()
    state = source.state_dict()
    state._metadata[""]["version"] = 1
    with pytest.raises(ValueError, match="instead of 1"):
        load_state(network, state)


def test_tensors_that_are_missing_are_refused():
    state = dict(list(Versioned().state_dict().items())[1:])
    with pytest.raises(RuntimeError, match="Missing key"):
        load_state(Versioned(), state)
