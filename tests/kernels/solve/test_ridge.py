"""Ridge regression in blocks against one dense Cholesky, on kernels with fast and slow decay."""

from functools import cache

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.svm import SVC
from torch.nn.functional import one_hot

from gatelab.data import load
from gatelab.errors import InputError, NotConvergedWarning
from gatelab.kernels import kernel_ridge, kernel_ridges, neural_path_kernel
from gatelab.kernels.solve.blocks import DenseKernel, kernel_part
from gatelab.kernels.solve.nystroem import nystroem_factor
from gatelab.models import mlp
from tests.references.ridge import dense_ridge

N = 131  # no multiple of the blocks' size


@cache
def decaying(rate, n=N, dtype=torch.float64):
    """A kernel with eigenvalues i^-rate, a mean diagonal of 7, and vectors that no coordinate is special to."""
    vectors = torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(1))).Q
    values = torch.arange(1, n + 1, dtype=torch.float64) ** -rate
    kernel = (vectors * values) @ vectors.T
    kernel = 7 * kernel / kernel.diagonal().mean()
    return ((kernel + kernel.T) / 2).to(dtype)


@cache
def path_kernel(n=N, dtype=torch.float64):
    digits, generator = load("digits"), torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), *mlp([64, 16, 16, 10], generator=generator)).to(dtype)
    return neural_path_kernel(net, digits.inputs(digits.train_x[:n], dtype))


KERNELS = {
    "fast": lambda dtype: decaying(2.5, dtype=dtype),
    "slow": lambda dtype: decaying(0.5, dtype=dtype),
    "path": lambda dtype: path_kernel(dtype=dtype),
}


@pytest.mark.parametrize(
    ("rank", "columns", "dtype"), [(0, 10, torch.float64), (20, 1, torch.float32), (100, 10, torch.float32)]
)
@pytest.mark.parametrize("name", KERNELS)
def test_the_solution_is_that_of_cholesky(name, rank, columns, dtype, generator):
    entries = KERNELS[name](dtype)
    targets = torch.randn(N, columns)
    fit = kernel_ridge(
        DenseKernel(entries, True, 64), targets, 1e-2, preconditioner_rank=rank, tolerance=1e-10, generator=generator
    )
    assert fit.converged
    # The error of α is at most the residual times the condition number, here ‖K‖ / (0.01 mean diagonal) < 1e5.
    torch.testing.assert_close(fit.dual, dense_ridge(entries, targets, 1e-2), rtol=0, atol=1e-5 * fit.dual.abs().max())
    shifted = entries.double() + 1e-2 * entries.double().diagonal().mean() * torch.eye(N)
    true = torch.linalg.vector_norm(targets - shifted @ fit.dual, dim=0) / torch.linalg.vector_norm(targets, dim=0)
    # Rounding in (K + shift) α, relative to Y: 1e-16 times the condition number.
    torch.testing.assert_close(fit.residuals, true, rtol=1e-3, atol=1e-12)
    assert fit.shift == pytest.approx(1e-2 * entries.double().diagonal().mean().item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_kernel_in_memory_is_solved_directly(dtype):
    entries, targets = path_kernel(dtype=dtype), torch.cat([torch.randn(N, 2), torch.zeros(N, 1)], dim=1)
    fits = kernel_ridges(entries, targets, [1e-3, 1.0])
    assert fits[0].iterations == 0
    for fit, ridge in zip(fits, (1e-3, 1.0), strict=True):
        torch.testing.assert_close(fit.dual, dense_ridge(entries, targets, ridge), rtol=1e-9, atol=1e-9)
        assert fit.residuals.max() < 1e-11
        torch.testing.assert_close(fit.predict(entries[:5]), entries[:5].double() @ fit.dual)
        assert torch.equal(fit.classes(entries), (entries.double() @ fit.dual).argmax(dim=1))


def test_the_ridge_is_relative_to_the_mean_diagonal(generator):
    entries, targets = decaying(1.0), torch.randn(N, 2)
    fit = kernel_ridge(DenseKernel(entries, True), targets, 0.1, tolerance=1e-10, generator=generator)
    larger = kernel_ridge(DenseKernel(100 * entries, True), targets, 0.1, tolerance=1e-10, generator=generator)
    torch.testing.assert_close(fit.dual, 100 * larger.dual, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "gain"), [("fast", 4), ("path", 2)])
