import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.models import (
    CellGates,
    ChosenGates,
    FunctionGates,
    GatedDeepLinearNetwork,
    HalfSpaceGates,
    MeanReadoutNetwork,
    OpenGates,
    PathwayNetwork,
)
from gatelab.models.gdln import Erf
from gatelab.models.node_gates import CodeGates
from gatelab.network.chain import dense_chain

X = torch.randn(50, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def halves(count=3):
    return HalfSpaceGates(torch.randn(count, 6), torch.randn(count))


@pytest.mark.parametrize(("activation", "function"), [(None, torch.relu), (Erf(), None), (nn.Sigmoid(), torch.sigmoid)])
@pytest.mark.parametrize("bias", [None, 0.5])
def test_output_is_the_mean_of_activations(activation, function, bias):
    function = function or (lambda h: torch.erf(h / 2**0.5))
    network = MeanReadoutNetwork(6, 4, activation, bias=bias)
    h = X @ network.weights.T + (0 if bias is None else 0.5)
    torch.testing.assert_close(network(X)[:, 0], function(h).mean(dim=1))
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {"hidden.weight"} if bias is None else trained == {"hidden.weight", "hidden.bias", "readout.bias"}


def test_relu_network_is_the_gated_linear_network_of_its_own_gates():
    network = MeanReadoutNetwork(6, 4, scale=1.0)
    twin = GatedDeepLinearNetwork(6, network.frozen_gates())
    with torch.no_grad():
        twin.weights.copy_(network.weights)
    torch.testing.assert_close(twin(X), network(X))
    own, gates = gl.capture_gates(network, X), gl.capture_gates(twin, X)
    assert torch.equal(own[own.layers[0]], gates[gates.layers[0]])
    assert dense_chain(network).widths == (6, 4, 1)
    torch.testing.assert_close(gl.neural_path_kernel(network, X), gl.neural_path_kernel(twin, X))


def test_frozen_gates_stay():
    network = MeanReadoutNetwork(6, 4, bias=0.1)
    gates = network.frozen_gates()
    before = gates.opened(X)
    with torch.no_grad():
        network.weights.neg_()
    assert torch.equal(gates.opened(X), before)
    assert torch.equal(before, (X @ -network.weights.T + 0.1) > 0)


def test_gates_by_definition():
    base = halves()
    opened = base.opened(X)
    assert torch.equal(OpenGates(2).opened(X), torch.ones(50, 2, dtype=torch.bool))
    assert torch.equal(ChosenGates(base, (2, 0, 0)).opened(X), opened[:, [2, 0, 0]])
    functions = FunctionGates([lambda x: x[:, 0] > 0, lambda x: x.sum(dim=1)])
    assert torch.equal(functions.opened(X)[:, 1], X.sum(dim=1) > 0)


@pytest.mark.parametrize("gates", [CodeGates(HalfSpaceGates(torch.eye(6)[:3])), CellGates(torch.randn(5, 6))], ids=type)
def test_tilings_open_exactly_one_gate(gates):
    assert (gates.double().opened(X).sum(dim=1) == 1).all()


def test_cells_are_nearest_and_codes_are_codes():
    centres = torch.randn(5, 6)
    nearest = torch.cdist(X, centres).argmin(dim=1)
    assert torch.equal(CellGates(centres).opened(X).to(int).argmax(dim=1), nearest)
    codes = CodeGates(halves(2))
    number = codes.base.opened(X).long() @ torch.tensor([2, 1])
    assert torch.equal(codes.opened(X).to(int).argmax(dim=1), number)


def test_pathways_by_enumeration(generator):
    network = PathwayNetwork(6, 2, [halves(2), halves(3)], [2, 1], generator=generator)
    first, second, last = network.weights()
    one, two = (gates.opened(X).double() for gates in network.node_gates())
    total = torch.zeros(50, 2)
    for i in range(4):
        for j in range(3):
            path = one[:, i // 2] * two[:, j] * (X @ first[i])
            total += path[:, None] * second[j, i] * last[:, j]
    torch.testing.assert_close(network(X), total)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MeanReadoutNetwork(0, 3), "at least 1"),
        (lambda: ChosenGates(OpenGates(2), (2,)), "gates 0 to 1"),
        (lambda: FunctionGates([]), "at least 1"),
        (lambda: FunctionGates([lambda x: x]).opened(X), "gate 0 gives shape"),
        (lambda: CodeGates(OpenGates(17)), "2\\^17 cells"),
        (lambda: HalfSpaceGates(torch.ones(2, 3), torch.ones(3)), "2 normals, 3 offsets"),
        (lambda: PathwayNetwork(3, 1, [OpenGates(1)], [1, 1]), "give one width per set"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
