"""Kernels measured in several ways, and what was found."""
