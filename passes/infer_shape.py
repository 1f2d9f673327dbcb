"""InferShape: find the types of all values, and show their shapes as g.attrs["shape"]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph.graph import Graph
from graph.types import Dim
from passes.infer import infer
from passes.registry import REPORT, REQUESTS, register_pass
from passes.traced_numbers import without_traced_numbers
from passes.views import shape_view


@register_pass("InferShape", provides=("shape",), keeps=("dtype", REPORT, *REQUESTS))
def infer_shape(
    g: Graph,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    strict: bool = True,
    check_declared: bool | None = None,
    trust_numbers: bool = True,
) -> Graph:
    """ONNX's inference with data propagation. `shapes` gives shapes of inputs by name; without `strict` a contradiction is no
    error and leaves types unknown. With `check_declared`, by default as `strict`, a declared type that is not the
    inferred one is an error; otherwise the inferred type replaces it. Without `trust_numbers` a number that is declared for
    a size of an op's result, and that does not follow, gives way to what follows, a symbol of an input, say. Linear.
    """
    g = g if trust_numbers else without_traced_numbers(g)
    typed = infer(g, shapes, strict, check_declared)
    return typed.evolve(attrs={**typed.attrs, "shape": shape_view(typed)})
