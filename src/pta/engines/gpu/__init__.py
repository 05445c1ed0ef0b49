"""Kernels for a GPU."""
