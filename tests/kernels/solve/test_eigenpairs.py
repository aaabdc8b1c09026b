"""The largest eigenpairs from passes over blocks against a dense eigendecomposition."""

import pytest
import torch

from gatelab.errors import InputError, NotConvergedWarning
from gatelab.kernels import top_eigenpairs
from gatelab.kernels.solve.blocks import DenseKernel
from tests.kernels.solve.test_ridge import N, decaying, path_kernel

KERNELS = {"fast": lambda: decaying(2.5), "slow": lambda: decaying(0.5), "path": path_kernel}


@pytest.mark.parametrize(("k", "dtype"), [(1, torch.float64), (8, torch.float64), (8, torch.float32)])
@pytest.mark.parametrize("name", KERNELS)
def test_eigenpairs_are_those_of_the_dense_kernel(name, k, dtype, generator):
    entries = KERNELS[name]().to(dtype)
    pairs = top_eigenpairs(DenseKernel(entries, True, 64), k, tolerance=1e-9, generator=generator)
    values, vectors = torch.linalg.eigh(entries.double())
    values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]
    assert pairs.converged
    # An eigenvalue is as good as the square of its residual over the gap, and never worse than the residual.
    torch.testing.assert_close(pairs.values, values, rtol=0, atol=1e-9 * values[0].item())
    # These kernels have no multiple eigenvalues: vectors agree up to sign, to residual / gap.
    overlaps = (pairs.vectors * vectors).sum(dim=0).abs()
    torch.testing.assert_close(overlaps, torch.ones(k), rtol=0, atol=1e-8)
    torch.testing.assert_close(pairs.vectors.T @ pairs.vectors, torch.eye(k), rtol=0, atol=1e-11)
    left = torch.linalg.vector_norm(entries.double() @ pairs.vectors - pairs.vectors * pairs.values, dim=0)
    torch.testing.assert_close(pairs.residuals, left, rtol=1e-3, atol=1e-12 * values[0].item())


def test_each_iteration_is_one_pass_and_fewer_than_a_subspace_iteration(generator):
    passes = []

    class Watched(DenseKernel):
        def blocks(self, rows=None, columns=None):
            passes.append(1)
            return super().blocks(rows, columns)

    kernel = decaying(0.5)
    pairs = top_eigenpairs(Watched(kernel, True, 64), 5, oversampling=5, generator=generator)
    assert pairs.iterations == len(passes)
    basis = torch.linalg.qr(torch.randn(N, 10, generator=generator)).Q
    for _ in range(2 * pairs.iterations):
        basis = torch.linalg.qr(kernel @ basis).Q
    values, weights = torch.linalg.eigh(basis.T @ kernel @ basis)
    vectors = basis @ weights[:, -5:]
    worst = torch.linalg.vector_norm(kernel @ vectors - vectors * values[-5:], dim=0).max()
    assert worst > pairs.residuals.max(), "twice the passes of a subspace iteration are not enough"


def test_multiple_eigenvalues_and_few_examples(generator):
    values = torch.tensor([3.0, 3.0, 3.0, 1.0, 1.0, 0.0, 0.0])
    vectors = torch.linalg.qr(torch.randn(7, 7)).Q
    kernel = (vectors * values) @ vectors.T
    pairs = top_eigenpairs(DenseKernel((kernel + kernel.T) / 2, True, 3), 7, tolerance=1e-10, generator=generator)
    torch.testing.assert_close(pairs.values, values, rtol=0, atol=1e-12)
    for k in (1, 2, 4):
        pairs = top_eigenpairs(DenseKernel(kernel, True, 3), k, oversampling=0, tolerance=1e-10, generator=generator)
        torch.testing.assert_close(pairs.values, values[:k], rtol=0, atol=1e-9)


def test_identity_and_rank_one(generator):
    torch.testing.assert_close(
        top_eigenpairs(DenseKernel(torch.eye(50), True), 3, generator=generator).values, torch.ones(3)
    )
    ones = top_eigenpairs(DenseKernel(torch.ones(50, 50), True), 3, generator=generator)
    torch.testing.assert_close(ones.values, torch.tensor([50.0, 0.0, 0.0]), rtol=0, atol=1e-10)


def test_unconverged_is_never_silent(generator):
    with pytest.warns(NotConvergedWarning, match="after 2 passes an eigenpair has the residual"):
        pairs = top_eigenpairs(DenseKernel(decaying(0.5), True), 5, max_iterations=2, generator=generator)
    assert not pairs.converged
    assert pairs.iterations == 2


@pytest.mark.parametrize("k", [1, 7])
def test_more_passes_are_not_advised_where_none_can_help(k, generator):
    entries = decaying(1.0, 7)
    with pytest.warns(NotConvergedWarning, match=r"rounding.*larger tolerance") as caught:
        pairs = top_eigenpairs(DenseKernel(entries, True), k, tolerance=1e-30, generator=generator)
    assert pairs.iterations < 50
    assert "max_iterations" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("kernel", "k", "settings", "message"),
    [
        (DenseKernel(torch.eye(3), True), 4, {}, "k is 4; a kernel of n = 3"),
        (DenseKernel(torch.eye(3), True), 0, {}, "k is 0"),
        (DenseKernel(torch.ones(3, 2), False), 1, {}, "3 × 2; a spectrum needs"),
        (DenseKernel(torch.eye(3), True), 1, {"oversampling": -1}, "oversampling is -1"),
        (DenseKernel(torch.full((3, 3), float("nan")), True), 1, {}, "is nan at row 0, column 0"),
    ],
)
def test_what_has_no_spectrum_is_refused(kernel, k, settings, message):
    with pytest.raises(InputError, match=message):
        top_eigenpairs(kernel, k, **settings)
