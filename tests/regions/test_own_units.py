"""Polyhedra whose coordinates have sizes of their own, against corners in exact arithmetic."""

from math import cos, inf, isfinite, log, pi, sin

import numpy as np
import pytest
import torch
from torch import nn

from gatelab.regions import Plane, Polyhedron, activation_region, region_walk
from gatelab.regions.volume import log_volume_estimate
from tests.regions.corners import corners, exact_box, exact_volume

TWO = ((-1.0, 1.0),) * 2


def box(*halves: float) -> Polyhedron:
    own, eye = torch.tensor(halves), torch.eye(len(halves))
    return Polyhedron(torch.cat([eye, -eye]), torch.cat([own, own]))


def check(body: Polyhedron) -> None:
    """Box, corners, volumes and needed faces of a bounded body are the exact ones."""
    exact = corners(body)
    expected = exact_box(exact)
    sizes = (expected[:, 1] - expected[:, 0])[:, None]
    found = body.bounding_box()
    assert found is not None
    np.testing.assert_allclose(found.numpy() / sizes, expected / sizes, rtol=0, atol=1e-7)
    points = body.vertices().numpy()
    assert len(points) == len(exact)
    for point in points:
        away = [np.abs((point - np.array(corner, dtype=float)) / sizes[:, 0]).max() for corner in exact]
        assert min(away) < 1e-6
    assert set(corners(body.irredundant())) == set(exact)
    generator, volume = torch.Generator().manual_seed(0), exact_volume(exact)
    share = body.volume_estimate(samples=2000, generator=generator)
    assert share.value == pytest.approx(volume, abs=5 * share.error)
    logarithm = log_volume_estimate(body, rounds=2, generator=generator)
    assert logarithm.value == pytest.approx(log(volume), abs=5 * logarithm.error)


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_a_half_plane_at_a_right_angle(turns):
    """cos(π/2) is 6e-17, a rounding error, and the only entry that ties the coordinates together."""
    angle = turns * pi / 2
    body = Polyhedron(torch.tensor([[cos(angle), sin(angle)]]), torch.tensor([0.5])).within(TWO)
    assert len(body.vertices()) == 4
    assert body.volume_estimate(samples=10).value == pytest.approx(3)
    check(Polyhedron(body.normals.round(decimals=12), body.offsets))


@pytest.mark.parametrize("entry", [1e-6, 1e-9, 1e-12, 1e-14, 1e-20, 1e-40])
def test_one_small_coefficient_in_a_square(entry):
    body = Polyhedron(torch.tensor([[1, entry], [-1, 0], [0, 1], [0, -1]]), torch.ones(4))
    torch.testing.assert_close(body.bounding_box(), torch.tensor(TWO), rtol=0, atol=2e-6)
    assert len(body.vertices()) == 4
    assert body.irredundant().faces == 4


