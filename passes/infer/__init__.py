"""Types of all values, and the requirements of a graph's ops on the sizes of its inputs.

The rules (`rules`, `moves`, `products`, `signals`, and `values` for elements of small vectors) are the one home of how sizes
follow from sizes, `result_types` and `sequences` that of other types, `control_flow` that of ops with bodies. A `Reading`
applies the rules to a graph: with integers, with symbols, exactly, or for one compiled form. An `Inference` is one that derives
whole types; contracts of calls, lower bounds, sizes of dynamic kernels and folded shape arithmetic are queries of others."""

from partita.passes.infer.types import infer, replaced_types, with_missing_types, without_declared

__all__ = ["infer", "replaced_types", "with_missing_types", "without_declared"]
