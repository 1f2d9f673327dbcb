"""Kernels that reorder elements."""
