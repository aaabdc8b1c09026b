import pytest
import torch

from gatelab.errors import InputError
from gatelab.kernels import condition_number, cumulative_eigenvalues, label_alignment, label_complexity, spectrum
from gatelab.kernels.spectra import trace_normalised


def kernel_of(eigenvalues) -> tuple[torch.Tensor, torch.Tensor]:
    vectors = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues))).Q
    return vectors @ torch.diag(torch.tensor(eigenvalues)) @ vectors.T, vectors


def test_spectrum_and_running_sums():
    kernel, _ = kernel_of([4.0, 1.0, 2.0])
    torch.testing.assert_close(spectrum(kernel), torch.tensor([1.0, 2.0, 4.0]))
    torch.testing.assert_close(cumulative_eigenvalues(kernel), torch.tensor([1.0, 3.0, 7.0]))
    assert condition_number(kernel) == pytest.approx(4.0)
    assert condition_number(torch.ones(3, 3)) == float("inf")


def test_label_complexity_is_the_inverse_quadratic_form():
    kernel, _ = kernel_of([4.0, 1.0, 2.0, 0.5])
    y = torch.tensor([1, -1, 1, 1])
    scaled = kernel / kernel.trace()
    expected = y.double() @ torch.linalg.inv(scaled) @ y.double()
    assert label_complexity(kernel, y) == pytest.approx(expected.item(), rel=1e-10)
    assert label_complexity(7 * kernel, y) == pytest.approx(expected.item(), rel=1e-10)
    ridged = y.double() @ torch.linalg.inv(scaled + 0.1 * torch.eye(4)) @ y.double()
    assert label_complexity(kernel, y, ridge=0.1) == pytest.approx(ridged.item(), rel=1e-10)
    two = torch.stack([y, y.flip(0)], dim=1)
    assert label_complexity(kernel, two) == pytest.approx(
        label_complexity(kernel, y) + label_complexity(kernel, y.flip(0)), rel=1e-10
    )


def test_label_complexity_of_a_singular_kernel():
    kernel, vectors = kernel_of([4.0, 1.0, 0.0])
    inside = vectors[:, 0] + vectors[:, 1]
    assert label_complexity(kernel, inside) == pytest.approx(5 / 4 + 5, rel=1e-8)
    assert label_complexity(kernel, vectors[:, 2]) == float("inf")
    assert label_complexity(kernel, vectors[:, 2], ridge=0.01) == pytest.approx(100, rel=1e-6)
    assert label_complexity(kernel.float(), inside.float()) == pytest.approx(5 / 4 + 5, rel=1e-4)


def test_alignment():
    y = torch.tensor([1.0, -1.0, 1.0])
    assert label_alignment(torch.outer(y, y), y) == pytest.approx(1.0)
    assert label_alignment(torch.eye(3), y) == pytest.approx(3**-0.5)
    assert label_alignment(-torch.outer(y, y), y) == pytest.approx(-1.0)


def test_a_trace_of_n():
    kernel = torch.tensor([[2.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 6.0]])
    assert trace_normalised(kernel).trace() == pytest.approx(3)
    torch.testing.assert_close(trace_normalised(kernel) * 4, kernel)
    assert trace_normalised(torch.zeros(2, 2)).equal(torch.zeros(2, 2))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spectrum(torch.ones(2, 3)), "square"),
        (lambda: spectrum(torch.full((2, 2), float("nan"))), "is nan at row 0, column 0"),
        (lambda: label_complexity(torch.eye(3), torch.ones(2)), "n = 3, the labels n = 2"),
        (lambda: label_complexity(torch.eye(3), torch.ones(3), ridge=-1), "ridge is -1"),
        (lambda: label_complexity(-torch.eye(3), torch.ones(3)), "trace"),
        (lambda: label_alignment(torch.zeros(3, 3), torch.ones(3)), "all zero"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
