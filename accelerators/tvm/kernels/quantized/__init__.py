"""Products and pools of quantized values, with what follows them number by number."""
