"""Loops bound to a GPU's blocks and threads, for kernels without a GPU schedule of their own.

TVM's kernels get its own dlight schedules, the special ones first. A kernel of our own language marks the loops that threads may
share: each outermost one becomes a launch with one work item per iteration; everything between two of them is a launch of a
single work item, which is slow but correct. Parallel loops further inside run serially."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part, structural_map, tvm
from partita.accelerators.tvm.machine.machine import Machine

MOST_BLOCKS = 65535
"""Maximum number of blocks that CUDA launches along y and along z."""


def schedule_gpu(function: Any, machine: Machine) -> tuple[Any, str]:
    """The kernel with its loops bound to blocks and threads, and the rule's name; `topi` if TVM has already scheduled it."""
    if _is_scheduled(function):
        if _has_too_many_blocks(function):
            raise CompileError(f"TVM writes it for more than {MOST_BLOCKS:,} blocks along one dimension")
        return function, "topi"
    gpu, function = part("s_tir.dlight").gpu, _without_sums_of_one(function)
    for rule in (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback()):
        scheduled = _apply(rule, function, machine)
        if scheduled is not None:
            return scheduled, f"dlight.{type(rule).__name__}"
    raise CompileError("none of TVM's GPU schedules fits the kernel")


def _apply(rule: Any, function: Any, machine: Machine) -> Any:
    """The kernel as the rule schedules it; None if the rule does not fit."""
    dlight = part("s_tir.dlight")
    try:
        with machine.target, _declared_without_sources():
            module = dlight.ApplyDefaultSchedule(rule)(tvm().IRModule({"main": function}))
    except Exception:  # noqa: BLE001  TVM raises any exception; the next rule needs less
        return None
    function_made = module["main"]
    return function_made if _is_scheduled(function_made) and not _has_too_many_blocks(function_made) else None


def _is_scheduled(function: Any) -> bool:
    """True if it is marked as scheduled and all of it runs on threads of the GPU. Some rules schedule one stage of a kernel and
    leave the others to the host, which cannot write there."""
    if not function.attrs or "tirx.is_scheduled" not in function.attrs:
        return False
    scheduling, tirx = part("s_tir"), part("tirx")
    schedule = scheduling.Schedule(function)
    return all(
        any(schedule.get(loop).kind == tirx.ForKind.THREAD_BINDING for loop in schedule.get_loops(block))
        or _launches_itself(schedule.get(block))
        for block in schedule.get_child_blocks(schedule.get_sblock("root"))
    )


def _has_too_many_blocks(function: Any) -> bool:
    """True if CUDA would refuse to launch it. A dynamic extent is assumed to be small enough. Linear."""
    loops = [(loop.thread_binding, loop.extent) for loop in _inside(function.body, "For") if loop.thread_binding is not None]
    launches = [(step.node, step.value) for step in _inside(function.body, "AttrStmt") if step.attr_key == "thread_extent"]
    return any(
        str(axis.thread_tag) in ("blockIdx.y", "blockIdx.z") and getattr(extent, "value", 0) > MOST_BLOCKS
        for axis, extent in (*loops, *launches)
    )


def _launches_itself(block: Any) -> bool:
    """True if all writes of the block are in launches inside it, as in TVM's sorts. Linear in its length and depth."""
    launches = [inner for inner in _inside(block.body, "AttrStmt") if inner.attr_key == "thread_extent"]
    launched = {store for launch in launches for store in _inside(launch, "BufferStore")}
    return bool(launches) and launched.issuperset(_inside(block.body, "BufferStore"))


def _inside(statement: Any, kind: str) -> list[Any]:
    """All statements of this kind inside the statement."""
    listed: list[Any] = []
    importlib.import_module("tvm_ffi").structural_walk(statement, [(getattr(part("tirx"), kind), listed.append)], order="post")
    return listed


@contextmanager
def _declared_without_sources() -> Iterator[None]:
    """A context in which this thread declares kernels with TVM without the sources of their callers.

    TVM's schedules import its tensor-core intrinsics when a kernel first needs one, which declares some 500 kernels. For each of
    them TVM reads the source of every function on the call stack, which takes 17 seconds in all. It uses these lines only for
    kernels inside a class, and none of these is."""
    entry = part("tirx.script.parser.entry")
    whole, entry.inspect = entry.inspect, _Inspect(threading.get_ident())
    try:
        yield
    finally:
        entry.inspect = whole


