import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import UnsupportedModelError
from gatelab.gates import SoftGate
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.network import capture_gates
from gatelab.network.chain import dense_chain
from tests import zoo


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (zoo.Functional(), (5,)),
        (zoo.Residual(), (5,)),
        (zoo.Tied(), (5,)),
        (zoo.leaky(), (5,)),
        (zoo.cnn(), (4, 8, 8)),
        (nn.Sequential(zoo.Functional(), nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), (5,)),
        (DeepGatedNetwork([5, 4, 3, 1], gate=SoftGate()), (5,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_graph_and_capture_give_gates_the_same_names(model, shape):
    model = model.double()
    names = set(gl.read(model).gates.values())
    assert set(capture_gates(model, torch.randn(2, *shape)).layers) <= names


def test_chain_of_a_functional_network():
    model = zoo.Functional()
    chain = dense_chain(model)
    assert chain.widths == (5, 6, 4, 4, 2)
    assert chain.gates == ("act", "relu", "clamp")
    assert chain.layers[1].weight is model.second.weight
    assert chain.layers[1].bias_name == "second.bias"


def test_chain_of_a_dgn_is_its_value_network():
    model = DeepGatedNetwork([3, 4, 5, 2], padding=3)
    chain = dense_chain(model)
    assert chain.widths == (3, 12, 15, 2)
    assert [layer.weight_name for layer in chain.layers] == ["value.0.weight", "value.1.weight", "value.2.weight"]


class Branching(zoo.Residual):
    def forward(self, x):
        return self.head(self.stem(x)) if x.sum() > 0 else self.head(self.stem(-x))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (zoo.Residual(), r"(iadd|add) in the model's forward at zoo.py:\d+ `out \+= x`"),
        (zoo.cnn(), r"module '5' \(MaxPool2d\) has no place"),
        (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), r"module '1' \(Tanh\)"),
        (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)).eval(), "fuse_linear_bn_eval"),
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), "two weight layers with no gate"),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU()), "a gate must stand between"),
        (nn.Sequential(nn.ReLU(), nn.Linear(2, 3)), "does not start with a weight layer"),
        (Branching(), "Control flow must not depend on the data"),
    ],
)
def test_other_networks_are_refused_with_name_and_place(model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        dense_chain(model)


def test_a_layer_that_is_shared_over_positions_is_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.ReLU(), nn.Linear(24, 2))
    with pytest.raises(UnsupportedModelError, match="shared over positions"):
        dense_chain(model, torch.randn(2, 6, 3))


def test_clamp_on_both_sides_is_not_a_gate_in_the_graph():
    class Clamped(zoo.Functional):
        def forward(self, x):
            return self.last(F.relu(self.third(F.relu(self.second(self.first(x).clamp(-1, 1))))))

    with pytest.raises(UnsupportedModelError, match="clamp in the model's forward"):
        dense_chain(Clamped())


def test_mlp_is_a_chain_whatever_its_depth():
    assert dense_chain(mlp([3, 2, 1])).gates == ("1",)
    assert dense_chain(mlp([3, 1])).gates == ()


class Overwriting(nn.Module):
    """A network that reads a tensor after an in-place write; ``view`` hides that the memory is the same."""

    def __init__(self, view: bool):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.relu = nn.ReLU(inplace=True)
        self.view = view

    def forward(self, x):
        x = self.first(x)
        branch = self.second(self.relu(x.view(-1, 4) if self.view else x))
        return self.last(torch.relu(x + branch))


class Plain(Overwriting):
    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(x + self.second(x)))


def test_readers_after_an_in_place_write_see_the_new_values():
    model, plain, x = Overwriting(view=False), Plain(view=False), torch.randn(5, 4)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(x), plain(x))
    torch.testing.assert_close(gl.neural_path_kernel(model, x), gl.neural_path_kernel(plain, x), rtol=1e-12, atol=0)


def test_a_write_through_a_view_is_followed():
    model, plain, x = Overwriting(view=True), Plain(view=False), torch.randn(5, 4)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(x), plain(x))
    torch.testing.assert_close(gl.neural_path_kernel(model, x), gl.neural_path_kernel(plain, x), rtol=1e-12, atol=0)
