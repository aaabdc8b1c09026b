from itertools import product
from math import inf, log, pi

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.regions import Plane, Polyhedron, RegionPlan, activation_region
from gatelab.regions.polyhedron import Estimate
from gatelab.regions.volume import _Body, _isotropic, log_volume_estimate

BOX = ((-2.0, 2.0), (-2.0, 2.0))


def polyhedron(*faces, strict=None) -> Polyhedron:
    """From (normal …, offset) rows."""
    rows = torch.tensor(faces, dtype=torch.float64)
    return Polyhedron(rows[:, :-1], rows[:, -1], None if strict is None else torch.tensor(strict))


def random_region(seed: int, faces: int, dimension: int) -> Polyhedron:
    generator = torch.Generator().manual_seed(seed)
    offsets = 0.3 + torch.randn(faces, generator=generator)
    # Every other one holds the origin: with many faces the rest are mostly empty.
    return Polyhedron(torch.randn(faces, dimension, generator=generator), offsets.abs() if seed % 2 else offsets)


def rectangle(*halves: float) -> Polyhedron:
    rows = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    return Polyhedron(rows / torch.tensor(halves, dtype=torch.float64), torch.ones(4))


SQUARE = polyhedron((1, 0, 1), (-1, 0, 0), (0, 1, 1), (0, -1, 0))
TRIANGLE = polyhedron((-1, 0, 0), (0, -1, 0), (3, 4, 12))  # legs 4 and 3, inradius 1


def test_strict_and_other_faces():
    half_open = polyhedron((-1, 0), (1, 1), strict=[True, False])  # 0 < x ≤ 1
    assert half_open.contains(torch.tensor([[0.0], [0.5], [1.0], [1.5]])).tolist() == [False, True, True, False]
    assert SQUARE.contains(torch.tensor([[0.5, 0.5], [0.5, 1.0]])).tolist() == [True, False]
    assert SQUARE.contains(torch.rand(3, 2, dtype=torch.float32)).all()


@pytest.mark.parametrize(
    ("region", "empty"),
    [
        (SQUARE, False),
        (polyhedron((1, 0, 0), (-1, 0, -1)), True),
        (polyhedron((1, 0, 0), (-1, 0, 0)), True),  # x < 0 and x > 0
        (polyhedron((1, 0, 0), (-1, 0, 0), strict=[False, False]), False),  # the line x = 0
        (polyhedron((1, 0, 0), (-1, 0, 0), strict=[True, False]), True),
        (polyhedron((0, 0, 1)), False),
        (polyhedron((0, 0, 0)), True),
        (polyhedron((0, 0, 0), strict=[False]), False),
        (polyhedron((0, 0, -1), strict=[False]), True),
        (Polyhedron(torch.zeros(0, 3), torch.zeros(0)), False),
        (polyhedron((1e-8, 0, 1e-9), (-1e-8, 0, 0)), False),  # weights may be small
        (polyhedron((1e9, 0, 1e9), (-1e9, 0, 0), (1e-9, 0, 1e9)), False),  # and faces far away
        (polyhedron((0, 0, 1e-10)), False),  # a face without a normal is decided by its offset's sign alone
        (polyhedron((0, 0, 1e-3), (1, 0, 1e7), (0, 1, 1e7)), False),
        (polyhedron((0, 0, -1e-3), (1, 0, 1e7), (0, 1, 1e7)), True),
        (polyhedron((0, 0, 0), (1, 0, 1e7), strict=[False, True]), False),
        (polyhedron((0, 0, -1e-300), strict=[False]), True),
        (polyhedron((1e-200, 1e-200, 1e200)), False),  # a distance that no float64 holds
        (polyhedron((1e-200, 1e-200, -1e200)), True),
    ],
)
def test_emptiness(region, empty):
    assert region.is_empty() is empty
    assert (region.chebyshev_ball() is None) is empty
    assert (region.bounding_box() is None) is empty
    if empty:
        assert region.vertices().shape == (0, region.dimension)
        assert region.volume_estimate().value == 0
        assert region.irredundant() is region
        if region.dimension == 2:
            assert region.polygon(BOX).shape == (0, 2)


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_size_of_normals_does_not_matter(size):
    region = polyhedron((size, 0, size), (-size, 0, 0), (0, size, size), (0, -size, 0))
    assert region.chebyshev_ball().radius == pytest.approx(0.5)
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    torch.testing.assert_close(region.polygon(BOX), corners, rtol=0, atol=1e-9)


