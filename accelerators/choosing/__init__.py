"""What `choose_precision` asks, measures and decides, for one model."""
