"""Write what neural-tangents says about infinitely wide networks on small cases; our tests compare with the file.

Run by hand, with the Python of ``benchmarks.peers.environment.neural_tangents()``, from the project's folder:
``.bench-venv/neural-tangents/bin/python -m benchmarks.peers.neural_tangents_limits``.
"""

import json
import sys
import types
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

# It is imported with the package and needs TensorFlow; nothing here uses it.
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

import jax  # noqa: E402
from neural_tangents import stax  # noqa: E402

FILE = Path(__file__).parents[2] / "tests" / "kernels" / "neural_tangents_limits.json"
# Layers, size of the images (height, width, channels), filter size; a network without convolutions has none of them.
CASES = {
    "dense, depth 2": (0, (1, 1, 5), 1, False),
    "dense, depth 4": (2, (1, 1, 5), 1, False),
    "one convolution, flattened": (1, (3, 4, 2), 3, False),
    "one convolution, pooled": (1, (3, 4, 2), 3, True),
    "three convolutions, flattened": (3, (5, 4, 3), 3, False),
    "three convolutions, pooled": (3, (5, 4, 3), 3, True),
    "two convolutions of 5 × 5, pooled": (2, (6, 5, 1), 5, True),
}


def images(count: int, shape: tuple[int, ...], phase: float) -> np.ndarray:
    """Numbers that any program can repeat."""
    size = count * int(np.prod(shape))
    return np.sin(1.7 * np.arange(size) ** 1.1 + phase).reshape(count, *shape)


def network(convolutions: int, channels: int, filter_size: int, pooled: bool, *, dense: bool) -> Any:
    """A ReLU network whose first layer has unit weights, not divided by the channels; later ones √(2/fan-in)."""
    layers = []
    for layer in range(convolutions + dense):
        scale = sqrt(channels) if layer == 0 else sqrt(2)
        window = (filter_size, filter_size)
        made = stax.Dense(1, scale, None) if dense else stax.Conv(1, window, padding="SAME", W_std=scale, b_std=None)
        layers += [made, stax.Relu()]
    joined = [] if dense else [stax.GlobalAvgPool() if pooled else stax.Flatten()]
    return stax.serial(*layers, *joined, stax.Dense(1, sqrt(2), None))[2]


def main() -> None:
    """Compute all cases in float64 and write the file."""
    jax.config.update("jax_enable_x64", True)
    found = {}
    for name, (convolutions, shape, filter_size, pooled) in CASES.items():
        dense = name.startswith("dense")
        x, y = images(3, shape, 0.0), images(2, shape, 0.5)
        kernel = network(convolutions, shape[2], filter_size, pooled, dense=dense)
        if dense:
            kernels = kernel(x.reshape(3, -1), y.reshape(2, -1), ("nngp", "ntk"))
        else:
            kernels = kernel(x, y, ("nngp", "ntk"))
        found[name] = {
            "convolutions": convolutions, "filter_size": filter_size, "pooled": pooled,
            "x": x.transpose(0, 3, 1, 2).tolist(), "y": y.transpose(0, 3, 1, 2).tolist(),
            "nngp": np.asarray(kernels.nngp).tolist(), "ntk": np.asarray(kernels.ntk).tolist(),
        }  # fmt: skip
    FILE.write_text(json.dumps({"made by": "neural-tangents 0.6.5, jax 0.4.23, float64", "cases": found}) + "\n")


if __name__ == "__main__":
    main()