def test_a_gate_that_is_open_everywhere_bounds_nothing():
    model = DeepLinearlyGatedNetwork([2, 3, 3, 1], gate=HardGate())
    with torch.no_grad():
        model.feature[0].bias.fill_(1.0)
        model.feature[0].weight[0].zero_()
        model.feature[0].bias[0] = 1e-10
    region = gl.active_region(model, (0, 0))
    assert region.faces == 1
    assert not region.is_empty()


def test_a_flat_polyhedron_has_no_volume():
    line = polyhedron((1, 2, 0), (-1, -2, 0), strict=[False, False])
    assert line.chebyshev_ball().radius == 0
    assert line.volume_estimate() == Estimate(0.0, 0.0)
    segment = polyhedron((1, 0, 0), (-1, 0, 0), (0, 1, 1), (0, -1, 1), strict=4 * [False])
    assert segment.volume_estimate() == Estimate(0.0, 0.0)
    half_space = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    with torch.no_grad():
        half_space[0].weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]))
    assert activation_region(half_space, torch.zeros(2)).polyhedron.volume_estimate() == Estimate(0.0, 0.0)


def test_largest_ball():
    ball = TRIANGLE.chebyshev_ball()
    assert ball.radius == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(ball.centre, torch.ones(2), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("region", "radius", "corners"),
    [
        (polyhedron((-1, 0, 0), (0, -1, 0)), inf, [[0, 0]]),  # a quadrant
        (polyhedron((1, 0, 1)), inf, []),  # a half-plane
        (polyhedron((1, 0, 1), (-1, 0, 0)), 0.5, []),  # a strip
        (polyhedron((1, 0, 1), (-1, 0, 0), (0, -1, 0)), 0.5, [[0, 0], [1, 0]]),  # a half-strip
        (Polyhedron(torch.zeros(0, 2), torch.zeros(0)), inf, []),
    ],
)
def test_unbounded_polyhedra_have_answers(region, radius, corners):
    ball = region.chebyshev_ball()
    assert ball.radius == pytest.approx(radius)
    assert region.contains(ball.centre[None]).all()
    found = sorted(region.vertices().round(decimals=9).tolist())
    assert found == corners
    assert region.volume_estimate().value == inf
    assert not torch.isfinite(region.bounding_box()).all()


def test_vertices_and_polygons():
    corners = TRIANGLE.vertices()
    assert sorted(corners.round(decimals=9).abs().tolist()) == [[0, 0], [0, 3], [4, 0]]
    polygon = TRIANGLE.polygon(((0, 5), (0, 1.5)))
    expected = torch.tensor([[0.0, 0.0], [4.0, 0.0], [2.0, 1.5], [0.0, 1.5]])
    torch.testing.assert_close(polygon, expected, atol=1e-9, rtol=0)
    cube = Polyhedron(torch.cat([torch.eye(3), -torch.eye(3)]), torch.ones(6))
    assert len(cube.vertices()) == 8
    assert sorted(polyhedron((1, 3), (-1, 1), (1, 9)).vertices().flatten().tolist()) == pytest.approx([-1, 3])
    assert polyhedron((1, 3)).vertices().flatten().tolist() == pytest.approx([3])


def test_bounds_are_not_rounded(single_precision):
    quadrant = polyhedron((-1, 0, 0), (0, -1, 0))
    tenth = quadrant.polygon(((-0.1, 0.1), (-0.1, 0.1)))
    torch.testing.assert_close(
        tenth, torch.tensor([[0, 0], [0.1, 0], [0.1, 0.1], [0, 0.1]]).double(), rtol=0, atol=1e-8
    )
    assert tenth.max().item() == pytest.approx(0.1, abs=1e-15)
    assert quadrant.volume_estimate(((0, 1e39), (0, 1))).value == pytest.approx(1e39, rel=1e-12)  # float32 ends at 3e38


