"""Ways to break the code that the theorems of npk name."""

from typing import Any

import torch
from torch import nn

from gatelab.convert import Regime, regimes, to_dgn
from gatelab.convert.twin import Gate
from gatelab.gates import SoftGate, gated
from gatelab.kernels import infinite_width, spectra
from gatelab.kernels.path import rules
from gatelab.kernels.tangent.kernel import TangentKernel
from gatelab.kernels.tangent_moments import _GateSums, _Strands
from gatelab.models import DeepGatedNetwork, MemorisationNetwork
from gatelab.network import capture
from gatelab.papers.npk import theorems as npk
from gatelab.papers.npk import theorems_bundles as npk_bundles
from gatelab.papers.npk import theorems_expectations as npk_expectations
from gatelab.papers.npk import theorems_gated as npk_gated
from gatelab.papers.npk import theorems_limits as npk_limits
from gatelab.papers.npk import theorems_start as npk_start
from gatelab.paths import features as path_listing
from gatelab.paths import neural_path_features
from tests.papers.mutations.changes import Mutation, Patch, edited, replaced, scaled, together


def shorter(apply: Patch) -> Patch:
    """What is wrong shows in a part of the work as surely as in all of it."""
    return together(apply, replaced(npk, "TRIALS", 10), replaced(npk, "STEPS", 50))


