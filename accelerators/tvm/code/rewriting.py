"""Top-down rewriting of TVM's statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partita.accelerators.tvm.machine.library import part

Change = Callable[[Any], Any]
"""Returns the replacement of a statement, whose inner statements are not visited; None keeps the statement and rewrites its inner
statements.
"""


def rewritten(statement: Any, change: Change) -> Any:
    """The rewritten statement; unchanged parts are shared. Linear."""
    changed = change(statement)
    if changed is not None:
        return changed
    tirx = part("tirx")
    if isinstance(statement, tirx.SeqStmt):
        inner = [rewritten(one, change) for one in statement.seq]
        same = all(new.same_as(old) for new, old in zip(inner, statement.seq, strict=True))
        return statement if same else tirx.SeqStmt(inner)
    if isinstance(statement, tirx.IfThenElse):
        other = None if statement.else_case is None else rewritten(statement.else_case, change)
        return tirx.IfThenElse(statement.condition, rewritten(statement.then_case, change), other)
    if not isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return statement
    body = rewritten(statement.body, change)
    return statement if body.same_as(statement.body) else _around(statement, body)


def _around(statement: Any, body: Any) -> Any:
    tirx = part("tirx")
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.While):
        return tirx.While(statement.condition, body)
    rest = statement.thread_binding, statement.annotations, statement.step
    return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body, *rest)
