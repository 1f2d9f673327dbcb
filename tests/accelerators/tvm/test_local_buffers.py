"""Local buffers of kernels: those that are small are on the stack, as long as there is room."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tvm")

from partita.accelerators.tvm.code.codegen import on_stack
from partita.accelerators.tvm.machine.library import part

KB = 1 << 10


def placed(*listed: tuple[Any, str, str]) -> list[bool]:
    """For buffers of these sizes, element types and scopes, whether they are on the stack."""
    tirx = part("tirx")
    buffers = [tirx.decl_buffer((size,), dtype, name=f"b{i}", scope=scope) for i, (size, dtype, scope) in enumerate(listed)]
    statement = on_stack(tirx.SeqStmt([tirx.AllocBuffer(buffer, {}) for buffer in buffers]))
    assert [one.buffer.name for one in statement.seq] == [buffer.name for buffer in buffers]
    return ["disable_lower_builtin" in one.annotations for one in statement.seq]


def local(size: Any, dtype: str = "int8") -> tuple[Any, str, str]:
    return size, dtype, "local"


def test_buffers_of_up_to_32_kilobytes_are_on_the_stack() -> None:
    sizes = [local(0), local(1), local(32 * KB), local(32 * KB + 1), local(8 * KB, "float32"), local(8 * KB + 1, "float32")]
    assert placed(*sizes) == [False, True, True, False, True, False]
    vectors = [local(1, "float32x16"), local(512, "float32x16"), local(513, "float32x16"), local(32 * KB, "bool")]
    assert placed(*vectors) == [True, True, False, True]


def test_they_have_128_kilobytes_together() -> None:
    assert placed(*[local(32 * KB)] * 3, local(32 * KB - 1), local(2), local(1), local(1)) == [True] * 4 + [False, True, False]


def test_others_are_not() -> None:
    dynamic = local(part("tirx").Var("n", "int32"))
    assert placed(dynamic, (4, "int8", "global"), (4, "int8", "shared"), local(4)) == [False, False, False, True]
