"""InferType: find the types of all values, and show their element types as g.attrs["dtype"]."""

from __future__ import annotations

from graph.graph import Graph
from passes.infer import infer
from passes.registry import REQUESTS, register_pass
from passes.views import dtype_view


@register_pass("InferType", provides=("dtype",), keeps=("shape", "partition_report", *REQUESTS))
def infer_type(g: Graph, *, strict: bool = True) -> Graph:
    """The same inference as InferShape's, which finds both; after it nothing is left to infer. Linear."""
    made = g if "shape" in g.attrs else infer(g, strict=strict)
    return made.evolve(attrs={**made.attrs, "dtype": dtype_view(made)})
