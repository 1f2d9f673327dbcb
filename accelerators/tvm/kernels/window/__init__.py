"""Kernels for windows that see each channel by itself: pools, depthwise convolution, local response normalisation."""
