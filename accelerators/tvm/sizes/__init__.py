"""Sizes that are known only when a model is called: how they follow from one another, and subgraphs that are compiled for all."""
