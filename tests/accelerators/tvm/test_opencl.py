"""The device `opencl` on whatever driver there is: a GPU's, one for the processor, or the simulator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.run import opencl_driver
from tests.accelerators.tvm.opencl_kernels import graphs
from tests.accelerators.tvm.opencl_nets import ROOT, Value, numbers, unit, x
from tests.close import assert_close

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")


def matches(outputs: Value, *inputs: np.ndarray, tolerance: float = 1e-5) -> None:
    """The graph on `opencl` alone computes what the reference does."""
    graph = pt.Graph([outputs], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    for ours, wanted in zip(model(*inputs), pt.compile(graph, "reference")(*inputs), strict=True):
        assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
        assert_close(ours.astype("d"), wanted.astype("d"), atol=tolerance, rtol=tolerance)


def ints(*values: int) -> Value:
    return pt.constant(np.array(values, "int64"))


def one_product(x: Value) -> Value:
    """Each channel times a number, and the input again."""
    return pt.op("Add", pt.op("Conv", x, pt.constant(numbers(4, 1, 1, 1)), group=4), x)


def chosen(*others: float) -> Value:
    """Doubles: those that are more than 0, 1 and so on become the others, one after the other."""
    given = pt.op("Cast", x(6), to=11)
    for bound, other in enumerate(others):
        is_more = pt.op("Greater", given, pt.constant(np.array(bound, "d")))
        given = pt.op("Where", is_more, pt.constant(np.array(other, "d")), given)
    return given


CASES: dict[str, Callable[[], tuple[Value, tuple[int, ...]]]] = {
    "convolution": lambda: (pt.op("Relu", pt.op("Conv", x(1, 3, 9, 7), pt.constant(numbers(4, 3, 3, 3)))), (1, 3, 9, 7)),
    "depthwise": lambda: (pt.op("Conv", x(1, 4, 9, 9), pt.constant(numbers(4, 1, 3, 3)), group=4, strides=[2, 2]), (1, 4, 9, 9)),
    "product with tails": lambda: (pt.op("MatMul", x(5, 37), pt.constant(numbers(37, 19))), (5, 37)),
    "softmax": lambda: (pt.op("Softmax", x(3, 33)), (3, 33)),
    "functions of functions": lambda: (pt.op("Softmax", pt.op("Tanh", pt.op("Tanh", pt.op("Tanh", x(3, 33))))), (3, 33)),
    "norm": lambda: (pt.op("LayerNormalization", x(4, 40), pt.constant(numbers(40)), pt.constant(numbers(40, seed=1))), (4, 40)),
    "windows": lambda: (pt.op("MaxPool", x(1, 2, 8, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), (1, 2, 8, 8)),
    "several kernels of one function": lambda: (pt.op("Split", x(6, 5), num_outputs=3, n_outputs=3), (6, 5)),
    "a view between kernels": lambda: (pt.op("Relu", pt.op("Reshape", pt.op("Exp", x(4, 6)), ints(3, 8))), (4, 6)),
    "launches with numbers, and memory besides": lambda: (pt.op("TopK", x(2, 40), ints(3), n_outputs=2), (2, 40)),
    "sums of one product": lambda: (one_product(pt.variable("x", "float32", (1, 4, 5, 5))), (1, 4, 5, 5)),
    "running sums": lambda: (pt.op("CumSum", x(3, 40, 2), ints(1), reverse=1), (3, 40, 2)),
    "infinite doubles": lambda: (chosen(np.inf, -np.inf, np.nan), (6,)),
    "functions with other names in C": lambda: (pt.op("Atan", pt.op("Tanh", pt.op("Sinh", x(7)))), (7,)),
    "nothing in it": lambda: (pt.op("Relu", x(0, 4)), (0, 4)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.thinned(2)
def test_it_computes_what_the_reference_does(case: str) -> None:
    outputs, shape = CASES[case]()
    matches(outputs, numbers(*shape, seed=7))


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_products_of_any_size(rows: int, depth: int, columns: int) -> None:
    matches(pt.op("Relu", pt.op("MatMul", x(rows, depth), pt.constant(numbers(depth, columns)))), numbers(rows, depth))


def test_whole_numbers_and_truth_values() -> None:
    values = np.array([[-3, 0, 7], [2, 2, -9]], "int64")
    given = x(2, 3, dtype="int64")
    matches(pt.op("Where", pt.op("Greater", given, ints(1)), given, ints(5)), values)


def test_extremes_of_infinities_behind_other_ops() -> None:
    values = np.array([[1, -np.inf, 3], [-np.inf] * 3, [np.nan, 0, 1]], "float32")
    for op in ("ReduceMax", "ReduceMin"):
        for before in ("Neg", "Relu", "Identity"):
            matches(pt.op("Exp", pt.op(op, pt.op(before, x(3, 3)), ints(1))), values)


def test_positions_of_infinities_and_nan_behind_other_ops() -> None:
    values = np.array([[1, -np.inf, 3], [-np.inf] * 3, [np.inf] * 3, [1, np.nan, 2]], "float32")
    for op in ("ArgMax", "ArgMin"):
        for before in ("Neg", "Identity"):
            matches(pt.op(op, pt.op(before, x(4, 3)), axis=1), values)


INDEXED: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, dict[str, Any]]] = {
    "Gather": ((2,), None, {}),
    "GatherElements": ((2, 4), None, {}),
    "GatherND": ((2, 1), None, {}),
    "ScatterElements": ((1, 2), (1, 2), {"reduction": "add"}),
    "ScatterND": ((2, 1), (2, 4), {}),
}
"""By op: the sizes of its indices into float32[3, 4], those of its updates, its attributes."""


def indexed(op: str) -> tuple[pt.Graph, list[np.ndarray], int]:
    """A graph of the op, arrays for it with indices inside, and the number of the flat index to put outside."""
    indices, updates, attributes = INDEXED[op]
    read = [x(3, 4), pt.variable("i", "int64", indices)]
    arrays = [numbers(3, 4), np.resize(np.array([2, -3, 0]), indices)]
    if updates is not None:
        read.append(pt.variable("u", "float32", updates))
        arrays.append(numbers(*updates, seed=1))
    return pt.Graph([pt.op(op, *read, name="node", **attributes)], inputs=read, name="net"), arrays, len(indices) - 1


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.thinned(2)
def test_ops_with_indices(op: str) -> None:
    graph, arrays, _ = indexed(op)
    (ours,), (wanted,) = (pt.compile(graph, device)(*arrays) for device in ("opencl", "reference"))
    np.testing.assert_allclose(ours, wanted, rtol=1e-6)


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.parametrize("index", [3, -4, 2**40])
def test_an_index_outside_is_an_error(op: str, index: int) -> None:
    graph, arrays, position = indexed(op)
    model = pt.compile(graph, "opencl")
    model(*arrays)
    inside = arrays[1].flat[position]
    arrays[1].flat[position] = index
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 3"):
        model(*arrays)
    arrays[1].flat[position] = inside
    assert len(model(*arrays)) == 1


def test_an_index_outside_is_an_error_of_an_export_too(tmp_path: Path) -> None:
    graph, arrays, _ = indexed("Gather")
    pt.compile(graph, "opencl").export(tmp_path / "net.partita")
    model = pt.import_model(tmp_path / "net.partita")
    assert len(model(*arrays)) == 1
    arrays[1][0] = 3
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 3"):
        model(*arrays)


def test_the_later_of_two_updates_of_one_position_counts() -> None:
    given = [pt.variable("x", "float32", (300,)), pt.variable("i", "int64", (200,)), pt.variable("u", "float32", (200,))]
    graph = pt.Graph([pt.op("ScatterElements", *given)], inputs=given)
    arrays = [numbers(300), np.repeat(np.arange(20), 10), numbers(200, seed=1)]
    (ours,) = pt.compile(graph, "opencl")(*arrays)
    np.testing.assert_array_equal(ours, np.concatenate([arrays[2][9::10], arrays[0][20:]]))


def test_the_later_of_two_slices_at_one_position_counts() -> None:
    given = [pt.variable("x", "float32", (9, 70)), pt.variable("i", "int64", (6, 1)), pt.variable("u", "float32", (6, 70))]
    graph = pt.Graph([pt.op("ScatterND", *given)], inputs=given)
    model = pt.compile(graph, "opencl")
    arrays = [numbers(9, 70), np.array([[4], [1], [4], [-5], [1], [0]]), numbers(6, 70, seed=1)]
    wanted = arrays[0].copy()
    wanted[[4, 1, 0]] = arrays[2][[3, 4, 5]]
    np.testing.assert_array_equal(model(*arrays)[0], wanted)
    assert max(items(model)) >= 630 and sorted(items(model))[1] >= 70, "a work item for each place of a slice"


def items(model: pt.CompiledModel) -> list[int]:
    """The work items of each launch."""
    return [int(np.prod(step.groups) * np.prod(step.local)) for step in unit(model).step_list.steps]


@pytest.mark.parametrize("op", ["Tanh", "Gather"])
def test_little_work_is_shared_among_the_items_too(op: str) -> None:
    """Less than what is worth waking a processor's threads for was the work of a single item."""
    given = x(6, 50)
    node = pt.op("Tanh", given) if op == "Tanh" else pt.op("Gather", given, ints(3, 1, 2, 0, 5, 5))
    assert min(items(pt.compile(pt.Graph([node], name="net"), "opencl"))) >= 300


