"""Kernels for quantized values: products, which are sums of bytes times bytes, pools, moves, and quantization by the range."""