def test_redundant_faces_go():
    twice = polyhedron((1, 0, 1), (-1, 0, 0), (0, 1, 1), (0, -1, 0), (1, 1, 2), (2, 0, 2), (1, 1, 7), (0, 0, 1),
                       strict=[False, True, True, True, True, True, True, True])  # fmt: skip
    least = twice.irredundant()
    assert least.faces == 4
    assert least.strict.all()  # of the two faces x = 1 the strict one stays
    points = torch.rand(500, 2) * 3 - 1
    assert torch.equal(least.contains(points), twice.contains(points))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), faces=st.integers(1, 12), dimension=st.integers(1, 4))
def test_random_polyhedra_are_consistent(seed, faces, dimension):
    region = random_region(seed, faces, dimension)
    least = region.irredundant()
    generator = torch.Generator().manual_seed(seed)
    points = 2 * torch.randn(300, dimension, generator=generator)
    assert torch.equal(least.contains(points), region.contains(points))
    ball = region.chebyshev_ball()
    if ball is None:
        assert not region.contains(points).any()
        return
    corners = region.vertices()
    if len(corners):
        slack = region.offsets - corners @ region.normals.T
        scale = 1 + corners.abs().max()
        assert (slack > -1e-7 * scale).all()
        assert ((slack.abs() < 1e-7 * scale).sum(1) >= dimension).all()
    if ball.radius < 1e6:
        inner = ball.centre + ball.radius * (1 - 1e-6) * torch.nn.functional.normalize(points, dim=1)
        assert region.contains(inner).all()
        distance = (region.offsets - region.normals @ ball.centre) / region.normals.norm(dim=1)
        assert distance.min().item() == pytest.approx(ball.radius, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("seed", range(1, 31, 2))
def test_just_the_redundant_faces_go(seed, dimension):
    region = random_region(seed, 8, dimension)
    least = region.irredundant()
    # Beyond a face that went there is nothing; beyond one that stayed there is, without it.
    kept = least.normals.tolist()
    for normal, offset in zip(region.normals, region.offsets, strict=True):
        stayed = normal.tolist() in kept
        others = [face for face in range(least.faces) if least.normals[face].tolist() != normal.tolist()]
        beyond = Polyhedron(
            torch.cat([least.normals[others], -normal[None]]), torch.cat([least.offsets[others], -offset[None]])
        )
        assert beyond.is_empty() is not stayed


def test_volume_estimates_have_honest_errors(generator):
    deviations = []
    for _ in range(40):
        estimate = TRIANGLE.volume_estimate(samples=500, generator=generator)
        deviations.append((estimate.value - 6) / estimate.error)
    z = torch.tensor(deviations)
    assert abs(z.mean()) < 4 / 40**0.5
    assert 0.7 < z.std() < 1.3  # standard errors are neither too small nor too large
    inside = TRIANGLE.volume_estimate(((10, 11), (10, 11)), samples=100, generator=generator)
    assert inside.value == 0
    assert inside.error == pytest.approx(0.01, rel=0.05)  # one hit in a hundred would be no surprise
    with pytest.raises(InputError, match="samples is 0"):
        TRIANGLE.volume_estimate(samples=0)


def test_a_ball_in_many_dimensions(generator):
    directions = torch.nn.functional.normalize(torch.randn(400, 5, generator=generator), dim=1)
    around = Polyhedron(directions, torch.ones(400))  # circumscribes the unit ball
    ball = around.chebyshev_ball()
    assert 1 - 1e-9 <= ball.radius < 1.1
    estimate = around.volume_estimate(samples=4000, generator=generator)
    assert estimate.value > 8 * pi**2 / 15 - 3 * estimate.error


def test_cuts_by_a_plane():
    cube = Polyhedron(torch.cat([torch.eye(3), -torch.eye(3)]), torch.ones(6))
    plane = Plane(torch.tensor([0.0, 0.0, 0.5]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, -1.0, 0.0]))
    diamond = cube.on_plane(plane)
    points = torch.rand(200, 2) * 3 - 1.5
    assert torch.equal(diamond.contains(points), cube.contains(plane.at(points)))
    assert len(diamond.polygon(BOX)) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_points_on_a_line_span_no_plane(dtype):
    a, off = torch.tensor([0.1, 0.2, 0.3], dtype=dtype), torch.tensor([0.1, 0.2, 0.4], dtype=dtype)
    for factors in ((1.7, 2.9), (1.1, 1.2), (-3.0, 100.0)):
        with pytest.raises(InputError, match="zero or parallel"):
            Plane.through(a, factors[0] * a, factors[1] * a)
        Plane.through(a, off, factors[1] * a)
    with pytest.raises(InputError, match="zero or parallel"):
        Plane(torch.zeros_like(a), a, 2.9 * a)
    Plane(1000 + a, 1e-30 * a, off)  # neither the origin's size nor the directions' matters


