"""Kernels that write numbers in another order."""
