"""Mutation testing: small changes to the product's code, drawn by chance, each of which some test has to notice."""
