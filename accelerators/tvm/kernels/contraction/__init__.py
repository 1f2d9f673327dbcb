"""Contractions: products of matrices, convolutions and recurrent steps, with the tiles and instructions that they share."""
