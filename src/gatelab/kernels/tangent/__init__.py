"""The neural tangent kernel, from the inputs and back-propagated signals of every layer.

- ``kernel.py``: :func:`neural_tangent_kernel` and its blocks.
- ``uses.py``: watches a forward pass and records how each parameter is used.
- ``gradients.py``: gradients of many examples as factors, a group of outputs at a time, checked against plain autograd.
- ``layers.py``: the signals of all layers in one backward pass, and the factors made from them.
- ``factors.py``: the four exact forms of a layer's gradients, and the cost model that chooses between them.
- ``sums.py``: inner products of long vectors that keep the digits of float32.
- ``per_example.py``: gradients of one example at a time, for models without such a form.
- ``value.py``: :func:`value_tangent_kernel`, over the paths of small networks.
"""
