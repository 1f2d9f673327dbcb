"""Conversations with a decoder: the keys and values of earlier tokens are kept between calls."""
