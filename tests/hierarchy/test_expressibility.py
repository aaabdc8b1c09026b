import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gatelab.errors import InputError
from gatelab.hierarchy import (
    LocalNetwork,
    NodeOptions,
    ReformulatedTrainer,
    Teacher,
    exact_events,
    expressibility,
    given_events,
    reformulate,
    string_fields,
)
from gatelab.hierarchy.expressive_power import (
    best_linear,
    expressive_network,
    relu_weights,
    separate,
    vertices,
)
from gatelab.hierarchy.rules import joint, parity
from tests.references.hierarchy import in_hull


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_vertices_by_exact_fractions(seed, rows, columns):
    """Use whole-number points: points on edges and equal points are common, and fractions are exact."""
    torch.set_default_dtype(torch.float64)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randint(0, 4, (rows, columns), generator=generator).double()
    points = matrix.tolist()
    expected = [not in_hull(points[i], points[:i] + points[i + 1 :]) for i in range(rows)]
    assert vertices(matrix).tolist() == expected


def test_vertices_of_a_square_with_its_centre():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    assert vertices(square).tolist() == [True] * 4 + [False]
    assert bool(vertices(square[:4]).all())
    # The corner (1, 1) is 1 away, in ℓ₁, from the hull of the other three corners and the middle.
    normal, offset, distance = separate(square, 3)
    assert distance == pytest.approx(1.0)
    assert bool((square[[0, 1, 2, 4]] @ normal + offset <= 1e-9).all())
    assert (square[3] @ normal + offset).item() == pytest.approx(distance)


def test_equal_rows_are_no_vertices_but_a_single_row_is():
    assert vertices(torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])).tolist() == [False, False, True]
    assert vertices(torch.ones(1, 3)).tolist() == [True]


def test_constructed_weights_give_the_identity(generator):
    matrix = torch.nn.functional.normalize(torch.randn(9, 4, generator=generator))
    weight, bias = relu_weights(matrix)
    torch.testing.assert_close(torch.relu(matrix @ weight + bias), torch.eye(9), atol=1e-9, rtol=0)
    with pytest.raises(InputError, match="row 9 lies in the convex hull"):
        relu_weights(torch.cat([matrix, matrix.mean(dim=0, keepdim=True)]))


def test_constructed_deep_network_outputs_the_identity(generator):
    """Take two layers of joint variables on four bits: z_ω is the string, F = I at every region."""
    events = exact_events(Teacher(string_fields(4, [2]), joint))
    network = expressive_network(events)
    found = reformulate(network, events)
    for region in events.fields.inner:
        torch.testing.assert_close(found.activations[region], torch.eye(len(events.priors[region])), atol=1e-9, rtol=0)
    # z determines x here, so the network itself has the same outputs on inputs.
    x, _ = Teacher(string_fields(4, [2]), joint).inputs.support()
    torch.testing.assert_close(network(x), torch.eye(16), atol=1e-9, rtol=0)


def test_descent_on_a_linear_network_ends_at_the_bound(generator):
    """Gradient descent on a linear network of full width comes down to m − rank and stops there."""
    fields = string_fields(4, [2])
    events = exact_events(Teacher(fields, joint))
    found = expressibility(events)
    assert found.events == 16
    assert found.rank == 5  # a constant and one direction for each bit
    assert found.linear == pytest.approx(found.bound) == 11
    linear = NodeOptions(relu=False)
    network = LocalNetwork(fields, 4, 16, hidden=linear, top=linear, generator=generator)
    trainer = ReformulatedTrainer(network, events, 0.5)
    for _ in range(150):
        loss = trainer.step()
    assert 2 * loss * 16 == pytest.approx(11, abs=1e-5)  # ½ E‖·‖² over 16 equally likely events
    assert 2 * loss * 16 >= 11 - 1e-9
    output = reformulate(network, events).activations["top"]
    torch.testing.assert_close(output, best_linear(events), atol=1e-3, rtol=0)


def test_parity_cannot_be_expressed():
    """P(bit | parity) is the same for both parities, so no row is a vertex."""
    with pytest.raises(InputError, match=r"region 'top': row 0 lies in the convex hull"):
        expressibility(exact_events(Teacher(string_fields(3, []), parity)))


def test_invalid_matrices_are_refused():
    with pytest.raises(InputError, match="empty or with NaN or infinity, has no hull"):
        vertices(torch.tensor([[float("nan"), 1.0]]))
    with pytest.raises(InputError, match="no row 5"):
        separate(torch.eye(3), 5)
    p = torch.full((2, 3), 1 / 3)
    events = given_events(string_fields(2, []), torch.tensor([0.5, 0.5]), {("top", "x0"): p, ("top", "x1"): p})
    with pytest.raises(InputError, match="leaf 'x0' takes 3 values; give values= per position, not 2"):
        expressive_network(events)


def test_events_that_never_occur_need_no_node():
    """Of 16 pairs of overlapping regions' values 8 contradict each other: they have no row, and the rest is exact."""
    able = expressibility(exact_events(Teacher(string_fields(3, [2], [1]), joint)))
    assert (able.events, able.rank) == (8, 4)
    assert able.relu < 1e-12
    assert able.linear == pytest.approx(4)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vertices_do_not_depend_on_the_unit(generator, scale, dtype):
    corners = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    inside = torch.softmax(torch.randn(3, 5, generator=generator, dtype=torch.float64), dim=1) @ corners
    matrix = torch.cat([corners, inside])
    expected = vertices(matrix)
    assert not bool(expected[5:].any())
    assert torch.equal(vertices((scale * matrix).to(dtype)), expected)
    weight, bias = relu_weights(scale * matrix[expected])
    torch.testing.assert_close(torch.relu(scale * matrix[expected] @ weight + bias), torch.eye(int(expected.sum())))