def test_the_preconditioner_saves_passes(name, gain, generator):
    kernel, targets = DenseKernel(KERNELS[name](torch.float64), True, 64), torch.randn(N, 1)
    plain = kernel_ridge(kernel, targets, 1e-3, preconditioner_rank=0, max_iterations=2000)
    helped = kernel_ridge(kernel, targets, 1e-3, preconditioner_rank=100, generator=generator)
    assert gain * helped.iterations <= plain.iterations


@pytest.mark.parametrize("name", KERNELS)
def test_the_condition_number_is_within_its_bound(name, generator):
    entries, shift = KERNELS[name](torch.float64), 0.05
    factor = nystroem_factor(DenseKernel(entries, True, 64), 60, generator=generator)
    approximation = factor.factor @ factor.factor.T
    left_out = torch.linalg.eigvalsh(entries - approximation)
    assert left_out[0] > -1e-10, "an approximation from rows is below the kernel"
    assert factor.remainder == pytest.approx(left_out.mean().item(), abs=1e-10)
    system = (entries + shift * torch.eye(N)).numpy()
    conditioner = (approximation + (shift + factor.remainder) * torch.eye(N)).numpy()
    values = scipy.linalg.eigh(system, conditioner, eigvals_only=True)
    assert values[-1] / values[0] <= 1 + left_out[-1].item() / shift + 1e-8
    assert values[-1] / values[0] < np.linalg.cond(system)
    vectors = torch.randn(N, 3)
    applied = factor.inverse(shift + factor.remainder)(vectors)
    torch.testing.assert_close(applied, torch.from_numpy(np.linalg.solve(conditioner, vectors.numpy())))


def test_all_rows_give_the_kernel_back(generator):
    entries = decaying(1.0)
    factor = nystroem_factor(DenseKernel(entries, True), N, generator=generator)
    torch.testing.assert_close(factor.factor @ factor.factor.T, entries, rtol=0, atol=1e-10)
    assert sorted(factor.landmarks.tolist()) == list(range(N))


def test_landmarks_follow_the_diagonal(generator):
    scale = torch.cat([torch.full((100,), 1e-4), torch.ones(50), torch.zeros(50)])
    kernel = DenseKernel(decaying(1.0, 200) * scale * scale[:, None], True)
    landmarks = nystroem_factor(kernel, 40, generator=generator).landmarks
    assert ((landmarks >= 100) & (landmarks < 150)).all()
    assert len(nystroem_factor(kernel, 200, generator=generator).landmarks) == 150, "rows of zeros tell nothing"


def test_dependent_and_zero_targets_do_no_harm(generator):
    entries = path_kernel()
    labels = load("digits").train_y[:N]
    targets = torch.cat([one_hot(labels, 10).double() - 0.1, torch.zeros(N, 1)], dim=1)
    targets = torch.cat([targets, targets[:, :3]], dim=1)
    fit = kernel_ridge(DenseKernel(entries, True, 64), targets, 1e-3, tolerance=1e-10, generator=generator)
    assert fit.converged
    torch.testing.assert_close(fit.dual, dense_ridge(entries, targets, 1e-3), rtol=0, atol=1e-6 * fit.dual.abs().max())
    assert (fit.dual[:, 10] == 0).all()
    independent = kernel_ridge(
        DenseKernel(entries, True, 64), targets[:, :9], 1e-3, tolerance=1e-10, generator=generator
    )
    assert fit.iterations <= independent.iterations + 3, "directions that vanish are left out, not searched along"
    nothing = kernel_ridge(DenseKernel(entries, True, 64), torch.zeros(N), 1e-3, generator=generator)
    assert nothing.converged
    assert (nothing.dual == 0).all()


