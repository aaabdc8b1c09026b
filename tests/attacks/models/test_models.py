"""Unusual but valid models: each quantity is right, by brute force in float64, or refused."""

from itertools import product

import pytest
import torch

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.paths import count_paths
from gatelab.regions import activation_region
from tests.attacks.fuzz.checks import equal
from tests.attacks.fuzz.reference import tangent_kernel
from tests.attacks.models import (  # noqa: F401
    brute_force,
    dense_models,
    everyday_models,
    gate_models,
    hand_written_models,
    image_models,
)
from tests.attacks.models.cases import CASES, Case
from tests.attacks.outcomes import RawError, SilentlyWrongError

pytestmark = pytest.mark.attack("models against brute force")


def check_gates(case: Case, model, x):
    plain = model if case.plain is None else case.plain(model)
    pattern, expected = gl.capture_gates(model, x), brute_force.open_gates(plain, x)
    found = [pattern[name] for name in pattern.layers if pattern.layer(name).kind != "max_pool"]
    if len(found) != len(expected):
        raise SilentlyWrongError(f"{len(found)} gates, but {len(expected)} activations on the way to the output")
    for gates, opened in zip(found, expected, strict=True):
        if not torch.equal(gates, opened):
            raise SilentlyWrongError(f"gates {gates.tolist()} instead of {opened.tolist()}")


def check_twin(case: Case, model, x):
    other = 0.2 - 1.5 * x.flip(0)
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x)
    equal(twin(other).detach(), model(other.clone()).detach(), "the twin")


def check_path_kernel(case: Case, model, x, normalise=True):
    ours = gl.neural_path_kernel(model, x, normalise=normalise)
    plain = model if case.plain is None else case.plain(model)
    equal(ours, brute_force.path_kernel(plain, x, normalise=normalise, extra=case.weights), "the path kernel")


def check_raw_path_kernel(case: Case, model, x):
    check_path_kernel(case, model, x, normalise=False)


def check_tangent_kernel(case: Case, model, x):
    equal(gl.neural_tangent_kernel(model, x), tangent_kernel(model, x), "the tangent kernel")


def check_paths(case: Case, model, x):
    """All contributions add up to the output, before a final softmax."""
    count = count_paths(model, x[0])
    plain = model if case.plain is None else case.plain(model)
    output = plain(x[:1].clone()).detach().flatten()
    sums = torch.zeros_like(output)
    if count:
        paths = gl.top_paths(model, x[0], count + 5)
        if len(paths) != count:
            raise SilentlyWrongError(f"{len(paths)} paths listed, {count} counted")
        for path in paths:
            sums[path.output] += path.contribution
    equal(sums, output, "the sum of contributions")


def check_region(case: Case, model, x):
    """Around x the network is the region's affine map, and points beyond its faces have other gates."""
    region = activation_region(model, x[:1])
    if not bool(region.polyhedron.contains(x[:1].flatten(1)).all()):
        raise SilentlyWrongError("x is not in its own region")
    points = x[:1] + 0.3 * torch.randn(40, *x.shape[1:], generator=torch.Generator().manual_seed(1))
    inside = region.polyhedron.contains(points.flatten(1))
    output = model(points.clone()).detach().flatten(1)
    equal(region.map(points[inside]), output[inside], "the map on x's region")


CHECKS = {
    "gates": check_gates,
    "twin": check_twin,
    "path kernel": check_path_kernel,
    "raw path kernel": check_raw_path_kernel,
    "tangent kernel": check_tangent_kernel,
    "paths": check_paths,
    "region": check_region,
}


BY_WEIGHTS = ("gates", "path kernel", "raw path kernel")
PAIRS = [(name, what) for name, what in product(CASES, CHECKS) if not (CASES[name].soft and what in BY_WEIGHTS)]


@pytest.mark.parametrize(("name", "what"), PAIRS)
def test_right_or_refused(name, what):
    case = CASES[name]
    model, x = case.made(), case.examples()
    try:
        CHECKS[what](case, model, x)
    except GatelabError as error:
        if what in case.documented:
            raise RawError(f"refused, though documented: {error}") from error
    except AssertionError:
        raise
    except Exception as error:
        raise RawError(f"{type(error).__name__}: {error}") from error
