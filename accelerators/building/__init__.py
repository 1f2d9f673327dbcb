"""Turns a placed graph into compiled subgraphs, and reports on it."""
