"""Write what gatelab computes on 20 small networks: web/tests/golden, with which the playground's engine must agree.

``python -m tools.playground_golden`` writes the files; ``tests/web/test_golden.py`` compares them with the library, and
``web/tests/golden.test.ts`` with the engine, both to 1e-9.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.models import from_playground
from gatelab.models.playground import FORMAT, VERSION
from gatelab.paths import count_paths
from gatelab.regions import count_active_paths, linear_regions_2d

FOLDER = Path(__file__).parents[1] / "web" / "tests" / "golden"
EXAMPLES = 7
RIDGE = 1e-3
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.01}
# kind, hidden widths, biases, gate, β
CASES: dict[str, tuple[str, list[int], bool, str, float]] = {
    "relu-1": ("relu", [6], True, "hard", 8.0),
    "relu-2-plain": ("relu", [5, 4], False, "hard", 8.0),
    "relu-3": ("relu", [8, 8, 8], True, "hard", 8.0),
    "relu-uneven": ("relu", [9, 3, 7], True, "hard", 8.0),
    "relu-6": ("relu", [5, 5, 5, 5, 5, 5], True, "hard", 8.0),
    "relu-wide": ("relu", [32], True, "hard", 8.0),
    "dgn-hard": ("dgn", [6, 6], True, "hard", 8.0),
    "dgn-hard-plain": ("dgn", [7, 5], False, "hard", 8.0),
    "dgn-hard-4": ("dgn", [4, 4, 4, 4], True, "hard", 8.0),
    "dgn-soft": ("dgn", [6, 6], True, "soft", 8.0),
    "dgn-soft-plain": ("dgn", [5, 6, 5], False, "soft", 3.0),
    "dgn-straight": ("dgn", [6, 5], True, "straight", 4.0),
    "dlgn": ("dlgn", [6, 6], True, "soft", 10.0),
    "dlgn-plain": ("dlgn", [5, 5], False, "soft", 4.0),
    "dlgn-hard": ("dlgn", [6, 4, 5], True, "hard", 8.0),
    "dlgn-straight": ("dlgn", [5, 6], True, "straight", 6.0),
    "dlgn-pwc": ("dlgn-pwc", [6, 5], True, "soft", 10.0),
    "dlgn-pwc-3": ("dlgn-pwc", [5, 5, 5], True, "soft", 6.0),
    "dln": ("dln", [5, 4], True, "hard", 8.0),
    "dln-plain": ("dln", [4, 4, 4], False, "hard", 8.0),
}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every case's name and its facts."""
    for number, (name, (kind, hidden, bias, gate, beta)) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(2300 + number)
        told = _told(kind, hidden, bias, gate, beta, generator)
        x = _rounded(torch.randn(EXAMPLES, 2, dtype=torch.float64, generator=generator))
        y = (torch.randint(2, (EXAMPLES,), generator=generator) * 2 - 1).double()
        yield name, facts(told, x, y)


def facts(told: dict[str, Any], x: Tensor, y: Tensor) -> dict[str, Any]:
    """Compute all that the engine must reproduce for one network, examples and labels."""
    export = {"format": FORMAT, "version": VERSION, "networks": [told]}

    def net() -> nn.Module:
        return from_playground(export)

    model = net()
    has_gates = told["kind"] != "dln"
    # Without gates every path is open: Λ = 1, and H is the Gram matrix of the inputs.
    path_kernel = gl.neural_path_kernel(model, x) if has_gates else x @ x.T
    split = hasattr(model, "value")
    return {
        "network": told,
        "x": x.tolist(),
        "y": y.tolist(),
        "outputs": model(x).flatten().tolist(),
        "gradient": _gradient(model, x, y).tolist(),
        "trained": {method: _trained(net(), method, x, y).tolist() for method in RATES},
        "gates": _gates(model, x) if has_gates else None,
        "partition": _partition(model),
        "open_paths": count_active_paths(model, x).tolist() if has_gates else None,
        "paths": [_paths(model, example) for example in x[:3]],
        "overlap": gl.overlap_kernel(gl.capture_gates(model, x)).tolist() if has_gates else None,
        "path_kernel": path_kernel.tolist(),
        "tangent_kernel": gl.neural_tangent_kernel(model, x).tolist(),
        "value_kernel": gl.neural_tangent_kernel(model, x, wrt=model.value).tolist() if split else None,
        "feature_kernel": gl.neural_tangent_kernel(model, x, wrt=model.feature).tolist() if split else None,
        "spectrum": gl.kernels.spectrum(path_kernel / path_kernel.trace()).tolist(),
        "alignment": gl.kernels.label_alignment(path_kernel, y),
        "complexity": gl.kernels.label_complexity(path_kernel, y, ridge=RIDGE),
    }


