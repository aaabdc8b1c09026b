"""Every public function that looks at a model, as a call of a model and its examples."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.kernels import OverlapKernel, PathKernel, TangentKernel, compute
from gatelab.paths import count_paths, mixture_of_experts
from gatelab.regions import (
    Plane,
    RegionPlan,
    activation_region,
    count_active_paths,
    linear_regions_1d,
    linear_regions_2d,
)
from tests.attacks.outcomes import RawError, SilentlyWrongError


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _gates(model: nn.Module, x: Tensor) -> list[Tensor]:
    pattern = gl.capture_gates(model, x)
    return [pattern[name] for name in pattern.layers]


def one(x: Any) -> Any:
    """The first example, if there are any; whatever is no set of examples goes to gatelab as it is."""
    dense = isinstance(x, Tensor) and x.layout == torch.strided and not x.is_nested
    return x[:1] if dense and x.ndim else x


@torch.no_grad()
def _answered(twin: nn.Module, x: Tensor) -> Tensor:
    """What a twin answers; a gradient through a tensor made in inference mode is refused by torch itself."""
    return twin(x)


def _paths(model: nn.Module, x: Tensor) -> list[float]:
    return [path.contribution for path in gl.top_paths(model, one(x), 5)]


CALLS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "capture_gates": _gates,
    "neural_path_kernel": gl.neural_path_kernel,
    "neural_tangent_kernel": gl.neural_tangent_kernel,
    "to_dgn": lambda model, x: _answered(gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x), x),
    "path_features": lambda model, x: gl.path_features(model, x, 8, _generator()),
    "top_paths": _paths,
    "count_paths": lambda model, x: count_paths(model, one(x)),
    "activation_region": lambda model, x: activation_region(model, one(x)).weight,
    "read": lambda model, x: len(gl.read(model, x).nodes),
}

# Those that need more of a model: a chain, a plane of inputs, no example.
MORE_CALLS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "raw neural_path_kernel": lambda model, x: gl.neural_path_kernel(model, x, normalise=False),
    "neural_path_kernel of biases": lambda model, x: gl.neural_path_kernel(model, x, biases=True),
    "neural_tangent_kernel of all outputs": lambda model, x: gl.neural_tangent_kernel(model, x, outputs="full"),
    "neural_path_features": gl.neural_path_features,
    "neural_path_values": lambda model, _x: gl.neural_path_values(model),
    "value_tangent_kernel": lambda model, _x: gl.value_tangent_kernel(model),
    "overlap_kernel": lambda model, x: gl.overlap_kernel(gl.capture_gates(model, x)),
    "OverlapKernel": lambda model, x: compute(OverlapKernel(model), x),
    "PathKernel": lambda model, x: compute(PathKernel(model), x),
    "TangentKernel": lambda model, x: compute(TangentKernel(model), x),
    "to_dln": lambda model, x: gl.to_dln(model, x=x)(x),
    "to_dlgn": lambda model, x: gl.to_dlgn(model, x=x, generator=_generator())(x),
    "to_dgn with learnt gates": lambda model, x: gl.to_dgn(model, gl.Regime.DNPFL, x=x, generator=_generator())(x),
    "widen_values": lambda model, x: gl.widen_values(
        gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x), 2, generator=_generator()
    )(x),
    "count_active_paths": count_active_paths,
    "linear_regions_1d": lambda model, x: linear_regions_1d(model, (0, 1), origin=x[0], direction=x[1] - x[0]).maps,
    "linear_regions_2d": lambda model, x: linear_regions_2d(model, Plane.through(*x[:3])).maps,
    "RegionPlan": lambda model, x: len(RegionPlan(model).capture(model, x)[0].layers),
    "mixture_of_experts": lambda model, _x: mixture_of_experts(model),
    "refit_values": lambda model, x: gl.kernels.refit_values(model, x, torch.ones(len(x), 1, dtype=x.dtype)),
    "GateTracker": lambda model, x: gl.GateTracker(model, x).record(0),
}


def answer(call: Callable[[], Any]) -> Any:
    """Return what a call answers, None if gatelab refuses it; any other error is a success of the attack."""
    try:
        return call()
    except GatelabError:
        return None
    except Exception as error:
        raise RawError(f"{type(error).__name__}: {error}") from error


def same(ours: Any, theirs: Any, tolerance: float = 1e-9) -> bool:
    """Whether two answers of a call are equal, up to rounding."""
    if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        return ours.shape == theirs.shape and torch.allclose(
            ours.double(), theirs.double(), rtol=tolerance, atol=tolerance
        )
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(same(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, float):
        return abs(ours - theirs) <= tolerance * (1 + abs(theirs))
    return ours == theirs


def right_or_refused(name: str, model: nn.Module, plain: nn.Module, x: Tensor) -> None:
    """Check that a call answers for a model as it does for the plain network that it stands for, or refuses."""
    ours = answer(lambda: CALLS[name](model, x))
    if ours is not None and name != "read" and not same(ours, CALLS[name](plain, x)):
        raise SilentlyWrongError(f"{name} answered {ours!r:.300}")