def test_a_plane_through_points_of_unsigned_numbers(unchecked):
    a, b, c = torch.tensor([[200, 3], [100, 3], [200, 0]], dtype=torch.uint8)
    assert Plane.through(a, b, c).at(torch.ones(1, 2)).tolist() == [[100.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Polyhedron(torch.eye(3), torch.ones(3)).polygon(BOX), "needs two dimensions.*has 3.*on_plane"),
        (lambda: SQUARE.polygon(((0, 1),)), r"give \(low, high\) for each of 2 axes"),
        (lambda: SQUARE.polygon(((0, 1), (1, 1))), "every low must lie below its high"),
        (lambda: SQUARE.polygon(((0, 1), (0, inf))), "both finite"),
        (lambda: SQUARE.contains(torch.zeros(1, 3)), "points have 3 coordinates, the polyhedron 2"),
        (lambda: Polyhedron(torch.eye(2), torch.ones(3)), "normals are"),
        (lambda: Polyhedron(torch.eye(2) * float("nan"), torch.ones(2)), "NaN"),
        (lambda: SQUARE.on_plane(Plane(torch.zeros(3), torch.eye(3)[0], torch.eye(3)[1])), "plane lies in 3"),
        (lambda: Plane(torch.zeros(3), torch.ones(3), torch.ones(2)), "shapes"),
        (lambda: Plane(torch.zeros(3), torch.ones(3), 2 * torch.ones(3)), "zero or parallel"),
        (lambda: Plane(torch.zeros(3), torch.ones(3), torch.zeros(3)), "zero or parallel"),
        (lambda: Plane(torch.full((3,), inf), torch.ones(3), torch.zeros(3)), "NaN or infinite"),
        (lambda: Plane([0.0, 0.0], torch.ones(2), torch.eye(2)[0]), "origin must be a torch.Tensor, got list"),
        (lambda: Plane.through(torch.zeros(2), torch.ones(2), 3.0), "c must be a torch.Tensor, got float"),
        (lambda: Plane.through(torch.zeros(2), torch.ones(2), torch.zeros(3)), "shapes"),
        (lambda: Polyhedron([[1.0, 0.0]], torch.ones(1)), "normals must be a torch.Tensor, got list"),
        (lambda: Polyhedron(torch.eye(2), torch.ones(2), torch.tensor([True])), r"strict is \(1,\).*one truth value"),
        (lambda: Polyhedron(torch.eye(2), torch.ones(2), torch.ones(2)), r"strict is \(2,\) of torch.float64"),
        (lambda: SQUARE.contains(torch.zeros(2)), r"points have shape \(2,\).*unsqueeze\(0\)"),
        (lambda: SQUARE.polygon((0, 1)), r"bounds are \(0, 1\); give \(low, high\) for each of 2 axes"),
        (lambda: SQUARE.polygon(3), "bounds are 3; give"),
        (lambda: SQUARE.polygon((("a", "b"), (0, 1))), "give .low, high. for each of 2 axes"),
        (lambda: SQUARE.contains([[0.0, 0.0]]), "x must be a torch.Tensor, got list"),
        (lambda: SQUARE.volume_estimate(samples=0), "samples is 0; give a whole number, at least 1"),
        (lambda: SQUARE.volume_estimate(samples=1.5), "samples is 1.5; give a whole number"),
        (lambda: log_volume_estimate(SQUARE, rounds=0), "rounds is 0; give a whole number"),
        (lambda: Polyhedron(torch.zeros(2, 0), torch.ones(2)), r"normals are \(2, 0\).*d ≥ 1"),
        (lambda: Polyhedron(torch.eye(2) * 1j, torch.ones(2)), "complex.*give real numbers"),
        (lambda: Polyhedron(torch.eye(2), 1j * torch.ones(2)), "offsets has dtype torch.complex.*give real numbers"),
        (lambda: SQUARE.contains(torch.zeros(2, 2) * 1j), "x has dtype torch.complex.*give real numbers"),
        (lambda: Plane(torch.zeros(2) * 1j, *torch.eye(2)), "origin has dtype torch.complex.*give real numbers"),
        (lambda: Polyhedron(torch.eye(2).to_sparse(), torch.ones(2)), "normals has layout torch.sparse_coo.*to_dense"),
        (lambda: SQUARE.contains(torch.eye(2).to_sparse()), "x has layout torch.sparse_coo.*to_dense"),
        (lambda: Polyhedron(torch.eye(2, device="meta"), torch.ones(2)), "normals holds a shape but no numbers"),
        (lambda: Polyhedron(torch.eye(2), torch.ones(2, device="meta")), "offsets holds a shape but no numbers"),
        (lambda: SQUARE.contains(torch.zeros(2, 2, device="meta")), "x holds a shape but no numbers"),
        (lambda: SQUARE.contains(torch.zeros(2, 2).to(torch.float8_e5m2)), r"x has dtype torch.float8.*x.float\(\)"),
        (lambda: SQUARE.on_plane(None), "plane is NoneType; give a gatelab.regions.Plane"),
        (lambda: SQUARE.volume_estimate(samples=True), "samples is True; give a whole number"),
        (lambda: SQUARE.volume_estimate(generator=0), "generator is 0; give a torch.Generator"),
        (lambda: SQUARE.volume_estimate(BOX, generator=0), "generator is 0; give a torch.Generator"),
        (lambda: log_volume_estimate(SQUARE, rounds=True), "rounds is True; give a whole number"),
        (lambda: log_volume_estimate(SQUARE, generator="x"), "generator is 'x'; give a torch.Generator"),
        (lambda: log_volume_estimate(None), "polyhedron is NoneType; give a gatelab.regions.Polyhedron"),
        (lambda: log_volume_estimate([SQUARE]), "polyhedron is list; give a gatelab.regions.Polyhedron"),
        (lambda: rectangle(1e200, 1e200).volume_estimate(), "rounds its volume to inf.*log_volume_estimate"),
        (lambda: rectangle(1e-200, 1e-200).volume_estimate(), "rounds its volume to 0.*log_volume_estimate"),
    ],
)  # fmt: skip
def test_bad_requests(call, message, unchecked):
    with pytest.raises(InputError, match=message):
        call()


