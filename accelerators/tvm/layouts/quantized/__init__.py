"""Quantized models: products in integers. `quantize` holds the table of rules."""
