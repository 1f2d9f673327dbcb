"""TVM: FuseOpsByPattern with a pattern for each op, then MergeCompositeFunctions."""

from __future__ import annotations

import sys
from typing import Any

from tvm import IRModule, relax
from tvm.error import InternalError
from tvm.relax.dpl import is_op, wildcard

from benchmarks.partitioners import Color, Finding, Preds, clocked, read_by_nobody, report


def module(preds: Preds, color: Color) -> IRModule:
    """The shape as a Relax function."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    values: list[Any] = []
    with builder.function("main", [x]):
        with builder.dataflow():
            for v, producers in enumerate(preds):
                read = [values[u] for u in producers] or [x]
                values.append(builder.emit(_op(len(read), color[v] is not None)(*read)))
            outputs = builder.emit_output(relax.Tuple([values[v] for v in read_by_nobody(preds)]))
        builder.emit_func_output(outputs)
    return builder.get()


def _op(inputs: int, is_taken: bool) -> Any:
    if inputs == 2:
        return relax.op.add if is_taken else relax.op.maximum
    return relax.op.sigmoid if is_taken else relax.op.exp


def measure(preds: Preds, color: Color) -> Finding:
    """Partition once and measure it."""
    given = module(preds, color)
    patterns = [
        ("device.sigmoid", is_op("relax.sigmoid")(wildcard())),
        ("device.add", is_op("relax.add")(wildcard(), wildcard())),
    ]

    def run() -> IRModule | None:
        fused = relax.transform.FuseOpsByPattern(patterns, bind_constants=False)(given)
        try:
            return relax.transform.MergeCompositeFunctions()(fused)
        except InternalError as error:
            if "was used before its definition" not in str(error):
                raise
            return None  # TVM's own check of the module that it made

    seconds, partitioned = clocked(run)
    if partitioned is None or not _in_order(partitioned["main"]):
        return seconds, _groups(partitioned) if partitioned else 0, "cyclic"
    return seconds, _groups(partitioned), ""


def _groups(partitioned: IRModule) -> int:
    """How many calls of merged functions there are; equal groups share one function."""
    merged = {name for name, function in partitioned.functions.items() if "Codegen" in (function.attrs or {})}
    bindings = (binding for block in partitioned["main"].body.blocks for binding in block.bindings)
    return sum(isinstance(binding.value, relax.Call) and binding.value.op in merged for binding in bindings)


def _in_order(function: relax.Function) -> bool:
    """Is each value bound before it is read?"""
    bound = set(function.params)
    for block in function.body.blocks:
        for binding in block.bindings:
            if any(read not in bound for read in relax.analysis.free_vars(binding.value)):
                return False
            bound.add(binding.var)
    return True


if __name__ == "__main__":
    sys.setrecursionlimit(1_000_000)
    report(measure)
