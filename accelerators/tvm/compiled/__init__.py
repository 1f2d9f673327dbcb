"""Compiled subgraphs: kernels assembled, run, inspected, and serialized."""
