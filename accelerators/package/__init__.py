"""Compiled models that travel: written into one file, read back without compiling."""
