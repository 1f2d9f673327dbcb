"""Scripts that measure; each runs as `python -m benchmarks.NAME` and has a tiny mode for the tests."""
