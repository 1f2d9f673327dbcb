"""Types of all values, and the requirements of a graph's ops on the sizes of its inputs.

The rules (`rules`, `moves`, `products`, and `values` for elements of small vectors) are the one home of how sizes follow from
sizes. A `Reading` applies them to a graph: with integers, with symbols, exactly, or for one compiled form. Contracts of calls,
lower bounds, sizes of dynamic kernels and folded shape arithmetic are queries of it.

ONNX's inference in C++ stays as the first step of `infer`, in one call (`onnx_inference.onnx_types`): it is many times faster
than a reading, and knows the element types of all ops at all opsets, sequences, optionals and bodies. What it gets wrong or does
not know is hidden from it, and it asks back: an op that it misreads goes to its rule (`rule_types`), a call to its body, an op of
onnxruntime to that of its definition, a user's op to the user's rule, and an op that crashes it or has it propagate a long vector
to an inference of its own."""

from partita.passes.infer.types import infer, replaced_types, with_missing_types, without_declared

__all__ = ["infer", "replaced_types", "with_missing_types", "without_declared"]
