"""Tools for measuring a theorem: comparisons, rates of change, means over random weights."""

from collections.abc import Iterable, Mapping
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from gatelab.figures import Curve, Plot
from gatelab.lab.verdicts import Check

IDENTITY = 1e-10
EXACT = "an identity: float64 rounding only"
_DRAWS_AT_ONCE = 64  # a Jacobian of 5 examples and 66,000 weights takes 2.6 MB per draw


def relative_error(measured: Tensor, predicted: Tensor) -> float:
    """Largest deviation, relative to the largest prediction."""
    return ((measured - predicted).abs().max() / predicted.abs().max()).item()


def identity(what: str, measured: Tensor, predicted: Tensor) -> Check:
    """Check that two ways to compute the same quantity agree to rounding."""
    return Check(f"{what}, rel. error", relative_error(measured, predicted), IDENTITY, EXACT)


def against(measured: Tensor, predicted: Tensor, label: str, *more: Curve) -> Plot:
    """Plot measured against predicted values."""
    points = Curve(label, tuple(predicted.flatten().tolist()), tuple(measured.flatten().tolist()))
    return Plot("predicted", "measured", (points, *more), diagonal="measured = predicted")


class ErrorFlow:
    """The error e = ŷ − y of a model under gradient flow on ½‖e‖²; some parameters move, the others are fixed.

    All methods are pure functions of their arguments, so ``torch.func.vmap`` can run them for many networks at once.
    """

    def __init__(self, model: nn.Module, x: Tensor, target: Tensor, moving: nn.Module | None = None):
        """``moving`` is the sub-module whose parameters move; None moves all."""
        self._model, self._x, self._target = model, x, target
        wanted = {id(p) for p in (moving or model).parameters()}
        self.parameters = {name: p.detach().clone() for name, p in model.named_parameters() if id(p) in wanted}

    def error(self, parameters: dict[str, Tensor]) -> Float[Tensor, " n"]:
        """The error e at these parameters."""
        return functional_call(self._model, parameters, (self._x,)).squeeze(1) - self._target

    def velocity(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Θ̇ = −∇L."""
        gradients = grad(lambda leaves: self.error(leaves).square().sum() / 2)(parameters)
        return {name: -gradient for name, gradient in gradients.items()}

    def time_to_move(self, distance: float) -> float:
        """The time in which the parameters, at their present velocity, move by ``distance``."""
        squares = [rate.square().sum() for rate in self.velocity(self.parameters).values()]
        return distance / torch.stack(squares).sum().sqrt().item()

    def error_rate(self, step: float) -> Float[Tensor, " n"]:
        """ė along the flow, by a central difference."""
        velocity = self.velocity(self.parameters)
        ahead, behind = (self.error(moved(self.parameters, velocity, h)) for h in (step, -step))
        return ((ahead - behind) / (2 * step)).detach()

    def descent_rate(self, step: float) -> Float[Tensor, " n"]:
        """(e after one step of gradient descent − e before) / step."""
        after = moved(self.parameters, self.velocity(self.parameters), step)
        return ((self.error(after) - self.error(self.parameters)) / step).detach()

    def stages(self, parameters: dict[str, Tensor], step: float) -> list[dict[str, Tensor]]:
        """The points at which one fourth-order Runge-Kutta step evaluates the flow; the last is where it ends."""
        k1 = self.velocity(parameters)
        second = moved(parameters, k1, step / 2)
        k2 = self.velocity(second)
        third = moved(parameters, k2, step / 2)
        k3 = self.velocity(third)
        fourth = moved(parameters, k3, step)
        k4 = self.velocity(fourth)
        slope = {name: (k1[name] + 2 * k2[name] + 2 * k3[name] + k4[name]) / 6 for name in parameters}
        return [parameters, second, third, fourth, moved(parameters, slope, step)]


def moved(parameters: dict[str, Tensor], velocity: dict[str, Tensor], step: float) -> dict[str, Tensor]:
    """Θ + h Θ̇."""
    return {name: (p + step * velocity[name]).detach() for name, p in parameters.items()}


class Mean:
    """The mean of draws, and its standard error.

    Attributes:
        count: number of draws.
        mean: their mean.
        variance: unbiased estimate of the variance of one draw.
    """

    def __init__(self, draws: Float[Tensor, " draws *shape"]):
        self.count, self.mean, self.variance = len(draws), draws.mean(dim=0), draws.var(dim=0)

    @classmethod
    def of(cls, draws: Iterable[Tensor]) -> "Mean":
        """The mean of tensors of one shape."""
        return cls(torch.stack(list(draws)))

    @property
    def error(self) -> Tensor:
        """Standard error of the mean."""
        return (self.variance / self.count).sqrt()

    def z_score(self, predicted: Tensor) -> float:
        """Largest deviation from a prediction in standard errors; entries that do not vary must agree to rounding."""
        deviation = (self.mean - predicted).abs()
        rounding = IDENTITY * predicted.abs().max()
        return (deviation / self.error.clamp(min=rounding)).max().item()

    def z_score_between(self, other: "Mean") -> float:
        """Largest deviation from another, independent mean, in standard errors of the difference."""
        return ((self.mean - other.mean).abs() / (self.error.square() + other.error.square()).sqrt()).max().item()


def all_signs(parameters: Mapping[str, Tensor], sigma: float) -> dict[str, Tensor]:
    """Every assignment of ±σ to the parameters, on a new first axis: a mean over that axis is an exact expectation."""
    sizes = [parameter.numel() for parameter in parameters.values()]
    bits = torch.arange(2 ** sum(sizes))[:, None] >> torch.arange(sum(sizes)) & 1
    parts = ((2 * bits - 1).double() * sigma).split(sizes, dim=1)
    return {name: part.unflatten(1, p.shape) for (name, p), part in zip(parameters.items(), parts, strict=True)}


def random_signs(
    parameters: Mapping[str, Tensor], sigma: float, draws: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Independent ±σ weights (npk, Assumption 5.1), the draws on a new first axis."""
    shapes = {name: (draws, *parameter.shape) for name, parameter in parameters.items()}
    bits = {name: torch.randint(2, shape, generator=generator, dtype=torch.int8) for name, shape in shapes.items()}
    return {name: (2 * values - 1).double() * sigma for name, values in bits.items()}


def tangent_kernels(model: nn.Module, x: Tensor, weights: Mapping[str, Tensor]) -> Float[Tensor, "draws n n"]:
    """The tangent kernel of ``weights`` at each draw, by plain autograd; other parameters stay unchanged.

    Independent of :func:`gatelab.kernels.neural_tangent_kernel`, which handles one network at a time.
    """

    def kernel(parameters: dict[str, Tensor]) -> Tensor:
        jacobian = jacrev(lambda p: functional_call(model, p, (x,)).squeeze(1))(parameters)
        return sum((part.flatten(1) @ part.flatten(1).T for part in jacobian.values()), torch.zeros(()))

    return vmap(kernel, chunk_size=_DRAWS_AT_ONCE)(dict(weights)).detach()


def wide_preactivations(
    x: Float[Tensor, "n d"], layers: int, width: int, draws: int, generator: torch.Generator
) -> list[Float[Tensor, "draws n w"]]:
    r"""Draw q of each hidden layer of random ReLU networks, weights N(0, 2/w), without drawing w² weights.

    Given the layer before, the units are independent, and one unit's q over the n examples is N(0, (2/w) h hᵀ). This is
    the law of q = W h at any width, not a limit; it takes O(n w) numbers.
    """
    found, hidden = [], x.expand(draws, *x.shape)
    for _ in range(layers):
        found.append(sqrt(2 / width) * _correlated(hidden @ hidden.mT, width, generator))
        hidden = torch.relu(found[-1])
    return found


def wide_tangent_kernels(
    x: Float[Tensor, "n d"], depth: int, width: int, last_layer: float, draws: int, generator: torch.Generator
) -> Float[Tensor, "draws n n"]:
    r"""Draw tangent kernels of random ReLU networks, weights N(0, 2/w), N(0, c/w) in the last layer, in O(n w).

    .. math:: K = \sum_l \langle h_{l-1}, h'_{l-1} \rangle \langle b_l, b'_l \rangle, \qquad
        b_{l-1} = 1[q_{l-1} > 0] \odot W_l^T b_l

    As in :func:`wide_preactivations`, this is the exact law at any width; tests compare it with drawn weights.
    """
    q = wide_preactivations(x, depth - 1, width, draws, generator)
    hidden = [x.expand(draws, *x.shape), *map(torch.relu, q)]
    last = torch.randn(draws, 1, width, generator=generator, dtype=x.dtype) * sqrt(last_layer / width)
    kernel, back = hidden[-1] @ hidden[-1].mT, last * (q[-1] > 0)
    for layer in reversed(range(depth - 1)):
        kernel = kernel + (hidden[layer] @ hidden[layer].mT) * (back @ back.mT)
        if layer:
            back = transposed(back, q[layer], hidden[layer], generator) * (q[layer - 1] > 0)
    return kernel


def transposed(
    back: Float[Tensor, "draws n w"],
    q: Float[Tensor, "draws n w"],
    hidden: Float[Tensor, "draws n w"],
    generator: torch.Generator,
) -> Float[Tensor, "draws n w"]:
    """Draw Wᵀb for weights N(0, 2/w), given q = W h, which is all that the forward pass knows of W.

    It is a fresh normal vector, corrected along the h so that ⟨h, Wᵀb⟩ = ⟨q, b⟩ for all pairs of examples.
    """
    width = hidden.shape[-1]
    fresh = sqrt(2 / width) * _correlated(back @ back.mT, width, generator)
    missing = back @ q.mT - fresh @ hidden.mT
    return fresh + missing @ torch.linalg.pinv(hidden @ hidden.mT, hermitian=True) @ hidden


def _correlated(
    covariance: Float[Tensor, "draws n n"], width: int, generator: torch.Generator
) -> Float[Tensor, "draws n w"]:
    """Draw ``width`` independent columns of the given covariance."""
    rates, vectors = torch.linalg.eigh(covariance)
    normal = torch.randn(*covariance.shape[:2], width, generator=generator, dtype=covariance.dtype)
    return vectors @ (rates.clamp(min=0).sqrt().unsqueeze(-1) * normal)
