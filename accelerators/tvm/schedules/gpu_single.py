"""Removal of the initial value from reductions of a single element.

TVM's rules for GPUs drop the loop of one iteration but keep the initialization of the reduction, and then inline what follows
into both: for `a + b`, where `a` is a sum of one element, the result was `b + a + b`."""

from __future__ import annotations

import importlib
from typing import Any

from partita.accelerators.tvm.machine.library import part


def without_sums_of_one(function: Any) -> Any:
    """The TensorIR function with each block that reduces a single element as a plain computation. Linear."""
    scheduling = part("s_tir")

    def change(block: Any) -> Any:
        return _at_once(block) if block.init is not None and _reduces_one(block) else block

    body = importlib.import_module("tvm_ffi").structural_map(function.body, [(scheduling.SBlock, change)])
    return function if body.same_as(function.body) else function.with_body(body)


def _reduces_one(block: Any) -> bool:
    """True if every reduced dimension has one position and the block is a single store."""
    tirx = part("tirx")
    reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    is_simple = isinstance(block.body, tirx.BufferStore) and isinstance(block.init, tirx.BufferStore)
    return is_simple and all(isinstance(axis.dom.extent, tirx.IntImm) and axis.dom.extent.value == 1 for axis in reduced)


def _at_once(block: Any) -> Any:
    """The block with the initial value of its reduction in place of reads of its own result."""
    tirx, store, first = part("tirx"), block.body, block.init.value

    def begun(load: Any) -> Any:
        return first if load.source.same_as(store.buffer) else load

    value = importlib.import_module("tvm_ffi").structural_map(store.value, [(part("ir").TensorLoad, begun)])
    axes = [tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar, axis.thread_tag) for axis in block.iter_vars]
    return part("s_tir").SBlock(
        axes, block.reads, block.writes, block.name_hint, tirx.BufferStore(store.buffer, value, store.indices), None,
        block.alloc_buffers, block.match_buffers, block.annotations,
    )
