"""Models that return several tensors: one is chosen, or the error says how."""

import copy

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError


class Several(nn.Module):
    """Two heads, returned as a dict or a tuple."""

    def __init__(self, kind):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
        self.low, self.high = nn.Linear(5, 2), nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
        self.kind = kind

    def forward(self, x):
        h = self.body(x)
        answers = {"low": self.low(h), "high": self.high(h)}
        return answers if self.kind is dict else tuple(answers.values())


def alone(model, key):
    head = model.low if key in ("low", 0) else model.high
    return nn.Sequential(*model.body, *(head if isinstance(head, nn.Sequential) else [head]))


@pytest.mark.parametrize(("kind", "key"), [(dict, "low"), (dict, "high"), (tuple, 0), (tuple, 1)])
def test_a_part_is_the_network_that_returns_it(kind, key):
    model, x = Several(kind), torch.randn(6, 3)
    plain = alone(model, key)
    ours, theirs = gl.capture_gates(model, x, output=key), gl.capture_gates(plain, x)
    assert [ours[name].tolist() for name in ours] == [theirs[name].tolist() for name in theirs]
    assert torch.equal(gl.neural_path_kernel(model, x, output=key), gl.neural_path_kernel(plain, x))
    torch.testing.assert_close(
        gl.neural_tangent_kernel(model, x, output=key), gl.neural_tangent_kernel(plain, x), rtol=1e-12, atol=0
    )
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, output=key)
    assert torch.equal(twin(x), plain(x))
    assert "value.body.0.weight" in twin.state_dict()
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    features = gl.path_features(model, x, 32, one, output=key)
    assert torch.equal(features, gl.path_features(plain, x, 32, other))


def test_gates_of_all_parts_together():
    assert gl.capture_gates(Several(dict), torch.randn(2, 3)).layers == ("body.1", "high.1")


@pytest.mark.parametrize(("kind", "remedy"), [(dict, "output='low'"), (tuple, "output=0")])
def test_without_a_choice_the_error_says_how(kind, remedy):
    with pytest.raises(UnsupportedModelError, match=remedy):
        gl.neural_path_kernel(Several(kind), torch.randn(2, 3))


def test_a_part_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"output='middle' is not a part.*\['low', 'high'\]"):
        gl.capture_gates(Several(dict), torch.randn(2, 3), output="middle")


def test_choosing_leaves_the_model_as_it_was():
    model, x = Several(dict), torch.randn(2, 3)
    before = copy.deepcopy(vars(model))
    gl.read(model, x, output="low")
    assert type(model) is Several
    assert vars(model).keys() == before.keys()
    assert model(x).keys() == {"low", "high"}
