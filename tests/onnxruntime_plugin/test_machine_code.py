"""Runs without Python: the same results as with it, and Python again where it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

import onnxruntime
from onnx import TensorProto, helper

import partita as pt
from partita.accelerators.tvm.code.linking import tools
from partita.accelerators.tvm.run import threads
from partita.onnxruntime_plugin.compute import Compute
from partita.onnxruntime_plugin.machine_code import SharedTurns
from tests.onnxruntime_plugin.models import assigned, chain, model, provider, session
from tests.onnxruntime_plugin.node_tests import array_of, ort_value

pytestmark = pytest.mark.skipif(not (tools() and tools().compile), reason="needs a C compiler")


@contextmanager
def counted() -> Iterator[list[int]]:
    """The runs that are Python's, inside."""
    runs: list[int] = []
    own = Compute.run

    def run(self: Compute, context: int) -> None:
        runs.append(context)
        own(self, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compute, "run", run)
        yield runs


def twice(content: bytes, *calls: dict[str, np.ndarray], devices: str = "cpu") -> list[list[np.ndarray]]:
    """The results of these calls, each made twice, where only the first run of each is Python's."""
    with provider(devices) as name, counted() as runs:
        running = session(content, name)
        assert len(assigned(running, name)) == 1
        results = []
        for number, feeds in enumerate(calls, 1):
            given = {key: ort_value(value) for key, value in feeds.items()}
            first, again = ([array_of(one) for one in running.run_with_ort_values(None, given)] for _ in range(2))
            assert len(runs) == number
            for one, other in zip(first, again, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            results.append(again)
        return results


@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT32", "INT8", "UINT8"])
def test_element_types(dtype: str) -> None:
    number = getattr(TensorProto, dtype)
    x = np.arange(24).reshape(3, 8).astype(helper.tensor_dtype_to_np_dtype(number))
    content = model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": [3, 8]}, ["y"], dtype=number)
    ((result,),) = twice(content, {"x": x})
    np.testing.assert_array_equal(result, x + x)


def test_booleans() -> None:
    x = np.array([True, False, True])
    content = model([helper.make_node("Not", ["x"], ["y"])], {"x": [3]}, ["y"], dtype=TensorProto.BOOL)
    ((result,),) = twice(content, {"x": x})
    np.testing.assert_array_equal(result, ~x)


def test_several_inputs_and_outputs() -> None:
    """A scalar, a constant, a value read twice, and results in another order than that of the ops."""
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["m"]), helper.make_node("Mul", ["m", "s"], ["y"]),
        helper.make_node("Add", ["y", "y"], ["z"]), helper.make_node("ReduceSum", ["y"], ["t"], keepdims=0),
    ]
    w = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    content = model(nodes, {"s": [], "a": [3, 8]}, ["t", "z", "y"], {"w": w})
    for factor in (2, 3):
        a, s = np.linspace(0, factor, 24, dtype=np.float32).reshape(3, 8), np.array(factor, np.float32)
        ((t, z, y),) = twice(content, {"a": a, "s": s})
        np.testing.assert_allclose(y, a @ w * s, rtol=1e-5)
        np.testing.assert_array_equal(z, y + y)
        np.testing.assert_allclose(t, y.sum(), rtol=1e-5)


def test_views_of_inputs() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    content = model(nodes, {"x": [3, 8]}, ["y", "z"], {"shape": np.array([4, 6])})
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    for (y, z), given in zip(twice(content, {"x": x}) + twice(content, {"x": x + 1}), (x, x + 1), strict=True):
        np.testing.assert_array_equal(y, given.reshape(4, 6))
        np.testing.assert_array_equal(z, np.maximum(y, 0))