def test_cuts_along_the_normal_of_a_gate():
    """The other direction of the plane is at right angles to the normal, up to rounding."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        normal, other = torch.randn(2, 10, generator=generator)
        first = normal / normal.norm()
        second = other - (other @ first) * first
        plane = Plane(torch.zeros(10), first, second / second.norm())
        assert len(Polyhedron(first[None], torch.tensor([0.5])).on_plane(plane).polygon(TWO)) == 4


@pytest.mark.parametrize("decayed", [1e-5, 1e-8, 1e-10, 1e-12, 1e-20, 1e-30, 0.0])
def test_weights_of_an_irrelevant_input(decayed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
    with torch.no_grad():
        model[0].weight[:, 2] *= decayed
    cube = ((-1.0, 1.0),) * 3
    body = activation_region(model, torch.zeros(3)).polyhedron.within(cube)
    exact = corners(body)
    found = body.bounding_box()
    assert found is not None
    assert found[2].tolist() == pytest.approx([-1, 1])
    assert len(body.vertices()) == len(exact) >= 8
    generator = torch.Generator().manual_seed(0)
    logarithm = log_volume_estimate(body, rounds=2, generator=generator)
    assert logarithm.value == pytest.approx(log(exact_volume(exact)), abs=5 * logarithm.error)
    walk = region_walk(model, torch.zeros(3), 3, cube, generator=generator)
    assert all(isfinite(part.value) for part in walk.log_volumes(rounds=1, generator=generator))


@pytest.mark.parametrize(
    "halves",
    [(1e6, 1e-6), (1e9, 1e-9), (1e6, 1e6, 1e-6), (1e6, 1, 1e-6), (1e-6, 1e-6, 1e6), (1e4, 1e4, 1e-5), (1, 1, 1e-10)],
)
def test_boxes_whose_faces_tie_no_coordinates_together(halves):
    body = box(*halves)
    assert not body.is_empty()
    check(body)
    ball = body.chebyshev_ball()
    assert ball is not None
    assert ball.radius == pytest.approx(min(halves))
    assert bool(body.contains(ball.centre[None]))


def between(low: tuple[float, ...], high: tuple[float, ...]) -> Polyhedron:
    eye = torch.eye(len(low))
    return Polyhedron(torch.cat([eye, -eye]), torch.cat([torch.tensor(high), -torch.tensor(low)]))


@pytest.mark.parametrize("near", [0.0, 1e-3, 1e-9])
def test_a_box_with_a_face_near_the_origin(near):
    """Where faces cross the axes tells how long this body is along the other axes, but not along the first."""
    check(between((-near, -1e6, -1e6, -1e-6), (1e6, 1e6, 1e6, 1e-6)))


def test_a_long_body_that_only_a_small_coefficient_keeps_from_being_empty():
    rows = torch.tensor([[1e-12, 1], [-1e-12, -1], [1, 0], [-1, 0], [0, 1], [0, -1]])
    check(Polyhedron(rows, torch.tensor([1.1, -0.9, 1e12, -1, 0.5, 2])))


def test_a_long_wedge_that_is_thin_in_one_coordinate():
    """As large a ball as its thickness allows fits into its tip, too, where all chords are about as long."""
    units = 2.0 ** torch.tensor([20, -20, 20])
    rows = torch.tensor(
        [[0.38, 0.19, -0.5], [-0.44, 1.6e-21, 0.043], [-1.9e-21, -0.42, -0.35], [0.092, -3.4e-22, -0.37]]
    )
    offsets = torch.tensor([0.46, 0.29, 0.58, 0.1])
    sides = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0]])
    check(Polyhedron(torch.cat([rows, sides]) / units, torch.cat([offsets, torch.ones(4)])))


def test_lines_that_meet_far_away_only_by_rounding():
    """As if x = −1 and x = 1 met at y = −2e16."""
    body = Polyhedron(torch.tensor([[1, -6e-17], [-1, -6e-17], [0, 1]]), torch.ones(3))
    torch.testing.assert_close(body.bounding_box(), torch.tensor([[-1, 1], [-inf, 1]]))
    assert sorted(body.vertices().tolist()) == [pytest.approx([-1, 1]), pytest.approx([1, 1])]


def test_a_segment_in_units_far_apart():
    rows = torch.tensor([[1.0, 1], [-1, -1], [1, -1], [-1, 1]]) / torch.tensor([1e6, 1e-6])
    body = Polyhedron(rows, torch.tensor([0.0, 0, 2, 2]), torch.zeros(4, dtype=torch.bool))
    assert not body.is_empty()
    torch.testing.assert_close(body.bounding_box(), torch.tensor([[-1e6, 1e6], [-1e-6, 1e-6]]))
    assert len(body.vertices()) == 0


def test_coordinates_of_similar_sizes_are_kept():
    """Though one coefficient is small, and a face is near the origin."""
    rows = torch.tensor([[1, 1e-20], [-1, 0], [0, 1], [0, -1], [-1, 0]])
    view = Polyhedron(rows, torch.tensor([1, 1, 1, 1, 1e-6])).view
    assert view.centre.tolist() == [0, 0]
    assert view.sizes.tolist() == [1, 1]


@pytest.mark.parametrize("entry", [0, 1e-12, 1e-16, 1e-20])
def test_units_far_apart_beside_a_rounding_error(entry):
    sizes = torch.tensor([1e6, 1e-6])
    rows = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [entry, 1]])
    body = Polyhedron(rows / sizes, torch.tensor([1, 1, 1, 1, 0.9]))
    torch.testing.assert_close(body.bounding_box() / sizes[:, None], torch.tensor([[-1, 1], [-1, 0.9]]))
    assert len(body.vertices()) == body.irredundant().faces == 5
    assert body.volume_estimate().value == pytest.approx(1.99, abs=0.05)


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.2])
@pytest.mark.parametrize("seed", range(6))
def test_regions_of_networks_in_inputs_of_any_units(seed, kept):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    units = 2.0 ** torch.tensor([-20.0, 0, 20])[torch.randint(3, (3,), generator=generator)]
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        model[0].weight[torch.rand(5, 3, generator=generator) > kept] *= 1e-20 if seed % 2 else 0
        model[0].weight /= units
    here = (2 * torch.rand(3, generator=generator) - 1) * units
    check(activation_region(model, here).polyhedron.within([(-size, size) for size in units.tolist()]))


@pytest.mark.parametrize("exponents", [(30, 0, -30), (20, 20, -20), (-25, 10, 0)])
@pytest.mark.parametrize("seed", range(4))
def test_powers_of_two_as_units_change_nothing(seed, exponents):
    """Sparse faces around a point far from the origin."""
    generator = torch.Generator().manual_seed(seed)
    normals = torch.randn(7, 3, generator=generator) * (torch.rand(7, 3, generator=generator) < 0.5)
    place = 3 * torch.randn(3, generator=generator)
    normals = torch.cat([normals, torch.eye(3), -torch.eye(3)])
    offsets = normals @ place + 0.2 + torch.rand(13, generator=generator)
    check(Polyhedron(normals / 2.0 ** torch.tensor(exponents), offsets))


def test_bodies_very_far_from_the_origin():
    half_strip = Polyhedron(torch.tensor([[1.0, 0], [0, 1], [0, -1]]), torch.tensor([-1e21, 1, 1]))
    assert not half_strip.is_empty()
    assert half_strip.bounding_box().tolist() == [[-inf, pytest.approx(-1e21)], pytest.approx([-1, 1])]
    far = Polyhedron(torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]), torch.tensor([-0.5e21, 1e21, 1, 1]))
    check(far)


def test_a_face_that_is_very_far_away_is_needed():
    """Its offset plus 1 is its offset."""
    assert Polyhedron(torch.tensor([[1.0], [-1]]), torch.tensor([1e17, -1])).irredundant().faces == 2


@pytest.mark.parametrize("lid", [1e-2, 1e-3, 1e-4])
def test_the_lower_of_two_lids_of_a_thin_body_stays(lid):
    flat = box(1e3, 1e3, 1e-3)
    for rows in ([0, 1, 2], [2, 1, 0]):
        upper = Polyhedron(torch.eye(3)[2:], torch.tensor([1e-3 * (1 - lid)]))
        normals, offsets = torch.cat([flat.normals, upper.normals]), torch.cat([flat.offsets, upper.offsets])
        order = [*rows, 3, 4, 5, 6] if rows[0] == 0 else [6, *rows, 3, 4, 5]
        body = Polyhedron(normals[order], offsets[order]).irredundant()
        assert body.faces == 6
        assert body.bounding_box()[2].tolist() == pytest.approx([-1e-3, 1e-3 * (1 - lid)], rel=1e-6)


def test_the_outline_of_a_polygon_does_not_cross_itself():
    generator = torch.Generator().manual_seed(0)
    units = torch.tensor([1e8, 1e-8])
    angles = torch.arange(16) / 16 * 2 * pi + 0.1 * torch.rand(16, generator=generator)
    normals = torch.stack([angles.cos(), angles.sin()], 1)
    body = Polyhedron(normals / units, 1 + normals @ torch.tensor([3.0, -7.0]))
    outline = body.polygon([(-100 * size, 100 * size) for size in units.tolist()]) / units
    x, y = outline.T
    area = 0.5 * float((x * y.roll(-1) - y * x.roll(-1)).sum())
    assert len(outline) == 16
    assert area == pytest.approx(exact_volume(corners(body)), rel=1e-6)


def in_units(rows, offsets, units) -> Polyhedron:
    return Polyhedron(torch.tensor(rows) / torch.tensor(units), torch.tensor(offsets))


UNBOUNDED = {
    "a strip with a slanted end": ([[-1.0, 0], [1, 0], [-1, -1]], [1.0, 1, 0]),
    "a strip with two ends": ([[-1.0, 0], [1, 0], [-1, -1], [0, -1]], [1.0, 1, 0, -0.5]),
    "a cone that no face bounds along the first axis": ([[0.0, -1], [-1, -1]], [0.0, 1]),
    "a cone with a corner": ([[-1.0, 0], [-1, -1]], [1.0, 0]),
    "a strip cut twice": ([[-3.0, 2], [1, 0], [0, 1], [-3, 0], [2, 0]], [-1.0, 2, 4, 5, -1]),
}


@pytest.mark.parametrize("power", [13, 15, 17, 18, 20, 22])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded_bodies_in_any_units(name, sign, power):
    """Powers of two scale without rounding, so that all answers are those in units of 1."""
    rows, offsets = UNBOUNDED[name]
    units = [2.0 ** (sign * power), 2.0 ** (-sign * power)]
    body, scaled = in_units(rows, offsets, [1.0, 1.0]), in_units(rows, offsets, units)
    box, found = body.bounding_box(), scaled.bounding_box()
    assert box is not None
    assert found is not None
    torch.testing.assert_close(found / torch.tensor(units)[:, None], box, rtol=1e-7, atol=1e-7)
    kept = scaled.irredundant().normals * torch.tensor(units)
    assert torch.equal(kept, body.irredundant().normals)
    corners = scaled.vertices() / torch.tensor(units)
    expected = body.vertices()
    assert corners.shape == expected.shape
    for corner in corners:
        assert float((expected - corner).abs().amax(dim=1).min()) < 1e-6


def sheared_cube(seed: int) -> Polyhedron:
    """A cut cube whose linear programmes HiGHS's interior points do not end on."""
    generator, d = np.random.default_rng(seed), 5
    m = d + 1 + int(generator.integers(1, 6))
    rows = np.r_[np.eye(d), -np.eye(d), generator.normal(size=(m, d))]
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    offsets = np.r_[np.ones(2 * d), generator.uniform(0.3, 1.5, m)]
    generator.normal(size=(2, d, d)), generator.choice(5), generator.uniform(-6, 0, d)
    shear = np.eye(d) + np.triu(generator.normal(size=(d, d)) * 10.0 ** generator.uniform(0, 3), 1)
    return Polyhedron(torch.tensor(np.linalg.solve(shear.T, rows.T).T), torch.tensor(offsets))


