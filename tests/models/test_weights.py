"""Weights from files: what fits is loaded, and of what does not every difference is told."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gatelab.errors import InputError
from gatelab.models.from_file import load_weights, seeded_network


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_weights_are_loaded(ending, prefix, tmp_path):
    source, network = small(), small()
    state, file = {f"{prefix}{name}": tensor for name, tensor in source.state_dict().items()}, tmp_path / f"w.{ending}"
    _ = save_file(state, file) if ending == "safetensors" else torch.save({"epoch": 3, "state_dict": state}, file)
    load_weights(network, file)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), network.parameters(), strict=True))


def test_all_differences_are_listed_and_nothing_is_loaded(tmp_path):
    other = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False), nn.Linear(2, 2))
    save_file(other.state_dict(), tmp_path / "w.safetensors")
    network = small()
    before = [p.clone() for p in network.parameters()]
    with pytest.raises(InputError) as refusal:
        load_weights(network, tmp_path / "w.safetensors")
    for difference in (
        "missing from the file: 2.bias (2,)",
        "unknown to the network: 3.weight (2, 2)",
        "unknown to the network: 3.bias (2,)",
        "0.weight: the file has (5, 3), the network (4, 3)",
        "2.weight: the file has (2, 5), the network (2, 4)",
    ):
        assert difference in str(refusal.value)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_code_in_a_file_does_not_run(tmp_path, capsys):
    torch.save({"weights": Evil()}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="gatelab runs no code from a file"):
        load_weights(small(), tmp_path / "w.pt")
    assert capsys.readouterr().out == ""


def test_weights_that_are_not_finite_are_refused(tmp_path):
    network = small()
    with torch.no_grad():
        network[0].bias[1] = torch.nan
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"0\.bias hold NaN or infinite values"):
        load_weights(small(), tmp_path / "w.safetensors")


def test_a_factory_that_needs_arguments_is_told_how_to_go_on():
    with pytest.raises(
        InputError, match=r"net needs arguments \(width, depth\).*def make\(\): return net\(width=…, depth=…\)"
    ):
        seeded_network(net, 0)


def net(width, depth, *, bias=True):
    raise AssertionError("never called")
