"""Ops on rows: norms, softmax, reductions."""
