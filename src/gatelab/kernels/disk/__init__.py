"""Kernels of any size, tile by tile, on disk."""
