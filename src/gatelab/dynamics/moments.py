"""The moments that determine how a gated linear network learns: Σʸˣ(p) and Σˣˣ(p, q) under given gates (gdln, 3.2)."""

from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.data import GaussianClone, SinglePulse
from gatelab.data.ring import TwoClasses
from gatelab.dynamics.gaussian_moments import gaussian_gated_moments
from gatelab.errors import InputError, OutOfRangeError
from gatelab.models import HalfSpaceGates, OpenGates
from gatelab.models.init import check_counts
from gatelab.models.node_gates import NodeGates

Gates = NodeGates | Bool[Tensor, "n k"]


@dataclass(frozen=True)
class GatedMoments:
    """A = ⟨x̃x̃ᵀ⟩ and b = ⟨x̃yᵀ⟩ of the gated inputs x̃ = (g₁x, …, g_K x) (gdln, Section 3.3).

    Args:
        A: K × K blocks of d × d, A_pq = Σˣˣ(p, q).
        b: K blocks of d, b_p = Σʸˣ(p)ᵀ; a matrix with a column for each output if targets have columns.
        units: K.
        power: ⟨‖y‖²⟩.
        A_error: standard errors of an estimated A; None if the moments are exact.
        b_error: standard errors of an estimated b.

    Example:
        >>> GatedMoments(torch.eye(6), torch.ones(6), units=2, power=1.0).dim
        3
    """

    A: Float[Tensor, "kd kd"]
    b: Float[Tensor, " kd *outputs"]
    units: int
    power: float
    A_error: Float[Tensor, "kd kd"] | None = None
    b_error: Float[Tensor, " kd *outputs"] | None = None

    def __post_init__(self) -> None:
        check_counts(units=self.units)
        if not self.A.is_floating_point() or not self.b.is_floating_point():
            raise InputError(f"A is {self.A.dtype}, b {self.b.dtype}; moments are floating-point: use .double()")
        size = len(self.b) if self.b.ndim else 0
        if not size or size % self.units or self.A.shape != (size, size) or self.b.ndim > 2:
            raise InputError(
                f"A is {tuple(self.A.shape)}, b is {tuple(self.b.shape)} for K = {self.units} units; "
                "A must be Kd × Kd, and b Kd or Kd × outputs"
            )

    @property
    def dim(self) -> int:
        """The input's dimension d."""
        return len(self.b) // self.units

    @property
    def outputs(self) -> torch.Size:
        """Shape of one target: () or (outputs,)."""
        return self.b.shape[1:]

    def input_output(self, p: int) -> Float[Tensor, " d *outputs"]:
        """Return Σʸˣ(p)ᵀ = ⟨g_p x yᵀ⟩ (gdln, Eq. 6)."""
        self._check_unit(p)
        return self.b.view(self.units, self.dim, *self.outputs)[p]

    def input_input(self, p: int, q: int) -> Float[Tensor, "d d"]:
        """Return Σˣˣ(p, q) = ⟨g_p g_q x xᵀ⟩ (gdln, Eq. 7).

        Args:
            p: the unit of the rows.
            q: the unit of the columns.

        Returns:
            The block A_pq.
        """
        self._check_unit(p)
        self._check_unit(q)
        return self.A.view(self.units, self.dim, self.units, self.dim)[p, :, q]

    def loss(self, weights: Tensor) -> Float[Tensor, "*times"]:
        """Return L = ½⟨‖y − ŷ‖²⟩ = ½⟨‖y‖²⟩ − ⟨b, w⟩/K + ⟨w, Aw⟩/(2K²) for weights ``(*times, K, d, *outputs)``."""
        wanted = (self.units, self.dim, *self.outputs)
        if weights.shape[-len(wanted) :] != wanted:
            raise InputError(f"weights are {tuple(weights.shape)}; their last axes must be {wanted}")
        w = weights.reshape(*weights.shape[: -len(wanted)], *self.b.shape)
        axes = tuple(range(-self.b.ndim, 0))
        Aw = self.A @ w if self.b.ndim == 2 else w @ self.A
        return self.power / 2 - ((w * self.b) / self.units - (w * Aw) / (2 * self.units**2)).sum(dim=axes)

    def choose(self, places: list[int]) -> "GatedMoments":
        """Return the moments of some of the units alone."""
        for place in places:
            self._check_unit(place)
        index = (torch.tensor(places)[:, None] * self.dim + torch.arange(self.dim)).flatten().to(self.b.device)
        return GatedMoments(self.A[index][:, index], self.b[index], len(places), self.power)

    def _check_unit(self, unit: int) -> None:
        if not isinstance(unit, Integral) or not 0 <= unit < self.units:
            raise OutOfRangeError(f"there is no unit {unit}; the units are 0 to {self.units - 1}")


