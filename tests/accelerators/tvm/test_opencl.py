"""The device `opencl` on whatever driver there is: a GPU's, one for the processor, or the simulator."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from accelerators.errors import AcceleratorUnavailable, CompileError
from accelerators.interface.registry import accelerator
from accelerators.tvm import opencl as opencl_device
from accelerators.tvm.compiled import launched
from accelerators.tvm.compiled.launched import CompiledOpenCl
from accelerators.tvm.compiled.step_list import planned
from accelerators.tvm.opencl import OpenClAccelerator
from accelerators.tvm.run import opencl_driver

pytest.importorskip("tvm")
try:
    opencl_driver.drivers()
except AcceleratorUnavailable as unavailable:
    pytest.skip(f"no OpenCL here: {unavailable.cause}", allow_module_level=True)

Value = Any

ROOT = Path(__file__).parents[3]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def matches(outputs: Value, *inputs: np.ndarray, tolerance: float = 1e-5) -> None:
    """The graph on `opencl` alone computes what the reference does."""
    graph = pt.Graph([outputs], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    for ours, wanted in zip(model(*inputs), pt.compile(graph, "reference")(*inputs), strict=True):
        assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
        np.testing.assert_allclose(ours.astype("d"), wanted.astype("d"), rtol=tolerance, atol=tolerance)


def x(*shape: int, dtype: str = "float32") -> Value:
    return pt.variable("x", dtype, shape)


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
    "norm": lambda: (pt.op("LayerNormalization", x(4, 40), pt.constant(numbers(40)), pt.constant(numbers(40, seed=1))), (4, 40)),
    "windows": lambda: (pt.op("MaxPool", x(1, 2, 8, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), (1, 2, 8, 8)),
    "several kernels of one function": lambda: (pt.op("Split", x(6, 5), num_outputs=3, n_outputs=3), (6, 5)),
    "a view between kernels": lambda: (pt.op("Relu", pt.op("Reshape", pt.op("Exp", x(4, 6)), ints(3, 8))), (4, 6)),
    "launches with numbers, and memory besides": lambda: (pt.op("TopK", x(2, 40), ints(3), n_outputs=2), (2, 40)),
    "sums of one product": lambda: (one_product(pt.variable("x", "float32", (1, 4, 5, 5))), (1, 4, 5, 5)),
    "infinite doubles": lambda: (chosen(np.inf, -np.inf, np.nan), (6,)),
    "functions with other names in C": lambda: (pt.op("Atan", pt.op("Tanh", pt.op("Sinh", x(7)))), (7,)),
    "nothing in it": lambda: (pt.op("Relu", x(0, 4)), (0, 4)),
}


@pytest.mark.parametrize("case", CASES)
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


def alone(code: str) -> str:
    """What the code prints in a process of its own."""
    environment, command = {**os.environ, "PYTHONPATH": str(ROOT)}, [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment, check=True)
    return done.stdout


def test_extremes_of_infinities_behind_other_ops() -> None:
    values = np.array([[1, -np.inf, 3], [-np.inf] * 3, [np.nan, 0, 1]], "float32")
    for op in ("ReduceMax", "ReduceMin"):
        for before in ("Neg", "Relu", "Identity"):
            matches(pt.op("Exp", pt.op(op, pt.op(before, x(3, 3)), ints(1))), values)


def net() -> pt.Graph:
    hidden = pt.op("Relu", pt.op("MatMul", x(4, 8), pt.constant(numbers(8, 16)), name="first"), name="relu")
    last = pt.op("Softmax", pt.op("MatMul", hidden, pt.constant(numbers(16, 3)), name="second"), name="last")
    return pt.Graph([last], name="net")


def test_what_it_runs_and_what_not() -> None:
    device = accelerator("opencl")
    halves = pt.Graph([pt.op("Relu", x(4, dtype="bfloat16"), name="relu")])
    assert list(device.query(halves).values()) == ["'x' is bfloat16, which OpenCL does not have"]
    assert set(device.query(net()).values()) == {True}


def test_a_type_that_the_device_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_driver.Driver, "extensions", frozenset())
    name = opencl_driver.drivers()[0].name
    answer = accelerator("opencl").query(pt.Graph([pt.op("Relu", x(4, dtype="float16"), name="relu")]))
    assert answer == {"relu": f"'x' is float16, and {name} lacks cl_khr_fp16"}
    with pytest.raises(CompileError, match="the device lacks cl_khr_fp64"):
        opencl_driver.drivers()[0].program("__kernel void f(__global double* x) {}")


def test_an_export_runs_in_another_process(tmp_path: Path) -> None:
    data, path = numbers(4, 8, seed=3), tmp_path / "net.partita"
    model = pt.compile(net(), "opencl")
    model.export(path)
    np.save(tmp_path / "x.npy", data)
    code = f"""
        import numpy as np, partita as pt
        np.save({str(tmp_path / "y.npy")!r}, pt.import_model({str(path)!r})(np.load({str(tmp_path / "x.npy")!r}))[0])
    """
    alone(code)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(data)[0])


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


def test_what_tvm_cannot_say_in_opencl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerators.tvm.code import codegen
    from accelerators.tvm.query import support

    def silent(*_: object) -> None:
        raise CompileError("OpenCL C has no word for it")

    monkeypatch.setattr(codegen, "opencl_code", silent)
    support.forget()
    here = accelerator("opencl").configured({"ISOLATE": False})
    answers = here.query(pt.Graph([pt.op("Cosh", x(5, 7, 3), name="cosh")]))
    support.forget()
    assert answers == {"cosh": "OpenCL C has no word for it"}


def test_more_memory_than_the_device_has() -> None:
    driver = opencl_driver.drivers()[0]
    most, whole = driver.device.max_mem_alloc_size, driver.device.global_mem_size
    with pytest.raises(CompileError, match="takes 99,999,999,999,999,999 bytes, and the device takes [0-9,]+ at most"):
        driver.check_memory([1, 99_999_999_999_999_999])
    with pytest.raises(CompileError, match=r"its values and weights take [0-9,]+ bytes(, other models hold [0-9,]+)?, and the"):
        driver.check_memory([most] * (whole // most + 1))


def test_models_on_one_device_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is counted as long as it holds memory there; one that does not fit beside the others says so before it is too late."""
    driver = opencl_driver.drivers()[0]
    gc.collect()  # what models of other tests hold is not to be freed in between
    before, first, second = driver.held, pt.compile(net(), "opencl"), pt.compile(net(), "opencl")
    (wanted,) = first(numbers(4, 8))
    size = sum(unit(first).step_list.blocks)
    assert driver.held - before == size
    with monkeypatch.context() as small:
        small.setattr(opencl_driver, "_held", {driver.device.int_ptr: {0: driver.device.global_mem_size - size + 1}})
        said = r"its values and weights take [0-9,]+ bytes, other models hold [0-9,]+, and the device has [0-9,]+"
        with pytest.raises(pt.RunError, match=rf"{said}\n  Close other models, or place a part"):
            second(numbers(4, 8))
        with pytest.raises(CompileError, match=said):
            unit(second).check_code()
    np.testing.assert_array_equal(second(numbers(4, 8))[0], wanted)
    assert driver.held - before == 2 * size
    del first
    gc.collect()
    assert driver.held - before == size
    second.close()
    assert driver.held == before


