"""Col2Im of constant sizes, against ONNX's reference: the same sums in the same order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx.backend.test.case.node import col2im

import partita as pt
from partita.accelerators.errors import NotSupported
from partita.graph.numerics.evaluate import evaluate
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.running import compiled, error, normals, schedules
from tests.drawn import some

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

EXACT = ("float32", "float64", "int8", "uint8", "int32", "int64")
HALVES = {"float16": 2**-11, "bfloat16": 2**-8}

Attributes = dict[str, Any]


def from_columns(x: pt.Node, image: list[int], block: list[int], attrs: Attributes) -> pt.Graph:
    op = pt.op("Col2Im", x, pt.constant(np.array(image)), pt.constant(np.array(block)), name="image", **attrs)
    return pt.Graph([op], inputs=[x], opsets={"": 22})


def reference(values: np.ndarray, image: list[int], block: list[int], attrs: Attributes) -> np.ndarray:
    return np.asarray(evaluate("Col2Im", [values, np.array(image), np.array(block)], attrs, version=22, n_outputs=1)[0])


@st.composite
def blocks(draw: Any) -> tuple[list[int], list[int], Attributes, int]:
    """The sizes of the image and of a block, attributes, and the number of blocks."""
    rank = draw(st.integers(1, 4))

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    image, block, steps, gaps = each(1, 9 if rank < 3 else 4), each(1, 3), each(1, 4), each(1, 3)
    if rank == 1 and draw(st.booleans()):
        image, block = each(20, 60), each(9, 20)
    pads = each(0, 3, 2 * rank)
    rooms = [image[d] + pads[d] + pads[rank + d] - gaps[d] * (block[d] - 1) - 1 for d in range(rank)]
    assume(min(rooms) >= 0)
    count = math.prod(room // step + 1 for room, step in zip(rooms, steps, strict=True))
    return image, block, {"strides": steps, "dilations": gaps, "pads": pads}, count


@some
@given(blocks(), st.sampled_from((*EXACT, *HALVES)), st.integers(0, 2**32 - 1))
def test_any_blocks(case: tuple[list[int], list[int], Attributes, int], dtype: str, seed: int) -> None:
    image, block, attrs, count = case
    assume(count <= 200)
    shape = (2, 3 * math.prod(block), count)
    model = compiled(from_columns(pt.variable("x", dtype, shape), image, block, attrs))
    values = (np.random.default_rng(seed).standard_normal(shape) * 50).astype("float32").astype(numpy_dtype(dtype))
    (output,) = model.run([values])
    assert schedules(model) == ["columns to image"]
    if dtype in EXACT:
        np.testing.assert_array_equal(output, reference(values, image, block, attrs))
    else:
        assert error(output, reference(values.astype("float32"), image, block, attrs)) <= HALVES[dtype]


def test_many_rows_are_shared_by_threads() -> None:
    shape, attrs = (2, 16 * 9, 40 * 40), {"pads": [1, 1, 1, 1]}
    values = normals(3)(*shape)
    graph = from_columns(pt.variable("x", "float32", shape), [40, 40], [3, 3], attrs)
    (output,) = compiled(graph).run([values])
    (alone,) = compiled(graph, NUM_THREADS=1).run([values])
    np.testing.assert_array_equal(output, alone)
    np.testing.assert_array_equal(output[:1, :2], reference(values[:1, :18], [40, 40], [3, 3], attrs))


@pytest.mark.parametrize(("image", "block", "step"), [([4, 3], [1, 1], 10**9), ([3], [1], 5), ([5, 2], [2, 2], 10**10)])
def test_strides_beyond_the_image(image: list[int], block: list[int], step: int) -> None:
    values, attrs = normals(9)(2, math.prod(block), 1), {"strides": [step] * len(image)}
    graph = from_columns(pt.variable("x", "float32", values.shape), image, block, attrs)
    (output,) = pt.compile(graph, "HETERO:cpu,reference")(values)
    np.testing.assert_array_equal(output, reference(values, image, block, attrs))


def test_special_values_stay_where_the_reference_has_them() -> None:
    values = normals(4)(1, 2 * 6, 12)
    values[0, 0, :4], values[0, 5, 3:7], values[0, 7, 6], values[0, 9] = np.nan, np.inf, -np.inf, -0.0
    image, block, attrs = [7, 6], [3, 2], {"strides": [2, 2], "pads": [1, 0, 1, 1]}
    (output,) = compiled(from_columns(pt.variable("x", "float32", values.shape), image, block, attrs)).run([values])
    wanted = reference(values, image, block, attrs)
    assert np.isnan(wanted).any() and np.isinf(wanted).any()
    np.testing.assert_array_equal(output, wanted)
    np.testing.assert_array_equal(np.signbit(output), np.signbit(wanted))


def test_any_batch_has_one_kernel() -> None:
    graph = from_columns(pt.variable("x", "float32", ("N", 4, 12)), [4, 5], [2, 2], {})
    model = pt.compile(graph, "cpu")
    for batch in (1, 3, 2, 5):
        values = normals(batch)(batch, 4, 12)
        np.testing.assert_array_equal(model(values)[0], reference(values, [4, 5], [2, 2], {}))
    assert len(model.kernels()) == 1
    assert model(np.zeros((0, 4, 12), np.float32))[0].shape == (0, 1, 4, 5)


def test_another_number_of_columns_is_an_error() -> None:
    model = pt.compile(from_columns(pt.variable("x", "float32", (1, 4, "T")), [4, 5], [2, 2], {}), "cpu")
    values = normals(5)(1, 4, 12)
    np.testing.assert_array_equal(model(values)[0], reference(values, [4, 5], [2, 2], {}))
    with pytest.raises(pt.PartitaError):
        model(normals(6)(1, 4, 13))


def test_from_the_cache_and_an_export(tmp_path: Path) -> None:
    values = normals(7)(2, 3 * 4, 9)
    graph = from_columns(pt.variable("x", "float32", values.shape), [6, 6], [2, 2], {"strides": [2, 2]})
    wanted = reference(values, [6, 6], [2, 2], {"strides": [2, 2]})
    for _ in range(2):
        model = pt.compile(graph, "cpu", config={"CACHE_DIR": str(tmp_path / "cache")})
        np.testing.assert_array_equal(model(values)[0], wanted)
    model.export(tmp_path / "image.partita")
    np.testing.assert_array_equal(pt.import_model(tmp_path / "image.partita")(values)[0], wanted)


def test_sizes_that_are_values_are_left_to_the_reference() -> None:
    x, image = pt.variable("x", "float32", (1, 4, 9)), pt.variable("image", "int64", (2,))
    graph = pt.Graph([pt.op("Col2Im", x, image, pt.constant(np.array([2, 2])))], inputs=[x, image], opsets={"": 22})
    with pytest.raises(NotSupported):
        pt.compile(graph, "cpu")
    values = normals(8)(1, 4, 9)
    (output,) = pt.compile(graph, "HETERO:cpu,reference")(values, np.array([4, 4]))
    np.testing.assert_array_equal(output, reference(values, [4, 4], [2, 2], {}))


def test_onnx_node_tests_of_constant_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def expect(node: onnx.NodeProto, inputs: list[np.ndarray], outputs: list[np.ndarray], name: str) -> None:
        values, image, block = inputs
        attrs = {a.name: list(a.ints) for a in node.attribute}
        x = pt.variable("x", str(values.dtype), values.shape)
        model = pt.compile(from_columns(x, image.tolist(), block.tolist(), attrs), "cpu")
        np.testing.assert_array_equal(model(values)[0], outputs[0])
        seen.append(name)

    monkeypatch.setattr(col2im, "expect", expect)
    for name, export in vars(col2im.Col2Im).items():
        if name.startswith("export"):
            export.__func__()
    assert len(seen) >= 5
