"""The theorems and region claims of "Half-Space Feature Learning in Neural Networks" (halfspace), measured.

A network, such as a ReLU network or a deep linearly gated network (DLGN), is a mixture of experts Σ_π f_π(x) g_π(x),
with a gating model f_π and a linear expert g_π for each path π through the hidden layers. Sums run over all paths of
small networks, in float64; regions are exact.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.figures import Panels, Plot
from gatelab.gates import HardGate
from gatelab.lab.measure import EXACT, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.network import capture_gates
from gatelab.papers.common import at_least, dots, measurement
from gatelab.papers.halfspace.figure1 import disconnected_network, figure1, line_panel, square_panel
from gatelab.paths import mixture_of_experts
from gatelab.regions import Polyhedron, RegionPlan, active_region, half_spaces, linear_regions_2d, region_counts

M = TypeVar("M", bound=nn.Module)
MIXTURE = "Σ_π f_π g_π against ŷ"
WIDTHS = (3, 4, 3, 4, 1)
BOUNDS = ((-3.0, 3.0), (-3.0, 3.0))
EPSILONS = (1.0, 1e-1, 1e-3, 1e-6, 1e-9, -1e-9, -1e-6, -1e-3, -1e-1, -1.0)


def _mixture(gates: list[Bool[Tensor, "n _"]], weights: list[Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """Σ_π f_π(x) g_π(x), one path after another (Eqs 1, 3 and 5)."""
    first, *middle, last = weights
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for path in product(*(range(gate.shape[1]) for gate in gates)):
        is_open = torch.stack([gate[:, unit] for gate, unit in zip(gates, path, strict=True)]).all(dim=0)
        pairs = zip(middle, path[1:], path[:-1], strict=True)
        worth = prod(weight[after, before].item() for weight, after, before in pairs) * last[0, path[-1]].item()
        total += is_open.to(x.dtype) * worth * (x @ first[path[0]])
    return total


def _alive(seed: int, draw: Callable[[torch.Generator], M]) -> tuple[M, Tensor, Tensor]:
    """Draw a network and a hundred inputs until half of these or more open a path, and return ŷ as well.

    For an input that opens no path both sides of the theorem are 0, which shows nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(100, WIDTHS[0], generator=generator, dtype=torch.float64)
        model = draw(generator)
        output = model(x).detach()[:, 0]
        if int((output != 0).sum()) >= 50:
            return model, x, output


def _of_mixture(
    model: nn.Module, x: Float[Tensor, "n d"], output: Float[Tensor, " n"], by_hand: Float[Tensor, " n"], *more: Check
) -> Measurement:
    """Compare ŷ with the library's mixture and with the sum by hand; gates of other inputs, or open, give another ŷ."""
    mixture = mixture_of_experts(model)
    gates, experts = mixture.gating(x), mixture.expert(x)[:, :, 0]
    paths = list(product(*map(range, WIDTHS[1:-1])))
    gate_by_gate = torch.stack([mixture.gating(x, path) for path in paths], dim=1)
    one_by_one = torch.stack([mixture.expert(x, path)[:, 0] for path in paths], dim=1)
    moved, opened = (mixture.gating(x.roll(1, 0)) * experts).sum(dim=1), experts.sum(dim=1)
    return measurement(
        against(by_hand, output, "ŷ(x)"),
        identity(MIXTURE, (gates * experts).sum(dim=1), output),
        identity(f"{MIXTURE}, path by path", by_hand, output),
        identity("the mixture called, against ŷ", mixture(x)[:, 0], output),
        identity("f_π of one path against that of all", gate_by_gate, gates),
        identity("g_π of one path against that of all", one_by_one, experts),
        *more,
        at_least("gates of another input: rel. error", relative_error(moved, output), 0.1, "f_π depends on x"),
        at_least("gates all open: rel. error", relative_error(opened, output), 0.1, "that network is linear"),
    )