def test_of_two_that_start_at_once_one_gets_the_last_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits until the first one is counted; both passed the check before either was."""

    class Holder:
        """Holds half of the memory, and more."""

    driver, check = opencl_driver.drivers()[0], opencl_driver.Driver.check_memory
    most, whole = driver.device.max_mem_alloc_size, driver.device.global_mem_size
    blocks, holders, errors = [min(most, whole)] * max(1, whole // most), [Holder(), Holder()], list[str]()
    monkeypatch.setattr(opencl_driver, "_held", {})

    def second() -> None:
        try:
            driver.hold(holders[1], blocks)
        except pt.RunError as error:
            errors.append(error.cause)

    thread = threading.Thread(target=second)

    def checked(self: opencl_driver.Driver, *given: Any) -> None:
        check(self, *given)
        if threading.current_thread() is not thread:
            thread.start()
            thread.join(0.1)

    monkeypatch.setattr(opencl_driver.Driver, "check_memory", checked)
    driver.hold(holders[0], blocks)
    thread.join()
    assert driver.held == sum(blocks) and len(errors) == 1 and "other models hold" in errors[0]


def test_a_closed_model_holds_no_memory_of_the_device_for_any_size() -> None:
    driver = opencl_driver.drivers()[0]
    before = driver.held
    model = pt.compile(pt.Graph([pt.op("Relu", x("batch", 8))], name="net"), "opencl")
    for batch in (2, 3):
        np.testing.assert_array_equal(model(numbers(batch, 8))[0], np.maximum(numbers(batch, 8), 0))
    assert driver.held > before
    model.close()
    assert driver.held == before


def test_results_are_copied_into_the_callers_arrays() -> None:
    model = pt.compile(net(), "opencl")
    (wanted,) = model(numbers(4, 8))
    target = np.zeros((4, 3), "float32")
    (result,) = unit(model).run([numbers(4, 8)], [target])
    assert result is target and (target == wanted).all()
    target[...] = 0
    assert model(numbers(4, 8), out=target)[0] is target and (target == wanted).all()
    every_other = np.zeros((4, 6), "float32")[:, ::2]
    assert model(numbers(4, 8), out=every_other)[0] is every_other and (every_other == wanted).all()
    np.testing.assert_array_equal(unit(model).run([numbers(4, 8)], [None])[0], wanted)


def test_one_result_that_is_two_outputs_fills_both_arrays() -> None:
    node = pt.op("Relu", x(4, 8))
    model = pt.compile(pt.Graph([node, node], name="net"), "opencl")
    targets = [np.zeros((4, 8), "float32") for _ in range(2)]
    model(numbers(4, 8), out=targets)
    for target in targets:
        np.testing.assert_array_equal(target, np.maximum(numbers(4, 8), 0))


def test_copies_are_queued_and_none_is_waited_for_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyopencl waits for a copy where its event is let go: each event has to last until all are queued."""
    model, order, enqueue = unit(pt.compile(net(), "opencl")), list[str](), opencl_driver.opencl().enqueue_copy
    model.run([numbers(4, 8)])

    class Held:
        def __init__(self, event: object) -> None:
            self.event = event

        def __del__(self) -> None:
            order.append("let go")

    def noted(*ends: Any, is_blocking: bool) -> Held:
        order.append("waits" if is_blocking else "queued")
        return Held(enqueue(*ends, is_blocking=is_blocking))

    monkeypatch.setattr(opencl_driver.opencl(), "enqueue_copy", noted)
    model.run([numbers(4, 8)])
    assert order == ["queued", "queued", "let go", "let go"]


