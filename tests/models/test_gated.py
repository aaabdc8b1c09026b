import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate, SoftGate
from gatelab.models import DeepLinearlyGatedNetwork, MemorisationNetwork, dln
from gatelab.network import capture_gates
from tests.contracts.gated_model import GatedModelContract
from tests.references import explicit


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


class DLGNContract(GatedModelContract):
    options: dict[str, bool] = {}  # noqa: RUF012

    def make(self):
        return self.soft(None)

    def soft(self, beta):
        gate = HardGate() if beta is None else SoftGate(beta)
        return DeepLinearlyGatedNetwork([3, 4, 5, 2], gate=gate, generator=seeded(), **self.options)


class TestDLGN(DLGNContract):
    pass


class TestDLGNPWC(DLGNContract):
    options = {"piecewise_constant": True}  # noqa: RUF012


class TestDLGNSF(DLGNContract):
    options = {"shallow": True, "value_bias": True}  # noqa: RUF012


@pytest.mark.parametrize("shallow", [False, True])
def test_gates_are_half_spaces_of_the_input(shallow):
    model = DeepLinearlyGatedNetwork([3, 4, 5, 1], gate=HardGate(), shallow=shallow)
    x = torch.randn(50, 3)
    pattern = capture_gates(model, x)
    first, second = model.feature
    normal, offset = second.weight, second.bias
    if not shallow:
        normal, offset = second.weight @ first.weight, second.weight @ first.bias + second.bias
    assert torch.equal(pattern["gated#2"], x @ normal.T + offset > 0)


def test_piecewise_constant_network_sees_x_through_its_gates_alone():
    model = DeepLinearlyGatedNetwork([2, 6, 6, 1], gate=HardGate(), piecewise_constant=True)
    x = torch.randn(200, 2)
    y = model(x).detach()
    pattern = capture_gates(model, x)
    codes = torch.cat([pattern[name] for name in pattern], dim=1)
    for code in codes.unique(dim=0):
        same = y[(codes == code).all(dim=1)]
        torch.testing.assert_close(same, same[:1].expand_as(same))


def test_parameter_lists_part_the_network():
    model = DeepLinearlyGatedNetwork([3, 4, 1])
    assert {id(p) for p in model.feature_parameters()} | {id(p) for p in model.value_parameters()} == {
        id(p) for p in model.parameters()
    }


def test_deep_linear_network_is_linear():
    model, x = dln([3, 5, 2]), torch.randn(4, 3)
    torch.testing.assert_close(model(x), x @ (model[1].weight @ model[0].weight).T)


def test_memorisation_network_is_its_path_sum():
    model = MemorisationNetwork(n=3, width=3, depth=3, generator=seeded(), dtype=torch.float64)
    weights = [weight.detach() for weight in model.value.parameters()]
    for s in range(3):
        expected = explicit.path_sum(weights, list(model.gates[:, s]), torch.ones(1))
        torch.testing.assert_close(model(torch.tensor([s]))[0].detach(), expected)


def test_expected_kernel_of_the_memorisation_network():
    """E[K₀]/d over gates and weights has diagonal 1 and μ^{d−1} elsewhere (npk, Eq. 15)."""
    n, depth, mu, draws = 8, 3, 0.5, []
    for seed in range(150):
        net = MemorisationNetwork(n, 16, depth, mu, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        outputs = net(torch.arange(n))[:, 0]
        grads = torch.autograd.grad(outputs, list(net.parameters()), torch.eye(n), is_grads_batched=True)
        rows = torch.cat([g.flatten(1) for g in grads], dim=1)
        kernel = rows @ rows.T / depth
        draws.append(torch.stack([kernel.trace() / n, (kernel.sum() - kernel.trace()) / (n * (n - 1))]))
    stack = torch.stack(draws)
    error = stack.std(dim=0) / len(draws) ** 0.5
    assert error.max() < 0.02
    assert ((stack.mean(dim=0) - torch.tensor([1.0, mu ** (depth - 1)])).abs() < 5 * error).all()


def test_gates_of_the_memorisation_network_are_fixed():
    net = MemorisationNetwork(5, 4, 3, generator=seeded())
    assert "gates" in net.state_dict()
    assert not any(p is net.gates for p in net.parameters())
    assert set(net.gates.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeepLinearlyGatedNetwork([3, 1]),
        lambda: dln([3]),
        lambda: MemorisationNetwork(0, 4, 3),
        lambda: MemorisationNetwork(3, 4, 1),
        lambda: MemorisationNetwork(3, 4, 3, mu=1.5),
    ],
)
def test_impossible_networks_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_ones_in_the_middle_have_no_rule():
    class Middle(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x):
            q = self.a(x)
            return self.b(gl.gates.gated(torch.ones_like(q), q, HardGate()))

    with pytest.raises(gl.errors.UnsupportedModelError):
        gl.neural_path_kernel(Middle(), torch.randn(2, 3))
