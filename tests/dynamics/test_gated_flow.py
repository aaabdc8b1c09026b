"""The closed form against a high-order integrator, against autograd, and against its own special cases."""

import pytest
import torch
from scipy.integrate import solve_ivp

from gatelab.data import NLGP, SinglePulse
from gatelab.data.ring import circulant
from gatelab.dynamics import GatedLinearFlow, exact_moments, minimum_loss, moments_of
from gatelab.dynamics.gated_flow import connected
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.errors import InputError, NotConvergedWarning
from gatelab.models import CellGates, ChosenGates, FunctionGates, GatedDeepLinearNetwork, HalfSpaceGates, OpenGates

N, D, TAU = 60, 5, 0.7
TIMES = torch.tensor([0.0, 0.3, 2.0, 15.0])


def data(n=N):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return x, torch.randn(n, generator=generator, dtype=torch.float64) + x[:, 0] * (x[:, 1] > 0)


def random_gates(count, seed=4):
    generator = torch.Generator().manual_seed(seed)
    return HalfSpaceGates(torch.randn(count, D, generator=generator, dtype=torch.float64))


CASES = {
    "general": random_gates(3),
    "linear": OpenGates(1),
    "redundant": ChosenGates(random_gates(2), (0, 0, 0, 1)),
    "exclusive": CellGates(torch.randn(3, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)),
    "never open": FunctionGates([lambda x: x[:, 0] > 0, lambda x: x[:, 0] > 1e9]),
    "redundant and exclusive": ChosenGates(CellGates(torch.eye(D, dtype=torch.float64)[:2]), (0, 0, 1, 1)),
}


def reference(moments, initial):
    """DOP853 on the flow equation, written out from the gradient."""
    A, b, K = moments.A, moments.b, moments.units

    def rate(_t, w):
        return ((b - A @ torch.from_numpy(w) / K) / (K * TAU)).numpy()

    solved = solve_ivp(rate, (0, 15), initial.flatten().numpy(), "DOP853", TIMES.numpy(), rtol=1e-12, atol=1e-13)
    return torch.from_numpy(solved.y.T.copy()).view(len(TIMES), *initial.shape)


