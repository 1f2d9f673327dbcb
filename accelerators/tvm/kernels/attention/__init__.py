"""Kernels for attention."""