def test_equality_is_that_of_the_faces():
    same = polyhedron((-1, 0, 0), (0, -1, 0), (3, 4, 12))
    assert not same.is_empty()  # the cached view is no part of the value
    assert same == TRIANGLE
    assert hash(same) == hash(TRIANGLE)
    assert len({same, TRIANGLE, SQUARE}) == 2
    closed = Polyhedron(same.normals, same.offsets, torch.zeros(3, dtype=torch.bool))
    wider = Polyhedron(same.normals, same.offsets + 1)
    fewer = Polyhedron(same.normals[:2], same.offsets[:2])
    assert all(other != TRIANGLE for other in (closed, wider, fewer, SQUARE, None, 3))
    assert polyhedron((1, 0.0)) == polyhedron((1, -0.0))
    assert hash(polyhedron((1, 0.0))) == hash(polyhedron((1, -0.0)))


def test_equality_of_balls_and_planes():
    ball, again = TRIANGLE.chebyshev_ball(), TRIANGLE.chebyshev_ball()
    assert ball == again != SQUARE.chebyshev_ball()
    assert hash(ball) == hash(again)
    assert Plane.of_inputs() == Plane.of_inputs() != Plane(torch.ones(2), *torch.eye(2))


def test_numbers_are_plain_floats(generator, unchecked):
    assert type(TRIANGLE.chebyshev_ball().radius) is float
    assert type(polyhedron((1, 0, 1)).chebyshev_ball().radius) is float
    for estimate in (
        TRIANGLE.volume_estimate(samples=np.int64(10), generator=generator),
        log_volume_estimate(TRIANGLE, rounds=np.int64(1), generator=generator),
    ):
        assert type(estimate.value) is type(estimate.error) is float


