"""gatelab: a laboratory for the gates and paths inside ReLU networks.

A ReLU is a gate times a linear unit, so that a network is a sum over paths: which paths are open for an input (the
gates) and what each is worth (the weights). The names below compute these quantities on any PyTorch model.
They are imported on first use, so that ``import gatelab`` and ``gatelab --help`` do not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatelab import (
        convert,
        data,
        dynamics,
        errors,
        executors,
        experiments,
        figures,
        gates,
        graph,
        hierarchy,
        kernels,
        models,
        paths,
        regions,
        report,
        runs,
        theorems,
    )
    from gatelab.convert import Regime, to_dgn, to_dlgn, to_dln, widen_values
    from gatelab.dynamics import GateTracker
    from gatelab.gates import GatePattern, capture_gates
    from gatelab.kernels import (
        infinite_width_ntk,
        neural_path_kernel,
        neural_tangent_kernel,
        open_kernel,
        overlap_kernel,
        path_features,
        value_tangent_kernel,
    )
    from gatelab.paths import Path, neural_path_features, neural_path_values, top_paths
    from gatelab.regions import active_region, half_spaces

__version__ = "0.1.0"

_HOMES = {
    "GatePattern": "gatelab.gates",
    "GateTracker": "gatelab.dynamics",
    "Path": "gatelab.paths",
    "Regime": "gatelab.convert",
    "active_region": "gatelab.regions",
    "capture_gates": "gatelab.gates",
    "half_spaces": "gatelab.regions",
    "infinite_width_ntk": "gatelab.kernels",
    "neural_path_features": "gatelab.paths",
    "neural_path_kernel": "gatelab.kernels",
    "neural_path_values": "gatelab.paths",
    "neural_tangent_kernel": "gatelab.kernels",
    "open_kernel": "gatelab.kernels",
    "overlap_kernel": "gatelab.kernels",
    "path_features": "gatelab.kernels",
    "to_dgn": "gatelab.convert",
    "to_dlgn": "gatelab.convert",
    "to_dln": "gatelab.convert",
    "top_paths": "gatelab.paths",
    "value_tangent_kernel": "gatelab.kernels",
    "widen_values": "gatelab.convert",
}
_PACKAGES = (
    *(
        "convert",
        "data",
        "dynamics",
        "errors",
        "executors",
        "experiments",
        "figures",
        "gates",
        "graph",
        "hierarchy",
        "kernels",
        "models",
        "paths",
    ),
    *("regions", "report", "runs", "theorems"),
)

__all__ = [
    "GatePattern",
    "GateTracker",
    "Path",
    "Regime",
    "__version__",
    "active_region",
    "capture_gates",
    "convert",
    "data",
    "dynamics",
    "errors",
    "executors",
    "experiments",
    "figures",
    "gates",
    "graph",
    "half_spaces",
    "hierarchy",
    "infinite_width_ntk",
    "kernels",
    "models",
    "neural_path_features",
    "neural_path_kernel",
    "neural_path_values",
    "neural_tangent_kernel",
    "open_kernel",
    "overlap_kernel",
    "path_features",
    "paths",
    "regions",
    "report",
    "runs",
    "theorems",
    "to_dgn",
    "to_dlgn",
    "to_dln",
    "top_paths",
    "value_tangent_kernel",
    "widen_values",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"gatelab.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gatelab' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
