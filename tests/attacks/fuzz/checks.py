"""What is compared with the reference for each random network; a refusal is not a difference."""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.paths import count_paths
from gatelab.regions import Plane, activation_region, linear_regions_2d
from tests.attacks.fuzz import reference
from tests.attacks.fuzz.generator import random_program
from tests.attacks.fuzz.programs import Program
from tests.attacks.outcomes import RawError, SilentlyWrongError

# Paths that are listed to be added up.
MOST_PATHS = 5000
# One network in four: an estimate takes twenty calls, as much time as everything else together.
FEATURES_EVERY = 4


def equal(ours: Tensor, theirs: Tensor, what: str) -> None:
    """Compare two float64 answers; 1e-9 leaves room for another order of additions."""
    if ours.shape != theirs.shape or not torch.allclose(ours.double(), theirs.double(), rtol=1e-9, atol=1e-10):
        raise SilentlyWrongError(f"{what}: {ours.tolist()} instead of {theirs.tolist()}")


def check_output(program: Program, model: nn.Module, x: Tensor) -> None:
    """The reference itself: its steps compute what the module computes."""
    equal(model(x.clone()).detach(), reference.forward(program, model, x).values["y"], "the reference")


def check_gates(program: Program, model: nn.Module, x: Tensor) -> None:
    """Gates in order of execution, and nothing but gates on the way to the output."""
    pattern, expected = gl.capture_gates(model, x), reference.open_gates(program, model, x)
    if len(pattern.layers) != len(expected):
        raise SilentlyWrongError(f"layers {pattern.layers}, but there are {len(expected)} gates")
    for name, gates in zip(pattern.layers, expected, strict=True):
        if gates is not None and not torch.equal(pattern.hard()[name], gates):
            raise SilentlyWrongError(f"gates of '{name}' differ")


def check_twin(_: Program, model: nn.Module, x: Tensor) -> None:
    """A twin with the model's own weights computes the model, also on other inputs than those it was made with."""
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x)
    other = -1.5 * x.flip(0) + 0.1
    equal(twin(other).detach(), model(other.clone()).detach(), "the twin")


def check_path_kernel(program: Program, model: nn.Module, x: Tensor, *, normalise: bool, biases: bool = False) -> None:
    """E_v[ŷŷ'] with the gates held fixed."""
    if program.shares_weights():
        return  # the reference takes the weights of different steps as independent
    expected = reference.path_kernel(program, model, x, normalise=normalise, biases=biases)
    ours = gl.neural_path_kernel(model, x, normalise=normalise, biases=biases)
    equal(ours, expected, f"the path kernel, normalise={normalise}, biases={biases}")
    equal(
        gl.neural_path_kernel(model, x[:2], x[1:], normalise=normalise, biases=biases), expected[:2, 1:], "x against y"
    )


def check_tangent_kernel(_: Program, model: nn.Module, x: Tensor) -> None:
    """The Gram matrix of plain gradients."""
    equal(gl.neural_tangent_kernel(model, x), reference.tangent_kernel(model, x), "the tangent kernel")


def check_path_features(program: Program, model: nn.Module, x: Tensor) -> None:
    """Inner products of random features have H as their mean: eight standard errors of 20 runs."""
    if program.shares_weights() or program.seed % FEATURES_EVERY:
        return
    expected = reference.path_kernel(program, model, x, normalise=True)
    generator = torch.Generator().manual_seed(program.seed)
    runs = torch.stack(
        [features @ features.T for features in (gl.path_features(model, x, 24, generator) for _ in range(20))]
    )
    error = runs.std(0) / len(runs) ** 0.5
    if bool(((runs.mean(0) - expected).abs() > 8 * error + 1e-9).any()):
        raise SilentlyWrongError(f"path features: mean {runs.mean(0).tolist()} instead of {expected.tolist()}")