def test_dynamic_sizes() -> None:
    w = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    content = model([helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
                    {"x": ["n", 8]}, ["y"], {"w": w})
    calls = [{"x": np.full((n, 8), n, np.float32)} for n in (1, 5, 64)]
    for call, (result,) in zip(calls, twice(content, *calls), strict=True):
        np.testing.assert_allclose(result, np.maximum(call["x"] @ w, 0), rtol=1e-5)


def test_sizes_that_are_compiled_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size has kernels of its own; views are among the results."""
    monkeypatch.setattr(type(pt.accelerator("cpu")), "any_size", lambda *ignored: None)
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("Reshape", ["e", "flat"], ["f"]),
        helper.make_node("Gather", ["e", "i"], ["g"]),
    ]
    constants = {"shape": np.array([1, 8]), "flat": np.array([-1]), "i": np.array([0, 0])}
    content = model(nodes, {"x": ["n", 8]}, ["g", "f", "e"], constants)
    calls = [{"x": np.arange(8 * n, dtype=np.float32).reshape(n, 8)} for n in range(1, 7)]
    for call, (g, f, e) in zip(calls, twice(content, *calls), strict=True):
        np.testing.assert_array_equal(g, call["x"][[0, 0]])
        np.testing.assert_array_equal(f, call["x"].ravel())
        np.testing.assert_array_equal(e, call["x"])


def test_a_part_of_several_devices() -> None:
    """A subgraph that is wholly on `cpu` needs no Python, whatever other devices there are."""
    x = np.ones((3, 8), np.float32)
    ((result,),) = twice(chain("Abs", "Neg", shape=(3, 8)), {"x": x}, devices="HETERO:cpu,reference")
    np.testing.assert_array_equal(result, -x)


def test_subgraphs_of_other_devices_stay_with_python() -> None:
    x = np.ones((3, 8), np.float32)
    with provider("reference") as name, counted() as runs:
        running = session(chain("Abs", "Neg"), name)
        for _ in range(3):
            running.run(None, {"x": x})
        assert len(runs) == 3


def test_more_sizes_than_are_remembered() -> None:
    with provider("cpu") as name, counted() as runs:
        running = session(chain("Abs"), name)
        for _ in range(2):
            for n in range(1, 21):
                (result,) = running.run(None, {"x": np.full((n, 8), -n, np.float32)})
                np.testing.assert_array_equal(result, np.full((n, 8), n, np.float32))
        assert len(runs) == 20 + 4


def test_empty_and_misaligned_inputs() -> None:
    with provider("cpu") as name, counted() as runs:
        running = session(chain("Abs"), name)
        memory = np.zeros(100, np.uint8)
        for offset in (4, 1, 2, 8):
            x = memory[offset : offset + 32].view(np.float32).reshape(1, 8)
            x[:] = -offset
            given = onnxruntime.OrtValue.ortvalue_from_numpy(x)
            (result,) = running.run_with_ort_values(None, {"x": given})
            np.testing.assert_array_equal(result.numpy(), np.full((1, 8), offset, np.float32))
        assert len(runs) == 3
        for _ in range(2):
            assert running.run(None, {"x": np.empty((0, 8), np.float32)})[0].shape == (0, 8)
        assert len(runs) == 5


def test_an_error_is_told_by_python() -> None:
    """A wrong index is found by the machine code, and the next run is right again."""
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    table = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    content = model(nodes, {"x": [2]}, ["y"], {"table": table}, dtype=TensorProto.INT64)
    with provider("cpu") as name, counted() as runs:
        running = session(content, name)
        for _ in range(2):
            np.testing.assert_array_equal(running.run(None, {"x": np.array([3, 1])})[0], table[[3, 1]])
        assert len(runs) == 1
        with pytest.raises(Exception, match="subgraph 'cpu_0' on 'cpu': .* an index is outside of a dimension of 4"):
            running.run(None, {"x": np.array([3, 4])})
        assert len(runs) == 2
        np.testing.assert_array_equal(running.run(None, {"x": np.array([-1, 0])})[0], table[[-1, 0]])
        assert len(runs) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_64_threads(threads: int) -> None:
    w = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    content = model(nodes, {"x": ["n", 64]}, ["y"], {"w": w})
    inputs = [np.random.default_rng(i).standard_normal((1 + i % 3, 64), np.float32) for i in range(64)]
    with provider("cpu", config={"cpu": {"NUM_THREADS": threads}}) as name, counted() as runs:
        running, other = session(content, name), session(content, name)
        wanted = [running.run(None, {"x": x})[0] for x in inputs]
        for n in (1, 2, 3):
            other.run(None, {"x": inputs[n - 1]})
        assert len(runs) == 6
        wrong: list[Any] = []

        def loop(number: int) -> None:
            for i in range(50):
                x = inputs[(number + i) % 64]
                result = (running, other)[i % 2].run(None, {"x": x})[0]
                if not np.array_equal(result, wanted[(number + i) % 64]):
                    wrong.append((number, i))

        loops = [threading.Thread(target=loop, args=(number,)) for number in range(64)]
        for one in loops:
            one.start()
        for one in loops:
            one.join()
        assert not wrong and len(runs) == 6


def test_runs_of_python_and_without_it_share_the_cores() -> None:
    """While Python's runs have all cores, a run without Python waits for them."""
    x = np.ones((3, 8), np.float32)
    with provider("cpu") as name, counted() as runs:
        running = session(chain("Abs"), name)
        for _ in range(2):
            running.run(None, {"x": x})
        turns, ended = threads._turns, threading.Event()
        assert isinstance(turns, SharedTurns) and len(runs) == 1

        def run(running: Any = running) -> None:
            running.run(None, {"x": x})
            ended.set()

        with turns.turn(turns.cores):
            thread = threading.Thread(target=run)
            thread.start()
            assert not ended.wait(0.1)
        thread.join()
        assert len(runs) == 1
        del running


NO_KERNELS = """
import os
import numpy as np
from onnx import helper
from tests.onnxruntime_plugin.models import model, provider, session

content = model([helper.make_node({op!r}, ["x"], ["y"])], {{"x": ["n", 6]}}, ["y"])
x = np.arange(12, dtype=np.float32).reshape(2, 6)
with provider("cpu") as name:
    running = session(content, name)
    for _ in range(3):
        print(running.run(None, {{"x": x}})[0].ravel()[:2].tolist())
"""

MORE_CORES = """
import os
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
import numpy as np
from onnx import helper
from tests.onnxruntime_plugin.models import model, provider, session

every = {*range(os.cpu_count())}
x = np.ones((3, 512), np.float32)
with provider("cpu") as name:
    first = session(model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 512]}, ["y"]), name)
    first.run(None, {"x": x})
    os.sched_setaffinity(0, every)
    weights = {"w": np.ones((512, 512), np.float32)}
    second = session(model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 512]}, ["y"], weights), name)
    for _ in range(3):
        print(second.run(None, {"x": x})[0][0, 0])
"""


@pytest.mark.parametrize("op", ["Identity", "Shape"])
def test_a_subgraph_without_kernels_comes_first_in_a_process(op: str) -> None:
    expected = [0.0, 1.0] if op == "Identity" else [2, 6]
    assert alone(NO_KERNELS.format(op=op)).splitlines() == [str(expected)] * 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or os.cpu_count() == 1, reason="needs a second core to be bound to")
def test_cores_that_come_later_are_not_waited_for() -> None:
    assert alone(MORE_CORES).splitlines() == ["512.0"] * 3


def alone(code: str) -> str:
    """The output of this program."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