@pytest.mark.parametrize("halves", [(1e160, 1e-160), (1e-300, 1e300), (1e100, 1e-100), (1e300, 1.0)])
@pytest.mark.parametrize("slanted", [False, True])
def test_coordinates_whose_sizes_are_hundreds_of_digits_apart(halves, slanted, generator):
    sizes = torch.tensor(halves)
    turned = torch.tensor([[1.0, 1], [-1, -1], [1, -1], [-1, 1]]) / sizes  # a diamond with the same bounding box
    body = Polyhedron(turned, torch.ones(4)) if slanted else rectangle(*halves)
    box = torch.tensor([[-1.0, 1], [-1, 1]])
    torch.testing.assert_close(body.bounding_box() / sizes[:, None], box, rtol=0, atol=1e-9)
    assert not body.is_empty()
    assert (body.vertices() / sizes).abs().sum(1).tolist() == pytest.approx(4 * [1.0 if slanted else 2.0])
    ball = body.chebyshev_ball()
    assert ball.radius == pytest.approx(min(halves), rel=1e-9)
    assert body.contains(ball.centre[None]).all()
    assert body.irredundant() is body
    logarithm = log_volume_estimate(body, generator=generator)
    truth = log(2 if slanted else 4) + log(halves[0]) + log(halves[1])
    assert logarithm.value == pytest.approx(truth, abs=5 * logarithm.error)


def test_a_bound_that_is_very_far_away():
    """HiGHS takes 1e20 for infinite. Ends are exact to a share of the body's extent."""
    wedge = polyhedron((1, 1, 1), (-1, 0, 1), (0, -1, 1e30))
    box = wedge.bounding_box()
    assert box is not None
    torch.testing.assert_close(box / 1e30, torch.tensor([[0.0, 1], [-1, 0]]))
    assert wedge.chebyshev_ball().radius == pytest.approx(1e30 / (2 + 2**0.5))
    assert polyhedron((1, 1), (0, 1e30)).bounding_box().tolist() == [[-inf, 1.0]]


@pytest.mark.parametrize(
    "region",
    [
        Polyhedron(torch.tensor([[1e308, 1e308], [-1e308, 0], [0, -1e-300]], dtype=torch.float64), torch.ones(3)),
        polyhedron((1, 0, 1.7e308), (-1, 0, 1.7e308), (0, 1, 1), (0, -1, 1)),
        polyhedron((1, 1e300), (-1, 1e-300)),
    ],
)
@pytest.mark.parametrize(
    "question",
    [
        Polyhedron.is_empty,
        Polyhedron.chebyshev_ball,
        Polyhedron.bounding_box,
        Polyhedron.vertices,
        Polyhedron.irredundant,
        Polyhedron.volume_estimate,
        log_volume_estimate,
    ],
)
def test_sizes_that_float64_does_not_hold(region, question):
    with pytest.raises(InputError, match=r"sizes too far apart for float64: normals from .* in other units"):
        question(region)


def test_a_volume_beyond_float64_has_a_logarithm():
    wedge = polyhedron((1, 1, 1), (-1, 0, 1), (0, -1, 1e300))
    found = log_volume_estimate(wedge, generator=torch.Generator().manual_seed(0))
    assert found.value == pytest.approx(600 * log(10) - log(2), abs=5 * found.error)


