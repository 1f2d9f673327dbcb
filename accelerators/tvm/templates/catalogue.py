"""All templates, in the order in which they are asked."""

from accelerators.tvm.templates import chain, rows

__all__ = ["chain", "rows"]
