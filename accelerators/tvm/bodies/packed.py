"""Weights that several ops read in one layout: those that stay as narrow as a model stores them, and tables in panels.

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

PANEL_ROWS = "PanelGather"
"""Rows picked from a table whose rows a product reads as its columns, in the product's own layout. Its inputs are those of
Gather, or the table's transpose instead of it; its attributes are the layout's."""
