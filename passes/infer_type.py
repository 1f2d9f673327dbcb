"""InferType: infers the types of all values, and stores their element types as g.attrs["dtype"]."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.passes.infer import infer
from partita.passes.registry import REPORT, REQUESTS, register_pass
from partita.passes.views import dtype_view


@register_pass("InferType", provides=("dtype",), keeps=("shape", REPORT, *REQUESTS))
def infer_type(g: Graph, *, strict: bool = True) -> Graph:
    """Attaches the dtypes of all values.

    The inference is that of InferShape, which infers shapes and dtypes; it is not run twice. Linear.
    """
    typed = g if "shape" in g.attrs else infer(g, strict=strict)
    return typed.evolve(attrs={**typed.attrs, "dtype": dtype_view(typed)})
