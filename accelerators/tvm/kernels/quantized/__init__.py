"""Products and pools of quantized values, with the element-wise ops after them."""