@pytest.mark.parametrize("dtype, number", [("float32", 16777215), ("float64", 123456789.25), ("float64", 0.1234567890123)])
def test_constants_keep_all_their_digits(dtype: str, number: float) -> None:
    constant, given = np.array(number, dtype), np.array([1, 3, 7], dtype)
    (ours,) = pt.compile(pt.Graph([pt.op("Add", x(3, dtype=dtype), pt.constant(constant))]), "opencl")(given)
    np.testing.assert_array_equal(ours, given + constant)


def test_ops_that_tvm_computes_otherwise() -> None:
    given = x(2, 3)
    matches(pt.op("Hardmax", given), np.array([[1, np.nan, 3], [2, 2, 1]], "float32"))
    values = np.array([[7.5, -7.5, np.inf], [5, -0.0, 3]], "float32")
    matches(pt.op("Mod", given, pt.constant(np.array(2, "float32")), fmod=1), values)
    matches(pt.op("Pow", given, pt.constant(np.array(3, "int64"))), numbers(2, 3))


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "int8"])
def test_shifts_by_more_bits_than_there_are(dtype: str) -> None:
    values, counts = np.array([3, 3, 99], dtype), np.array([1, 6, 71], dtype)
    for direction in ("LEFT", "RIGHT"):
        shifted = pt.op("BitShift", x(3, dtype=dtype), pt.variable("s", dtype, (3,)), direction=direction)
        (ours,), (wanted,) = (pt.compile(pt.Graph([shifted]), device)(values, counts) for device in ("opencl", "cpu"))
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_short_numbers_wrap_around_before_they_are_divided(dtype: str) -> None:
    values, divisors = np.array([200, 7, 99], dtype), np.array([200, 3, 2], dtype)
    read = pt.variable("d", dtype, (3,))
    quotient = pt.op("Div", pt.op("Mul", x(3, dtype=dtype), read), read)
    (ours,), (wanted,) = (pt.compile(pt.Graph([quotient]), device)(values, divisors) for device in ("opencl", "reference"))
    np.testing.assert_array_equal(ours, wanted)