def _lookup_init(sigma: float, gate: float) -> Patch:
    """A memorisation network whose weights are scaled, or whose gates are all open."""
    right = MemorisationNetwork.__init__

    def wrong(self: MemorisationNetwork, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        with torch.no_grad():
            for weight in self.parameters():
                weight.mul_(sigma)
            self.gates.clamp_(min=gate)

    return replaced(MemorisationNetwork, "__init__", wrong)


def _without_mu() -> Patch:
    """A memorisation network whose gates are open with probability ½, and whose weights fit that, whatever μ is."""
    right = MemorisationNetwork.__init__

    def wrong(self: MemorisationNetwork, n: int, width: int, depth: int, mu: float = 0.5, **options: Any) -> None:
        del mu
        right(self, n, width, depth, 0.5, **options)

    return replaced(MemorisationNetwork, "__init__", wrong)


def _linear_features(self: DeepGatedNetwork, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of a DGN without the ReLU in its feature network."""
    feature, value = x, x
    *hidden, last = self.value
    for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
        feature = feature_layer(feature)
        value = gated(value_layer(value), feature.repeat(1, self.padding), self.gate)
    return last(value)


_right_angles = infinite_width.angle_maps


def _angle_kept(x: torch.Tensor, y: torch.Tensor, layers: int) -> Any:
    """A recursion in which no layer turns the angle."""
    return list(_right_angles(x, y, 1)) * layers


def _nodes_apart(self: _Strands, layer: _GateSums, sigma: float) -> _Strands:
    """The printed proof: paths that meet at a node without sharing a weight do not count."""
    s = sigma**4
    both = layer.both.square()
    return _Strands(s * both * self.U, s * layer.each * self.V, s * both * self.X, s * layer.squares * self.R)


def _uneven(right: Any) -> Any:
    """A path kernel that depends on the first input, as no factor would."""

    def wrong(model: nn.Module, *examples: torch.Tensor, **options: Any) -> torch.Tensor:
        return right(model, *examples, **options) * (1 + 1e-3 * examples[0].flatten()[0])

    return wrong


def _eq2_always(x: torch.Tensor, *, depth: int, last_layer: float = 1.0) -> torch.Tensor:
    del last_layer
    return infinite_width.infinite_width_ntk(x, depth=depth)


def _independent_gates(model: nn.Module, regime: Regime, **options: Any) -> nn.Module:
    del regime
    return to_dgn(model, Regime.FRNPF_II, **options)


def _last_gates_open(right: Any) -> Any:
    return lambda *args: [*right(*args)[:-1], torch.ones_like(right(*args)[-1])]


def _diagonal(right: Any) -> Any:
    return lambda *args, **options: right(*args, **options).diagonal().diag()


def _of_values(right: Any) -> Any:
    return lambda model, x, wrt=None, **options: right(model, x, wrt=None if wrt is None else model.value, **options)


def _hard_features(model: nn.Module, x: torch.Tensor, **options: Any) -> torch.Tensor:
    return neural_path_features(model, x, **{**options, "gates": "hard"})


def _ones(model: nn.Module, x: torch.Tensor, other: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    del model, options
    return torch.ones(len(x), len(x if other is None else other), dtype=x.dtype)


def _by_arccos(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Angles as Eq. 2 prints them."""
    cosine = x @ y.T / (x.norm(dim=1)[:, None] * y.norm(dim=1))
    theta = cosine.clamp(-1, 1).arccos()
    return theta, torch.pi - theta


_right_excess = infinite_width._sine_excess


def _without_series(angle: torch.Tensor) -> torch.Tensor:
    """Return sin a − a cos a, and 0 for small angles."""
    return torch.where(angle < 0.1, 0.0, _right_excess(angle))


def _subtracted(angle: torch.Tensor) -> torch.Tensor:
    return angle.sin() - angle * angle.cos()


def _layer_missing(x: torch.Tensor, *, depth: int) -> torch.Tensor:
    """The limit of fixed gates with κ₀ of d − 2 layers."""
    kernel = depth * (x @ x.T)
    for _, both_open in infinite_width.angle_maps(x, x, depth - 2):
        kernel = kernel * both_open
    return kernel


def _last_layer_raised(x: torch.Tensor, *, depth: int, last_layer: float = 1.0) -> torch.Tensor:
    return infinite_width.infinite_width_ntk(x, depth=depth, last_layer=last_layer**1.1)


def _of_first_example(right: Any) -> Any:
    """Gates of the first example, for all."""
    return lambda *args: [gates[:1].expand_as(gates) for gates in right(*args)]


def _absolute(right: Any) -> Any:
    return lambda *args, **options: right(*args, **options).abs()


def _over_n(right: Any) -> Any:
    return lambda model, x, **options: right(model, x, **options) / len(x)


def _normal_signs(parameters: Any, sigma: float, draws: int, generator: torch.Generator) -> Any:
    """Normal weights in place of signs."""
    shapes = {name: (draws, *parameter.shape) for name, parameter in parameters.items()}
    return {
        name: sigma * torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()
    }


NPK = (
    Mutation("`neural_tangent_kernel` 1 % too large", ("npk-1.1",), scaled(npk, "neural_tangent_kernel", 1.01)),
    Mutation("K^V and K^F 1 % too large", ("npk-4.1",), scaled(npk_gated, "neural_tangent_kernel", 1.01)),
    Mutation("𝒱 of a DGN 1 % too large", ("npk-4.1-values",), scaled(npk_gated, "value_tangent_kernel", 1.01)),
    Mutation(
        "soft gates count as bits",
        ("npk-4.1-values", "npk-4.1-features"),
        replaced(npk_gated, "neural_path_features", _hard_features),
    ),
    Mutation("`neural_path_values` 1 % too large", ("npk-2.1",), scaled(npk, "neural_path_values", 1.01)),
    Mutation("`neural_path_kernel` 1 % too large", ("npk-L2.1",), scaled(npk, "neural_path_kernel", 1.01)),
    Mutation(
        "`value_tangent_kernel` 1 % too large",
        ("npk-3.1", "npk-3.2"),
        shorter(scaled(npk, "value_tangent_kernel", 1.01)),
    ),
    Mutation(
        "φ forgets the gates of the last layer",
        ("npk-2.1", "npk-L2.1"),
        replaced(path_listing, "gate_factors", _last_gates_open(path_listing.gate_factors)),
    ),
    Mutation(
        "φ has the gates of the first example",
        ("npk-2.1", "npk-L2.1", "npk-3.1"),
        replaced(path_listing, "gate_factors", _of_first_example(path_listing.gate_factors)),
    ),
    Mutation(
        "𝒱 as if no two paths shared a weight",
        ("npk-3.1", "npk-3.3"),
        shorter(replaced(npk, "value_tangent_kernel", _diagonal(npk.value_tangent_kernel))),
    ),
    Mutation(
        "K^F is K^V",
        ("npk-4.1",),
        replaced(npk_gated, "neural_tangent_kernel", _of_values(npk_gated.neural_tangent_kernel)),
    ),
    Mutation("`value_tangent_kernel` a thousandth", ("npk-3.3",), shorter(scaled(npk, "value_tangent_kernel", 1e-3))),
    Mutation("`overlap_kernel` 1 % too large", ("npk-C.2",), scaled(npk, "overlap_kernel", 1.01)),
    Mutation(
        "𝒱 over random signs 1 % too large", ("npk-LD.1",), scaled(npk_expectations, "value_tangent_kernel", 1.01)
    ),
    Mutation("H of fixed gates 1 % too large", ("npk-5.1",), scaled(npk_expectations, "neural_path_kernel", 1.01)),
    Mutation("H of fixed gates half as large again", ("npk-C.1",), scaled(npk_expectations, "neural_path_kernel", 1.5)),
    Mutation(
        "`DeepGatedNetwork`: linear feature network",
        ("npk-4.1", "npk-4.1-features", "npk-C.1", "npk-5.1-limit"),
        replaced(DeepGatedNetwork, "forward", _linear_features),
    ),
    Mutation("`MemorisationNetwork`: σ² × 7", ("npk-E",), _lookup_init(7**0.5, 0.0)),
    Mutation("`MemorisationNetwork`: all gates open", ("npk-E",), _lookup_init(1.0, 1.0)),
    Mutation(
        "variance law: paths that meet at a node do not count",
        ("npk-D.1", "npk-D.1-printed"),
        replaced(_Strands, "through_shared", _nodes_apart),
    ),
    Mutation(
        "Eq. 2: no layer turns the angle",
        ("npk-Eq2", "npk-5.1-limit"),
        replaced(infinite_width, "angle_maps", _angle_kept),
    ),
    Mutation(
        "`infinite_width_ntk` 3 % too large",
        ("npk-Eq2", "npk-Eq2-printed"),
        scaled(npk_limits, "infinite_width_ntk", 1.03),
    ),
    Mutation(
        "`infinite_width_ntk` 3 % too small",
        ("npk-Eq2", "npk-Eq2-printed"),
        scaled(npk_limits, "infinite_width_ntk", 0.97),
    ),
    Mutation(
        "`last_layer` to the power 1.1",
        ("npk-Eq2-printed",),
        replaced(npk_limits, "infinite_width_ntk", _last_layer_raised),
    ),
    Mutation("`fixed_gates_ntk` 3 % too large", ("npk-5.1-limit",), scaled(npk_limits, "fixed_gates_ntk", 1.03)),
    Mutation("`fixed_gates_ntk` 3 % too small", ("npk-5.1-limit",), scaled(npk_limits, "fixed_gates_ntk", 0.97)),
    Mutation(
        "`fixed_gates_ntk` leaves a layer out",
        ("npk-5.1-limit",),
        replaced(npk_limits, "fixed_gates_ntk", _layer_missing),
    ),
    Mutation("θ by arccos", ("npk-theta",), replaced(infinite_width, "_angles", _by_arccos)),
    Mutation("no series for small angles", ("npk-theta",), replaced(infinite_width, "_sine_excess", _without_series)),
    Mutation("small angles by subtraction", ("npk-theta",), replaced(infinite_width, "_sine_excess", _subtracted)),
    Mutation(
        "`infinite_width_ntk` ignores `last_layer`",
        ("npk-Eq2-printed",),
        replaced(npk_limits, "infinite_width_ntk", _eq2_always),
    ),
    Mutation(
        "`to_dgn`: FRNPF (DI) draws its own gates", ("npk-DI",), replaced(npk_start, "to_dgn", _independent_gates)
    ),
    Mutation("𝒱 without gates 1 % too large", ("npk-DLN",), scaled(npk_start, "value_tangent_kernel", 1.01)),
    Mutation("`label_complexity` 1 % too large", ("npk-nu",), scaled(npk_start, "label_complexity", 1.01)),
    Mutation(
        "H of an architecture depends on one input",
        ("npk-rotation", "npk-residual"),
        replaced(npk_bundles, "neural_path_kernel", _uneven(npk_bundles.neural_path_kernel)),
    ),
    Mutation("H is one everywhere", ("npk-rotation",), replaced(npk_bundles, "neural_path_kernel", _ones)),
    Mutation(
        "K of bundles 1 % too large",
        ("npk-4.1-bundles", "npk-5.1-bundles"),
        scaled(npk_bundles, "neural_tangent_kernel", 1.01),
    ),
    Mutation("𝒱 of bundles 1 % too large", ("npk-bundles",), scaled(npk_bundles, "value_tangent_kernel", 1.01)),
    Mutation("values of bundles 1 % too large", ("npk-bundles",), scaled(npk_bundles, "neural_path_values", 1.01)),
    Mutation("`path_features` 10 % too large", ("npk-C-sketch",), scaled(npk_bundles, "path_features", 1.1)),
    Mutation(
        "H of an architecture forgets the gates",
        ("npk-rotation", "npk-residual", "npk-bundles"),
        edited(rules._gate, ("signal.gated(layer.factors(reading.x.dtype))", "signal")),
    ),
    Mutation("H of bundles 10 % too large", ("npk-rotation",), scaled(npk_bundles, "neural_path_kernel", 1.1)),
    Mutation(
        "H of bundles without its signs",
        ("npk-rotation",),
        replaced(npk_bundles, "neural_path_kernel", _absolute(npk_bundles.neural_path_kernel)),
    ),
    Mutation(
        "`SoftGate` passes no gradient",
        ("npk-4.1", "npk-4.1-features", "npk-4.1-bundles"),
        edited(SoftGate.__call__, ("self.beta * q", "self.beta * q.detach()")),
    ),
    Mutation(
        "`to_dgn`: learnt gates are hard",
        ("npk-4.1-bundles",),
        edited(regimes._gate_module, ("gating.gate or gate,", "gating.gate or HardGate(),")),
    ),
    Mutation(
        "the gates of a twin come from its values",
        ("npk-4.1-bundles",),
        edited(Gate.forward, ("q if q.shape == value.shape else q.expand(value.shape), gate)", "value, gate)")),
    ),
    Mutation("K of the start 1 % too large", ("npk-DI",), scaled(npk_start, "neural_tangent_kernel", 1.01)),
    Mutation(
        "K of the start divided by n",
        ("npk-DI",),
        replaced(npk_start, "neural_tangent_kernel", _over_n(npk_start.neural_tangent_kernel)),
    ),
    Mutation(
        "`neural_tangent_kernel` without the last layer",
        ("npk-1.1", "npk-3.1", "npk-DI"),
        edited(TangentKernel.on, ("parameter_names(model, self.wrt)", "parameter_names(model, self.wrt)[:-1]")),
    ),
    Mutation("`MemorisationNetwork` ignores μ", ("npk-E",), _without_mu()),
    Mutation(
        "`cumulative_eigenvalues`: largest first",
        ("npk-E",),
        edited(spectra.cumulative_eigenvalues, (".cumsum", ".flip(0).cumsum")),
    ),
    Mutation(
        "±σ weights are normal",
        ("npk-Eq2-printed",),
        replaced(npk_limits, "random_signs", _normal_signs),
    ),
    Mutation("H of DGNs 10 % too large", ("npk-5.1-limit",), scaled(npk_limits, "neural_path_kernel", 1.1)),
    Mutation(
        "the gates of the first example are captured for all",
        ("npk-L2.1", "npk-C.2", "npk-residual"),
        edited(capture.gates_of, ("is_chain=network.is_chain)", "is_chain=network.is_chain)[[0] * x.shape[0]]")),
    ),
)
