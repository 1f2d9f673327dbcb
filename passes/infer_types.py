"""InferShape and InferType: the types of all values, with shapes in g.attrs["shape"] and element types in g.attrs["dtype"]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partita.graph.graph import NOTES, Graph
from partita.graph.types import Dim
from partita.passes.infer import infer, replaced_types
from partita.passes.infer.traced_sizes import without_traced_numbers
from partita.passes.registry import REPORT, REQUESTS, register_pass
from partita.passes.views import dtype_view, shape_view


@register_pass("InferShape", provides=("shape",), keeps=("dtype", REPORT, *REQUESTS))
def infer_shape(
    g: Graph,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    strict: bool = True,
    check_declared: bool | None = None,
    check_fits: bool | None = None,
    trust_numbers: bool = True,
) -> Graph:
    """Infers types; small vectors of sizes are computed. `shapes` are shapes of inputs by name; without `strict` a
    contradiction is not an error and leaves types unknown. With `check_declared`, by default as `strict`, a declared type that
    differs from the inferred one is an error; otherwise the inferred type replaces it, with a note in `g.attrs["notes"]`. With
    `check_fits`, by default as `check_declared`, it is an error even without `strict` if sizes of an op's inputs contradict each
    other. Without `trust_numbers` a declared integer size of an op's result that cannot be inferred is replaced by the inferred
    one, as a symbol of an input. Linear."""
    g = g if trust_numbers else without_traced_numbers(g)
    typed = infer(g, shapes, strict, check_declared, check_fits)
    noted = g.attrs.get(NOTES, ())
    notes = tuple(dict.fromkeys([*noted, *replaced_types(g, typed)]))
    added = {NOTES: notes} if notes else {}
    return typed.evolve(attrs={**typed.attrs, **added, "shape": shape_view(typed)})


@register_pass("InferType", provides=("dtype",), keeps=("shape", REPORT, *REQUESTS))
def infer_type(g: Graph, *, strict: bool = True) -> Graph:
    """Attaches the dtypes of all values.

    The inference is that of InferShape, which infers shapes and dtypes; it is not run twice. Linear."""
    typed = g if "shape" in g.attrs else infer(g, strict=strict)
    return typed.evolve(attrs={**typed.attrs, "dtype": dtype_view(typed)})
