"""Prepares a subgraph before it is checked for support: constants are folded, and ops decomposed."""
