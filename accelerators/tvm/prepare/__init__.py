"""Prepares a subgraph before it is asked about: constants are worked out, and ops are taken apart."""