def test_the_same_code_runs_again_beside_itself() -> None:
    first = unit(pt.compile(net(), "opencl"))
    second = first.another()
    (wanted,) = first.run([numbers(4, 8)])
    np.testing.assert_array_equal(second.run([numbers(4, 8)])[0], wanted)
    assert isinstance(second, CompiledOpenCl) and second._session is not first._session


def test_a_run_that_fails_is_an_error_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pt.compile(net(), "opencl")
    (wanted,) = model(numbers(4, 8))

    def lost(*_: object) -> None:
        raise opencl_driver.opencl().Error("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")

    with monkeypatch.context() as broken:
        broken.setattr(opencl_driver.opencl(), "enqueue_nd_range_kernel", lost)
        with pytest.raises(pt.RunError, match="the OpenCL driver failed: clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"):
            model(numbers(4, 8))
    assert unit(model)._session is None
    np.testing.assert_array_equal(model(numbers(4, 8))[0], wanted)


def unit(model: pt.CompiledModel) -> CompiledOpenCl:
    compiled = model.units[0].compiled
    assert isinstance(compiled, CompiledOpenCl)
    return compiled


def test_programs_of_several_drivers_travel_side_by_side(tmp_path: Path) -> None:
    first = pt.compile(net(), "opencl")
    unit(first).binaries["another driver"] = b"its program"
    first.export(tmp_path / "one.partita")
    second = pt.import_model(tmp_path / "one.partita")
    here = unit(second).driver.identity
    assert unit(second).binaries.keys() == {"another driver", here}
    assert unit(second).binaries["another driver"] == b"its program"
    unit(second).binaries[here] = b"a program that the driver does not take"
    np.testing.assert_array_equal(second(numbers(4, 8))[0], first(numbers(4, 8))[0])


