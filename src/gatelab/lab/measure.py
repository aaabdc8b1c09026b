"""Tools for measuring a theorem: comparisons, rates of change, means over random weights, fitted powers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import log, nan
from statistics import linear_regression

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from gatelab.figures import Curve, Plot
from gatelab.lab.verdicts import Check

IDENTITY = 1e-10
EXACT = "an identity: float64 rounding only"
_SMALLEST = 1e-300  # stands in for zero, which has no logarithm


def relative_error(measured: Tensor, predicted: Tensor) -> float:
    """Largest deviation, relative to the largest prediction."""
    return ((measured - predicted).abs().max() / predicted.abs().max()).item()


def identity(what: str, measured: Tensor, predicted: Tensor) -> Check:
    """A check that two ways to compute one thing agree."""
    return Check(f"{what}, rel. error", relative_error(measured, predicted), IDENTITY, EXACT)


def against(measured: Tensor, predicted: Tensor, label: str, *more: Curve) -> Plot:
    """Measured against predicted values."""
    points = Curve(label, tuple(predicted.flatten().tolist()), tuple(measured.flatten().tolist()))
    return Plot("predicted", "measured", (points, *more), diagonal="measured = predicted")


class ErrorFlow:
    """The error e = ŷ − y of a model under gradient flow on ½‖e‖², some parameters moving, the rest fixed."""

    def __init__(self, model: nn.Module, x: Tensor, target: Tensor, moving: nn.Module | None = None):
        """``moving`` is the sub-module whose parameters move; None moves all."""
        self._model, self._x, self._target = model, x, target
        wanted = {id(p) for p in (moving or model).parameters()}
        self.parameters = {name: p.detach().clone() for name, p in model.named_parameters() if id(p) in wanted}

    def error(self, parameters: dict[str, Tensor]) -> Float[Tensor, " n"]:
        """E at these parameters."""
        return functional_call(self._model, parameters, (self._x,)).squeeze(1) - self._target

    def velocity(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Θ̇ = −∇L."""
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        with torch.enable_grad():
            loss = self.error(leaves).square().sum() / 2
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        return {name: -gradient for name, gradient in zip(leaves, gradients, strict=True)}

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
        """The points at which one fourth-order Runge-Kutta step looks at the flow; the last is where it ends."""
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
    """Running mean and variance of tensors (Welford)."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.count = 0
        self.mean = torch.zeros(())
        self._squares = torch.zeros(())

    @classmethod
    def of(cls, draws: Iterable[Tensor]) -> "Mean":
        """The mean of all draws."""
        mean = cls()
        for draw in draws:
            mean.count += 1
            delta = draw - mean.mean
            mean.mean = mean.mean + delta / mean.count
            mean._squares = mean._squares + delta * (draw - mean.mean)
        return mean

    @property
    def variance(self) -> Tensor:
        """Unbiased estimate of the variance of one draw."""
        return self._squares / (self.count - 1)

    @property
    def error(self) -> Tensor:
        """Standard error of the mean."""
        return (self.variance / self.count).sqrt()

    def z_score(self, predicted: Tensor) -> float:
        """Largest deviation from a prediction in standard errors; entries that do not vary must agree to rounding."""
        deviation = (self.mean - predicted).abs()
        rounding = IDENTITY * predicted.abs().max()
        return (deviation / self.error.clamp(min=rounding)).max().item()


def all_signs(shapes: Sequence[torch.Size], sigma: float) -> Iterator[list[Tensor]]:
    """Every assignment of ±σ to tensors of these shapes: an expectation over them is exact."""
    sizes = [shape.numel() for shape in shapes]
    for signs in product((-sigma, sigma), repeat=sum(sizes)):
        flat = torch.tensor(signs, dtype=torch.float64)
        yield [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]


def over_all_signs(model: nn.Module, sigma: float, measure: Callable[[], Tensor]) -> Mean:
    """The exact mean of ``measure()`` over all ±σ weights of ``model``."""

    def draws() -> Iterator[Tensor]:
        weights = list(model.parameters())
        for signs in all_signs([weight.shape for weight in weights], sigma):
            with torch.no_grad():
                for weight, values in zip(weights, signs, strict=True):
                    weight.copy_(values)
            yield measure()

    return Mean.of(draws())


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float:
    """The a of the best fit y = c xᵃ, by least squares of the logarithms; NaN for fewer than two points.

    Example:
        >>> fitted_power([1, 2, 4], [3, 12, 48])
        2.0
    """
    if len(x) < 2:
        return nan
    return round(linear_regression([log(v) for v in x], [log(max(v, _SMALLEST)) for v in y]).slope, 12)