def test_several_ridges_share_passes(generator):
    entries, targets, ridges = path_kernel(), torch.randn(N, 2), [1e-1, 1e-3, 1e-5]
    passes = []
    fits = kernel_ridges(
        DenseKernel(entries, True, 64),
        targets,
        ridges,
        tolerance=1e-9,
        watch=lambda step, residual: passes.append((step, residual)),
        generator=generator,
    )
    for ridge, fit in zip(ridges, fits, strict=True):
        assert fit.ridge == ridge
        exact = dense_ridge(entries, targets, ridge)
        torch.testing.assert_close(fit.dual, exact, rtol=0, atol=1e-4 * exact.abs().max())
    slowest = max(fit.iterations for fit in fits)
    assert slowest < len(passes) <= slowest + 3, "a pass for each step of the slowest, and for checks"
    assert passes[-1][1] <= 1e-9


def test_unconverged_is_never_silent(generator):
    kernel, targets = DenseKernel(decaying(2.5), True, 64), torch.randn(N, 3)
    with pytest.warns(NotConvergedWarning, match=r"ridge 1e-06: after 2 iterations target \d has the residual"):
        fit = kernel_ridge(kernel, targets, 1e-6, max_iterations=2, preconditioner_rank=5, generator=generator)
    assert not fit.converged
    assert fit.iterations == 2
    shifted = kernel.entries + fit.shift * torch.eye(N)
    true = torch.linalg.vector_norm(targets - shifted @ fit.dual, dim=0) / torch.linalg.vector_norm(targets, dim=0)
    torch.testing.assert_close(fit.residuals, true, rtol=1e-6, atol=0)


def test_a_solve_goes_on_from_where_it_stopped(generator):
    kernel, targets = DenseKernel(path_kernel(), True, 64), torch.randn(N, 3)
    with pytest.warns(NotConvergedWarning):
        first = kernel_ridge(kernel, targets, 1e-3, max_iterations=5, generator=generator)
    second = kernel_ridge(kernel, targets, 1e-3, start=first.dual, generator=generator)
    again = kernel_ridge(kernel, targets, 1e-3, start=second.dual, generator=generator)
    anew = kernel_ridge(kernel, targets, 1e-3, generator=generator)
    assert second.converged
    assert second.iterations < anew.iterations
    assert again.iterations == 0
    torch.testing.assert_close(second.dual, anew.dual, rtol=0, atol=1e-3 * anew.dual.abs().max())


def test_answers_and_classes_of_new_examples(generator):
    digits = load("digits")
    x, others = (digits.inputs(part, torch.float64)[:300] for part in (digits.train_x, digits.test_x))
    net = torch.nn.Sequential(torch.nn.Flatten(), *mlp([64, 32, 32, 10], generator=generator))
    entries, cross = neural_path_kernel(net, x), neural_path_kernel(net, others, x)
    targets = one_hot(digits.train_y[:300], 10).double() - 0.1
    fit = kernel_ridge(DenseKernel(entries, True, 64), targets, 1e-3, tolerance=1e-9, generator=generator)
    answers = fit.predict(DenseKernel(cross, False, 64))
    exact = cross @ dense_ridge(entries, targets, 1e-3)
    torch.testing.assert_close(answers, exact, rtol=0, atol=1e-6)
    classes = fit.classes(DenseKernel(cross, False, 64))
    assert torch.equal(classes, exact.argmax(dim=1))
    assert (classes == digits.test_y[:300]).double().mean() > 0.85


