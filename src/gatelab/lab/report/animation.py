"""An animation as one HTML file with a time slider: the facts as JSON, drawn by a few lines of script in the page."""

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from gatelab.figures import Heatmap, Plot
from gatelab.figures.facts import Panel
from gatelab.figures.scales import ColourScale, colour_scales
from gatelab.lab.findings import Animation
from gatelab.lab.report.html import PAGES


def animation_page(animation: Animation) -> str:
    """Return the page; it links to no other file."""
    scales = iter(colour_scales(panel for frame in animation.frames for panel in frame.panels.panels))
    frames = [
        {
            "label": frame.label,
            "columns": frame.panels.columns,
            "panels": [_plain(panel, next(scales)) for panel in frame.panels.panels],
        }
        for frame in animation.frames
    ]
    return PAGES.get_template("animation.html").render(animation=animation, frames=_script_safe(frames))


def _plain(panel: Panel, scale: ColourScale | None) -> dict[str, Any]:
    if isinstance(panel, Heatmap) and scale is not None:
        return {"kind": "heatmap", "title": panel.title, "rows": _bytes(panel, scale), "scale": asdict(scale)}
    return {"kind": "plot" if isinstance(panel, Plot) else "shapes", **asdict(panel)}


def _bytes(panel: Heatmap, scale: ColourScale) -> list[list[int | None]]:
    """Return a matrix as whole numbers from 0 to 255: shades show no more, and these take a third of the space."""
    return [[round(255 * scale.share(v)) if isfinite(v) else None for v in row] for row in panel.values]


def _script_safe(value: Any) -> str:
    """JSON for a script element: short numbers, and no "<" that could end the element."""
    return json.dumps(_short(value), separators=(",", ":")).replace("<", "\\u003c")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    return [_short(part) for part in value] if isinstance(value, list | tuple) else value
