"""The neural path kernel, exact by rules or estimated by random features.

- ``kernel.py``: :func:`neural_path_kernel`; dense chains by packed bits, everything else along the model's graph.
- ``rules.py``: one rule for each kind of operation, which turns the model's graph and gates into signals; ``layers.py``
  and ``rearranging.py`` hold the longer ones.
- ``signals.py``: a signal, the sum of gated random fields that reaches a node.
- ``pairs.py`` and ``planning.py``: the pairs of positions at which each layer's covariance is needed.
- ``covariances.py``: covariances of fields, layer by layer, at these pairs.
- ``offset_program.py`` and ``offset_loops.py``: the same for images that are pooled once, at the end; much faster.
- ``random_features.py``: :func:`path_features`, which estimates the kernel of every model that converts.
"""
