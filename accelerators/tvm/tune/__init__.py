"""Measurement of kernel variants, and its results."""
