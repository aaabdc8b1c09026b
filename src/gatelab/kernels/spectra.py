"""Spectra of kernels: eigenvalues, conditioning, and how well labels lie in the large directions."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gatelab.errors import InputError


def spectrum(kernel: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """Compute the eigenvalues of a symmetric kernel, smallest first.

    Example:
        >>> spectrum(torch.tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
        [1.0, 2.0]
    """
    return torch.linalg.eigvalsh(symmetric_kernel(kernel))


def cumulative_eigenvalues(kernel: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """Compute running sums of the eigenvalues, smallest first: the e.c.d.f. of npk, Appendix E.1."""
    return spectrum(kernel).cumsum(dim=0)


def trace_normalised(kernel: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Scale a kernel to a mean diagonal of 1 (halfspace, Figures 3 and 4).

    A kernel with trace zero (all gates closed) is returned unchanged.

    Example:
        >>> trace_normalised(torch.tensor([[3.0, 1.0], [1.0, 1.0]])).tolist()
        [[1.5, 0.5], [0.5, 0.5]]
    """
    trace = kernel.trace()
    return kernel * (len(kernel) / trace) if trace > 0 else kernel


def condition_number(kernel: Float[Tensor, "n n"]) -> float:
    """Compute ρ_max / ρ_min of a positive semi-definite kernel; infinite if it is singular to working precision."""
    eigenvalues = spectrum(kernel)
    _refuse_indefinite(eigenvalues, torch.finfo(kernel.dtype).eps)
    smallest, largest = eigenvalues[0].item(), eigenvalues[-1].item()
    return largest / smallest if smallest > _negligible(eigenvalues) else float("inf")


def label_alignment(kernel: Float[Tensor, "n n"], labels: Shaped[Tensor, " n"] | Shaped[Tensor, "n k"]) -> float:
    r"""Compute the cosine between the kernel and the ideal kernel :math:`y y^\top` of the labels.

    Args:
        kernel: symmetric.
        labels: one column, or several whose ideal kernels add up.

    Returns:
        A number between −1 and 1.

    Example:
        >>> y = torch.tensor([1.0, -1.0])
        >>> round(label_alignment(torch.outer(y, y), y), 6)
        1.0
    """
    kernel = symmetric_kernel(kernel)
    columns = _columns(kernel, labels)
    ideal = columns @ columns.T
    norms = torch.linalg.matrix_norm(kernel) * torch.linalg.matrix_norm(ideal)
    if norms.item() == 0:
        raise InputError("the kernel or the labels are all zero, so there is no alignment")
    return ((kernel * ideal).sum() / norms).item()


def label_complexity(
    kernel: Float[Tensor, "n n"], labels: Shaped[Tensor, " n"] | Shaped[Tensor, "n k"], *, ridge: float = 0.0
) -> float:
    r"""Compute ν = yᵀ Ĥ⁻¹ y with the kernel scaled to trace one; small if the labels lie in its large directions.

    .. math:: \nu = \sum_i (u_i^\top y)^2 / (\hat\rho_i + \lambda), \qquad \hat H = H / \mathrm{trace}(H)   (npk, 6)

    Computed in float64 from the eigenvectors. Where Ĥ is singular to working precision, a direction without labels is
    left out, and one with labels makes ν infinite; ν is never a large number made of rounding.

    Args:
        kernel: symmetric, positive semi-definite.
        labels: one column, or several whose ν add up.
        ridge: λ, relative to the trace.

    Returns:
        ν, possibly infinite.

    Example:
        >>> label_complexity(torch.diag(torch.tensor([3.0, 1.0])), torch.tensor([1.0, 0.0]))
        1.3333333333333333
    """
    if not isinstance(ridge, int | float) or not 0 <= ridge < float("inf"):
        raise InputError(f"ridge is {ridge!r}; give a finite number that is not negative")
    kernel = symmetric_kernel(kernel)
    # Entries of a float32 kernel are known to float32 only, and so are its eigenvalues, whatever computes them.
    precision = torch.finfo(kernel.dtype).eps
    scaled = kernel.double()
    trace = scaled.trace()
    if trace.item() <= 0:
        raise InputError(f"the kernel's trace is {trace.item()}; a positive semi-definite kernel has a positive one")
    eigenvalues, vectors = torch.linalg.eigh(scaled / trace)
    _refuse_indefinite(eigenvalues, precision)
    energy = (vectors.T @ _columns(kernel, labels).double()).square().sum(dim=1)
    regular = eigenvalues + ridge > kernel.shape[0] * precision * eigenvalues[-1]
    # The projection of y on a null direction is known up to the rounding of the eigenvectors.
    if (energy[~regular].sum() > kernel.shape[0] * precision * energy.sum()).item():
        return float("inf")
    return (energy[regular] / (eigenvalues[regular] + ridge)).sum().item()


def _negligible(eigenvalues: Tensor) -> float:
    return eigenvalues.shape[0] * torch.finfo(eigenvalues.dtype).eps * eigenvalues[-1].item()


def _refuse_indefinite(eigenvalues: Float[Tensor, " n"], precision: float) -> None:
    """Refuse a negative eigenvalue that exceeds the rounding of a kernel known to ``precision``."""
    rounding = 10 * max(100, len(eigenvalues)) * precision * eigenvalues.abs().max().item()
    if eigenvalues[0].item() < -rounding:
        raise InputError(
            f"the kernel has the eigenvalue {eigenvalues[0].item():.3g}; a positive semi-definite one has none below "
            "zero: check how it was made"
        )


def symmetric_kernel(kernel: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return a kernel of examples with themselves; refuse any other matrix.

    Entries across the diagonal may differ by rounding: a thousand units in the last place of the largest entry.
    """
    if not isinstance(kernel, Tensor) or not kernel.is_floating_point():
        what = f"a tensor of {kernel.dtype}" if isinstance(kernel, Tensor) else type(kernel).__name__
        raise InputError(f"the kernel is {what}; give a floating-point tensor, (n, n)")
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or kernel.shape[0] == 0:
        raise InputError(f"the kernel has shape {tuple(kernel.shape)}; a spectrum needs a square kernel, (n, n)")
    broken = (~torch.isfinite(kernel)).nonzero()
    if len(broken):
        row, column = broken[0].tolist()
        raise InputError(
            f"the kernel is {kernel[row, column].item()} at row {row}, column {column}; compute it from finite data"
        )
    gap = (kernel - kernel.T).abs().max().item()
    if gap > 1e3 * torch.finfo(kernel.dtype).eps * kernel.abs().max().item():
        raise InputError(
            f"the kernel and its transpose differ by {gap:.3g}; give the kernel of one set of examples with itself, "
            "or (K + K.T) / 2"
        )
    return kernel


def _columns(kernel: Tensor, labels: Tensor) -> Tensor:
    if not isinstance(labels, Tensor):
        raise InputError(f"labels are {type(labels).__name__}; give a tensor, (n,) or (n, k)")
    columns = labels.reshape(labels.shape[0], -1) if labels.ndim else labels.reshape(1, 1)
    if columns.shape[0] != kernel.shape[0]:
        raise InputError(f"the kernel has n = {kernel.shape[0]}, the labels n = {columns.shape[0]}; they must agree")
    bad = (~torch.isfinite(columns)).any(dim=1).nonzero()
    if len(bad):
        raise InputError(f"the label of example {bad[0].item()} is NaN or infinite ({len(bad)} like it)")
    return columns.to(kernel.dtype)