def test_rows_feed_scikit_learn(generator):
    digits = load("digits")
    x = digits.inputs(digits.train_x[:400], torch.float64)
    net = torch.nn.Sequential(torch.nn.Flatten(), *mlp([64, 32, 32, 10], generator=generator))
    kernel = DenseKernel(neural_path_kernel(net, x), True, 64)
    learn, ask = kernel_part(kernel, slice(0, 300), slice(0, 300)), kernel_part(kernel, slice(300, 400), slice(0, 300))
    machine = SVC(kernel="precomputed").fit(learn.rows(slice(None)).numpy(), digits.train_y[:300].numpy())
    said = machine.predict(ask.rows(slice(None)).numpy())
    assert (torch.from_numpy(said) == digits.train_y[300:400]).double().mean() > 0.85


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("kernel", "targets", "ridge", "message"),
    [
        (DenseKernel(torch.ones(3, 4), False), torch.ones(3), 1.0, "3 × 4; ridge regression needs"),
        (DenseKernel(torch.eye(3), False), torch.ones(3), 1.0, "not stored as a symmetric one"),
        (DenseKernel(torch.eye(3), True), torch.ones(4), 1.0, r"n = 3 examples, the targets have shape \(4,\)"),
        (torch.eye(3), torch.ones(3), 0.0, "ridge is 0.0; give a positive number"),
        (DenseKernel(torch.eye(3), True), torch.ones(3), -1.0, "ridge is -1.0"),
        (DenseKernel(torch.eye(3), True), torch.tensor([1.0, float("nan"), 1.0]), 1.0, "target 0 of example 1 is nan"),
        (torch.eye(3), torch.ones(3, dtype=torch.long), 1.0, "give floating-point targets"),
        (torch.ones(3, 4), torch.ones(3), 1.0, "3 × 4; ridge regression needs"),
        (DenseKernel(-torch.eye(3), True), torch.ones(3), 1.0, "diagonal entry 0 is -1.0"),
        (DenseKernel(torch.zeros(3, 3), True), torch.ones(3), 1.0, "zero everywhere"),
        (DenseKernel(torch.ones(3, 3) - 0.9 * torch.eye(3), True), torch.randn(3), 0.1, "not positive definite"),
        (torch.ones(3, 3) - 0.9 * torch.eye(3), torch.randn(3), 0.1, "not positive semi-definite; give a larger ridge"),
    ],
)
def test_what_cannot_be_solved_is_refused(kernel, targets, ridge, message):
    with pytest.raises(InputError, match=message):
        kernel_ridge(kernel, targets, ridge, preconditioner_rank=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolerance": 0.0}, "tolerance is 0.0"),
        ({"max_iterations": 0}, "max_iterations is 0"),
        ({"preconditioner_rank": -1}, "preconditioner_rank is -1"),
        ({"start": torch.zeros(3, 2)}, r"start has shape \(3, 2\), but the targets require \(3, 1\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        kernel_ridge(DenseKernel(torch.eye(3), True), torch.ones(3), 1.0, **settings)


@pytest.mark.parametrize("rank", [0, N])
def test_a_bad_entry_is_named_by_the_solvers(rank, generator):
    entries = decaying(1.0).clone()
    entries[120, 100] = entries[100, 120] = float("nan")
    with pytest.raises(InputError, match=r"is nan at row (120, column 100|100, column 120)"):
        kernel_ridge(DenseKernel(entries, True, 64), torch.ones(N), 1.0, preconditioner_rank=rank, generator=generator)


def test_landmarks_of_an_indefinite_kernel_are_refused(generator):
    vectors = torch.linalg.qr(torch.randn(N, N)).Q
    entries = (vectors * torch.linspace(-1, 3, N)) @ vectors.T
    with pytest.raises(
        InputError, match=r"not positive semi-definite: its block of 100 landmarks has the eigenvalue -"
    ):
        nystroem_factor(DenseKernel((entries + entries.T) / 2, True), 100, generator=generator)


def test_predictions_need_the_fitted_examples(generator):
    fit = kernel_ridge(DenseKernel(decaying(1.0), True), torch.ones(N), 1.0, generator=generator)
    with pytest.raises(InputError, match="the kernel is 2 × 3, but 131 examples were fitted"):
        fit.predict(DenseKernel(torch.ones(2, 3), False))
    with pytest.raises(InputError, match="one target"):
        fit.classes(DenseKernel(torch.ones(2, N), False))
