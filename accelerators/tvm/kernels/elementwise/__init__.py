"""Element-wise ops: their formulas, and chains of them."""
