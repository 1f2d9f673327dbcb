"""The code that kernels of several kinds have in common."""
