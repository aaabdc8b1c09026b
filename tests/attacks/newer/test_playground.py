"""Exports of the playground from a stranger: a network, or one line that says what is wrong with the file."""

import json
from math import inf, nan

import pytest
import torch

from gatelab.models import from_playground
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("playground exports")


def layer(weight, bias=None):
    return {"weight": weight, "bias": bias}


def network(**changes):
    told = {"kind": "relu", "widths": [2, 1, 1], "feature": [], "value": [layer([[2.0, 0.0]]), layer([[3.0]])]}
    return {key: value for key, value in {**told, **changes}.items() if value is not ...}


def dlgn(**changes):
    feature = [layer([[1.0, 0.0]], [0.0])]
    return network(**{"kind": "dlgn", "gate": "soft", "beta": 8.0, "feature": feature, **changes})


def export(*networks, **changes):
    return {"format": "gatelab-playground", "version": 1, "networks": list(networks), **changes}


def nested(depth):
    inner: list = []
    for _ in range(depth):
        inner = [inner]
    return inner


HOSTILE = {
    "no object": [1, 2],
    "a number": 3,
    "nothing": None,
    "bytes": b"{}",
    "an empty text": "",
    "a cut text": '{"format": "gatelab-play',
    "a text of another program": '{"format": "other"}',
    "nested lists, as text": "[" * 100_000,
    "nested objects, as text": '{"a":' * 100_000,
    "NaN as text": json.dumps(export(network(value=[layer([[nan, 0.0]]), layer([[3.0]])]))),
    "a version that is a text": export(network(), version="1"),
    "no networks": export(),
    "networks that are a number": {**export(), "networks": 5},
    "networks that are an object": {**export(), "networks": {"0": network()}},
    "networks that are a text": {**export(), "networks": "relu"},
    "a network that is null": export(None),
    "a network that is a list": export([network()]),
    "an unknown kind": export(network(kind="transformer")),
    "a kind that is a list": export(network(kind=["relu"])),
    "a kind that is an object": export(network(kind={})),
    "no widths": export(network(widths=...)),
    "widths that are null": export(network(widths=None)),
    "widths that are a number": export(network(widths=2)),
    "widths that are a text": export(network(widths="211")),
    "widths that are an object": export(network(widths={"0": 2, "1": 1, "2": 1})),
    "widths with a fraction": export(network(widths=[2, 1.5, 1])),
    "widths with a negative number": export(network(widths=[2, -1, 1])),
    "widths with zero": export(network(widths=[2, 0, 1])),
    "widths with a truth value": export(network(widths=[2, True, 1])),
    "widths that would fill the memory": export(network(widths=[2, 10**6, 10**6, 1])),
    "widths beyond any machine": export(network(widths=[2, 10**30, 1])),
    "a million widths": export(network(widths=[1] * 10**6)),
    "no value": export(network(value=...)),
    "a value that is a number": export(network(value=7)),
    "a value that is a text": export(network(value="ab")),
    "a value that is an object": export(network(value={"weight": 1})),
    "a layer that is null": export(network(value=[None, layer([[3.0]])])),
    "a layer too few": export(network(value=[layer([[2.0, 0.0]])])),
    "a layer too many": export(network(value=[layer([[2.0, 0.0]]), layer([[3.0]]), layer([[3.0]])])),
    "feature layers of a network without them": export(network(feature=[layer([[1.0, 0.0]])])),
    "a weight that is null": export(network(value=[layer(None), layer([[3.0]])])),
    "a weight that is a text": export(network(value=[layer("2, 0"), layer([[3.0]])])),
    "a weight of texts": export(network(value=[layer([["2", "0"]]), layer([[3.0]])])),
    "a weight that is an object": export(network(value=[layer({"0": 1}), layer([[3.0]])])),
    "a weight of objects": export(network(value=[layer([[{}, {}]]), layer([[3.0]])])),
    "a ragged weight": export(network(value=[layer([[2.0, 0.0], [1.0]]), layer([[3.0]])])),
    "a weight of another shape": export(network(value=[layer([[2.0], [0.0]]), layer([[3.0]])])),
    "a weight with NaN": export(network(value=[layer([[nan, 0.0]]), layer([[3.0]])])),
    "a weight with infinity": export(network(value=[layer([[inf, 0.0]]), layer([[3.0]])])),
    "a weight beyond float64": export(network(value=[layer([[10**400, 0.0]]), layer([[3.0]])])),
    "a weight that is nested": export(network(value=[layer(nested(900)), layer([[3.0]])])),
    "a weight with truth values": export(network(value=[layer([[True, False]]), layer([[3.0]])])),
    "a bias in one layer only": export(network(value=[layer([[2.0, 0.0]], [1.0]), layer([[3.0]])])),
    "a bias that is a number": export(network(value=[layer([[2.0, 0.0]], 1.0), layer([[3.0]], 1.0)])),
    "a bias of another length": export(network(value=[layer([[2.0, 0.0]], [1.0, 2.0]), layer([[3.0]], [1.0])])),
    "no gate": export(dlgn(gate=...)),
    "a gate that is a list": export(dlgn(gate=["soft"])),
    "a beta of zero": export(dlgn(beta=0)),
    "a beta that is NaN": export(dlgn(beta=nan)),
    "a beta that is infinite": export(dlgn(beta=inf)),
    "a beta beyond float64": export(dlgn(beta=10**400)),
    "a beta that is a text": export(dlgn(beta="8")),
    "a beta that is a truth value": export(dlgn(beta=True)),
    "no feature layers": export({**dlgn(), "feature": []}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_export(name):
    state = torch.get_rng_state()
    message = refusal(lambda: from_playground(HOSTILE[name]))
    if len(message) > 1000:
        raise SilentlyWrongError(f"a message of {len(message)} characters")
    if not torch.equal(state, torch.get_rng_state()):
        raise ChangedStateError("torch's random state has moved")


@pytest.mark.parametrize("number", [-1, 2, 10**30, 0.0, "0", None, True], ids=repr)
def test_network_that_is_not_there(number):
    refusal(lambda: from_playground(export(network()), network=number))


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe\x00", b"\x00" * 10, b""], ids=["missing", "bytes", "zeros", "empty"]
)
def test_file_that_is_something_else(content, tmp_path):
    place = tmp_path / "network.json"
    if content is not None:
        place.write_bytes(content)
    assert "network.json" in refusal(lambda: from_playground(place))


def test_folder_in_place_of_a_file(tmp_path):
    refusal(lambda: from_playground(tmp_path))


def test_nothing_draws_from_the_global_generator(monkeypatch):
    """Not even for a moment: other threads may draw meanwhile."""
    monkeypatch.setattr(torch, "set_rng_state", lambda _: pytest.fail("the global generator was set back"))
    state = torch.get_rng_state()
    assert from_playground(export(network()))(torch.tensor([[1.0, 5.0]]).double()).item() == 6.0
    assert from_playground(export(dlgn()))(torch.tensor([[1.0, 5.0]]).double()).shape == (1, 1)
    if not torch.equal(state, torch.get_rng_state()):
        raise ChangedStateError("torch's random state has moved")