def gated_inputs(x: Float[Tensor, "n d"], gates: Gates) -> Float[Tensor, "n kd"]:
    """Return x̃ = (g₁(x)x, …, g_K(x)x) (gdln, Eq. 12)."""
    if not isinstance(gates, Tensor):
        opened = gates.opened(x)
    elif gates.dtype != torch.bool:
        raise InputError(f"gates are {gates.dtype}; give booleans, for example gates > 0")
    else:
        opened = gates
    if opened.ndim != 2 or opened.shape[0] != x.shape[0]:
        raise InputError(
            f"gates have shape {tuple(opened.shape)}, x has {x.shape[0]} examples; give (n, K), a row for each example"
        )
    return (opened.to(x)[:, :, None] * x[:, None, :]).flatten(1)


def moments_of(x: Float[Tensor, "n d"], y: Float[Tensor, " n *outputs"], gates: Gates) -> GatedMoments:
    """Return the moments of a fixed data set, taken as the population.

    Args:
        x: examples.
        y: their targets, (n,) or (n, outputs).
        gates: the gates, or which of them are open for each example.

    Returns:
        Exact moments of the examples, in float64: in float32 the slow modes of A would drown in rounding.

    Example:
        >>> moments_of(torch.eye(2), torch.ones(2), torch.tensor([[True], [False]])).b.tolist()
        [0.5, 0.0]
    """
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise InputError(f"x is {type(x).__name__}, y {type(y).__name__}; use torch.as_tensor for both")
    if len(x) != len(y) or not len(x):
        raise InputError(f"{len(x)} examples, {len(y)} labels; give at least one example, and one label for each")
    if x.ndim != 2 or y.ndim not in (1, 2) or not y.numel():
        raise InputError(f"x has shape {tuple(x.shape)}, y {tuple(y.shape)}; give (n, d), and (n,) or (n, outputs)")
    for name, numbers in (("x", x), ("y", y)):
        if not numbers.is_floating_point() or not bool(torch.isfinite(numbers).all()):
            raise InputError(f"{name} is {numbers.dtype}, or not finite everywhere; give finite floating-point numbers")
    features, y = gated_inputs(x, gates).double(), y.double()
    power = y.square().sum().item() / len(y)
    return GatedMoments(features.T @ features / len(x), features.T @ y / len(x), features.shape[1] // x.shape[1], power)


def exact_moments(source: TwoClasses, gates: NodeGates) -> GatedMoments:
    """Return the population's A and b, in float64, where they are known exactly.

    Args:
        source: single pulses, whose finite support is summed under any gates; Gaussian clones under half-spaces, by
            orthant integrals; or any source with open gates, whose moments have a closed form.
        gates: the gates.

    Returns:
        Moments without error bars.

    Raises:
        InputError: there is neither a finite support nor a closed form; :func:`estimate_moments` estimates.

    Example:
        >>> moments = exact_moments(SinglePulse(((3, 4), (1, 2)), (8,)), OpenGates(1))
        >>> moments.A.shape, moments.power
        (torch.Size([8, 8]), 0.5)
    """
    _check_source(source)
    if isinstance(source, SinglePulse):
        zero, one = (gated_inputs(source.support(label), gates) for label in (0, 1))
        seconds, mean = [part.T @ part / len(part) for part in (zero, one)], one.mean(dim=0)
    elif isinstance(gates, OpenGates):
        ones = torch.ones(gates.count, gates.count, dtype=torch.float64)
        seconds = [torch.kron(ones, source.second_moment(label)) for label in (0, 1)]
        mean = torch.full((gates.count * source.dim,), source.mean(1), dtype=torch.float64)
    elif isinstance(source, GaussianClone) and isinstance(gates, HalfSpaceGates):
        gates.check_inputs(source.dim)
        means = [torch.full((source.dim,), source.mean(label), dtype=torch.float64) for label in (0, 1)]
        classes = [gaussian_gated_moments(means[label], source.covariance(label), gates) for label in (0, 1)]
        seconds, mean = [second for second, _ in classes], classes[1][1]
    else:
        raise InputError(
            f"{type(source).__name__} under {type(gates).__name__} has no exact moments here; "
            "estimate_moments gives them with error bars"
        )
    # Each class is half of the mixture, and y = 0 adds nothing to b.
    return GatedMoments((seconds[0] + seconds[1]) / 2, mean / 2, gates.count, 0.5)


def estimate_moments(
    source: TwoClasses,
    gates: NodeGates,
    count: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    batch: int = 8192,
) -> GatedMoments:
    """Estimate the moments of a source from samples, with standard errors.

    Args:
        source: the data.
        gates: the gates.
        count: how many examples to draw, half of each class.
        generator: source of randomness.
        dtype: type of the examples and moments.
        batch: how many examples to hold in memory at once.

    Returns:
        Moments with ``A_error`` and ``b_error``.

    Example:
        >>> pulses = SinglePulse(((3, 4), (1, 2)), (8,))
        >>> estimate_moments(pulses, OpenGates(1), 100).A_error.shape
        torch.Size([8, 8])
    """
    _check_source(source)
    check_counts(batch=batch)
    if not isinstance(count, Integral) or count < 2 or count % 2:
        raise InputError(f"{count} examples cannot be split between two classes; ask for an even number, 2 or more")
    half = count // 2
    classes = []
    for label in (0, 1):
        sums: list[Tensor] = []  # over batches, so memory does not grow with count
        for start in range(0, half, batch):
            x = source.of_class(label, min(batch, half - start), generator=generator, dtype=dtype)
            features = gated_inputs(x, gates)
            squares = features.square()
            terms = [features.T @ features, squares.T @ squares, features.sum(dim=0), squares.sum(dim=0)]
            sums = [total.add_(term) for total, term in zip(sums, terms, strict=True)] if sums else terms
        second, fourth, mean, square = (total / half for total in sums)
        classes.append((second, fourth - second.square(), mean, square - mean.square()))
    (second0, variance0, _, _), (second1, variance1, mean1, mean_variance1) = classes
    # Each class is half of the mixture, so the variance of its average enters with a factor ¼.
    A_error = ((variance0.clamp(min=0) + variance1.clamp(min=0)) / (4 * half)).sqrt()
    b_error = (mean_variance1.clamp(min=0) / (4 * half)).sqrt()
    return GatedMoments((second0 + second1) / 2, mean1 / 2, gates.count, 0.5, A_error, b_error)


def _check_source(source: TwoClasses) -> None:
    if not isinstance(source, TwoClasses):
        raise InputError(
            f"source is {type(source).__name__}; give a distribution such as SinglePulse(…), or use moments_of(x, y, "
            "gates) for examples"
        )


def minimum_loss(moments: GatedMoments) -> float:
    r"""Return the least ⟨‖y − ŷ‖²⟩ over all weights, ⟨‖y‖²⟩ − tr bᵀA⁺b (gdln, Eqs 13–15, for any targets).

    This is the notes' 𝓛_OLS. The flow's L = ½⟨(y − ŷ)²⟩ ends at half of it.

    Example:
        >>> minimum_loss(GatedMoments(torch.eye(2), torch.tensor([0.5, 0.0]), units=1, power=1.0))
        0.75
    """
    return moments.power - explained(moments.A, moments.b)


def explained(A: Float[Tensor, "kd kd"], b: Float[Tensor, " kd *outputs"]) -> float:
    """Return tr bᵀA⁺b, without eigenvalues that are zero up to rounding."""
    if not bool(torch.isfinite(A).all() and torch.isfinite(b).all()):
        raise InputError("A or b holds NaN or infinity; moments must be finite: check the examples")
    rates, vectors = torch.linalg.eigh(A)
    # A⁺ would turn rounding errors in these directions into large weights.
    kept = rates > 10 * len(b) * torch.finfo(b.dtype).eps * rates.abs().max()
    return float(((vectors.T @ b.view(len(b), -1)).square()[kept] / rates[kept, None]).sum())
