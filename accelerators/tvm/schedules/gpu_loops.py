"""Kernels of our own language on a GPU, as they are written: a work item for each turn of a parallel loop.

Such a kernel says itself which of its loops threads may share. Each of those that stand outermost becomes one launch; all between
two of them is one launch of a single work item, which is slow and right. Parallel loops further inside run one turn after the
other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine

ITEMS = 64
"""The work items of a group."""


def in_items(machine: Machine) -> Machine:
    """The GPU as a kernel of the language sees it: many threads that share every loop they may, and no vectors."""
    return attrs.evolve(machine, threads=ITEMS, lanes=1)


def bind_loops(function: Any) -> Any:
    """The TensorIR function of a kernel that was written in the language, its loops bound to a GPU's groups and items. Linear."""
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
    """The statements in order, each inside of a launch, except for what says how memory is seen."""
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
    """The loop that threads share, of a kernel that decides by its sizes whether they do."""
    tirx = part("tirx")
    loop = statement.then_case if isinstance(statement, tirx.IfThenElse) else None
    if isinstance(loop, tirx.SeqStmt) and len(loop.seq) == 1:
        loop = loop.seq[0]
    is_shared = isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.PARALLEL
    return loop if is_shared and isinstance(statement.else_case, tirx.For) else statement


def _one_turn(statements: list[Any]) -> Any:
    """The statements as a loop of one turn."""
    tirx = part("tirx")
    return _shared(tirx.For(tirx.Var("once", "int32"), 0, 1, tirx.ForKind.PARALLEL, _in_order(statements)))


def _in_order(statements: list[Any]) -> Any:
    return part("tirx").SeqStmt(statements) if len(statements) > 1 else statements[0]


def _shared(loop: Any) -> Any:
    """The loop's turns as work items, in groups."""
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
    """The statement with its inner parallel loops, and its vectors, as loops of one turn after the other."""
    tirx = part("tirx")

    def change(loop: Any) -> Any:
        if loop.kind not in (tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    def refuse(_: Any) -> Any:
        raise CompileError("a GPU's kernel cannot complain while it runs")

    return importlib.import_module("tvm_ffi").structural_map(statement, [(tirx.For, change), (tirx.AssertStmt, refuse)])