def _told(
    kind: str, hidden: list[int], bias: bool, gate: str, beta: float, generator: torch.Generator
) -> dict[str, Any]:
    widths = [2, *hidden, 1]

    def layer(inputs: int, outputs: int, biased: bool) -> dict[str, Any]:
        weight = torch.randn(outputs, inputs, dtype=torch.float64, generator=generator) * (1.6 / inputs) ** 0.5
        shift = torch.randn(outputs, dtype=torch.float64, generator=generator) * 0.4
        return {"weight": _rounded(weight).tolist(), "bias": _rounded(shift).tolist() if biased else None}

    linear = kind in {"dlgn", "dlgn-pwc"}
    features = [] if kind in {"relu", "dln"} else list(pairwise(widths[:-1]))
    return {
        "kind": kind,
        "widths": widths,
        "gate": gate,
        "beta": beta,
        "feature": [layer(*sizes, bias) for sizes in features],
        "value": [layer(*sizes, bias and not linear) for sizes in pairwise(widths)],
    }


def _rounded(numbers: Tensor) -> Tensor:
    """Four decimals, so that files stay small."""
    return (numbers * 1e4).round() / 1e4


def _flat(model: nn.Module, gradients: bool = False) -> Tensor:
    parts = []
    for parameter in model.parameters():
        missing = torch.zeros_like(parameter)
        part = (missing if parameter.grad is None else parameter.grad) if gradients else parameter
        parts.append(part.detach().flatten())
    return torch.cat(parts)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (model(x).flatten() - y).square().mean() / 2


def _gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    model.zero_grad()
    _loss(model, x, y).backward()
    gradient = _flat(model, gradients=True)
    model.zero_grad()
    return gradient


def _trained(model: nn.Module, method: str, x: Tensor, y: Tensor, steps: int = 5) -> Tensor:
    """Return the parameters after a few steps on all examples."""
    rate, parameters = RATES[method], list(model.parameters())
    optimiser = (
        torch.optim.Adam(parameters, lr=rate)
        if method == "adam"
        else torch.optim.SGD(parameters, lr=rate, momentum=0.9 if method == "momentum" else 0.0)
    )
    for _ in range(steps):
        optimiser.zero_grad()
        _loss(model, x, y).backward()
        optimiser.step()
    return _flat(model)


def _gates(model: nn.Module, x: Tensor) -> list[list[float]]:
    """Return the gates of each example as the network computes them, all layers in one row."""
    pattern = gl.capture_gates(model, x)
    return torch.cat([pattern.layer(name).factors(torch.float64).flatten(1) for name in pattern], 1).tolist()


def _partition(model: nn.Module) -> dict[str, Any]:
    bounds = ((-1.5, 2.0), (-1.25, 1.5))
    partition = linear_regions_2d(model, bounds=bounds)
    # Maps in an order that does not depend on that of the regions.
    order = partition.areas.argsort()
    return {
        "bounds": [*bounds[0], *bounds[1]],
        "regions": len(partition),
        "areas": partition.areas[order].tolist(),
        "maps": partition.maps[order, 0].tolist(),
    }


def _paths(model: nn.Module, example: Tensor) -> dict[str, Any]:
    paths = gl.top_paths(model, example, k=6)
    told = [{"start": path.start, "units": list(path.units), "contribution": path.contribution} for path in paths]
    return {"count": count_paths(model, example), "top": told}


def main() -> None:
    """Write one file for each case."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, case in cases():
        (FOLDER / f"{name}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
