"""Placement: each device's answers, the user's rules, and the device of each node."""
