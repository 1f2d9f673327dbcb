"""How fast models run, measured beside each other."""
