"""Volumes from random walks against exact ones: thin, sheared and small bodies, in 1 to 20 dimensions."""

from math import lgamma, log, sqrt

import pytest
import torch
from scipy.spatial import ConvexHull
from torch import nn

from gatelab.regions import Polyhedron, region_walk
from gatelab.regions.volume import log_volume_estimate


def box(*sides: float) -> tuple[Polyhedron, float]:
    """A box around 0, and the logarithm of its volume."""
    half, eye = torch.tensor(sides) / 2, torch.eye(len(sides))
    return Polyhedron(torch.cat([eye, -eye]), torch.cat([half, half])), sum(map(log, sides))


def simplex(dimension: int) -> tuple[Polyhedron, float]:
    faces = torch.cat([-torch.eye(dimension), torch.ones(1, dimension)])
    return Polyhedron(faces, torch.cat([torch.zeros(dimension), torch.ones(1)])), -lgamma(dimension + 1)


def sheared(body: tuple[Polyhedron, float], seed: int = 0) -> tuple[Polyhedron, float]:
    """The image of a body under a random affine map."""
    polyhedron, size = body
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(polyhedron.dimension, polyhedron.dimension, generator=generator)
    normals = polyhedron.normals @ matrix.inverse()
    shift = normals @ torch.randn(polyhedron.dimension, generator=generator)
    return Polyhedron(normals, polyhedron.offsets + shift), size + matrix.slogdet().logabsdet.item()


def halved(body: tuple[Polyhedron, float]) -> tuple[Polyhedron, float]:
    """The half of a body with a centre at 0."""
    polyhedron, size = body
    normal = torch.randn(1, polyhedron.dimension, generator=torch.Generator().manual_seed(0)) / polyhedron.offsets.min()
    return Polyhedron(
        torch.cat([polyhedron.normals, normal]), torch.cat([polyhedron.offsets, torch.zeros(1)])
    ), size - log(2)


def z_scores(body: tuple[Polyhedron, float], seeds: int) -> torch.Tensor:
    polyhedron, truth = body
    found = [log_volume_estimate(polyhedron, generator=torch.Generator().manual_seed(seed)) for seed in range(seeds)]
    assert all(0 < estimate.error < 0.06 * polyhedron.dimension for estimate in found)
    return torch.tensor([(estimate.value - truth) / estimate.error for estimate in found])


BODIES = {
    "thin box, 1e-3": lambda: box(1e-3, 2, 2, 2, 2),
    "thin box, 1e-6": lambda: box(1e-6, 2, 2, 2, 2),
    "a rod": lambda: box(1e-6, 1e-6, 1e-6, 2),
    "many thicknesses": lambda: box(1e-6, 1e-4, 1e-2, 1, 1e2),
    "half of a thin box": lambda: halved(box(1e-5, 2, 2, 1e-3)),
    "sheared thin box": lambda: sheared(box(1e-6, 1e-4, 1e-2, 2, 2)),
    "sheared thin rectangle": lambda: sheared(box(1e-6, 2)),
    "simplex": lambda: simplex(4),
    "thin simplex": lambda: sheared(simplex(4), seed=1),
    "segment": lambda: box(1e-4),
}


@pytest.mark.parametrize("name", BODIES)
def test_volumes_of_thin_bodies_have_honest_errors(name):
    z = z_scores(BODIES[name](), 12)
    # 12 standard normal numbers: their mean is 0 ± 0.29, their mean square 1 ± 0.41. For a segment all ratios are exact
    # but the last.
    assert abs(z.mean()) < 1.1
    assert 0.2 < z.square().mean() < 2.6
    assert z.abs().max() < 4


LARGER_BODIES = {
    "half of a cube": lambda d: halved(box(*[2.0] * d)),
    "thin box": lambda d: sheared(box(*[1e-6] * (d // 3), *[1e-3] * (d // 3), *[2.0] * (d - d // 3 * 2))),
    "simplex": simplex,
}


@pytest.mark.parametrize("name", LARGER_BODIES)
def test_volumes_in_more_dimensions(name):
    z = z_scores(LARGER_BODIES[name](8), 3)
    assert abs(z.mean()) < 3.5 / sqrt(3)
    assert z.abs().max() < 3.5


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER_BODIES)
def test_volumes_in_twenty_dimensions(name):
    z = z_scores(LARGER_BODIES[name](20), 6)
    assert abs(z.mean()) < 3.5 / sqrt(6)
    assert z.abs().max() < 3.5


@pytest.mark.parametrize("dimension", [3, 4, 5])
@pytest.mark.parametrize("thickness", [1.0, 1e-5])
def test_volumes_of_random_polyhedra_are_those_of_qhull(dimension, thickness):
    """Faces tangent to a ball, then one axis shrunk: Qhull measures the body before that, where it is accurate."""
    generator = torch.Generator().manual_seed(dimension)
    normals = nn.functional.normalize(torch.randn(6 * dimension, dimension, generator=generator), dim=1)
    round_one = Polyhedron(normals, torch.ones(len(normals))).within(((-3, 3),) * dimension)
    truth = log(ConvexHull(round_one.vertices().numpy()).volume) + log(thickness)
    stretch = torch.ones(dimension)
    stretch[0] = 1 / thickness
    z = z_scores((Polyhedron(round_one.normals * stretch, round_one.offsets), truth), 6)
    assert abs(z.mean()) < 3.5 / sqrt(6)
    assert z.abs().max() < 3.5


def test_the_estimate_follows_an_affine_map():
    """A power of two is exact, and so is a box in the coordinates of its Dikin ellipsoid."""
    thick, thin = (
        log_volume_estimate(box(side, 2, 2)[0], generator=torch.Generator().manual_seed(0)) for side in (2, 2.0**-20)
    )
    assert thin.value == pytest.approx(thick.value - 21 * log(2), abs=1e-6)
    assert thin.error == pytest.approx(thick.error, rel=1e-6)


def test_the_slab_between_two_parallel_gates():
    net = nn.Sequential(nn.Linear(5, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(5)[:1].expand(2, 5))
        net[0].bias.copy_(torch.tensor([0, 1e-5]))
    walk = region_walk(net, torch.full((5,), 0.3), 2, ((-1, 1),) * 5, generator=torch.Generator().manual_seed(0))
    estimates = walk.log_volumes(generator=torch.Generator().manual_seed(0))
    slab = estimates[walk.visits.tolist()[1]]  # behind the first gate of the right half
    assert abs(slab.value - log(16e-5)) < 4 * slab.error < 0.4
