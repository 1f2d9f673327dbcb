"""The checks, measurements and decisions of `choose_precision` for one model."""
