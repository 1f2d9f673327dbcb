"""Script text read by us and by TVM's own parser: the same function."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import partita as pt
from accelerators.errors import CompileError
from accelerators.tvm.templates import script
from accelerators.tvm.templates.reading import read_function
from tests.accelerators.tvm.running import compiled

tvm = pytest.importorskip("tvm")

Params = Sequence[tuple[str, tuple[int, ...], str]]
RNG = np.random.default_rng(3)


def parsed(params: Params, body: str, functions: Mapping[str, Any]) -> Any:
    """The function as TVM's parser makes it."""
    from tvm.script import from_source
    from tvm.script import tirx as T

    listed = [f'{name}: T.Buffer({shape!r}, "{dtype}")' for name, shape, dtype in params]
    text = [
        "# from tvm.script import tirx as T",
        "@T.prim_func(s_tir=True)",
        f"def main({', '.join(listed)}):",
        '    T.func_attr({"tirx.noalias": True})',
        '    with T.sblock("root"):',
        "        T.reads()",
        "        T.writes()",
        textwrap.indent(body.replace(": T.int32 =", ": T.let ="), " " * 8),
    ]
    return from_source("\n".join(text), {"T": T, **functions})


def assert_same(params: Params, body: str, functions: Mapping[str, Any]) -> None:
    tvm.ir.assert_structural_equal(read_function(params, body, functions), parsed(params, body, functions))


PARAMS = [("x0", (64, 8), "float32"), ("n", (64,), "int32"), ("y0", (64, 8), "float32")]

TEXTS = {
    "loops": """
        for i in T.parallel(64):
            for j in T.vectorized(8):
                y0[i, j] = x0[i, j] * T.float32(2.0) + 1.0
            for j in T.unroll(0, 8):
                y0[i, j] = y0[i, j] - x0[63 - i, j]
    """,
    "vectors": """
        for i in T.serial(64):
            y0[i, T.ramp(0, 1, 8)] = T.max(x0[i, T.ramp(0, 1, 8)], T.Broadcast(T.float32(0.0), 8))
    """,
    "variables": """
        for i in T.serial(64):
            row: T.int32 = i * 2 % 64
            twice: T.let = row * 2 // 3
            whole: T.let = 4
            y0[row, whole] = x0[twice % 64, 0]
    """,
    "conditions": """
        for i in T.serial(64):
            if i >= 3 and i < 60 or i == 1:
                y0[i, 0] = T.Select(x0[i, 0] > 1.0, x0[i, 0], -x0[i, 0])
            else:
                y0[i, 0] = T.float32(0.0)
            if not i < 5:
                y0[i, 1] = T.if_then_else(2 < i <= 7, x0[i, 1], T.float32(3.0))
            if 1 > 2:
                y0[i, 2] = T.float32(7.0)
    """,
    "buffers": """
        kept = T.alloc_buffer((16,), "float32", scope="local", annotations={"disable_lower_builtin": True})
        wide = T.alloc_buffer((64, 8), "int32")
        for i in T.serial(64):
            kept[i % 16] = T.Cast("float32", n[i]) * T.exp(x0[i, 0])
            wide[i, 0] = T.reinterpret("int32", kept[i % 16]) << 3
            y0[i, 0] = T.reinterpret("float32", wide[i, 0] & 255 | 1)
    """,
    "calls": """
        for i in T.serial(64):
            T.evaluate(T.call_llvm_intrin("int32", "llvm.prefetch", T.address_of(x0[i, 0]), 0, 3, 1))
            y0[i, 0] = half(x0[i, 0])
    """,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_statements(kind: str) -> None:
    assert_same(PARAMS, textwrap.dedent(TEXTS[kind]).strip(), {"half": lambda x: x * tvm.tirx.const(0.5, "float32")})


def weights(*shape: int) -> pt.Node:
    return pt.constant(RNG.standard_normal(shape).astype("float32"))


def graphs() -> dict[str, pt.Graph]:
    """One for each kind of kernel that is written as text."""
    image, rows = pt.variable("x", "float32", (1, 16, 12, 12)), pt.variable("x", "float32", (7, 40))
    other = pt.variable("r", "float32", (1, 24, 12, 12))
    made = {
        "convolution": pt.op("Conv", image, weights(24, 16, 3, 3), weights(24), pads=[1, 1, 1, 1]),
        "strides": pt.op("Relu", pt.op("Conv", image, weights(24, 16, 3, 3), pads=[0, 1, 2, 1], strides=[2, 2])),
        "pointwise": pt.op("Relu", pt.op("Add", pt.op("Conv", image, weights(24, 16, 1, 1)), other)),
        "depthwise": pt.op("Clip", pt.op("Conv", image, weights(16, 1, 3, 3), group=16, dilations=[2, 2])),
        "matrix": pt.op("Gelu", pt.op("Add", pt.op("MatMul", rows, weights(40, 50)), weights(50))),
        "softmax": pt.op("Softmax", rows),
        "norm": pt.op("LayerNormalization", rows, weights(40), weights(40)),
        "sum": pt.op("ReduceMean", rows, pt.constant(np.array([1], "int64"))),
    }
    return {name: pt.Graph([node]) for name, node in made.items()}


@pytest.mark.parametrize("kind", graphs())
def test_templates(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[tuple[Params, str, Mapping[str, Any]]] = []

    def recording(params: Params, body: str, functions: Mapping[str, Any]) -> Any:
        texts.append((params, body, functions))
        return read_function(params, body, functions)

    monkeypatch.setattr(script, "read_function", recording)
    compiled(graphs()[kind])
    assert texts
    for text in texts:
        assert_same(*text)


def test_what_it_does_not_read_is_an_error() -> None:
    with pytest.raises(CompileError, match="a template's text holds what cannot be read: del y0"):
        read_function(PARAMS, "del y0", {})
    with pytest.raises(CompileError, match="a template's text reads 'z0', which is nothing there"):
        read_function(PARAMS, "y0[0, 0] = z0[0]", {})
