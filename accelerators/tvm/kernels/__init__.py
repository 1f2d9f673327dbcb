"""Kernels of our own: a language to write them in, and one room for each kind."""
