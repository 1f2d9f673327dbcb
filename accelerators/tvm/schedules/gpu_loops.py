"""Kernels of our own language on a GPU, without a GPU schedule: one work item per iteration of a parallel loop.

The kernel itself marks the loops that threads may share. Each outermost one becomes a launch; everything between two of them is a
launch of a single work item, which is slow but correct. Parallel loops further inside run serially."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part, structural_map
from partita.accelerators.tvm.machine.machine import Machine

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