class _Inspect:
    """The module `inspect` for TVM's decorator of kernels; on one thread its stack has no source lines."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def stack(self, context: int = 1) -> list[inspect.FrameInfo]:
        """The call stack, like `inspect.stack`."""
        caller = sys._getframe(1)
        if threading.get_ident() != self._thread:
            return inspect.getouterframes(caller, context)
        return [
            inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
            for frame, line in walk_stack(caller)
        ]


def _without_sums_of_one(function: Any) -> Any:
    """The TensorIR function with each block that reduces a single element as a plain computation. Linear.

    TVM's rules for GPUs drop the loop of one iteration but keep the initialization of the reduction, and then inline what follows
    into both: for `a + b`, where `a` is a sum of one element, the result was `b + a + b`."""
    scheduling = part("s_tir")

    def change(block: Any) -> Any:
        return _at_once(block) if block.init is not None and _reduces_one(block) else block

    body = structural_map(function.body, [(scheduling.SBlock, change)])
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

    value = structural_map(store.value, [(part("ir").TensorLoad, begun)])
    axes = [tirx.IterVar(axis.dom, axis.var, tirx.IterVar.DataPar, axis.thread_tag) for axis in block.iter_vars]
    return part("s_tir").SBlock(
        axes, block.reads, block.writes, block.name_hint, tirx.BufferStore(store.buffer, value, store.indices), None,
        block.alloc_buffers, block.match_buffers, block.annotations,
    )


ITEMS = 64
"""Number of work items of a group."""


def in_items(machine: Machine) -> Machine:
    """The GPU as the kernel language sees it: many threads that share every loop they may, and no vectors."""
    return attrs.evolve(machine, threads=ITEMS, lanes=1)


def bind_loops(function: Any) -> Any:
    """The TensorIR function of a kernel in our language, with loops bound to a GPU's groups and items. Linear."""
    tirx = part("tirx")
    block = function.body.block
    statements = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
    launches = _in_order([*_launches(statements)])
    bound = part("s_tir").SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, launches, block.init, block.alloc_buffers,
        block.match_buffers, block.annotations,
    )
    realized = part("s_tir").SBlockRealize(function.body.iter_values, function.body.predicate, bound)
    return function.with_body(realized).with_attr("tirx.is_scheduled", True)


def _launches(statements: list[Any]) -> Iterator[Any]:
    """The statements in order, each inside a launch, except for buffer declarations."""
    tirx, waiting = part("tirx"), list[Any]()
    seen = [statement for statement in statements if isinstance(statement, tirx.DeclBuffer)]
    rest = [statement for statement in statements if not isinstance(statement, tirx.DeclBuffer)]
    if not all(isinstance(statement, (tirx.For, tirx.BufferStore, tirx.IfThenElse)) for statement in rest):
        rest = [_one_turn(rest)]
    yield from seen
    for statement in rest:
        statement = _always_shared(statement)
        if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL:
            if waiting:
                yield _one_turn(waiting)
            waiting = []
            yield _shared(statement)
        else:
            waiting.append(statement)
    if waiting:
        yield _one_turn(waiting)


def _always_shared(statement: Any) -> Any:
    """The parallel loop of a kernel that decides by its sizes whether threads share it; other statements as they are."""
    tirx = part("tirx")
    loop = statement.then_case if isinstance(statement, tirx.IfThenElse) else None
    if isinstance(loop, tirx.SeqStmt) and len(loop.seq) == 1:
        loop = loop.seq[0]
    is_shared = isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.PARALLEL
    return loop if is_shared and isinstance(statement.else_case, tirx.For) else statement


def _one_turn(statements: list[Any]) -> Any:
    """The statements as a loop of one iteration."""
    tirx = part("tirx")
    return _shared(tirx.For(tirx.Var("once", "int32"), 0, 1, tirx.ForKind.PARALLEL, _in_order(statements)))


def _in_order(statements: list[Any]) -> Any:
    return part("tirx").SeqStmt(statements) if len(statements) > 1 else statements[0]


def _shared(loop: Any) -> Any:
    """The loop's iterations as work items, in groups."""
    tirx = part("tirx")
    is_known = isinstance(loop.extent, (int, tirx.IntImm))
    count = int(loop.extent) if is_known else loop.extent
    items = min(count, ITEMS) if is_known else ITEMS
    group, item = tirx.Var("group", "int32"), tirx.Var("item", "int32")
    body = _in_turn(loop.body)
    if not is_known or count % items:
        body = tirx.IfThenElse(loop.loop_var < count, body, None)
    body = tirx.SeqStmt([tirx.Bind(loop.loop_var, group * items + item), body])
    groups = -(-count // items) if is_known else tirx.floordiv(count + (items - 1), items)
    return _bound(group, groups, "blockIdx.x", _bound(item, items, "threadIdx.x", body))


def _bound(variable: Any, count: int, tag: str, body: Any) -> Any:
    tirx = part("tirx")
    binding = tirx.IterVar(part("ir").Range(0, count), tirx.Var(variable.name, "int32"), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(variable, 0, count, tirx.ForKind.THREAD_BINDING, body, binding)


def _in_turn(statement: Any) -> Any:
    """The statement with its inner parallel and vectorized loops as serial loops."""
    tirx = part("tirx")

    def change(loop: Any) -> Any:
        if loop.kind not in (tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    def refuse(_: Any) -> Any:
        raise CompileError("a GPU's kernel cannot complain while it runs")

    return structural_map(statement, [(tirx.For, change), (tirx.AssertStmt, refuse)])
