"""Prints the peak memory of a ResNet's path kernel, in units of 4 GiB. Run in a process of its own."""

import sys

import gatelab as gl
from benchmarks.memory import peak_of
from benchmarks.residual import EXAMPLES, problem

model, x = problem(sys.argv[1], EXAMPLES)
gl.neural_path_kernel(model, x[:2])  # first use loads libraries and starts threads
print(peak_of(lambda: gl.neural_path_kernel(model, x)) / 2**32)
