"""A table that rows are gathered from, and that is multiplied by, is in memory once on the device `cpu`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from tests.accelerators.tvm.halves import KINDS
from tests.accelerators.tvm.narrow import typed
from tests.accelerators.tvm.running import compiled, doubled, error, normals, schedules

pytest.importorskip("tvm")

CHOSEN = np.array([[0, 300, -1], [150, -301, 288]])

SHARED = ["gemm", "indices", "panel rows"]


def tied(dtype: str = "float32", depth: int = 64, rows: int = 3, is_gemm: bool = False, words: int = 301) -> pt.Graph:
    """Rows of a table, and a product by its transpose."""
    kind: Any = KINDS.get(dtype, np.dtype("float32"))
    table, x = pt.constant(normals(0)(words, depth).astype(kind), name="table"), pt.variable("x", dtype, (rows, depth))
    turned = pt.op("Transpose", table, perm=[1, 0])
    scores = pt.op("Gemm", x, table, transB=1) if is_gemm else pt.op("MatMul", x, turned)
    graph = typed(scores, pt.op("Gather", table, pt.variable("i", "int64", CHOSEN.shape)))
    return graph.evolve(inputs=sorted(graph.inputs, key=lambda node: node.name, reverse=True))


def weight_bytes(model: Any) -> int:
    return sum(array.nbytes for array in model.export_weights())


def check_held_once(graph: pt.Graph, limit: float, stored: int, **config: Any) -> None:
    """Rows to the last bit where they are not rounded, scores within the limit, and no more weights than are stored."""
    x = normals(1)(*graph.inputs[0].output_types[0].shape)  # type: ignore[union-attr]
    inputs = [x.astype(graph.inputs[0].output_types[0].dtype), CHOSEN]  # type: ignore[union-attr]
    model = compiled(graph, **config)
    scores, rows = model.run(inputs)
    assert sorted(kind for kind in schedules(model) if kind != "chain") == SHARED
    wanted = interpret(doubled(graph), [x.astype("float64"), CHOSEN])
    assert error(scores, wanted[0]) <= limit
    table = graph["table"].value
    assert table is not None
    narrow = table.astype(KINDS["bfloat16"]) if config.get("PRECISION") == "bf16" else table
    assert np.array_equal(rows, narrow[CHOSEN].astype(rows.dtype))
    assert weight_bytes(model) <= stored


@pytest.mark.parametrize("is_gemm", [False, True])
@pytest.mark.parametrize(("dtype", "size", "limit"), [("float32", 4, 2e-6), ("bfloat16", 2, 0.02), ("float16", 2, 0.002)])
def test_rows_come_from_the_panels_of_the_product(dtype: str, size: int, limit: float, is_gemm: bool) -> None:
    check_held_once(tied(dtype, is_gemm=is_gemm), limit, 320 * 64 * size)


def test_a_model_in_bfloat16_holds_its_table_once() -> None:
    check_held_once(tied(), 0.02, 320 * 64 * 2, PRECISION="bf16")


@pytest.mark.parametrize("bfloats", ["fma", "vdpbf16ps", "amx-bf16"])
@pytest.mark.parametrize("depth", [64, 35])
def test_pairs_of_neighbours_are_put_apart(bfloats: str, depth: int) -> None:
    check_held_once(tied("bfloat16", depth, rows=20), 0.02, 320 * (depth + 1) * 2, BFLOATS=bfloats)


def test_vectors_of_every_width(lanes: int) -> None:
    check_held_once(tied(depth=30), 2e-6, 320 * 30 * 4)


def test_products_of_other_numbers_of_rows_have_their_own_panels() -> None:
    """One of them shares the table's memory; the other is cut otherwise."""
    table = pt.constant(normals(0)(301, 64), name="table")
    few, many = (pt.variable(f"x{rows}", "float32", (rows, 64)) for rows in (1, 50))
    graph = typed(
        pt.op("Gather", table, pt.variable("i", "int64", (2,))),
        *(pt.op("Gemm", x, table, transB=1, name=x.name + "_scores") for x in (few, many)),
    )
    inputs = {"i": np.array([3, -2]), "x1": normals(1)(1, 64), "x50": normals(2)(50, 64)}
    model = pt.compile(graph, "cpu")
    for given, wanted in zip(model(inputs), interpret(graph, [inputs[node.name] for node in graph.inputs]), strict=True):
        assert error(given, wanted) <= 2e-6


def test_a_product_with_a_factor_keeps_its_own_panels() -> None:
    table = pt.constant(normals(0)(301, 64), name="table")
    scores = pt.op("Gemm", pt.variable("x", "float32", (3, 64)), table, transB=1, alpha=0.5)
    graph = typed(scores, pt.op("Gather", table, pt.variable("i", "int64", (2,))))
    model, inputs = compiled(graph), [normals(1)(3, 64), np.array([5, 7])]
    assert sorted(schedules(model)) == ["gather", "gemm", "indices"]
    for given, wanted in zip(model.run(inputs), interpret(graph, inputs), strict=True):
        assert error(given, wanted) <= 2e-6


def test_an_index_outside_of_the_table_is_an_error() -> None:
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 301"):
        pt.compile(tied(), "cpu")({"x": normals(1)(3, 64), "i": CHOSEN + 1})


def test_a_model_with_a_shared_table_travels_with_it_once(tmp_path: Any) -> None:
    graph, path = tied(words=3001), tmp_path / "tied.partita"
    model, inputs = pt.compile(graph, "cpu"), {"x": normals(1)(3, 64), "i": CHOSEN}
    model.export(path, bodies=False)
    assert path.stat().st_size < 1.5 * 3001 * 64 * 4
    for given, wanted in zip(pt.import_model(path)(inputs), model(inputs), strict=True):
        assert np.array_equal(given, wanted)
