"""What a kernel's spectrum says: eigenvalues, conditioning, and how well the labels lie in its large directions."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gatelab.errors import InputError


def spectrum(kernel: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """Eigenvalues of a symmetric kernel, smallest first.

    Example:
        >>> spectrum(torch.tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
        [1.0, 2.0]
    """
    return torch.linalg.eigvalsh(_square(kernel))


def cumulative_eigenvalues(kernel: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """Running sums of the eigenvalues, smallest first: the e.c.d.f. of npk, Appendix E.1."""
    return spectrum(kernel).cumsum(dim=0)


def trace_normalised(kernel: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The kernel times n over its trace: 1 on the diagonal, on average (halfspace, Figures 3 and 4).

    A kernel without a trace, one of no active gates, stays as it is.

    Example:
        >>> trace_normalised(torch.tensor([[3.0, 1.0], [1.0, 1.0]])).tolist()
        [[1.5, 0.5], [0.5, 0.5]]
    """
    trace = kernel.trace()
    return kernel * (len(kernel) / trace) if trace > 0 else kernel


def condition_number(kernel: Float[Tensor, "n n"]) -> float:
    """ρ_max / ρ_min of a positive semi-definite kernel; infinite if it is singular to working precision."""
    eigenvalues = spectrum(kernel)
    smallest, largest = eigenvalues[0].item(), eigenvalues[-1].item()
    return largest / smallest if smallest > _negligible(eigenvalues) else float("inf")


def label_alignment(kernel: Float[Tensor, "n n"], labels: Shaped[Tensor, " n"] | Shaped[Tensor, "n k"]) -> float:
    r"""The cosine between the kernel and the ideal kernel :math:`y y^\top` of the labels, between −1 and 1.

    Example:
        >>> y = torch.tensor([1.0, -1.0])
        >>> round(label_alignment(torch.outer(y, y), y), 6)
        1.0
    """
    kernel, columns = _square(kernel), _columns(kernel, labels)
    ideal = columns @ columns.T
    norms = torch.linalg.matrix_norm(kernel) * torch.linalg.matrix_norm(ideal)
    if norms.item() == 0:
        raise InputError("the kernel, or the labels, are all zero: there is no alignment")
    return ((kernel * ideal).sum() / norms).item()


def label_complexity(
    kernel: Float[Tensor, "n n"], labels: Shaped[Tensor, " n"] | Shaped[Tensor, "n k"], *, ridge: float = 0.0
) -> float:
    r"""ν = yᵀ Ĥ⁻¹ y with the kernel scaled to trace one, small when the labels lie in its large directions.

    .. math:: \nu = \sum_i (u_i^\top y)^2 / (\hat\rho_i + \lambda), \qquad \hat H = H / \mathrm{trace}(H)   (npk, 6)

    Computed in float64 from the eigenvectors. Where Ĥ is singular to working precision, a direction that the labels do
    not need is left out, and one that they need makes ν infinite, never a large number made of rounding.

    Args:
        kernel: symmetric, positive semi-definite.
        labels: one column, or several whose ν add up.
        ridge: λ, relative to the trace.
    """
    if ridge < 0:
        raise InputError(f"ridge is {ridge}; it must not be negative")
    # Entries of a float32 kernel are only known to float32: so are the eigenvalues, whatever they are computed in.
    precision = torch.finfo(kernel.dtype).eps
    scaled = _square(kernel).double()
    trace = scaled.trace()
    if trace.item() <= 0:
        raise InputError(f"the kernel's trace is {trace.item()}; a positive semi-definite kernel has a positive one")
    eigenvalues, vectors = torch.linalg.eigh(scaled / trace)
    energy = (vectors.T @ _columns(kernel, labels).double()).square().sum(dim=1)
    regular = eigenvalues + ridge > kernel.shape[0] * precision * eigenvalues[-1]
    # A projection of y on a null direction is only known up to rounding of the eigenvectors.
    if (energy[~regular].sum() > kernel.shape[0] * precision * energy.sum()).item():
        return float("inf")
    return (energy[regular] / (eigenvalues[regular] + ridge)).sum().item()


def _negligible(eigenvalues: Tensor) -> float:
    return eigenvalues.shape[0] * torch.finfo(eigenvalues.dtype).eps * eigenvalues[-1].item()


def _square(kernel: Tensor) -> Tensor:
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or kernel.shape[0] == 0:
        raise InputError(f"the kernel has shape {tuple(kernel.shape)}; its spectrum needs a square one, (n, n)")
    if not bool(torch.isfinite(kernel).all()):
        raise InputError("the kernel holds NaN or infinite entries")
    return kernel


def _columns(kernel: Tensor, labels: Tensor) -> Tensor:
    columns = labels.reshape(labels.shape[0], -1) if labels.ndim else labels.reshape(1, 1)
    if columns.shape[0] != kernel.shape[0]:
        raise InputError(f"the kernel has n = {kernel.shape[0]}, the labels n = {columns.shape[0]}")
    return columns.to(kernel.dtype)
