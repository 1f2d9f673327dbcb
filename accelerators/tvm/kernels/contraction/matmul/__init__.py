"""Kernels for products of matrices."""