@pytest.fixture
def simulator() -> None:
    if not any("Oclgrind" in driver.name for driver in opencl_driver.drivers()):
        pytest.skip("the simulator Oclgrind is not installed")


def watched(folder: Path, *arguments: str) -> tuple[str, str]:
    """What the kernels of `opencl_kernels` compute under the simulator, and what it complains of."""
    log = folder / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OCLGRIND_DATA_RACES": "1", "OCLGRIND_LOG": str(log)}
    command = [sys.executable, "-m", "tests.accelerators.tvm.opencl_kernels", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=True)
    return done.stdout.strip(), log.read_text() if log.exists() else ""


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
def test_kernels_have_no_races_and_stay_within_their_memory(tmp_path: Path) -> None:
    assert watched(tmp_path) == ("wrong: none", "")


WITH_BARRIERS = (
    "product", "product with a vector", "softmax", "sum", "norm", "transpose", "convolution", "attention", "convolution in steps",
    "phases of several kinds", "product of quantized values", "numbers that choose their scale",
    "product of any rows", "softmax of any length", "attention of any length",
)
LONG = ("convolution", "attention", "convolution in steps", "phases of several kinds", "attention of any length")
"""Those that the simulator takes seconds for."""


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("left_out", [LONG, pytest.param((), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_races_are_seen_where_barriers_are_missing(left_out: tuple[str, ...], tmp_path: Path) -> None:
    """All others are right without barriers, too."""
    wrong = [name for name in WITH_BARRIERS if name not in left_out]
    said, complaints = watched(tmp_path, "without", *(name for name in graphs() if name not in left_out))
    assert said == f"wrong: {', '.join(wrong)}"
    assert "data race" in complaints
