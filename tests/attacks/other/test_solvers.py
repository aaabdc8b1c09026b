"""Solvers, spectra, regions and experts: singular kernels, columns of labels, empty sets; right, or refused."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels import (
    condition_number,
    kernel_ridge,
    label_alignment,
    label_complexity,
    refit_values,
    spectrum,
    top_eigenpairs,
)
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.paths import PathIndex, mixture_of_experts
from gatelab.regions import Plane, Polyhedron, activation_region, linear_regions_2d, region_counts
from tests import image_zoo
from tests.attacks.fuzz.checks import equal
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("other functions")

nan = float("nan")


def low_rank(n: int = 6, rank: int = 2) -> torch.Tensor:
    features = torch.randn(n, rank, generator=torch.Generator().manual_seed(0))
    return features @ features.T


def labels(n: int = 6) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(1))


def dlgn() -> nn.Module:
    torch.manual_seed(0)
    return DeepLinearlyGatedNetwork([2, 3, 1])


def relu_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e6])
def test_ridge_of_a_singular_kernel(ridge):
    kernel, y = low_rank(), labels()
    fit = kernel_ridge(kernel, y, ridge)
    shift = ridge * kernel.trace() / 6  # relative to the mean diagonal
    expected = torch.linalg.solve(kernel + shift * torch.eye(6), y)
    equal(fit.dual.reshape(-1), expected, "the coefficients")


def test_ridge_of_a_column_is_that_of_a_vector():
    kernel, y = low_rank(), labels()
    one, other = kernel_ridge(kernel, y, 0.1).dual, kernel_ridge(kernel, y[:, None], 0.1).dual
    equal(one.reshape(-1), other.reshape(-1), "the coefficients")


def test_ridge_of_zero_on_a_singular_kernel():
    """No finite coefficients fit labels outside the kernel's range."""
    refusal(lambda: kernel_ridge(low_rank(), labels(), 0.0))


def test_ridge_of_zero_labels():
    equal(kernel_ridge(low_rank(), torch.zeros(6), 0.1).dual.reshape(-1), torch.zeros(6), "the coefficients")


def test_ridge_of_a_kernel_of_zeros():
    """A ridge relative to a mean diagonal of zero is none."""
    refusal(lambda: kernel_ridge(torch.zeros(4, 4), labels(4), 0.5))


def test_ridge_of_one_example():
    equal(kernel_ridge(torch.ones(1, 1), torch.ones(1), 1.0).dual.reshape(-1), torch.tensor([0.5]), "it")


def test_complexity_of_a_column_is_that_of_a_vector():
    kernel = low_rank() + torch.eye(6)
    assert label_complexity(kernel, labels()) == pytest.approx(label_complexity(kernel, labels()[:, None]))
    assert label_alignment(kernel, labels()) == pytest.approx(label_alignment(kernel, labels()[:, None]))


def test_complexity_against_a_solve():
    kernel, y = low_rank() + torch.eye(6), labels()
    assert label_complexity(kernel, y) == pytest.approx(float(y @ torch.linalg.solve(kernel / kernel.trace(), y)))


def test_complexity_outside_the_range_is_infinite():
    assert label_complexity(low_rank(), labels()) == float("inf")


def test_alignment_of_perfect_labels():
    y = labels()
    assert label_alignment(torch.outer(y, y), y) == pytest.approx(1.0)


def test_condition_of_a_singular_kernel_is_infinite():
    assert condition_number(low_rank()) == float("inf")


def test_spectrum_of_rounded_symmetry():
    """A kernel that is symmetric up to rounding is symmetric."""
    kernel = low_rank()
    kernel[0, 1] += 1e-14
    equal(spectrum(kernel), torch.linalg.eigvalsh(low_rank()), "the spectrum")


def test_spectrum_of_one_number():
    equal(spectrum(torch.tensor([[3.0]])), torch.tensor([3.0]), "the spectrum")


@pytest.mark.parametrize("k", [1, 2, 6])
def test_eigenpairs_of_a_singular_kernel(k):
    kernel = low_rank()
    pairs = top_eigenpairs(kernel, k)
    equal(pairs.values, torch.linalg.eigvalsh(kernel).flip(0)[:k], "the eigenvalues")


def test_eigenpairs_of_equal_values():
    equal(top_eigenpairs(torch.eye(5), 3).values, torch.ones(3), "the eigenvalues")


def test_eigenpairs_of_zeros():
    equal(top_eigenpairs(torch.zeros(5, 5), 2).values, torch.zeros(2), "the eigenvalues")


