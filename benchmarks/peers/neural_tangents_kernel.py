"""The peer's process: neural-tangents on the network of the problem, written in plain jax."""

import sys
import time
import types

import numpy as np

from benchmarks.peers.serve import Work, pin_threads, serve

pin_threads()  # before jax counts the cores
# It is imported with the package and needs TensorFlow; nothing here uses it.
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

import jax  # noqa: E402
import neural_tangents as nt  # noqa: E402
from jax import Array, lax  # noqa: E402

Parameters = list[tuple[Array, Array]]


def network(parameters: Parameters, x: Array) -> Array:
    """3×3 convolutions that keep the size, global average pooling if there were any, dense layers; ReLU between."""
    h = x
    for position, (weight, bias) in enumerate(parameters):
        if position > 0:
            h = jax.nn.relu(h)
        if weight.ndim == 4:
            h = lax.conv_general_dilated(h, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
        else:
            h = (h.mean((1, 2)) if h.ndim == 4 else h) @ weight + bias
    return h


def prepare(way: str, problem: dict[str, np.ndarray]) -> tuple[Work, float]:
    """Compile the kernel, traced over outputs (neural-tangents divides the trace by their number)."""
    x = problem.pop("x")
    x = jax.device_put(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)
    layers = sorted({name.rsplit(".", 1)[0] for name in problem}, key=int)
    parameters: Parameters = []
    for layer in layers:
        weight = problem[f"{layer}.weight"]
        axes = (2, 3, 1, 0) if weight.ndim == 4 else (1, 0)
        parameters.append((jax.device_put(weight.transpose(axes)), jax.device_put(problem[f"{layer}.bias"])))
    kernel = nt.empirical_ntk_fn(
        network, trace_axes=(-1,), vmap_axes=0, implementation=getattr(nt.NtkImplementation, way)
    )
    start = time.perf_counter()
    compiled = jax.jit(lambda x, parameters: kernel(x, None, parameters)).lower(x, parameters).compile()
    compiling = time.perf_counter() - start
    outputs = len(problem[f"{layers[-1]}.bias"])

    def work() -> np.ndarray:
        return np.asarray(compiled(x, parameters)) * outputs

    return work, compiling


if __name__ == "__main__":
    serve(prepare)
