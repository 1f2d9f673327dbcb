"""Kernels for convolutions."""