REFUSED = {
    "refit, labels too short": lambda: refit_values(dlgn(), torch.randn(5, 2), torch.ones(4)),
    "refit, NaN labels": lambda: refit_values(dlgn(), torch.randn(5, 2), torch.full((5,), nan)),
    "refit, ridge -1": lambda: refit_values(dlgn(), torch.randn(5, 2), torch.ones(5), ridge=-1.0),
    "refit, ridge 'a'": lambda: refit_values(dlgn(), torch.randn(5, 2), torch.ones(5), ridge="a"),
    "refit, x of other features": lambda: refit_values(dlgn(), torch.randn(5, 3), torch.ones(5)),
    "half-spaces of a ReLU network": lambda: gl.half_spaces(relu_net()),
    "half-spaces of a linear model": lambda: gl.half_spaces(nn.Linear(2, 1)),
    "half-spaces of another shape": lambda: gl.half_spaces(dlgn(), (5,)),
    "active region of a unit that does not exist": lambda: gl.active_region(dlgn(), (7,)),
    "active region of a negative unit": lambda: gl.active_region(dlgn(), (-1,)),
    "active region of too many units": lambda: gl.active_region(dlgn(), (0, 0, 0)),
    "active region of no units": lambda: gl.active_region(dlgn(), ()),
    "active region of a fraction": lambda: gl.active_region(dlgn(), (0.5,)),
    "active region of an unknown layer": lambda: gl.active_region(dlgn(), {"nope": 0}),
    "activation region of two examples": lambda: activation_region(relu_net(), torch.randn(2, 2)),
    "activation region of other features": lambda: activation_region(relu_net(), torch.randn(5)),
    "activation region of NaN": lambda: activation_region(relu_net(), torch.tensor([nan, 0.0])),
    "region counts of a ReLU network": lambda: region_counts(relu_net()),
    "polyhedron, offsets of another number": lambda: Polyhedron(torch.eye(2), torch.ones(3)),
    "polyhedron with NaN": lambda: Polyhedron(torch.eye(2) * nan, torch.ones(2)),
    "polyhedron, points of other features": lambda: Polyhedron(torch.eye(2), torch.ones(2)).contains(torch.ones(1, 3)),
    "plane of parallel directions": lambda: linear_regions_2d(
        relu_net(), Plane(torch.zeros(2), torch.ones(2), torch.ones(2))
    ),
    "plane through equal points": lambda: Plane.through(torch.ones(2), torch.ones(2), torch.ones(2)),
    "plane of other features": lambda: linear_regions_2d(
        relu_net(), Plane(torch.zeros(3), torch.eye(3)[0], torch.eye(3)[1])
    ),
    "experts of a skip": lambda: mixture_of_experts(image_zoo.made(image_zoo.Residual), image_zoo.Residual.images()),
    "experts of a tensor": lambda: mixture_of_experts(torch.ones(2)),
    "path index of no widths": lambda: PathIndex((), ()),
    "path index, a number out of range": lambda: PathIndex((2, 3, 1), (False,) * 3).locate(99),
    "open_kernel of nothing": lambda: gl.open_kernel("no/such/kernel.zarr"),
    "compute of a tensor": lambda: gl.kernels.compute(torch.ones(2, 2), torch.ones(2, 2)),
    "compute, tile 0": lambda: gl.kernels.compute(gl.kernels.PathKernel(relu_net()), torch.randn(3, 2), tile=0),
    "compute, memory 'much'": lambda: gl.kernels.compute(
        gl.kernels.PathKernel(relu_net()), torch.randn(3, 2), memory="much"
    ),
    "path values of a convolution": lambda: gl.neural_path_values(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())),
    "value tangent kernel of a tensor": lambda: gl.value_tangent_kernel(torch.ones(2)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    refusal(REFUSED[what])


def test_refit_of_a_column_is_that_of_a_vector():
    x, y = torch.randn(5, 2), torch.randn(5)
    one, other = refit_values(dlgn(), x, y), refit_values(dlgn(), x, y[:, None])
    equal(one.predict(x).reshape(-1), other.predict(x).reshape(-1), "the fit")


def test_refit_against_a_solve():
    """Ridge regression with the normalised path kernel."""
    model, x, y = dlgn(), torch.randn(5, 2), torch.randn(5)
    kernel = gl.neural_path_kernel(model, x)
    expected = kernel @ torch.linalg.solve(kernel + 0.1 * torch.eye(5), y)
    equal(refit_values(model, x, y, ridge=0.1).predict(x).reshape(-1), expected, "the fit")


def test_gates_of_half_spaces():
    """A gate is open exactly on its half-space."""
    model, x = dlgn(), torch.randn(200, 2)
    pattern = gl.capture_gates(model, x).hard()
    for (name, layer), ours in zip(gl.half_spaces(model).items(), pattern.layers, strict=True):
        normals, offsets = layer.faces(range(3))
        if not torch.equal(x @ normals.T + offsets > 0, pattern[ours]):
            raise SilentlyWrongError(f"half-spaces of '{name}' are not the gates of '{ours}'")


def test_experts_add_up():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(4, 2)
    features, values = gl.neural_path_features(model, x), gl.neural_path_values(model)
    equal(features @ values, model(x).detach(), "⟨φ, v⟩")