def check_paths(program: Program, model: nn.Module, x: Tensor) -> None:
    """The number of paths; all contributions add up to the output; the largest few are the first of all."""
    example = x[:1]
    count = count_paths(model, example)
    expected = reference.count_of_paths(program, model, example)
    if count != expected:
        raise SilentlyWrongError(f"{count} paths instead of {expected}")
    if not 0 < count <= MOST_PATHS:
        return
    paths = gl.top_paths(model, example, count)
    if len(paths) != count:
        raise SilentlyWrongError(f"{len(paths)} paths listed, {count} counted")
    output = model(example.clone()).detach().flatten()
    sums = torch.zeros_like(output)
    for path in paths:
        sums[path.output] += path.contribution
    equal(sums, output, "the sum of contributions")
    few = [path.contribution for path in gl.top_paths(model, example, 4)]
    equal(torch.tensor(few).abs(), torch.tensor([path.contribution for path in paths[:4]]).abs(), "the largest paths")


def check_regions(program: Program, model: nn.Module, x: Tensor) -> None:
    """The map of a partition is the network; x's region holds the points with x's gates.

    A gate with two bounds is closed below the one and above the other; its bit does not tell which.
    """
    plane = Plane.through(*x[:3])
    partition = linear_regions_2d(model, plane, ((-0.7, 1.3), (-0.8, 1.2)))
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(50, 2, generator=generator) * 2 - torch.tensor([0.7, 0.8])
    points = plane.at(places)
    equal(partition.evaluate(places), model(points.clone()).detach().flatten(1), "the map on a region")
    region = activation_region(model, x[:1])
    inside = region.polyhedron.contains(points.flatten(1))
    patterns, own = gl.capture_gates(model, points), gl.capture_gates(model, x[:1])
    same = torch.stack([(patterns[name] == own[name]).flatten(1).all(1) for name in own.layers]).all(0)
    if bool((inside & ~same).any()) or (bool((same & ~inside).any()) and "two bounds" not in program.oddities()):
        raise SilentlyWrongError("x's region does not hold exactly the points with x's gates")
    own_points = torch.cat([x[:1], points[inside]])
    equal(region.map(own_points.flatten(1)), model(own_points.clone()).detach().flatten(1), "the map on x's region")


CHECKS: dict[str, Callable[[Program, nn.Module, Tensor], None]] = {
    "output": check_output,
    "gates": check_gates,
    "twin": check_twin,
    "path kernel": lambda *case: check_path_kernel(*case, normalise=True),
    "raw path kernel": lambda *case: check_path_kernel(*case, normalise=False),
    "path kernel with biases": lambda *case: check_path_kernel(*case, normalise=True, biases=True),
    "tangent kernel": check_tangent_kernel,
    "path features": check_path_features,
    "paths": check_paths,
    "regions": check_regions,
}


# What may be refused: the documentation of each function names what it takes.
MAY_REFUSE: dict[str, set[str]] = {
    "output": set(),
    "gates": {"prelu", "uneven max-pooling"},
    "twin": {"prelu", "uneven max-pooling", "shared weight"},
    "path kernel": {"prelu", "uneven max-pooling", "matmul"},
    "raw path kernel": {"prelu", "uneven max-pooling", "matmul"},
    "path kernel with biases": {"prelu", "uneven max-pooling", "matmul", "two bounds", "constant sum"},
    "tangent kernel": set(),
    "path features": {"prelu", "uneven max-pooling", "shared weight", "loose parameter"},
    "paths": {"prelu", "uneven max-pooling", "matmul", "stack"},
    "regions": {"prelu", "max-pooling", "two bounds", "smooth"},
}


def refusals(seed: int) -> Counter[tuple[str, str]]:
    """Check everything on the network of one seed; count what was refused, by quantity and likely reason."""
    program = random_program(seed)
    model, x = program.build(), program.examples()
    found: Counter[tuple[str, str]] = Counter()
    for what, check in CHECKS.items():
        case = f"seed {seed}, {what}"
        try:
            check(program, model, x)
        except GatelabError as error:
            reasons = program.oddities() & MAY_REFUSE[what]
            if not reasons:
                raise RawError(f"{case}: refused, though documented: {error}\n{program.source()}") from error
            found[what, " or ".join(sorted(reasons))] += 1
        except SilentlyWrongError as error:
            raise SilentlyWrongError(f"{case}: {error}\n{program.source()}") from error
        except Exception as error:
            raise RawError(f"{case}: {type(error).__name__}: {error}\n{program.source()}") from error
    return found
