"""No form of a model's weights stays in memory longer than it is needed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from benchmarks import memory
from partita.accelerators.tvm.bodies.stored_types import LATER, as_stored
from partita.accelerators.tvm.code.building import Workers
from partita.accelerators.tvm.compiled import assembling
from partita.accelerators.tvm.layouts import narrowing
from partita.graph.mapped_arrays import new_array
from partita.graph.node import Node
from tests.accelerators.tvm.running import compiled

RANDOM = np.random.default_rng(0)


def _numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def _normed() -> pt.Graph:
    """A convolution and a batch norm, which a device folds into new weights."""
    x = pt.variable("x", "float32", (1, 96, 8, 8))
    conv = pt.op("Conv", x, pt.constant(_numbers(96, 96, 3, 3)), pads=[1, 1, 1, 1])
    parts = [pt.constant(np.abs(_numbers(96)) + 1) for _ in range(4)]
    return pt.Graph([pt.op("BatchNormalization", conv, *parts)], name="normed")


def _products() -> pt.Graph:
    x = pt.variable("x", "float32", (4, 256))
    hidden = pt.op("Relu", pt.op("MatMul", x, pt.constant(_numbers(256, 256))))
    return pt.apply_pass(pt.Graph([pt.op("MatMul", hidden, pt.constant(_numbers(256, 128)))], name="products"), "InferShape")


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _constants() -> set[int]:
    return {id(node) for node in gc.get_objects() if isinstance(node, Node) and node.value is not None}


def test_a_query_leaves_nothing_that_only_the_collector_frees():
    graph = _normed()
    pt.query(graph, "cpu")
    with _no_collector():
        before = _constants()
        placement = pt.query(graph, "cpu")
        assert set(placement.values()) == {"cpu"}
        assert _constants() <= before


def test_a_graph_with_views_of_its_types_is_freed_at_once():
    with _no_collector():
        before = _constants()
        graph = pt.apply_pass(_normed(), "InferShape")
        assert graph.attrs["shape"]["x"] == (1, 96, 8, 8)
        del graph
        assert _constants() <= before


@pytest.fixture
def packed(monkeypatch):
    """The arrays that kernels' layouts are made of, as the compiler has them: the identity of each, its type, and whether it
    is still there."""
    seen: list[tuple[int, str, Any]] = []
    pack = assembling._pack

    def recorded(equal: list[tuple[list[np.ndarray], int]], *rest: Any) -> None:
        first, position = equal[0]
        array = first[position]
        if array.nbytes >= LATER:
            seen.append((id(array), array.dtype.name, weakref.ref(array)))
        del array
        pack(equal, *rest)

    monkeypatch.setattr(assembling, "_pack", recorded)
    return seen


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_the_users_weights_are_made_narrow_when_they_are_packed(precision, packed):
    graph = _products()
    model = compiled(graph, PRECISION=precision)
    own = {id(node.value) for node in graph.nodes if node.value is not None}
    assert len(packed) == 2
    assert all(number in own and dtype == "float32" for number, dtype, _ in packed)
    held = [array for array in model.export_weights() if array.nbytes >= LATER]
    assert {array.dtype.name for array in held} == {"bfloat16" if precision == "bf16" else "float16"}


@pytest.mark.parametrize(("precision", "dtype"), [("f32", "float32"), ("bf16", "bfloat16")])
def test_folded_weights_are_freed_as_they_are_packed(precision, dtype, packed):
    graph = _normed()
    with _no_collector():
        pt.compile(graph, "cpu", {"PRECISION": precision, "CACHE_DIR": None})
        (number, held_in, array), *others = packed
        assert not others and held_in == dtype and number not in {id(node.value) for node in graph.nodes}
        assert array() is None


def test_the_compilers_weights_are_narrow_before_any_kernel_is_compiled(monkeypatch):
    """So that they are never all there in float32 and in bfloat16."""
    wide: list[Any] = []
    there: list[bool] = []
    narrow, build = narrowing.narrow, Workers.build

    def watched(self: Workers, body: Any) -> Any:
        there.extend(array() is not None for array in wide)
        return build(self, body)

    def recorded(graph: pt.Graph, *rest: Any) -> Any:
        wide.extend(weakref.ref(node.value) for node in graph.nodes if node.value is not None and node.value.nbytes >= LATER)
        result = narrow(graph, *rest)
        kept = {id(node.value) for node in result.graph.nodes if node.value is not None}
        assert all(id(array()) in kept for array in wide), "nothing is converted while the graph in float32 is there"
        return result

    monkeypatch.setattr(narrowing, "narrow", recorded)
    monkeypatch.setattr(Workers, "build", watched)
    with _no_collector():
        pt.compile(_normed(), "cpu", {"PRECISION": "bf16", "CACHE_DIR": None})
    assert there and not any(there)


def test_a_weight_of_the_compilers_that_two_kernels_read_is_converted_once(packed):
    array = new_array((512, 256), np.float32)
    array[...] = _numbers(512, 256)
    x, w = pt.variable("x", "float32", (4, 512)), pt.constant(array)
    y = pt.variable("y", "float32", (9, 512))
    pt.compile(pt.Graph([pt.op("MatMul", x, w), pt.op("MatMul", y, w)]), "cpu", {"PRECISION": "bf16", "CACHE_DIR": None})
    assert {dtype for _, dtype, _ in packed} == {"bfloat16"}
    assert len({number for number, _, _ in packed}) == 1, "it is packed once for each form of panel"


def test_a_query_makes_no_weights(monkeypatch):
    graph, sizes = _normed(), list[int]()

    def recorded(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        sizes.append(int(np.prod(shape)))
        return new_array(shape, dtype)

    monkeypatch.setattr("partita.passes.fold_batch_norm.new_array", recorded)
    assert set(pt.query(graph, "cpu").values()) == {"cpu"}
    assert sizes and max(sizes) == 96


def test_numbers_too_large_for_float16_become_its_largest():
    given = np.array([1e6, -1e6, np.inf, -np.inf, 0.1], np.float32)
    assert as_stored(given, "float16").tolist() == [65504.0, -65504.0, np.inf, -np.inf, np.float16(0.1)]
    assert as_stored(given, "float32") is given


@pytest.mark.slow
def test_a_model_of_large_products_takes_half_the_memory_in_bfloat16(tmp_path):
    x = state = pt.variable("x", "float32", (4, 2048))
    for _ in range(4):
        state = pt.op("Relu", pt.op("MatMul", state, pt.constant(_numbers(2048, 2048) / 45)))
    path = Path(tmp_path) / "large.onnx"
    pt.save(pt.Graph([state], [x], name="large"), path)
    wide, low = (memory._figures(str(path), "cpu", precision) for precision in ("f32", "bf16"))
    columns = ("compiling", "running", "compiling again", "running again", "importing", "running the import")
    shares = {title: after / before for title, before, after in zip(columns, wide[1:], low[1:], strict=True)}
    assert shares["compiling"] < 0.65 and shares["running"] < 0.65, shares
    assert shares["running again"] < 0.6 and shares["running the import"] < 0.6, shares
    for weights, again in ((wide[0], wide[3]), (low[0], low[3])):
        assert again < 0.1 * weights, "what the cache holds is mapped, and takes no memory before it runs"
