"""Products of quantized values: sums of bytes times bytes."""
