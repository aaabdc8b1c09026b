"""Prints the peak memory of one tangent kernel, in units of its result. Run in a process of its own."""

import gatelab as gl
from benchmarks.memory import peak_of
from benchmarks.tangent import N, problem

model, x = problem()
gl.neural_tangent_kernel(model, x[:64])  # first use loads libraries and starts threads
print(peak_of(lambda: gl.neural_tangent_kernel(model, x)) / (4 * N * N))
