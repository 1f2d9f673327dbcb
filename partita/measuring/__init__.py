"""Benchmarks: models measured side by side."""