@pytest.mark.parametrize("gates", CASES.values(), ids=CASES)
@pytest.mark.parametrize("n", [N, 4])  # four examples leave A singular
def test_closed_form_is_the_flow(gates, n):
    x, y = data(n)
    moments = moments_of(x, y, gates)
    initial = torch.randn(gates.count, D)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    torch.testing.assert_close(flow.weights(TIMES), reference(moments, initial), rtol=0, atol=1e-9)
    torch.testing.assert_close(flow.loss(TIMES), moments.loss(flow.weights(TIMES)), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(flow.weights(0.3), flow.weights(TIMES)[1])


@pytest.mark.parametrize("gates", CASES.values(), ids=CASES)
def test_flow_is_the_networks_gradient(gates):
    x, y = data()
    network = GatedDeepLinearNetwork(D, gates)
    torch.nn.init.normal_(network.weights)
    (gradient,) = torch.autograd.grad((network(x)[:, 0] - y).square().mean() / 2, [network.weights])
    flow = GatedLinearFlow.from_data(x, y, gates, TAU, initial=network.weights)
    h = 1e-4
    # Second order at the start: three points ahead.
    w = flow.weights(torch.tensor([0.0, h, 2 * h]))
    rate = (-3 * w[0] + 4 * w[1] - w[2]) / (2 * h)
    torch.testing.assert_close(rate, -gradient / TAU, rtol=0, atol=1e-6)
    loss = (network(x)[:, 0] - y).square().mean().item() / 2
    assert flow.loss(0.0).item() == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("gates", CASES.values(), ids=CASES)
@pytest.mark.parametrize("n", [N, 4])
def test_limit_is_least_squares_and_keeps_the_null_space(gates, n):
    x, y = data(n)
    moments, initial = moments_of(x, y, gates), torch.randn(gates.count, D)
    flow = GatedLinearFlow.from_moments(moments, initial=initial)
    features = (gates.opened(x).double()[:, :, None] * x[:, None]).flatten(1)
    inverse = torch.linalg.pinv(features)
    start = initial.flatten()
    expected = gates.count * inverse @ y + start - inverse @ (features @ start)
    torch.testing.assert_close(flow.limit().flatten(), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(flow.weights(1e9), flow.limit(), rtol=0, atol=1e-8)
    assert 2 * flow.loss(1e9).item() == pytest.approx(minimum_loss(moments), abs=1e-10)


def test_structure_is_found():
    x, y = data()
    flow = GatedLinearFlow.from_data(x, y, CASES["redundant and exclusive"])
    assert flow.groups == ((0, 1), (2, 3))
    assert flow.components == ((0, 1), (2, 3))
    flow = GatedLinearFlow.from_data(x, y, CASES["general"])
    assert flow.groups == ((0,), (1,), (2,))
    assert flow.components == ((0, 1, 2),)
    assert not flow.translation_invariant
    assert connected(torch.eye(3).bool()) == [(0,), (1,), (2,)]


def test_unit_that_never_opens_stays_and_is_named():
    x, y = data()
    initial = torch.randn(2, D)
    flow = GatedLinearFlow.from_data(x, y, CASES["never open"], initial=initial)
    assert flow.never_open == (1,)
    assert torch.equal(flow.weights(TIMES)[:, 1], initial[1].expand(4, -1))
    assert flow.time_constants().isinf().sum() == D


def test_redundant_units_keep_their_difference_and_double_the_rate():
    x, y = data()
    initial = torch.randn(2, D)
    flow = GatedLinearFlow.from_data(x, y, ChosenGates(random_gates(1), (0, 0)), TAU, initial=initial)
    w = flow.weights(TIMES)
    torch.testing.assert_close(w[:, 0] - w[:, 1], (initial[0] - initial[1]).expand(4, -1))
    single = GatedLinearFlow.from_data(x, y, random_gates(1), TAU)
    # K²τ/(2λ) with K = 2 against τ/λ with K = 1.
    torch.testing.assert_close(flow.time_constants()[:D], 2 * single.time_constants())


def translation_invariant():
    """Gates that see the sum of the sites only, on a ring of pulses."""
    gates = FunctionGates([lambda x: x.sum(dim=1) > 3, lambda x: x.sum(dim=1) < 5, lambda x: x.sum(dim=1) > 4])
    return exact_moments(SinglePulse(((4, 6), (2, 3)), (12,)), gates)


def test_fourier_modes_are_the_dense_solution():
    moments = translation_invariant()
    initial = torch.randn(3, 12)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    assert flow.translation_invariant
    dense = DenseFlow(moments.A / (9 * TAU), moments.b.view(3, 12) / (3 * TAU))
    times = torch.tensor([0.0, 0.1, 3.0, 50.0])
    torch.testing.assert_close(flow.weights(times), dense.at(initial, times), rtol=0, atol=1e-10)
    torch.testing.assert_close(flow.limit(), dense.limit(initial), rtol=0, atol=1e-10)
    torch.testing.assert_close(flow.loss(times), moments.loss(flow.weights(times)), rtol=0, atol=1e-12)
    torch.testing.assert_close(1 / flow.time_constants(), dense.rates.flip(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 4), (4, 5)])
def test_rows_alone_make_the_same_flow(shape):
    source = NLGP((0.5, 0.3), 1.0, shape)
    K, d = 2, source.dim
    rows = torch.stack([source.correlation(1), 0.2 * source.correlation(0), 0.2 * source.correlation(0),
                        source.correlation(0)]).view(K, K, *shape)  # fmt: skip
    b, initial = torch.randn(K, d), torch.randn(K, d)
    A = torch.cat([torch.cat([circulant(rows[p, q]) for q in range(K)], dim=1) for p in range(K)])
    fast = GatedLinearFlow.from_rows(rows, b, TAU, initial=initial, power=1.0)
    found = GatedLinearFlow(A, b.flatten(), K, TAU, initial=initial, power=1.0, shape=shape)
    assert fast.translation_invariant
    assert found.translation_invariant
    A_off = A + 1e-12 * torch.diag(torch.arange(K * d) % 3.0)
    dense = GatedLinearFlow(A_off, b.flatten(), K, TAU, initial=initial, power=1.0, shape=shape)
    assert not dense.translation_invariant
    for flow in (fast, found):
        torch.testing.assert_close(flow.weights(TIMES), dense.weights(TIMES), rtol=0, atol=1e-9)
        torch.testing.assert_close(flow.loss(TIMES), dense.loss(TIMES), rtol=0, atol=1e-9)
        torch.testing.assert_close(flow.limit(), dense.limit(), rtol=0, atol=1e-9)
        torch.testing.assert_close(flow.time_constants(), dense.time_constants(), rtol=1e-8, atol=0)


def test_descent_approaches_the_flow_linearly_in_the_step():
    x, y = data()
    moments = moments_of(x, y, CASES["general"])
    initial = torch.randn(3, D)
    target = GatedLinearFlow.from_moments(moments, TAU, initial=initial).weights(2.0)
    gaps = []
    for steps in (100, 200, 400):
        w = initial.flatten()
        for _ in range(steps):
            w = w + (2.0 / steps) * (moments.b - moments.A @ w / 3) / (3 * TAU)
        gaps.append((w.view(3, D) - target).abs().max().item())
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.05)


def test_dtype_is_the_callers():
    x, y = (tensor.float() for tensor in data())
    flow = GatedLinearFlow.from_data(x, y, random_gates(2).float())
    assert flow.weights(TIMES).dtype == flow.loss(TIMES).dtype == torch.float32


A = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GatedLinearFlow(torch.diag(torch.tensor([1.0, -0.1])), torch.ones(2), 1), "eigenvalue -0.1 times"),
        (lambda: GatedLinearFlow(torch.diag(torch.tensor([1.0, 0.0])), torch.ones(2), 1), "where A is zero"),
        (lambda: GatedLinearFlow(A + torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2), 1), "symmetric"),
        (lambda: GatedLinearFlow(A * torch.nan, torch.ones(2), 1), "A holds NaN"),
        (lambda: GatedLinearFlow(A, torch.ones(3), 1), "A must be Kd × Kd"),
        (lambda: GatedLinearFlow(A, torch.ones(2), 1, 0.0), "tau = 0"),
        (lambda: GatedLinearFlow(A, torch.ones(2), 1, initial=torch.ones(2, 1)), r"\(K, d\)"),
        (lambda: GatedLinearFlow(A, torch.ones(2), 1).loss(1.0), "power="),
        (lambda: GatedLinearFlow(A, torch.ones(2), 1).weights(-1.0), "starts at 0"),
        (lambda: GatedLinearFlow(A, torch.ones(2), 1, shape=(3,)), "sites"),
        (lambda: GatedLinearFlow.from_rows(torch.rand(1, 1, 5), torch.ones(1, 5)), "mirror images"),
        (lambda: GatedLinearFlow.from_rows(torch.rand(1, 2, 5), torch.ones(1, 5)), "K, K"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_slightly_indefinite_moments_are_taken():
    """Rounding may leave a tiny negative eigenvalue; it counts as zero."""
    flow = GatedLinearFlow(torch.diag(torch.tensor([1.0, -1e-16])), torch.tensor([1.0, 0.0]), 1)
    assert flow.limit().tolist() == [[1.0, 0.0]]
    assert flow.time_constants()[1].isinf()


def test_joined_gates_mix_structures():
    x, y = data()
    cells, halves = CASES["exclusive"], CASES["redundant"]
    columns = [(part, place) for part in (cells, halves) for place in range(part.count)]
    gates = FunctionGates([lambda x, part=part, place=place: part(x)[:, place] for part, place in columns])
    moments, initial = moments_of(x, y, gates), torch.randn(gates.count, D)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    torch.testing.assert_close(flow.weights(TIMES), reference(moments, initial), rtol=0, atol=1e-9)


def test_targets_may_have_columns():
    """Every column of y is a flow of its own; (n, 1) is one column."""
    x, y = data()
    targets = torch.stack([y, y.square(), x[:, 2]], dim=1)
    for gates in (CASES["general"], CASES["redundant"], CASES["exclusive"]):
        start = torch.randn(gates.count, D, 3)
        flow = GatedLinearFlow.from_data(x, targets, gates, TAU, initial=start)
        alone = [
            GatedLinearFlow.from_data(x, targets[:, k], gates, TAU, initial=start[..., k].clone()) for k in range(3)
        ]
        expected = torch.stack([one.weights(TIMES) for one in alone], dim=-1)
        torch.testing.assert_close(flow.weights(TIMES), expected)
        torch.testing.assert_close(flow.limit(), torch.stack([one.limit() for one in alone], dim=-1))
        torch.testing.assert_close(flow.loss(TIMES), sum(one.loss(TIMES) for one in alone))
        moments = moments_of(x, targets, gates)
        torch.testing.assert_close(moments.loss(flow.weights(TIMES)), flow.loss(TIMES))
        assert minimum_loss(moments) == pytest.approx(2 * flow.loss(1e9).item(), rel=1e-9)
    assert minimum_loss(moments_of(x, y[:, None], gates)) == pytest.approx(minimum_loss(moments_of(x, y, gates)))


def test_columns_and_fourier_modes():
    source = SinglePulse(((3, 4), (1, 2)), (8,))
    x = torch.cat([source.support(0), source.support(1)])
    y = torch.stack([x.sum(dim=1), (x.sum(dim=1) > 2).double()], dim=1)
    gates = FunctionGates([lambda x: x.sum(dim=1) > 1.5, lambda x: x.sum(dim=1) < 3.5])
    start = torch.randn(2, 8, 2)
    moments = moments_of(x, y, gates)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=start)
    assert flow.translation_invariant
    dense = DenseFlow(moments.A / (4 * TAU), moments.b.view(2, 8, 2) / (2 * TAU)).at(start, TIMES)
    torch.testing.assert_close(flow.weights(TIMES), dense)


@pytest.mark.usefixtures("single_precision")
def test_single_precision_keeps_slow_modes():
    """x in float32 has exact float64 moments, so the limit stays; A in float32 has lost its slow modes, and says so."""
    x, y = NLGP((5.0, 3.0), 0.01).sample(2000, generator=torch.Generator().manual_seed(0))
    gates = HalfSpaceGates(torch.randn(1, 40, generator=torch.Generator().manual_seed(1)))
    limit = GatedLinearFlow.from_data(x, y, gates).limit()
    expected = GatedLinearFlow.from_data(x.double(), y.double(), gates).limit()
    torch.testing.assert_close(limit, expected.float(), rtol=1e-5, atol=1e-5)
    moments = moments_of(x, y, gates)
    with pytest.warns(NotConvergedWarning, match="below the rounding of torch.float32"):
        GatedLinearFlow(moments.A.float(), moments.b.float(), 1)