def test_one_file_holds_what_two_drivers_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two real drivers where there are two, else the one under another name: each runs its own program out of one file. The
    kernels are made for the smaller one."""
    listed = sorted(opencl_driver.drivers(), key=lambda driver: (driver.local_memory, driver.threads))
    two = listed[:2] if len(listed) > 1 else (listed[0], Renamed(listed[0].device, listed[0].context, listed[0].process))
    for module in (launched, opencl_device):
        monkeypatch.setattr(module, "drivers", lambda: two)
    path, config = tmp_path / "net.partita", {"opencl": {"DEVICE_ID": "1"}}
    first = pt.compile(net(), "opencl")
    first.export(path)
    (wanted,) = first(numbers(4, 8))
    pt.import_model(path, config=config).export(path)
    second = pt.import_model(path, config=config)
    assert len(unit(second).binaries) == 2 and unit(second).binaries.keys() == {driver.identity for driver in two}

    def built(*_: object) -> None:
        raise AssertionError("built from the source")

    takes_binaries = {driver.device.platform.name.strip() for driver in two} <= {"Oclgrind", "Intel(R) OpenCL"}
    if takes_binaries:  # Another driver may refuse what it built itself, which is built again from the source then.
        monkeypatch.setattr(opencl_driver.Driver, "lacks", built)
        assert two[0].program("", unit(second).binaries[two[0].identity]).all_kernels()
    assert unit(second).driver is two[1]
    np.testing.assert_allclose(second(numbers(4, 8))[0], wanted, rtol=1e-5)


class Renamed(opencl_driver.Driver):
    """The same device under another name."""

    @property
    def identity(self) -> str:
        return f"another {super().identity}"


def test_the_profile_has_a_row_for_each_kernel() -> None:
    model = pt.compile(net(), "opencl", config={"PERF_COUNT": True})
    model(numbers(4, 8))
    rows = {row.node: row for row in unit(model).profile_rows()}
    assert set(rows) == {"first", "second", "last"} and all(row.real_us > 0 for row in rows.values())


def test_kernels_can_be_looked_at() -> None:
    first = unit(pt.compile(net(), "opencl")).kernels()[0]
    assert first.schedule == "gpu_gemm" and "__kernel void" in first.source and first.source == first.assembly


def test_no_package_and_no_driver_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    opencl_driver.opencl.cache_clear()
    try:
        with pytest.raises(AcceleratorUnavailable, match=r"pyopencl cannot be imported[^$]*pip install 'partita\[opencl\]'"):
            opencl_driver.opencl()
    finally:
        monkeypatch.undo()
        opencl_driver.opencl.cache_clear()
    monkeypatch.setattr(opencl_driver.opencl(), "get_platforms", list)
    with pytest.raises(AcceleratorUnavailable, match="no OpenCL driver works here[^$]*pip install pocl-binary-distribution"):
        opencl_driver.drivers.__wrapped__()


def test_a_driver_that_builds_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CompileError("error: unknown target CPU")

    monkeypatch.setattr(opencl_driver.Driver, "program", refuse)
    with pytest.raises(AcceleratorUnavailable, match="is of no use: error: unknown target CPU"):
        opencl_driver.drivers.__wrapped__()


def test_what_the_driver_complains_of_is_one_line() -> None:
    with pytest.raises(CompileError, match="its driver refuses the kernels: .*error.*nonsense"):
        opencl_driver.drivers()[0].program("__kernel void f() { nonsense; }")


def test_a_forked_process_gets_an_error_and_no_hang() -> None:
    code = """
        import os, sys, warnings
        import numpy as np, partita as pt
        warnings.simplefilter("ignore")
        x = pt.variable("x", "float32", (4,))
        model = pt.compile(pt.Graph([pt.op("Relu", x)]), "opencl")
        model(np.ones(4, "float32"))
        if os.fork() == 0:
            try:
                model(np.ones(4, "float32"))
            except pt.PartitaError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
    """
    assert "OpenCL's drivers do not work in a forked process" in alone(code)


def test_a_program_for_a_larger_device_says_so() -> None:
    device = accelerator("opencl")
    assert isinstance(device, OpenClAccelerator)
    config = device.full_config({})
    assert device.misfit(device.identity(config), config) is None
    answer = device.misfit({"opencl": "999999x48+cl_khr_new"}, config)
    assert answer is not None and answer.startswith("it was compiled for work-groups of 999999 items and 48 bytes, and here are")
    assert device.misfit({"opencl": "1x1+cl_khr_new"}, config) == "it was compiled for a device with cl_khr_new"


def test_several_threads_share_a_model() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = pt.compile(net(), "opencl")
    inputs = [numbers(4, 8, seed=i) for i in range(8)]
    one_by_one = [model(data)[0] for data in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda data: model(data)[0], inputs * 3))
    for ours, wanted in zip(together, one_by_one * 3, strict=True):
        np.testing.assert_array_equal(ours, wanted)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_values_that_are_needed_at_once_share_no_memory(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    sizes = data.draw(st.lists(st.integers(1, 64), min_size=count, max_size=count))
    calls = data.draw(st.lists(st.lists(st.integers(0, count - 1), min_size=1, max_size=4), max_size=10))
    kept = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    blocks, pieces = planned(sizes, calls, kept)
    uses = {value: [i for i, values in enumerate(calls) if value in values] for value in blocks}
    for value, block in blocks.items():
        assert pieces[block] >= sizes[value]
        for other in blocks:
            if other == value or blocks[other] != block:
                continue
            assert value not in kept and other not in kept
            assert uses[value][-1] < uses[other][0] or uses[other][-1] < uses[value][0]


simulator = pytest.mark.skipif(
    not any("Oclgrind" in driver.name for driver in opencl_driver.drivers()), reason="the simulator Oclgrind is not installed"
)


def watched(folder: Path, *arguments: str) -> tuple[str, str]:
    """What the kernels of `opencl_kernels` compute under the simulator, and what it complains of."""
    log = folder / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OCLGRIND_DATA_RACES": "1", "OCLGRIND_LOG": str(log)}
    command = [sys.executable, "-m", "tests.accelerators.tvm.opencl_kernels", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=True)
    return done.stdout.strip(), log.read_text() if log.exists() else ""


@simulator
def test_kernels_have_no_races_and_stay_within_their_memory(tmp_path: Path) -> None:
    assert watched(tmp_path) == ("wrong: none", "")


@simulator
def test_races_are_seen_where_barriers_are_missing(tmp_path: Path) -> None:
    said, complaints = watched(tmp_path, "without")
    kernels = "product, product with a vector, softmax, sum, norm, transpose, convolution, attention, convolution in steps"
    assert said == f"wrong: {kernels}"
    assert "data race" in complaints