@theorem("halfspace-1", "Theorem 1", "A ReLU network is a mixture of linear experts, one for each path")
def relu_network_is_a_mixture(seed: int) -> Measurement:
    """Recompute the gates layer by layer from their definition, and sum over the paths."""
    model, x, output = _alive(seed, lambda generator: mlp(WIDTHS, dtype=torch.float64, generator=generator))
    weights = [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
    return _of_mixture(model, x, output, _mixture(_relu_gates(model)(x), weights, x))


@theorem("halfspace-2", "Theorem 2", "A DLGN is a mixture of linear experts that half-spaces of the input gate")
def linearly_gated_network_is_a_mixture(seed: int) -> Measurement:
    """Compute the gates from the half-spaces, and sum over the paths; units exchange their half-spaces for contrast."""
    model, x, output = _alive(seed, lambda generator: _dlgn(WIDTHS, generator))
    weights, gates = [weight.detach() for weight in model.value.parameters()], _dlgn_gates(model)(x)
    exchanged = relative_error(_mixture([gate.roll(1, 1) for gate in gates], weights, x), output)
    because = "each path has half-spaces of its own"
    contrast = at_least("half-spaces of another path: rel. error", exchanged, 0.1, because)
    return _of_mixture(model, x, output, _mixture(gates, weights, x), contrast)


@theorem(
    "halfspace-2.2",
    "Section 2.2",
    "The inputs that open a path form a convex set in a DLGN; in a ReLU network they need not",
)
def active_regions_are_convex(seed: int) -> Measurement:
    """Draw segments between two inputs that open a path, and test whether a point between them opens it too."""
    generator = torch.Generator().manual_seed(seed)
    widths = (2, 6, 6, 1)
    violations: dict[str, list[int]] = {"DLGN": [], "ReLU": []}
    tried: dict[str, list[int]] = {"DLGN": [], "ReLU": []}
    other = 0
    for _ in range(10):
        dlgn = _dlgn(widths, generator)
        relu = mlp(widths, bias=True, dtype=torch.float64, generator=generator)
        for layer in (relu[0], relu[2]):
            nn.init.normal_(layer.get_parameter("bias"), generator=generator)
        for name, opens in (("DLGN", _dlgn_gates(dlgn)), ("ReLU", _relu_gates(relu))):
            ends = [3 * torch.randn(2000, 2, generator=generator, dtype=torch.float64) for _ in range(2)]
            share = torch.rand(2000, 1, generator=generator, dtype=torch.float64)
            codes = [opens(point) for point in (*ends, share * ends[0] + (1 - share) * ends[1])]
            if name == "DLGN":  # compare the half-spaces with the network's gates
                pattern = capture_gates(dlgn, ends[0])
                other += sum(int((pattern[at] != own).sum()) for at, own in zip(pattern.layers, codes[0], strict=True))
            both = [a & b for a, b in zip(codes[0], codes[1], strict=True)]
            # A path open at both ends but not between exists iff, in some layer, a unit open at both ends closes
            # between, and every other layer has a unit open at both ends to complete the path.
            completes = torch.stack([layer.any(dim=1) for layer in both]).all(dim=0)
            closes = torch.stack([(a & ~b).any(dim=1) for a, b in zip(both, codes[2], strict=True)]).any(dim=0)
            tried[name].append(int(completes.sum()))
            violations[name].append(int((completes & closes).sum()))
    curves = tuple(
        dots(name, range(1, 11), [v / max(1, t) for v, t in zip(left, tried[name], strict=True)])
        for name, left in violations.items()
    )
    return measurement(
        Plot("network", "share of segments that leave a path's active region", curves),
        Check("DLGN: segments that leave a region", sum(violations["DLGN"]), 0, "half-spaces are convex"),
        Check("DLGN: gates that are not the network's", other, 0, "a gate is a half-space of the input"),
        at_least("segments tried", sum(tried["DLGN"]), 1000, "with few segments the claim would not be tested"),
        at_least("ReLU networks: segments that leave a region", sum(violations["ReLU"]), 10, "not all are convex"),
        note=f"of {sum(tried['ReLU'])} segments in ReLU networks {sum(violations['ReLU'])} leave the active region.",
    )


def _dlgn_gates(model: DeepLinearlyGatedNetwork) -> Callable[[Tensor], list[Tensor]]:
    spaces = [(layer.normals(), layer.offsets) for layer in half_spaces(model).values()]
    return lambda x: [x @ normals.T + offsets > 0 for normals, offsets in spaces]


def _relu_gates(model: nn.Sequential) -> Callable[[Tensor], list[Tensor]]:
    def gates(x: Tensor) -> list[Tensor]:
        found = []
        for layer in list(model)[:-1:2]:
            x = layer(x).detach()
            found.append(x > 0)
            x = x.clamp(min=0)
        return found

    return gates


@theorem(
    "halfspace-fig1a", "Figure 1, left", "A path of a ReLU network can be active on two intervals and not between them"
)
def path_region_is_disconnected(seed: int) -> Measurement:
    """Compare the pieces of the line where both gates are open with the gates captured at random inputs."""
    facts = figure1()
    published = ((0.5, 1.5), (2.5, 3.5))
    pairs = zip(facts.intervals, published, strict=False)
    ends = [abs(end - printed[side]) for own, printed in pairs for side, end in enumerate(own)]
    x = 6 * torch.rand(2000, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    pattern = capture_gates(disconnected_network(), x)
    opened = pattern["1"][:, 0] & pattern["3"][:, 0]
    inside = torch.stack([(x[:, 0] > low) & (x[:, 0] < high) for low, high in facts.intervals]).any(dim=0)
    hull = (x[:, 0] > facts.intervals[0][0]) & (x[:, 0] < facts.intervals[-1][1])
    between = int((opened != hull).sum())
    return measurement(
        line_panel(facts),
        Check("|number of intervals − 2|", abs(len(facts.intervals) - 2), 0, "the caption names two"),
        Check("ends against [0.5, 1.5] ∪ [2.5, 3.5]", max(ends), 1e-12, EXACT),
        Check("inputs whose gates disagree", int((opened != inside).sum()), 0, "the region is exact"),
        at_least("inputs inside the hull that close the path, of 2000", between, 200, "the region is not convex"),
        note="the paper gives no weights; these are ours. Its gates also open at 0, so its intervals are closed.",
    )


@theorem(
    "halfspace-fig1b",
    "Figure 1, right",
    "A ReLU path's region jumps from a half-plane to a quadrant when a weight ε changes sign",
)
def path_region_jumps(seed: int) -> Measurement:
    """Compute the exact area of the region on [−1, 1]² for ε of both signs and many sizes."""
    del seed  # nothing here is random
    facts = figure1(EPSILONS)
    half = max(abs(area - 2) for epsilon, area in facts.areas.items() if epsilon > 0)
    quadrant = max(abs(area - 1) for epsilon, area in facts.areas.items() if epsilon < 0)
    jump = facts.areas[1e-9] - facts.areas[-1e-9]
    polygons = [polygon for epsilon, region in facts.regions.items() if epsilon < 0 for polygon in region]
    outside = max(max(0.0, -s, -t) for polygon in polygons for s, t in polygon)
    return measurement(
        Panels(tuple(square_panel(facts, epsilon) for epsilon in facts.regions), len(EPSILONS) // 2),
        Check("ε > 0: |area − 2|", half, 1e-12, "the right half of the square, for every ε > 0"),
        Check("ε < 0: |area − 1|", quadrant, 1e-12, "a quarter of the square, for every ε < 0"),
        Check("ε < 0: distance by which the region leaves the first quadrant", outside, 1e-12, EXACT),
        at_least("area at ε = 1e-9 − area at ε = −1e-9", jump, 0.99, "a jump, however small ε is"),
        note="the parameters ε = ±1e-9 differ by 2e-9; the smaller region has half the area of the larger.",
    )


@theorem(
    "halfspace-3.1-regions",
    "Section 3.1",
    "A path's active region is a union of activation-pattern regions, of few of the 2^((m−1)(L−1)) possible ones",
)
def path_region_is_a_union_of_patterns(seed: int) -> Measurement:
    """Compare path regions from half-spaces with cells and with gates; count patterns, and regions for many m."""
    generator = torch.Generator().manual_seed(seed)
    m, layers = 4, 3
    model = _dlgn([2, *[m] * layers, 1], generator)
    partition, plan = linear_regions_2d(model, None, BOUNDS), RegionPlan(model)
    x = 6 * torch.rand(2000, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 3
    pattern = capture_gates(model, x)
    gates = torch.stack([pattern[name] for name in pattern.layers], dim=1)
    errors, occurring, strange, elsewhere, unseen, implied = [], [], [], 0, [], 0
    for path in product(range(m), repeat=layers):
        cells, region = partition.along(path), active_region(model, path, plan=plan)
        errors.append(abs(_area(region.polygon(BOUNDS)) - partition.areas[cells].sum().item()))
        strange.append(abs(_area(region.polygon(BOUNDS)) - partition.areas[partition.along(path[::-1])].sum().item()))
        occurring.append(int(cells.sum()))
        opened = gates[:, range(layers), path].all(dim=1)
        elsewhere += int((region.contains(x) != opened).sum())
        unseen.append(len(gates[opened].flatten(1).unique(dim=0)) - occurring[-1])
        implied += _implied_faces(region)
    claimed, others = 2 ** ((m - 1) * layers), (m - 1) * layers
    sizes = (2, 3, 4, 5, 6, 8, 10)
    counts = [region_counts(_dlgn([2, *[size] * layers, 1], generator), bounds=BOUNDS) for size in sizes]
    curves = (
        dots("paths, m^(L−1)", sizes, [count.paths for count in counts]),
        dots("path regions that are not empty", sizes, [count.active_paths for count in counts]),
        dots("activation-pattern regions", sizes, [count.patterns for count in counts]),
        dots("most that lines allow", sizes, [count.most_patterns for count in counts]),
    )
    most = [_cells_of_lines(size * layers) for size in sizes]
    beyond = max(count.patterns - cells for count, cells in zip(counts, most, strict=True))
    unlike = sum(abs(count.most_patterns - cells) for count, cells in zip(counts, most, strict=True))
    unlike += sum(abs(count.paths - size**layers) for count, size in zip(counts, sizes, strict=True))
    own, entered = region_counts(model, bounds=BOUNDS), sum(count > 0 for count in occurring)
    miscounted = abs(own.patterns - len(partition.areas)) + abs(own.active_paths - entered)
    return Measurement(
        (
            Check("area of A_π: half-spaces against cells", max(errors) / 36, 1e-8, "linear programmes reach 1e-10"),
            at_least("the same, cells of the reversed path", max(strange) / 36, 0.05, "each path has its own region"),
            Check("inputs that A_π holds though a gate is closed, or not though all are open", elsewhere, 0, "exact"),
            Check("patterns of inputs in one A_π − its pattern regions", max(unseen), 0, "each has a region"),
            Check(
                f"pattern regions in one A_π − {_cells_of_lines(others)}",
                max(occurring) - _cells_of_lines(others),
                0,
                f"{others} other lines make no more cells, few of the {claimed}",
            ),
            Check("faces of A_π that other faces imply", implied, 0, "A_π has as few faces as it can"),
            Check("pattern regions − (1 + N + N(N−1)/2)", beyond, 0, "N lines in a plane"),
            Check("m^(L−1) and 1 + N + N(N−1)/2: the library against the formulas", unlike, 0, "whole numbers"),
            Check("regions of one network: counted against the cells", miscounted, 0, "whole numbers"),
        ),
        Plot("m", f"number of regions, L − 1 = {layers}, two inputs", curves, log=True),
        (
            f'"precisely 2^((m−1)(L−1))" counts bit patterns, empty regions included: for m = {m}, L − 1 = {layers} '
            f"it is {claimed}, but a path's region holds at most {max(occurring)} pattern regions of some area, "
            f"{sum(occurring) / len(occurring):.1f} on average.",
            f"path regions are fewer than patterns only as bounds, m^(L−1) against 2^(m(L−1)); on a plane, at m = "
            f"{sizes[-1]}, {counts[-1].active_paths} path regions and {counts[-1].patterns} pattern regions are not "
            "empty.",
        ),
    )


def _implied_faces(region: Polyhedron) -> int:
    """Number of faces beyond which there is nothing even without them; 0 if the region is empty."""
    if region.is_empty():
        return 0
    flips = torch.ones(region.faces, region.faces, dtype=torch.float64) - 2 * torch.eye(region.faces)
    return sum(Polyhedron(flip[:, None] * region.normals, flip * region.offsets).is_empty() for flip in flips)


def _cells_of_lines(lines: int) -> int:
    """The most cells into which lines cut a plane."""
    return 1 + lines + lines * (lines - 1) // 2


def _dlgn(widths: Sequence[int], generator: torch.Generator) -> DeepLinearlyGatedNetwork:
    """Draw a DLGN whose half-spaces have offsets: with zero biases all of them would end at the origin."""
    model = DeepLinearlyGatedNetwork(widths, gate=HardGate(), dtype=torch.float64, generator=generator)
    for layer in model.feature:
        nn.init.normal_(layer.get_parameter("bias"), generator=generator)
    return model


def _area(corners: torch.Tensor) -> float:
    x, y = corners.unbind(1)
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)
