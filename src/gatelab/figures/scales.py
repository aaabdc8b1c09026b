"""Which number each shade of a heat map stands for."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from gatelab.figures.facts import Heatmap, Panel


@dataclass(frozen=True)
class ColourScale:
    """The numbers of the first and last shade, and what they measure; without a label there is no colour bar."""

    label: str | None
    low: float
    high: float
    diverging: bool

    def share(self, value: float) -> float:
        """Return where a number lies on the scale, from 0 to 1; ½ if both ends are equal."""
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def colour_scales(panels: Iterable[Panel]) -> list[ColourScale | None]:
    """Return each panel's scale, or None if it is not a heat map; heat maps that name the same scale share one."""
    panels = tuple(panels)
    groups: dict[object, list[Heatmap]] = {}
    for place, panel in enumerate(panels):
        if isinstance(panel, Heatmap):
            groups.setdefault(_group(panel, place), []).append(panel)
    scales = {name: _scale(heatmaps) for name, heatmaps in groups.items()}
    return [scales[_group(panel, place)] if isinstance(panel, Heatmap) else None for place, panel in enumerate(panels)]


def _group(heatmap: Heatmap, place: int) -> object:
    return place if heatmap.scale is None else (heatmap.scale, heatmap.diverging)


def _scale(heatmaps: list[Heatmap]) -> ColourScale:
    lows, highs = [], []
    for heatmap in heatmaps:
        finite = [value for row in heatmap.values for value in row if isfinite(value)]
        lows.append(min(finite, default=0.0) if heatmap.low is None else heatmap.low)
        highs.append(max(finite, default=1.0) if heatmap.high is None else heatmap.high)
    low, high, first = min(lows), max(highs), heatmaps[0]
    if first.diverging and all(heatmap.low is None and heatmap.high is None for heatmap in heatmaps):
        high = max(abs(low), abs(high))
        low = -high
    return ColourScale(first.scale, low, high, first.diverging)
