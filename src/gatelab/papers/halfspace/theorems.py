"""The theorems of "Half-Space Feature Learning in Neural Networks" (halfspace), measured.

A network is a mixture of experts: Σ_π f_π(x) g_π(x), a gating model f_π and a linear expert g_π for each path π through
the hidden layers. All sums are explicit, on small networks, in float64.
"""

from collections.abc import Callable
from itertools import product
from math import prod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.figures import Curve, Plot
from gatelab.gates import HardGate
from gatelab.lab.measure import against, identity
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.regions import half_spaces

WIDTHS = (3, 4, 3, 4, 1)


def _mixture(gates: list[Bool[Tensor, "n _"]], weights: list[Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """Σ_π f_π(x) g_π(x), one path after the other (Eqs 1, 3 and 5)."""
    first, *middle, last = weights
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for path in product(*(range(gate.shape[1]) for gate in gates)):
        is_open = torch.stack([gate[:, unit] for gate, unit in zip(gates, path, strict=True)]).all(dim=0)
        pairs = zip(middle, path[1:], path[:-1], strict=True)
        worth = prod(weight[after, before].item() for weight, after, before in pairs) * last[0, path[-1]].item()
        total += is_open.to(x.dtype) * worth * (x @ first[path[0]])
    return total


def _inputs(seed: int) -> tuple[torch.Generator, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return generator, torch.randn(7, WIDTHS[0], generator=generator, dtype=torch.float64)


@theorem(
    "halfspace-1",
    "Theorem 1",
    "A ReLU network is a mixture of linear experts, one for each path",
)
def relu_network_is_a_mixture(seed: int) -> Measurement:
    """Gates recomputed layer by layer from the definition, paths summed one by one."""
    generator, x = _inputs(seed)
    model = mlp(WIDTHS, dtype=torch.float64, generator=generator)
    weights = [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
    gates, h = [], x
    for weight in weights[:-1]:
        gates.append(h @ weight.T > 0)
        h = (h @ weight.T).clamp(min=0)
    mixture, output = _mixture(gates, weights, x), model(x).detach()[:, 0]
    return Measurement((identity("Σ_π f_π g_π against ŷ", mixture, output),), against(mixture, output, "ŷ(x)"))


@theorem(
    "halfspace-2",
    "Theorem 2",
    "A DLGN is a mixture of linear experts that half-spaces of the input gate",
)
def linearly_gated_network_is_a_mixture(seed: int) -> Measurement:
    """Gates from the half-spaces, paths summed one by one."""
    generator, x = _inputs(seed)
    model = DeepLinearlyGatedNetwork(WIDTHS, gate=HardGate(), dtype=torch.float64, generator=generator)
    gates = _dlgn_gates(model)(x)
    weights = [weight.detach() for weight in model.value.parameters()]
    mixture, output = _mixture(gates, weights, x), model(x).detach()[:, 0]
    return Measurement((identity("Σ_π f_π g_π against ŷ", mixture, output),), against(mixture, output, "ŷ(x)"))


@theorem(
    "halfspace-2.2",
    "Section 2.2",
    "The inputs that open a DLGN path form a convex set; in a ReLU network they need not",
)
def active_regions_are_convex(seed: int) -> Measurement:
    """Points between two inputs that open a path: do they open it too?"""
    generator = torch.Generator().manual_seed(seed)
    widths = (2, 6, 6, 1)
    violations: dict[str, list[int]] = {"DLGN": [], "ReLU": []}
    tried: dict[str, list[int]] = {"DLGN": [], "ReLU": []}
    for _ in range(10):
        dlgn = DeepLinearlyGatedNetwork(widths, gate=HardGate(), dtype=torch.float64, generator=generator)
        relu = mlp(widths, bias=True, dtype=torch.float64, generator=generator)
        for layer in (relu[0], relu[2]):
            nn.init.normal_(layer.get_parameter("bias"), generator=generator)
        for name, opens in (("DLGN", _dlgn_gates(dlgn)), ("ReLU", _relu_gates(relu))):
            ends = [3 * torch.randn(2000, 2, generator=generator, dtype=torch.float64) for _ in range(2)]
            share = torch.rand(2000, 1, generator=generator, dtype=torch.float64)
            codes = [opens(point) for point in (*ends, share * ends[0] + (1 - share) * ends[1])]
            both = [a & b for a, b in zip(codes[0], codes[1], strict=True)]
            # A path open at both ends but not between exists iff, in some layer, a unit open at both ends closes
            # between, and every other layer has a unit open at both ends to complete the path.
            completes = torch.stack([layer.any(dim=1) for layer in both]).all(dim=0)
            closes = torch.stack([(a & ~b).any(dim=1) for a, b in zip(both, codes[2], strict=True)]).any(dim=0)
            tried[name].append(int(completes.sum()))
            violations[name].append(int((completes & closes).sum()))
    return Measurement(
        (
            Check("DLGN: segments that leave a region", sum(violations["DLGN"]), 0, "half-spaces are convex"),
            Check("−(segments tried)", -sum(tried["DLGN"]), -1000, "with few segments the claim would not be tested"),
        ),
        Plot(
            "network",
            "share of segments that leave a path's active region",
            tuple(
                Curve(name, tuple(range(1, 11)), tuple(v / max(1, t) for v, t in zip(left, tried[name], strict=True)))
                for name, left in violations.items()
            ),
        ),
        (f"of {sum(tried['ReLU'])} segments in ReLU networks {sum(violations['ReLU'])} leave the active region.",),
    )


def _dlgn_gates(model: DeepLinearlyGatedNetwork) -> Callable[[Tensor], list[Tensor]]:
    spaces = [(layer.normals(), layer.offsets) for layer in half_spaces(model).values()]
    return lambda x: [x @ normals.T + offsets > 0 for normals, offsets in spaces]


def _relu_gates(model: nn.Sequential) -> Callable[[Tensor], list[Tensor]]:
    def gates(x: Tensor) -> list[Tensor]:
        first = model[0](x).detach()
        return [first > 0, model[2](first.clamp(min=0)).detach() > 0]

    return gates
