"""InferShape: find the types of all values, and show their shapes as g.attrs["shape"]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph.graph import Graph
from graph.types import Dim
from passes.infer import infer
from passes.registry import REQUESTS, register_pass
from passes.views import shape_view


@register_pass("InferShape", provides=("shape",), keeps=("dtype", "partition_report", *REQUESTS))
def infer_shape(
    g: Graph,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    strict: bool = True,
    check_declared: bool | None = None,
) -> Graph:
    """ONNX's inference with data propagation. `shapes` gives shapes of inputs by name; without `strict` a contradiction is no
    error and leaves types unknown. With `check_declared`, by default as `strict`, a type that the graph declares and that is
    not what follows is an error; else what follows takes its place. Linear."""
    made = infer(g, shapes, strict, check_declared)
    return made.evolve(attrs={**made.attrs, "shape": shape_view(made)})
