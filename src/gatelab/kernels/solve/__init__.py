"""Solvers that read a kernel block by block, so that it need not fit in memory.

- ``blocks.py``: the read interface of a kernel, kernels in memory, parts of kernels.
- ``products.py``: K V in one pass over the blocks.
- ``ridge.py``: ridge regression, in memory by Cholesky, in blocks by conjugate gradients.
- ``conjugate_gradients.py`` and ``nystroem.py``: the iteration behind it and its preconditioner.
- ``refit.py``: ridge regression over the paths of a network.
- ``eigenpairs.py``: the largest eigenvalues and their vectors.
"""