def test_a_body_too_thin_for_walks():
    rows = torch.tensor([[1.0, 1], [-1, -1], [1e200, -1e200], [-1e200, 1e200]])
    with pytest.raises(InputError, match=r"2-dimensional polyhedron is too thin in one direction.*within"):
        _isotropic(_Body(rows, torch.ones(4), 0.0), torch.Generator().manual_seed(0))


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 999), constant=st.booleans(), shallow=st.booleans())
def test_an_active_region_is_where_all_gates_of_the_path_are_open(seed, constant, shallow):
    generator = torch.Generator().manual_seed(seed)
    model = DeepLinearlyGatedNetwork(
        [3, 4, 5, 4, 1], gate=HardGate(), piecewise_constant=constant, shallow=shallow, generator=generator
    )
    for layer in model.feature:
        torch.nn.init.normal_(layer.bias, generator=generator)
    x = 2 * torch.randn(300, 3, generator=generator)
    pattern, plan = gl.capture_gates(model, x).hard(), RegionPlan(model)
    gates = [pattern[name] for name in pattern]
    for path in ((0, 0, 0), (3, 4, 1)):
        region = gl.active_region(model, path, plan=plan)
        expected = torch.stack([gate[:, unit] for gate, unit in zip(gates, path, strict=True)]).all(0)
        assert torch.equal(region.contains(x), expected)
        assert region.faces <= 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_active_region_is_not_rounded_to_the_models_dtype(dtype):
    model = DeepLinearlyGatedNetwork([2, 5, 5, 5, 1], gate=HardGate())
    for layer in model.feature:
        torch.nn.init.normal_(layer.bias)
    plan = RegionPlan(model.to(dtype))
    layers = list(gl.half_spaces(model, plan=plan).values())
    x = 4 * torch.rand(20_000, 2) - 2
    opened = [layer.is_open(x) for layer in layers]
    for path in list(product(range(5), repeat=3))[::12]:
        expected = torch.stack([gates[:, unit] for gates, unit in zip(opened, path, strict=True)]).all(0)
        assert torch.equal(gl.active_region(model, path, plan=plan).contains(x), expected)


def test_paths_by_name_and_from_top_paths():
    model = DeepLinearlyGatedNetwork([3, 4, 5, 1], gate=HardGate(), value_bias=True)
    for bias in [*(layer.bias for layer in model.feature), *(layer.bias for layer in model.value)]:
        torch.nn.init.normal_(bias)
    x = torch.randn(1, 3)
    found = gl.top_paths(model, x, 200)
    assert {path.start for path in found} >= {0, 1, 2}
    for path in found:
        if path.units:
            assert gl.active_region(model, path).contains(x).all()
    first, second = gl.half_spaces(model)
    for units in (torch.tensor([1, 2]), np.array([1, 2]), [np.int64(1), torch.tensor(2)]):
        assert torch.equal(gl.active_region(model, units).normals, gl.active_region(model, (1, 2)).normals)
    whole, part = gl.active_region(model, (1, 2)), gl.active_region(model, {second: 2})
    assert part.faces == 1
    assert torch.equal(gl.active_region(model, {first: 1, second: 2}).normals, whole.normals)


def test_a_path_of_a_convolutional_network():
    model = gl.to_dlgn(gl.models.vconv(channels=[2, 2], dense=[3], inputs=(1, 5, 5)))
    x = torch.randn(400, 1, 5, 5)
    pattern = gl.capture_gates(model, x).hard()
    region = gl.active_region(model, ((1, 0, 2), (0, 1, 2), 2), shape=(1, 5, 5))
    a, b, c = pattern.layers
    expected = pattern[a][:, 1, 0, 2] & pattern[b][:, 0, 1, 2] & pattern[c][:, 2]
    assert expected.any()
    assert torch.equal(region.contains(x), expected)


@pytest.mark.parametrize("path", [(0,), (0, 0, 0), (0, 4), (-1, 0), {"nonsense": 0}, {}, (), (0.0, 1), "01", 3])
def test_paths_that_do_not_exist(path, unchecked):
    with pytest.raises(InputError):
        gl.active_region(DeepLinearlyGatedNetwork([2, 4, 4, 1]), path)


def test_interior_points_answer_where_the_simplex_method_gives_up(monkeypatch):
    """HiGHS's simplex method returned status 4 for about one in 150 programmes of well-rounded bodies."""
    expected = TRIANGLE.bounding_box()

    def giving_up(*programme, method, **options):
        answer = linprog(*programme, method=method, **options)
        answer.status = 4 if method == "highs" else answer.status
        return answer

    monkeypatch.setattr("gatelab.regions.programmes.linprog", giving_up)
    torch.testing.assert_close(TRIANGLE.bounding_box(), expected)
