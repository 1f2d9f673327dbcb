"""Capsules: a folder with one subgraph and everything needed to run it elsewhere, and nothing else of the model."""
