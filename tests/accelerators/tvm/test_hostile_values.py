"""Values that would end the process, or make a kernel read what is not there: compared with the device `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import RunError
from partita.graph.types import numpy_dtype
from tests.close import assert_close

pytest.importorskip("tvm")

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def binary(op: str, a: Any, b: Any, **attrs: Any) -> pt.Graph:
    x, y = pt.variable("x", str(a.dtype), a.shape), pt.variable("y", str(b.dtype), b.shape)
    return pt.Graph([pt.op(op, x, y, name="y0", **attrs)], inputs=[x, y])


def same(graph: pt.Graph, *arrays: Any) -> None:
    mine, wanted = (pt.compile(graph, device)(*arrays)[0] for device in ("cpu", "reference"))
    np.testing.assert_array_equal(mine, wanted)
    assert mine.dtype == wanted.dtype


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("op", "fmod"), [("Div", None), ("Mod", 0), ("Mod", 1)])
def test_integers_divided_by_zero_and_minus_one(op: str, fmod: int | None, dtype: str) -> None:
    limits = np.iinfo(dtype)
    tops = np.array([limits.min, limits.max, 7, 0, 1], dtype)
    bottoms = np.array([0, 1, 2, 3, -1 if limits.min else 5, -3 if limits.min else 6, limits.max], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(tops, bottoms))
    same(binary(op, a, b, **({} if fmod is None else {"fmod": fmod})), a, b)


def test_a_division_in_a_chain() -> None:
    x, y = pt.variable("x", "int64", (4, 8)), pt.variable("y", "int64", (8,))
    graph = pt.Graph([pt.op("Add", pt.op("Div", pt.op("Mul", x, x), y), x)], inputs=[x, y])
    same(graph, np.arange(32).reshape(4, 8), np.arange(8) % 3)


DATA = np.arange(12, dtype="float32").reshape(3, 4)
INDICES = {
    "Gather": np.array([0, -1, 2]),
    "GatherElements": np.array([[0, -1, 2, 1]]),
    "GatherND": np.array([[0, -1], [-3, 2]]),
    "ScatterElements": np.array([[0, -1, 2, 1]]),
    "ScatterND": np.array([[0, -1], [-3, 2]]),
}


def indexing(op: str, indices: Any, fixed: bool = False) -> tuple[pt.Graph, list[Any]]:
    updates = np.ones(indices.shape[: 1 if op == "ScatterND" else 2], "float32")
    given = [DATA, indices, *([updates] if op.startswith("Scatter") else [])]
    inputs = [pt.variable(f"x{i}", str(array.dtype), array.shape) for i, array in enumerate(given)]
    read = [pt.constant(indices) if i == 1 and fixed else node for i, node in enumerate(inputs)]
    graph = pt.Graph([pt.op(op, *read, name="y0")], inputs=[node for node in read if node.value is None])
    return graph, [array for i, array in enumerate(given) if not (i == 1 and fixed)]


@pytest.mark.parametrize("op", INDICES)
def test_indices_from_the_end(op: str) -> None:
    graph, arrays = indexing(op, INDICES[op])
    same(graph, *arrays)


@pytest.mark.parametrize("index", [4, -5, 2**40])
@pytest.mark.parametrize("op", INDICES)
def test_an_index_outside_is_an_error(op: str, index: int) -> None:
    indices = INDICES[op].copy()
    indices.flat[-1] = index
    graph, arrays = indexing(op, indices)
    with pytest.raises(RunError, match="an index is outside of (a dimension|dimensions) of 3"):
        pt.compile(graph, "cpu")(*arrays)


def a_batch_of_regions(images: list[int]) -> tuple[pt.Graph, list[Any]]:
    arrays = [np.ones((2, 3, 8, 8), "float32"), np.tile(np.array([0, 0, 4, 4], "float32"), (2, 1)), np.array(images)]
    read = [pt.variable(f"x{i}", str(array.dtype), array.shape) for i, array in enumerate(arrays)]
    sizes: dict[str, Any] = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    sizes["coordinate_transformation_mode"] = "output_half_pixel"
    return pt.Graph([pt.op("RoiAlign", *read, name="regions", **sizes)], inputs=read), arrays


def an_unpooling(position: int) -> tuple[pt.Graph, list[Any]]:
    arrays = [np.ones((1, 1, 2, 2), "float32"), np.array([[[[0, 3], [9, position]]]])]
    read = [pt.variable(f"x{i}", str(array.dtype), array.shape) for i, array in enumerate(arrays)]
    return pt.Graph([pt.op("MaxUnpool", *read, kernel_shape=[2, 2], strides=[2, 2])], inputs=read), arrays


FAR = {
    "RoiAlign": (a_batch_of_regions([1, 2**20]), 2), "MaxUnpool": (an_unpooling(2**30), 16),
    "RoiAlign, negative": (a_batch_of_regions([1, -1]), 2), "MaxUnpool, negative": (an_unpooling(-1), 16),
}


@pytest.mark.parametrize("op", FAR)
def test_positions_outside_of_a_batch_or_a_result(op: str) -> None:
    (graph, arrays), size = FAR[op]
    with pytest.raises(RunError, match=f"an index is outside of a dimension of {size}"):
        pt.compile(graph, "cpu")(*arrays)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_remainders_of_floats(dtype: str) -> None:
    a = np.array([7.5, -7.5, 3, np.inf, 5, -0.0, np.nan, 1e4, 5], numpy_dtype(dtype))
    b = np.array([2, 2, -1.25, 3, np.inf, 4, 1, 3, 0], numpy_dtype(dtype))
    (mine,) = pt.compile(binary("Mod", a, b, fmod=1), "cpu")(a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(mine.astype("float64"), np.fmod(a.astype("float64"), b.astype("float64")))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [3, "N"])
@pytest.mark.parametrize("ignored", [None, -1, 2])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_label_below_zero_names_no_class(op: str, ignored: int | None, size: Any) -> None:
    """It would count from the end."""
    x, labels = pt.variable("x", "float32", (size, 4, 2)), pt.variable("l", "int64", (size, 2))
    ignoring = {} if ignored is None else {"ignore_index": ignored}
    graph = pt.Graph([pt.op(op, x, labels, name="y0", reduction="none", **ignoring)], inputs=[x, labels], opsets={"": 13})
    logits, right = np.arange(24, dtype="float32").reshape(3, 4, 2), np.array([[0, 1], [2, 3], [3, 0]])
    same(graph, logits, right)
    if ignored == -1:
        same(graph, logits, np.array([[0, -1], [2, 3], [3, 0]]))
    with pytest.raises(RunError, match="an index is outside of a dimension of 4"):
        pt.compile(graph, "cpu")(logits, np.array([[0, -2], [2, 3], [3, 0]]))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64", "int32"])
def test_shifts_by_more_bits_than_there_are(dtype: str) -> None:
    values, counts = np.array([3, 3, 99, 255], dtype), np.array([1, 31, 71, 0], dtype)
    for direction in ("LEFT", "RIGHT"):
        given = [pt.variable(name, dtype, (4,)) for name in "xs"]
        graph = pt.Graph([pt.op("BitShift", *given, name="y0", direction=direction)], inputs=given)
        same(graph, values, counts)


def test_places_within() -> None:
    for graph, arrays in (a_batch_of_regions([1, 0]), an_unpooling(15)):
        same(graph, *arrays)


def test_a_sigmoid_ends_at_nothing() -> None:
    x = pt.variable("x", "float32", (20,))
    ends = np.repeat(np.array([-np.inf, -1e4, -100, np.inf, np.nan], "float32"), 4)
    (result,) = pt.compile(pt.Graph([pt.op("Sigmoid", x)], inputs=[x]), "cpu")(ends)
    np.testing.assert_array_equal(result, np.repeat(np.array([0, 0, 0, 1, np.nan], "float32"), 4))


def test_many_indices() -> None:
    random = np.random.default_rng(0)
    data, indices = random.standard_normal((1000, 3)).astype("float32"), random.integers(-1000, 1000, 200_001)
    graph = binary("Gather", data, indices)
    same(graph, data, indices)
    indices[-1] = 1000
    with pytest.raises(RunError, match="an index is outside of a dimension of 1000"):
        pt.compile(graph, "cpu")(data, indices)


@pytest.mark.parametrize("op", INDICES)
def test_a_constant_index_outside_is_left_to_others(op: str) -> None:
    indices = INDICES[op].copy()
    indices.flat[-1] = 5
    graph, _ = indexing(op, indices, fixed=True)
    said = str(pt.query(graph, "HETERO:cpu,reference").why("y0"))
    assert f"index 5 is outside of a dimension of {4 if op.endswith('ND') else 3}" in said


@pytest.mark.thinned(2)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("shape", [(5, 100), (3, 70, 5), (2, 9, 70), (4, 1, 32)])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes(op: str, shape: tuple[int, ...], last: int) -> None:
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", shape)
    axes = [pt.op(op, x, axis=axis, select_last_index=last, keepdims=0) for axis in range(len(shape))]
    few = random.integers(0, 9, shape)
    arrays = [array.astype("float32") for array in (few, np.full(shape, -np.inf), np.full(shape, np.inf))]
    models = [pt.compile(pt.Graph(axes, inputs=[x]), device) for device in ("cpu", "reference")]
    for array in arrays:
        mine, wanted = (list(model(array)) for model in models)
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(mine, wanted, strict=True))


WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "dilations": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("attrs", WINDOWS, ids=str)
def test_windows(attrs: dict[str, Any], dtype: str) -> None:
    x = pt.variable("x", dtype, (2, 3, 17, 20))
    graph = pt.Graph([pt.op("MaxPool", x, **attrs)], inputs=[x])
    same(graph, np.random.default_rng(0).standard_normal((2, 3, 17, 20)).astype(dtype))
    same(graph, np.full((2, 3, 17, 20), -np.inf, dtype))


def test_truth_values_compared() -> None:
    a, b = np.arange(40) % 2 == 0, np.arange(40) % 3 == 0
    same(binary("Equal", a, b), a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_better_of_two(op: str, dtype: str) -> None:
    a, b = np.arange(-32, 32).astype(dtype), np.arange(32, -32, -1).astype(dtype)
    if "float" in dtype:
        a[3], b[9], a[11] = np.nan, np.nan, -np.inf
    same(binary(op, a, b), a, b)


def test_one_at_the_largest() -> None:
    x = pt.variable("x", "float32", (5, 70))
    same(pt.Graph([pt.op("Hardmax", x)], inputs=[x]), np.random.default_rng(0).integers(0, 9, (5, 70)).astype("float32"))
    same(pt.Graph([pt.op("Hardmax", x)], inputs=[x]), np.full((5, 70), -np.inf, "float32"))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_long_dimension_beside_one_that_is_resized_takes_no_matrix(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix of a dimension of a million places would be eight terabytes: an error of numpy's where memory is limited."""
    whole = np.eye
    monkeypatch.setattr(np, "eye", lambda count: whole(count) if count < 10_000 else pytest.fail(f"a matrix of {count} places"))
    x = pt.variable("x", "float32", (1, 1, 2, 1_000_000))
    scales = pt.constant(np.array([1, 1, 2, 1], "float32"))
    resized = pt.op("Resize", x, None, scales, mode=mode, coordinate_transformation_mode="half_pixel_symmetric", name="resized")
    assert pt.query(pt.Graph([resized], inputs=[x]), "HETERO:cpu,reference")["resized"] in ("cpu", "reference")


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_a_region_that_is_smaller_than_a_pixel(mode: str) -> None:
    """TVM makes it as large as a pixel, which ONNX does with output_half_pixel alone."""
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 9)).astype("float32")
    given = [x, np.array([[1.2, 3.0, 1.5, 3.2]], "float32"), np.array([0])]
    read = [pt.variable(f"x{i}", str(array.dtype), array.shape) for i, array in enumerate(given)]
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5}
    regions = pt.op("RoiAlign", *read, name="regions", coordinate_transformation_mode=mode, **sizes)
    model, reference = (pt.compile(pt.Graph([regions], inputs=read), on) for on in ("HETERO:cpu,reference", "reference"))
    assert_close(model(*given)[0], reference(*given)[0], atol=1e-6)
    assert model.properties.devices == (("reference",) if mode == "half_pixel" else ("cpu",))
