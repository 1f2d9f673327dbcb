"""Numbers in another order."""
