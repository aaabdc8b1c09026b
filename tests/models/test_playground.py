import copy
import json

import pytest
import torch
from tools.playground_golden import CASES, FOLDER

from gatelab.errors import InputError
from gatelab.models import from_playground


def export(name: str) -> dict:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    return {"format": "gatelab-playground", "version": 1, "networks": [golden["network"]], "golden": golden}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_gives_its_outputs_and_keeps_the_random_state(name, tmp_path):
    told = export(name)
    x = torch.tensor(told["golden"]["x"], dtype=torch.float64)
    y = torch.tensor(told["golden"]["outputs"], dtype=torch.float64)
    before = torch.get_rng_state()
    (tmp_path / "network.json").write_text(json.dumps(told))
    for source in (told, json.dumps(told), tmp_path / "network.json"):
        torch.testing.assert_close(from_playground(source)(x).flatten(), y, rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_second_of_two_networks():
    told = export("relu-1")
    told["networks"].append(export("dlgn")["networks"][0])
    assert type(from_playground(told, network=1)).__name__ == "DeepLinearlyGatedNetwork"
    with pytest.raises(InputError, match="network 2 does not exist"):
        from_playground(told, network=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(format="other"), "not a playground export"),
        (lambda t: t.update(version=9), "version 9"),
        (lambda t: t.update(networks=[]), "holds no networks"),
        (lambda t: t["networks"][0].update(kind="cnn"), "kind 'cnn' is unknown"),
        (lambda t: t["networks"][0].update(gate="odd"), "gate is 'odd'"),
        (lambda t: t["networks"][0].update(beta=-1), "β = -1"),
        (lambda t: t["networks"][0].update(widths=[2, 1]), "widths"),
        (lambda t: t["networks"][0]["value"].pop(), "'value' has 2 layers"),
        (lambda t: t["networks"][0]["value"][0].pop("weight"), "has no 'weight'"),
        (lambda t: t["networks"][0]["value"][0].update(weight=[[1.0]]), r"value\[0\].weight has shape \(1, 1\)"),
        (lambda t: t["networks"][0]["value"][0]["weight"][0].__setitem__(0, float("nan")), "not finite"),
        (lambda t: t["networks"][0]["value"][0].update(weight="x"), "not an array of numbers"),
        (lambda t: t["networks"][0]["value"][0].update(bias=None), "some layers of 'value' have biases"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    told = copy.deepcopy(export("dgn-soft"))
    change(told)
    with pytest.raises(InputError, match=message):
        from_playground(told)


def test_text_that_is_no_json_is_refused():
    with pytest.raises(InputError, match=r"not JSON.*Path\('network.json'\)"):
        from_playground("network.json")
