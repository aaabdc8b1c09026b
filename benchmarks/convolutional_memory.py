"""Prints the peak memory of GCONV's path kernel, in units of 4 GiB. Run in a process of its own."""

import gatelab as gl
from benchmarks.convolutional import GCONV_EXAMPLES, problem
from benchmarks.memory import peak_of

model, x = problem(GCONV_EXAMPLES)
gl.neural_path_kernel(model, x[:2])  # first use loads libraries and starts threads
print(peak_of(lambda: gl.neural_path_kernel(model, x)) / 2**32)
