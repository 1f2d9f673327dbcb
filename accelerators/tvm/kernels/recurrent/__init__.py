"""Recurrent layers: the steps through time, after one product has made what every step takes of its input."""
