"""The neural path kernel, exact by rules or estimated by random features.

- ``kernel.py``: :func:`neural_path_kernel`; dense chains by packed bits, everything else along the model's graph.
- ``architecture.py``: a traced model; ``rules.py``: one rule for each kind of module or operation, which turns the
  model's graph and gates into signals.
- ``terms.py``: a signal, the sum of gated random fields that reaches a node.
- ``engine.py``: covariances of fields, layer by layer, for all pairs of positions or equal ones.
- ``offset_program.py`` and ``offset_loops.py``: the same for images that are pooled once, at the end; much faster.
- ``random_features.py``: :func:`path_features`, which estimates the kernel of every model that converts.
"""