@pytest.mark.timeout(60)
def test_every_linear_programme_ends():
    assert not sheared_cube(992370336).is_empty()


def test_a_thin_bounded_body_is_bounded():
    """The simplex method has numerical difficulties here, which does not mean that there is no bound."""
    generator, d = np.random.default_rng(25), 4
    rows = np.r_[np.eye(d), -np.eye(d), generator.normal(size=(6, d))]
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    offsets = np.r_[np.ones(2 * d), generator.uniform(0.3, 1.5, 6)]
    first, second = (np.linalg.qr(generator.normal(size=(d, d)))[0] for _ in range(2))
    flat = first @ np.diag([1, 1, 1, 1e-7]) @ second
    box = Polyhedron(torch.tensor(np.linalg.solve(flat.T, rows.T).T), torch.tensor(offsets)).bounding_box()
    assert box is not None
    assert bool(box.isfinite().all())


def test_a_ball_as_small_as_a_double_can_be():
    tiny = torch.full((4,), 1e-300, dtype=torch.float64)
    ball = Polyhedron(torch.cat([torch.eye(2), -torch.eye(2)]), tiny).chebyshev_ball()
    assert ball is not None
    assert ball.radius == pytest.approx(1e-300)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e12])
def test_corners_that_are_far_from_the_typical_face(far):
    """Two faces near the origin, and one that closes the wedge between them far away."""
    body = Polyhedron(torch.tensor([[1.0, 1], [-1, 0], [0, -1]]), torch.tensor([1.0, 1, far]))
    corners = body.vertices()
    assert len(corners) == 3
    expected = torch.tensor([[-1.0, 2], [-1, -far], [1 + far, -far]])
    for corner in expected:
        assert float(((corners - corner) / far).abs().amax(dim=1).min()) < 1e-7
    logarithm = log_volume_estimate(body, rounds=2, generator=torch.Generator().manual_seed(0))
    assert logarithm.value == pytest.approx(2 * log(far + 2) - log(2), abs=5 * logarithm.error)
