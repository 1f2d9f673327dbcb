"""Weights that stay as narrow as a model stores them, and the ops that read them.

A packed matrix of bytes or half bytes q stands for (q - zero point) * scale. It is made numbers in the kernel that multiplies
by it, or that picks rows of it."""

from __future__ import annotations

DOMAIN = "partita.packed"
"""The domain of ops on packed weights."""

PRODUCT = "PackedMatMul"
"""A product of numbers by a packed matrix. Its inputs are the numbers, the matrix, its scales and, if there
are any, its zero points."""

ROWS = "PackedGather"
"""Columns of a packed matrix as rows of numbers, as Gather picks them from a table. Its inputs are the
indices, and those of a product."""
