"""Capsules: one subgraph in a folder, with what it takes to run it again somewhere else, and nothing else of the model."""
