"""Weights that several ops read in one layout: those that stay as narrow as a model stores them, and tables in panels.

A packed matrix of bytes or half bytes q stands for (q - zero point) * scale. The kernel that multiplies by it, or gathers its
rows, dequantizes it."""

from __future__ import annotations

DOMAIN = "partita.packed"
"""The domain of ops on packed weights."""

PRODUCT = "PackedMatMul"
"""Product of a float matrix and a packed matrix. Inputs: the float matrix, the packed matrix, its scales and optional zero
points."""

ROWS = "PackedGather"
"""Columns of a packed matrix as float rows, picked as Gather picks rows of a table. Inputs: the indices, then those of
PackedMatMul without its first."""

PANEL_ROWS = "PanelGather"
"""Rows gathered from a table that a product reads as its columns, in the product's own layout. Inputs: those of Gather, possibly
with the table transposed. The attributes describe the layout."""
