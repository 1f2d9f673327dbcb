"""All templates, in the order in which they are asked."""

from accelerators.tvm.templates import chain

__all__ = ["chain"]
