"""NaN on engines: what the tables say is what the engines do, and NAN="exact" leaves to the next device what would lose it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import Array, dtype_name

DEVICES = ("onnxruntime", "openvino")


@attrs.frozen
class Probe:
    """One op with NaN among its inputs."""

    op: str
    arrays: tuple[Any, ...]
    """What it reads: constants where they are lists of one array, else inputs of the graph."""
    attributes: dict[str, Any]
    outputs: tuple[str, ...] = ("y",)

    def graph(self) -> pt.Graph:
        read = [_read(array, i) for i, array in enumerate(self.arrays)]
        node = pt.op(self.op, *read, name="n", output_names=self.outputs, **self.attributes)
        inputs = [value for value in read if value is not None and value.is_variable]
        return pt.apply_pass(pt.Graph([entry for entry in node.outputs if entry.name], inputs), "InferShape")

    def feeds(self) -> list[Array]:
        return [array for array in self.arrays if isinstance(array, np.ndarray)]


def _read(array: Any, number: int) -> pt.Node | None:
    if not isinstance(array, np.ndarray):
        return None if array is None else pt.constant(array[0])
    return pt.variable(f"x{number}", dtype_name(array.dtype), array.shape)


def numbers(*shape: int, dtype: str = "float32") -> Array:
    """Random numbers, of which the first and some in the middle are NaN."""
    result = np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)
    result.reshape(-1)[:: max(result.size // 3, 1)] = np.nan
    return result


def finite(*shape: int, dtype: str = "float32") -> Array:
    return np.nan_to_num(numbers(*shape, dtype=dtype), nan=0.5)


def probe(op: str, *arrays: Any, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Probe:
    return Probe(op, arrays, attributes, outputs)


IMAGE, ROWS = numbers(1, 2, 6, 6), numbers(5, 16)
AXES = [np.array([1])]
ASYMMETRIC, ALIGNED = ({"coordinate_transformation_mode": mode} for mode in ("asymmetric", "align_corners"))
WINDOW = {"kernel_shape": [2, 2]}
INDICES, ROW = np.zeros((1, 16), "int64"), np.zeros((1, 1), "int64")


def recurrent(op: str, gates: int, **attributes: Any) -> Probe:
    sizes = ((4, 3, 1), (1, 5 * gates, 1), (1, 5 * gates, 5))
    return probe(op, numbers(*sizes[0]), finite(*sizes[1]), finite(*sizes[2]), hidden_size=5, **attributes)


PROBES = [
    *(probe(op, ROWS) for op in "Celu Exp HardSigmoid Hardmax LogSoftmax Relu Shrink Softmax".split()),
    *(probe(op, ROWS, axis=0) for op in ("ArgMax", "ArgMin")),
    *(probe(op, ROWS, AXES) for op in ("ReduceMax", "ReduceMin", "ReduceLogSumExp")),
    *(probe(op, ROWS, [np.zeros((), "float32")]) for op in ("Max", "Min")),
    *(probe(op, IMAGE) for op in ("GlobalMaxPool",)),
    *(recurrent(op, gates) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))),
    *(recurrent(op, gates, clip=0.5) for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))),
    probe("ScatterElements", finite(4, 16), INDICES, ROWS[:1], reduction="max"),
    probe("ScatterElements", ROWS, INDICES, ROWS[1:2], reduction="max"),
    *(probe("ScatterND", *data, reduction="max") for data in ((finite(4, 16), ROW, ROWS[:1]), (ROWS, ROW, ROWS[1:2]))),
    probe("Clip", finite(5, 16), np.array(np.nan, "float32"), np.array(1, "float32")),
    probe("Clip", ROWS, [np.zeros((), "float32")], [np.ones((), "float32")]),
    probe("Conv", finite(1, 2, 6, 6), numbers(3, 2, 3, 3), pads=[1, 1, 1, 1]),
    probe("DFT", numbers(1, 8, 1)),
    probe("Conv", finite(1, 1, 10, 10), numbers(3, 1, 3, 3), pads=[1, 0, 0, 1]),
    probe("DeformConv", finite(1, 1, 3, 3), finite(1, 1, 2, 2), numbers(1, 8, 2, 2)),
    probe("DynamicQuantizeLinear", ROWS, outputs=("", "scale", "")),
    probe("Gemm", finite(4, 3), finite(3, 2), numbers(1, 2), beta=0.0),
    probe("GridSample", IMAGE, numbers(1, 3, 3, 2), padding_mode="border", align_corners=1),
    probe("LRN", numbers(1, 8, 2, 2), size=3),
    probe("LogSoftmax", numbers(8, 2, dtype="float64"), axis=0),
    probe("MaxPool", IMAGE, **WINDOW),
    probe("Resize", IMAGE, None, None, [np.array([1, 2, 4, 9])], mode="linear"),
    probe("Resize", numbers(2, 1, 2, 4), None, None, [np.array([2, 1, 2, 4])], mode="cubic", **ASYMMETRIC),
    probe("Resize", numbers(1, 1, 3, 7), None, None, [np.array([1, 1, 3, 5])], mode="linear", **ALIGNED),
    probe("Resize", numbers(1, 3, 5, 4), None, None, [np.array([1, 3, 2, 4])], mode="linear"),
    probe("RoiAlign", IMAGE, np.array([[0, 0, 9, 9]], "float32"), np.zeros(1, "int64"), sampling_ratio=2, output_width=2),
    probe("STFT", numbers(1, 16, 1), [np.array(4)], [np.ones(8, "float32")]),
    probe("Sign", numbers(5, 16, dtype="float16")),
    probe("SoftmaxCrossEntropyLoss", ROWS[:3, :2], np.ones(3, "int64"), reduction="none"),
    *(probe("TopK", ROWS, [np.array([3])], outputs=("y", ""), largest=largest) for largest in (0, 1)),
    probe("Unique", ROWS),
]
"""A probe at least for each row of the tables."""

CARRIED = [
    *(probe(op, ROWS) for op in "Abs Neg Sqrt Sigmoid Tanh Erf Elu LeakyRelu Softplus Round".split()),
    *(probe(op, ROWS, numbers(5, 16)) for op in "Add Sub Mul Div Pow".split()),
    *(probe(op, ROWS, AXES) for op in ("ReduceSum", "ReduceMean")),
    probe("MatMul", ROWS, [finite(16, 4)]),
    probe("Gemm", ROWS, [finite(16, 4)], [finite(4)]),
    probe("Conv", IMAGE, [finite(3, 2, 3, 3)], pads=[1, 1, 1, 1]),
    probe("AveragePool", IMAGE, **WINDOW),
    probe("GlobalAveragePool", IMAGE),
    probe("LayerNormalization", ROWS, [finite(16)]),
    probe("Where", ROWS > 0, ROWS, finite(5, 16)),
    probe("Transpose", ROWS),
]
"""What each engine is left with."""


@pytest.fixture(params=DEVICES)
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"the extra [{request.param}] is not installed")
    return str(request.param)


def table(device: str) -> Any:
    return importlib.import_module(f"partita.accelerators.engines.{device}.quirks").LOSES_NAN


def results(graph: pt.Graph, feeds: Sequence[Array], device: str, nan: str) -> list[Any]:
    with pt.compile(graph, f"HETERO:{device},reference", config={device: {"NAN": nan}}) as model:
        return list(model(*feeds))


def same(these: Sequence[Any], those: Sequence[Any]) -> bool:
    return all(
        one.shape == other.shape and np.allclose(one.astype("float64"), other.astype("float64"), 1e-2, 1e-2, equal_nan=True)
        for one, other in zip(these, those, strict=True)
    )


def test_each_row_is_measured(engine: str) -> None:
    """A row that is no longer true is a warning: another version or another processor may do better."""
    losing = set()
    with np.errstate(all="ignore"):
        for one in PROBES:
            graph, rule = one.graph(), table(engine).get(one.op)
            right = interpret(graph, one.feeds())
            assert same(results(graph, one.feeds(), engine, "exact"), right), one.op
            if not same(results(graph, one.feeds(), engine, "engine"), right):
                assert rule is not None and rule(graph["n"]), f"{engine} loses the NaN of {one.op}, which the table does not say"
                losing.add(one.op)
    assert set(table(engine)) <= {one.op for one in PROBES}, "a probe for each row"
    for op in sorted(set(table(engine)) - losing):
        warnings.warn(f"{engine} carries NaN through the probe of {op} here", stacklevel=1)


def test_what_loses_nan_is_refused_where_it_must_not_be_lost(engine: str) -> None:
    graph = pt.apply_pass(pt.Graph([pt.op("ReduceMax", pt.variable("x", "float32", (2, 3)), name="n")]), "InferShape")
    config = {engine: {"NAN": "exact"}}
    placement = pt.query(graph, f"HETERO:{engine},reference", config=config)
    assert placement["n"] == "reference"
    assert f"{engine} does not carry NaN through ReduceMax as ONNX does (NAN=exact)" in str(placement.why("n"))
    assert pt.query(graph, f"HETERO:{engine},reference")["n"] == engine
    integers = [pt.variable(name, "int32", (2, 3)) for name in "xy"]
    whole = pt.apply_pass(pt.Graph([pt.op("Max", *integers, name="n")]), "InferShape")
    assert pt.query(whole, f"HETERO:{engine},reference", config=config)["n"] == engine, "integers are never NaN"


def test_what_carries_nan_is_taken_and_carries_it(engine: str) -> None:
    config = {engine: {"NAN": "exact"}}
    with np.errstate(all="ignore"):
        for one in CARRIED:
            graph = one.graph()
            assert pt.query(graph, f"HETERO:{engine},reference", config=config)["n"] == engine, one.op
            assert same(results(graph, one.feeds(), engine, "exact"), interpret(graph, one.feeds())), one.op


def test_a_body_that_loses_nan_is_refused(engine: str) -> None:
    formal, x = pt.variable("f", "float32", (3,)), pt.variable("x", "float32", (3,))
    bodies = [
        pt.Graph([pt.op("ReduceMin", formal, keepdims=1, name=f"least{i}")], [formal], name=f"b{i}") for i in range(2)
    ]
    node = pt.op("If", pt.variable("go", "bool", ()), captures=[x], then_branch=bodies[0], else_branch=bodies[1], name="n")
    placement = pt.query(pt.Graph([node]), f"HETERO:{engine},reference", config={engine: {"NAN": "exact"}})
    assert placement["n"] == "reference"
    assert "its body holds 'least0'" in str(placement.why("n"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_what_may_be_over_nothing_is_refused(device: str, op: str) -> None:
    """The rows that a condition keeps, of which there may be none, though no input is empty."""
    pytest.importorskip(device)
    x, keep = pt.variable("x", "float32", ("N", 4)), pt.variable("keep", "bool", ("N",))
    kept = pt.op("Compress", x, keep, axis=0, name="kept")
    graph = pt.Graph([pt.op(op, kept, pt.constant(np.array([0])), keepdims=0, name="reduced")], [x, keep])
    placement = pt.query(graph, f"HETERO:{device},reference", config={device: {"NAN": "exact"}})
    assert placement["reduced"] == "reference"
    given = finite(3, 4), np.zeros(3, bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pt.compile(graph, f"HETERO:{device},reference", config={device: {"NAN": "exact"}})(*given)[0]
        np.testing.assert_array_equal(result, interpret(graph, given)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_a_mean_over_a_dynamic_size_of_an_input_is_taken(device: str) -> None:
    pytest.importorskip(device)
    x = pt.variable("x", "float32", ("N", "S", 4))
    graph = pt.Graph([pt.op("ReduceMean", x, pt.constant(np.array([1])), name="mean")])
    assert pt.query(graph, f"HETERO:{device},reference", config={device: {"NAN": "exact"}})["mean"] == device
