"""Tangent kernels, layer by layer."""
