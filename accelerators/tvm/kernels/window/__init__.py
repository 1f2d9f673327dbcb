"""Kernels for windows over each channel separately: pools, depthwise convolution, local response normalisation."""
