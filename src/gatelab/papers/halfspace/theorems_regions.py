"""The regions of "Half-Space Feature Learning in Neural Networks" (halfspace), measured with exact geometry."""

from itertools import product

import torch
from torch import nn

from gatelab.figures import Curve, Panels, Plot
from gatelab.gates import HardGate, capture_gates
from gatelab.lab.measure import EXACT
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.papers.halfspace.figure1 import disconnected_network, figure1, line_panel, square_panel
from gatelab.regions import active_region, linear_regions_2d, region_counts

BOUNDS = ((-3.0, 3.0), (-3.0, 3.0))
EPSILONS = (1.0, 1e-1, 1e-3, 1e-6, 1e-9, -1e-9, -1e-6, -1e-3, -1e-1, -1.0)


@theorem(
    "halfspace-fig1a",
    "Figure 1, left",
    "A path of a ReLU network can be active on two intervals and not between",
)
def path_region_is_disconnected(seed: int) -> Measurement:
    """The pieces of the line where both gates are open, against the gates seen at random inputs."""
    facts = figure1()
    published = ((0.5, 1.5), (2.5, 3.5))
    pairs = zip(facts.intervals, published, strict=False)
    ends = [abs(end - wanted[side]) for own, wanted in pairs for side, end in enumerate(own)]
    x = 6 * torch.rand(2000, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    pattern = capture_gates(disconnected_network(), x)
    seen = pattern["1"][:, 0] & pattern["3"][:, 0]
    inside = torch.stack([(x[:, 0] > low) & (x[:, 0] < high) for low, high in facts.intervals]).any(dim=0)
    return Measurement(
        (
            Check("|number of intervals − 2|", abs(len(facts.intervals) - 2), 0, "the caption names two"),
            Check("ends against [0.5, 1.5] ∪ [2.5, 3.5]", max(ends), 1e-12, EXACT),
            Check("inputs whose gates say otherwise", int((seen != inside).sum()), 0, "the region is exact"),
        ),
        line_panel(facts),
        ("the paper gives no weights; these are ours. Its gates open at 0 too, so that its intervals are closed.",),
    )


@theorem(
    "halfspace-fig1b",
    "Figure 1, right",
    "A ReLU path's region jumps from a half-plane to a quadrant when a weight ε changes sign",
)
def path_region_jumps(seed: int) -> Measurement:
    """The exact area of the region on [−1, 1]² for ε of both signs and many sizes."""
    del seed  # nothing is drawn at random
    facts = figure1(EPSILONS)
    half = max(abs(area - 2) for epsilon, area in facts.areas.items() if epsilon > 0)
    quadrant = max(abs(area - 1) for epsilon, area in facts.areas.items() if epsilon < 0)
    polygons = [polygon for epsilon, region in facts.regions.items() if epsilon < 0 for polygon in region]
    outside = max(max(0.0, -s, -t) for polygon in polygons for s, t in polygon)
    return Measurement(
        (
            Check("ε > 0: |area − 2|", half, 1e-12, "the right half of the square, for every ε > 0"),
            Check("ε < 0: |area − 1|", quadrant, 1e-12, "a quarter of the square, for every ε < 0"),
            Check("ε < 0: how far the region leaves the first quadrant", outside, 1e-12, EXACT),
        ),
        Panels(tuple(square_panel(facts, epsilon) for epsilon in facts.regions), len(EPSILONS) // 2),
        ("the two parameters ε = ±1e-9 differ by 2e-9, the regions by half of their area.",),
    )


@theorem(
    "halfspace-3.1-regions",
    "Section 3.1",
    "A path's active region is a union of activation-pattern regions, few of the 2^((m−1)(L−1)) that could be",
)
def path_region_is_a_union_of_patterns(seed: int) -> Measurement:
    """Areas of path regions by half-spaces and by cells; patterns counted one by one; regions counted for many m."""
    generator = torch.Generator().manual_seed(seed)
    m, layers = 4, 3
    model = _dlgn(m, layers, generator)
    partition = linear_regions_2d(model, None, BOUNDS)
    errors, occurring, faces = [], [], []
    for path in product(range(m), repeat=layers):
        cells, region = partition.along(path), active_region(model, path)
        errors.append(abs(_area(region.polygon(BOUNDS)) - partition.areas[cells].sum().item()))
        occurring.append(int(cells.sum()))
        faces.append(0 if region.is_empty() else region.faces)
    claimed = 2 ** ((m - 1) * layers)
    formal = sum(all(bits[m * layer] for layer in range(layers)) for bits in product((0, 1), repeat=m * layers))
    sizes = (2, 3, 4, 5, 6, 8, 10)
    counts = [region_counts(_dlgn(size, layers, generator), bounds=BOUNDS) for size in sizes]
    curves = {
        "paths, m^(L−1)": [count.paths for count in counts],
        "path regions that are not empty": [count.active_paths for count in counts],
        "activation-pattern regions": [count.patterns for count in counts],
        "most that lines allow": [count.most_patterns for count in counts],
    }
    return Measurement(
        (
            Check("area of A_π: half-spaces against cells", max(errors) / 36, 1e-8, "linear programmes keep 1e-10"),
            Check("|bit patterns that open π − 2^((m−1)(L−1))|", abs(formal - claimed), 0, "counted one by one"),
            Check("pattern regions in one A_π − that many", max(occurring) - claimed, 0, "a part cannot be more"),
            Check("faces of A_π − (L − 1)", max(faces) - layers, 0, "one half-space per gate"),
            Check(
                "pattern regions − (1 + N + N(N−1)/2)",
                max(count.patterns - count.most_patterns for count in counts),
                0,
                "N lines in a plane",
            ),
        ),
        Plot(
            "m",
            f"number of regions, L − 1 = {layers}, two inputs",
            tuple(Curve(name, tuple(map(float, sizes)), tuple(map(float, values))) for name, values in curves.items()),
            log=True,
        ),
        (
            f'"precisely 2^((m−1)(L−1))" counts bit patterns, empty regions included: for m = {m}, L − 1 = {layers} '
            f"it is {claimed}, but a path's region holds at most {max(occurring)} pattern regions of some area, "
            f"{sum(occurring) / len(occurring):.1f} on average.",
            f"path regions are fewer than patterns only as m^(L−1) against 2^(m(L−1)); on a plane, at m = {sizes[-1]}, "
            f"{counts[-1].active_paths} path regions are not empty and {counts[-1].patterns} pattern regions.",
        ),
    )


def _dlgn(width: int, layers: int, generator: torch.Generator) -> DeepLinearlyGatedNetwork:
    widths = [2, *[width] * layers, 1]
    model = DeepLinearlyGatedNetwork(widths, gate=HardGate(), dtype=torch.float64, generator=generator)
    for layer in model.feature:
        nn.init.normal_(layer.get_parameter("bias"), generator=generator)
    return model


def _area(corners: torch.Tensor) -> float:
    x, y = corners.unbind(1)
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)
