"""The host side of `cuda`, on a stand-in for NVIDIA's driver: what it computes, which calls it makes, and what it complains of.

`tests/accelerators/tvm/test_cuda_runs.py` runs these in a process that finds the stand-in."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from partita.accelerators.arrays.on_device import DeviceArray, on_device
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.compiled.cuda_launched import CompiledCuda
from partita.accelerators.tvm.run import cuda_driver
from partita.accelerators.tvm.run.cuda_driver import CudaDriver, CudaError, call, created, driver_of
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.opencl_nets import net, numbers, x

STANDIN = ctypes.CDLL("libcuda.so.1")
STANDIN.standin_notes.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
STANDIN.standin_notes.restype = STANDIN.standin_used.restype = ctypes.c_size_t

X, POSITIVE = numbers(4, 8), np.maximum(numbers(4, 8), 0)

PLAIN = {"ISOLATE": False}


def driver() -> CudaDriver:
    driver = driver_of(0)
    assert driver is not None
    return driver


def notes() -> list[str]:
    """What the driver was asked for since the last time."""
    room = ctypes.create_string_buffer(1 << 20)
    size = STANDIN.standin_notes(room, len(room))
    return room.raw[:size].decode().splitlines()


def there(array: np.ndarray) -> Any:
    return pt.to_device(array, "cuda")


def room(*shape: int) -> Any:
    return there(np.full(shape, np.nan, "float32"))


def unit(model: pt.CompiledModel) -> CompiledCuda:
    compiled = model.units[0].compiled
    assert isinstance(compiled, CompiledCuda)
    return compiled


def relu_net(**config: Any) -> pt.CompiledModel:
    return pt.compile(pt.Graph([pt.op("Relu", x(4, 8), name="y")], name="net"), "cuda", config={**PLAIN, **config})


@pytest.fixture
def relu() -> Iterator[pt.CompiledModel]:
    model = relu_net()
    yield model
    model.close()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What a test's models and arrays held is free behind it, and everything was waited for."""
    before = STANDIN.standin_used()
    notes()
    yield
    if STANDIN.standin_used() > before:
        gc.collect()
    assert STANDIN.standin_used() <= before


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "net.partita"
    pt.compile(net(), "cuda", config=PLAIN).export(path)
    return path


def test_a_run_is_one_row_of_calls_and_one_wait(exported: Path) -> None:
    """Weights go to the GPU once. The second run is recorded, and those behind it are one call."""
    model, (wanted,) = pt.import_model(exported), pt.compile(net(), "reference")(X)
    np.testing.assert_allclose(model(X)[0], wanted, rtol=1e-5)
    calls = notes()
    stream = next(line for line in calls if line.startswith("stream")).split()[1]
    kernels = [step.kernel for step in unit(model).step_list.steps]
    launches = [f"{stream} launch {kernel} 4x1x1" for kernel in kernels]
    done = calls.index(f"wait for {stream}")
    assert calls[:done].count("load") == 3 and sum("pageable" in line for line in calls[:done]) == 2
    assert calls[done + 1 :] == ["pin 128", f"{stream} up 128", *launches, "pin 48", f"{stream} down 48", f"wait for {stream}"]
    for data in (X, -X, 2 * X):
        np.testing.assert_allclose(model(data)[0], pt.compile(net(), "reference")(data)[0], rtol=1e-5)
    again = [f"{stream} replay 5", f"wait for {stream}"]
    assert notes() == [f"record {stream}", f"{stream} up 128", *launches, f"{stream} down 48", *again, *again, *again]


def test_recording_can_be_switched_off() -> None:
    model = relu_net(CUDA_GRAPHS=False)
    for _ in range(3):
        np.testing.assert_array_equal(model(X)[0], POSITIVE)
    assert not [line for line in notes() if "record" in line or "replay" in line]


def test_what_cannot_be_recorded_is_made_one_by_one(relu: pt.CompiledModel) -> None:
    relu(X)
    STANDIN.standin_fail(b"cuGraphInstantiateWithFlags")
    with pytest.warns(UserWarning, match="made one by one, since they cannot be recorded: cuGraphInstantiateWithFlags failed"):
        np.testing.assert_array_equal(relu(X)[0], POSITIVE)
    np.testing.assert_array_equal(relu(-X)[0], np.maximum(-X, 0))
    assert not [line for line in notes() if "replay" in line]


def test_arrays_on_the_gpu_are_read_and_written_where_they_are(relu: pt.CompiledModel) -> None:
    given, target = there(X), room(4, 8)
    relu(-X)
    notes()
    (result,) = relu(given, out=target)
    assert result is target and not [line for line in notes() if "up" in line or "down" in line or "within" in line]
    np.testing.assert_array_equal(target.numpy(), POSITIVE)
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(relu(-X)[0], np.maximum(-X, 0))
    np.testing.assert_array_equal(relu(given)[0], POSITIVE)
    assert relu(-X, out={"y": target})["y"] is target
    np.testing.assert_array_equal(target.numpy(), np.maximum(-X, 0))
    relu(given, out=given)
    np.testing.assert_array_equal(given, POSITIVE)


def test_other_addresses_are_recorded_anew(relu: pt.CompiledModel) -> None:
    """Each pair of arrays has its own recording; one that comes back finds its own again, and memory that is gone is in none."""
    pairs = [(there(X * i), room(4, 8)) for i in (1, 2)]
    for given, target in (*pairs, *pairs):
        for _ in range(2):
            relu(given, out=target)
        np.testing.assert_array_equal(target, np.maximum(given.numpy(), 0))
    assert sum("record" in line for line in notes()) == 2
    for i in range(10):
        given, target = there(X * i), room(4, 8)
        for _ in range(3):
            relu(given, out=target)
        np.testing.assert_array_equal(target, np.maximum(X * i, 0))


def test_outputs_that_are_views_inputs_constants_and_one_value_twice() -> None:
    given, five = x(4, 8), pt.constant(np.full((2,), 5, "float32"))
    relu = pt.op("Relu", given)
    view = pt.op("Reshape", given, pt.constant(np.array([8, 4])))
    outputs = [relu, relu, pt.op("Reshape", relu, pt.constant(np.array([32]))), view, given, pt.op("Identity", five)]
    model = pt.compile(pt.Graph(outputs, name="net"), "cuda", config=PLAIN)
    wanted = [POSITIVE, POSITIVE, POSITIVE.reshape(32), X.reshape(8, 4), X, np.full((2,), 5, "float32")]
    targets = [room(*array.shape) for array in wanted]
    for _ in range(3):
        for result, target, array in zip(model(there(X), out=targets), targets, wanted, strict=True):
            assert result is target
            np.testing.assert_array_equal(target, array)
        for result, array in zip(model(X), wanted, strict=True):
            assert isinstance(result, np.ndarray)
            np.testing.assert_array_equal(result, array)


def test_what_is_joined_is_written_where_the_whole_stands() -> None:
    given = x(1, 4, 5)
    parts = [pt.op(op, given) for op in ("Sigmoid", "Tanh", "Exp")]
    graph = pt.Graph([pt.op("Neg", pt.op("Concat", parts[0], pt.op("Concat", *parts[1:], axis=1), axis=1))], name="net")
    data = numbers(1, 4, 5)
    with pt.compile(graph, "cuda", config=PLAIN) as model:
        assert [launch.layer_type for launch in unit(model).launches] == ["Sigmoid", "Tanh", "Exp", "Neg"]
        (wanted,) = pt.compile(graph, "reference")(data)
        for _ in range(3):
            np.testing.assert_allclose(model(data)[0], wanted, rtol=1e-5, atol=1e-6)


def test_outputs_left_on_the_gpu_are_new_arrays_which_no_later_call_writes_to(relu: pt.CompiledModel) -> None:
    """The run that was recorded is replayed all the same, and its result copied within the GPU."""
    inputs = [X * i for i in (1, -1, 2, -2, 3)]
    results = [relu(data, out="device")["y"] for data in inputs]
    last = notes()
    assert not [line for line in last if " down " in line] and sum("replay" in line for line in last) == 4
    assert sum(" within 128" in line for line in last) == 5
    relu(X)
    for data, result in zip(inputs, results, strict=True):
        assert isinstance(result, DeviceArray) and result.dtype == np.float32 and result.shape == (4, 8)
        np.testing.assert_array_equal(result.numpy(), np.maximum(data, 0))
        np.testing.assert_array_equal(np.asarray(result), np.maximum(data, 0))


def test_outputs_left_on_the_gpu_go_to_other_libraries_and_to_the_next_model(relu: pt.CompiledModel) -> None:
    given = there(X)
    for _ in range(3):
        (result,) = relu(given, out="device")
        read = on_device(Known(result))
        assert isinstance(read, DeviceArray) and read.shares(result) and not read.shares(given)
    notes()
    (again,) = relu(result, out=["device"])
    assert not [line for line in notes() if " up " in line or " down " in line]
    np.testing.assert_array_equal(again, POSITIVE)
    held = driver().held
    del again, result, read
    gc.collect()
    assert driver().held == held - 2 * X.nbytes


class Known:
    """An array that tells of itself by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.__dlpack_device__, self.__dlpack__ = array.__dlpack_device__, array.__dlpack__


def test_all_kinds_of_outputs_are_left_on_the_gpu_each_in_an_array_of_its_own() -> None:
    given, five = x(4, 8), pt.constant(np.full((2,), 5, "float32"))
    relu = pt.op("Relu", given)
    view = pt.op("Reshape", given, pt.constant(np.array([8, 4])))
    outputs = [relu, relu, pt.op("Reshape", relu, pt.constant(np.array([32]))), view, pt.op("Identity", five), given]
    model = pt.compile(pt.Graph(outputs, name="net"), "cuda", config=PLAIN)
    wanted = [POSITIVE, POSITIVE, POSITIVE.reshape(32), X.reshape(8, 4), np.full((2,), 5, "float32"), X]
    for data in (X, there(X)):
        results = list(model(data, out="device"))
        assert [isinstance(result, DeviceArray) for result in results] == [True] * 5 + [False]
        for i, (result, array) in enumerate(zip(results, wanted, strict=True)):
            np.testing.assert_array_equal(result, array)
            others = [other for other in results[:i] if isinstance(other, DeviceArray)]
            assert not any(result.shares(other) for other in others if isinstance(result, DeviceArray))
    first, second = model(X, out=["device", None, None, None, None, None])[:2]
    assert isinstance(first, DeviceArray) and isinstance(second, np.ndarray)


def test_outputs_of_any_size_are_left_on_the_gpu() -> None:
    model = pt.compile(pt.Graph([pt.op("Relu", x("batch", 8), name="y")], name="net"), "cuda", config=PLAIN)
    for batch in (2, 3, 2):
        (result,) = model(numbers(batch, 8), out={"y": "device"})
        assert isinstance(result, DeviceArray) and result.shape == (batch, 8)
        np.testing.assert_array_equal(result, np.maximum(numbers(batch, 8), 0))
    model.close()


def mixed(graph: pt.Graph, where: dict[str, str], **config: Any) -> pt.CompiledModel:
    for node in graph.nodes:
        if node.is_op:
            node.affinity = where[node.name]
    return pt.compile(graph, "HETERO:cuda,reference", config={"cuda": {**PLAIN, **config}, "HETERO": {"PARALLEL": False}})


def test_only_what_the_gpu_computes_is_left_there() -> None:
    """An output that the processor reads too goes to the host, and back."""
    first = pt.op("Relu", x(4, 8), name="a")
    model = mixed(pt.Graph([first, pt.op("Exp", first, name="b")], name="net"), {"a": "cuda", "b": "reference"})
    left, beside = model(X, out="device")
    assert isinstance(left, DeviceArray) and isinstance(beside, np.ndarray)
    np.testing.assert_array_equal(left, POSITIVE)
    np.testing.assert_allclose(beside, np.exp(POSITIVE), rtol=1e-6)


def test_what_a_recorder_sees_is_a_copy(tmp_path: Path) -> None:
    graph = pt.Graph([pt.op("Relu", x(4, 8), name="y")], name="net")
    model = pt.compile(graph, "HETERO:cuda", config={"cuda": PLAIN, "HETERO": {"RECORD": "sample:1"}})
    for _ in range(2):
        np.testing.assert_array_equal(model(X, out="device")[0], POSITIVE)
    recorded = model.recorded
    assert recorded is not None and recorded.samples and all(sample.ok for sample in recorded.samples)
    model.close()


def noting_when_the_processor_runs(model: pt.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the driver was asked for before each run of a subgraph of the processor's."""
    before: list[list[str]] = []
    for one in model.units:
        if one.device.label == "reference":
            run = one.compiled.run
            monkeypatch.setattr(one.compiled, "run", lambda *given, run=run: (before.append(notes()), run(*given))[1])
    return before


def test_the_processor_works_while_the_gpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and launches are in the stream when the processor begins, and are waited for once something reads of them."""
    y = pt.variable("y", "float32", (4, 8))
    last = pt.op("Exp", pt.op("Relu", x(4, 8), name="a"), name="c")
    model = mixed(pt.Graph([last, pt.op("Abs", y, name="b")], name="net"), {"a": "cuda", "b": "reference", "c": "reference"})
    for turn in range(4):
        before = noting_when_the_processor_runs(model, monkeypatch)
        outputs = model(x=X, y=-X)
        np.testing.assert_allclose(outputs[0], np.exp(POSITIVE), rtol=1e-6)
        np.testing.assert_array_equal(outputs[1], np.abs(X))
        aside, behind = before
        assert any(" replay 3" in line if turn else " launch " in line for line in aside)
        assert [line.split()[0] for line in behind] == ["wait"] and not [line for line in aside[-3:] if "wait" in line]
        monkeypatch.undo()
    model.close()


def test_an_input_that_is_there_early_goes_to_the_gpu_while_the_processor_works(monkeypatch: pytest.MonkeyPatch) -> None:
    y = pt.variable("y", "float32", (4, 8))
    graph = pt.Graph([pt.op("Add", x(4, 8), pt.op("Abs", y, name="b"), name="a")], name="net")
    model = mixed(graph, {"a": "cuda", "b": "reference"})
    for turn in range(4):
        before = noting_when_the_processor_runs(model, monkeypatch)
        data = X * (turn + 1)
        np.testing.assert_array_equal(model(x=data, y=-X)[0], data + np.abs(X))
        assert [line.split()[1:] for line in before[0][-1:]] == [["up", "128"]]
        assert [line.split()[1] for line in notes()][-2:] == (["replay", "for"] if turn else ["down", "for"])
        monkeypatch.undo()
    model.close()


def test_an_error_of_the_processors_while_the_gpu_works_leaves_all_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    y = pt.variable("y", "float32", (4, 8))
    graph = pt.Graph([pt.op("Relu", x(4, 8), name="a"), pt.op("Abs", y, name="b")], name="net")
    model = mixed(graph, {"a": "cuda", "b": "reference"})
    model(x=X, y=X)
    (other,) = [one for one in model.units if one.device.label == "reference"]

    def fail(*given: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(other.compiled, "run", fail)
    notes()
    with pytest.raises(pt.RunError, match="ValueError: no"):
        model(x=X, y=X)
    assert notes()[-1].startswith("wait for")
    monkeypatch.undo()
    np.testing.assert_array_equal(model(x=-X, y=X)[0], np.maximum(-X, 0))
    STANDIN.standin_fail(b"cuStreamSynchronize")
    with pytest.raises(pt.RunError, match=r"subgraph 'cuda_0' on 'cuda'.*: the CUDA driver failed: cuStreamSynchronize failed"):
        model(x=X, y=X)
    np.testing.assert_array_equal(model(x=X, y=X)[0], POSITIVE)
    model.close()


def test_calls_of_several_threads_overlap_and_are_right() -> None:
    from concurrent.futures import ThreadPoolExecutor

    y = pt.variable("y", "float32", (4, 8))
    first = pt.op("Relu", x(4, 8), name="a")
    second = pt.op("Sub", y, pt.op("Abs", first, name="b"), name="c")
    graph = pt.Graph([second, pt.op("Neg", y, name="d")], name="net")
    model = mixed(graph, {"a": "cuda", "b": "reference", "c": "cuda", "d": "reference"})
    inputs = [(numbers(4, 8, seed=i), numbers(4, 8, seed=i + 100)) for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for (one, other), result in zip(inputs, pool.map(lambda pair: list(model(x=pair[0], y=pair[1])), inputs), strict=True):
            np.testing.assert_array_equal(result[0], other - np.maximum(one, 0))
            np.testing.assert_array_equal(result[1], -other)
    model.close()


class Part:
    """An array of another library's that begins in the middle of a larger one."""

    def __init__(self, whole: Any, begin: int, *shape: int) -> None:
        self.array = attrs.evolve(whole, address=whole.address + begin * whole.dtype.itemsize, shape=shape)
        self.__dlpack_device__, self.__dlpack__ = self.array.__dlpack_device__, self.array.__dlpack__


def test_arrays_that_do_not_begin_where_kernels_may_read_them_are_copied() -> None:
    """Kernels read four numbers at once, which a GPU does at multiples of 16 bytes alone."""
    net = pt.Graph([pt.op("MatMul", x(64, 64), pt.constant(numbers(64, 64)))], name="net")
    model, data = pt.compile(net, "cuda", config=PLAIN), numbers(64, 64, seed=1)
    given, target = there(np.concatenate([numbers(4), data.reshape(-1)])), room(64 * 64 + 4)
    for begin in (4, 1):
        target.fill(np.zeros(64 * 64 + 4, "float32"))
        given.fill(np.concatenate([numbers(begin), data.reshape(-1), numbers(4 - begin)]))
        notes()
        model(Part(given, begin, 64, 64), out=Part(target, begin, 64, 64))
        assert sum(line.endswith(" up 16384") for line in notes()) == (begin == 1)
        result = target.numpy()[begin:][: 64 * 64].reshape(64, 64)
        np.testing.assert_allclose(result, data @ numbers(64, 64), rtol=1e-4, atol=1e-4)
    model.close()


def test_what_does_not_go_into_a_gpus_memory_is_an_error() -> None:
    with pytest.raises(pt.PartitaError, match="no device's memory holds strings"):
        there(np.array(["a"], object))
    with pytest.raises(ValueError, match=r"an array float32\[4, 8\] in a device's memory takes no float64\[2\]"):
        room(4, 8).fill(np.zeros(2))
    with pytest.raises(BufferError, match="without a copy"):
        room(4, 8).__dlpack__(copy=True)


def test_a_gpu_that_nobody_may_use_and_a_driver_that_is_too_old_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_driver", cuda_driver._driver.__wrapped__)
    STANDIN.standin_fail(b"cuDevicePrimaryCtxRetain")
    with pytest.raises(pt.RunError, match=r"GPU 0: the CUDA driver failed: cuDevicePrimaryCtxRetain failed"):
        driver()
    with pytest.raises(CudaError, match="cuMissing failed"):
        call("cuMissing")


class Foreign:
    """An array of another library's. Its numbers arrive on a stream of its own, which does nothing before it is waited for."""

    def __init__(self, array: np.ndarray) -> None:
        self.held = there(np.zeros_like(array))
        self.stream, self.pinned = driver().stream(), driver().pinned(array.nbytes)
        self.pinned[:] = array.reshape(-1).view(np.uint8)
        with driver().current():
            call("cuMemcpyHtoDAsync_v2", self.held.address, self.pinned.ctypes.data, array.nbytes, self.stream.handle)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()

    def __dlpack__(self, stream: int) -> Any:
        with driver().current():
            written = created("cuEventCreate", 2)
            call("cuEventRecord", written, self.stream.handle)
            call("cuStreamWaitEvent", stream, written, 0)
        return self.held.__dlpack__(stream=stream)


def test_arrays_of_other_libraries_come_and_go_by_dlpack(relu: pt.CompiledModel) -> None:
    """What the other library still writes comes first, without the host waiting for it. Nothing is copied."""
    relu(X)
    given, target = Foreign(X), Foreign(-X)
    notes()
    (result,) = relu(given, out=target)
    assert result is target and not [line for line in notes() if " up " in line or " down " in line or "within" in line]
    np.testing.assert_array_equal(target.held.numpy(), POSITIVE)
    for _ in range(3):
        np.testing.assert_array_equal(relu(Foreign(-X))[0], np.maximum(-X, 0))


def test_element_types_and_pieces_by_dlpack() -> None:
    for dtype in ("float32", "float16", "bfloat16", "int8", "uint16", "int64", "bool"):
        array = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))

        class Other:
            """Not known to Partita."""

            held = there(array)
            __dlpack_device__, __dlpack__ = held.__dlpack_device__, held.__dlpack__

        read = on_device(Other())
        assert isinstance(read, DeviceArray) and read.dtype == array.dtype and read.shape == (2, 3)
        assert read.shares(Other.held)
        np.testing.assert_array_equal(read.numpy().view(np.uint8), array.view(np.uint8))


def test_those_that_do_not_fit_are_errors(relu: pt.CompiledModel) -> None:
    with pytest.raises(pt.InputError, match=r"dimension 0 is 4 \(float32\[4, 8\]\), and that of the array given 2: \(2, 8\)"):
        relu(there(X[:2]))
    with pytest.raises(pt.InputError, match=r"the output is float32\[4, 8\], and the array float32\[2, 8\]"):
        relu(X, out=room(2, 8))
    target = room(4, 8)
    with pytest.raises(ValueError, match="by a copy"):
        np.asarray(target, copy=False)


def test_a_model_that_does_not_fit_says_how_much_it_needs(exported: Path) -> None:
    """Before the driver runs out of memory: where it is compiled, and where it first runs."""
    first = pt.import_model(exported)
    (wanted,) = first(X)
    size = sum(unit(first).step_list.blocks)
    assert driver().held == size
    filling, second = there(np.zeros(driver().free - 1024, "uint8")), pt.import_model(exported)
    said = rf"its values and weights take {size:,} bytes, other models hold [0-9,]+, and [0-9,]+ of the device's [0-9,]+ are free"
    with pytest.raises(pt.RunError, match=rf"{said}\n  Close other models, or place a part"):
        second(X)
    with pytest.raises(CompileError, match=said):
        unit(second).check_code()
    del filling
    np.testing.assert_array_equal(second(X)[0], wanted)
    second.close()
    assert driver().held == size
    first.close()


def test_memory_that_runs_out_all_the_same_is_an_error_and_nothing_is_lost(relu: pt.CompiledModel) -> None:
    STANDIN.standin_fail(b"cuMemAlloc_v2")
    with pytest.raises(pt.RunError, match="the CUDA driver failed: cuMemAlloc_v2 failed: CUDA_ERROR_LAUNCH_FAILED"):
        relu(X)
    assert driver().held == 0
    np.testing.assert_array_equal(relu(X)[0], POSITIVE)


@pytest.mark.parametrize("function", [b"cuLaunchKernel", b"cuMemcpyHtoDAsync_v2", b"cuMemcpyDtoHAsync_v2"])
def test_a_run_that_fails_is_an_error_and_the_next_one_begins_anew(function: bytes) -> None:
    relu = relu_net(CUDA_GRAPHS=False)
    relu(X)
    STANDIN.standin_fail(function)
    with pytest.raises(pt.RunError, match=rf"the CUDA driver failed: {function.decode()} failed"):
        relu(2 * X)
    np.testing.assert_array_equal(relu(X)[0], POSITIVE)


def test_results_are_copied_into_the_callers_arrays(relu: pt.CompiledModel) -> None:
    target = np.zeros((4, 8), "float32")
    for _ in range(3):
        assert relu(X, out=target)[0] is target and (target == POSITIVE).all()
        target[...] = 0
    every_other = np.zeros((4, 16), "float32")[:, ::2]
    assert relu(X, out=every_other)[0] is every_other and (every_other == POSITIVE).all()


def test_the_profile_is_the_gpus_own(relu: pt.CompiledModel) -> None:
    rows = [row for row in relu.profile(X).rows if row.real_us > 0]
    assert rows and all("replay" not in line for line in notes())
    copies = [row.exec_type for row in relu.profile(X).rows if row.layer_type == "Copy"]
    assert copies == ["host to device", "device to host"]


def test_several_threads_share_a_model(relu: pt.CompiledModel) -> None:
    from concurrent.futures import ThreadPoolExecutor

    inputs = [numbers(4, 8, seed=i) for i in range(8)] * 3
    with ThreadPoolExecutor(4) as pool:
        for data, result in zip(inputs, pool.map(lambda data: relu(data)[0], inputs), strict=True):
            np.testing.assert_array_equal(result, np.maximum(data, 0))


def test_other_devices_get_copies() -> None:
    given = x(4, 8)
    first = pt.op("Relu", given, name="a")
    second = pt.op("Exp", first, name="b")
    first.affinity, second.affinity = "cuda", "reference"
    mixed = pt.compile(pt.Graph([first, second], name="net"), "HETERO:cuda,reference", config={"cuda": PLAIN})
    targets = [room(4, 8), room(4, 8)]
    mixed(there(X), out=targets)
    np.testing.assert_array_equal(targets[0], POSITIVE)
    np.testing.assert_allclose(targets[1], np.exp(POSITIVE), rtol=1e-6)


def test_each_size_has_its_own_recording_and_close_frees_them_all() -> None:
    model = pt.compile(pt.Graph([pt.op("Relu", x("batch", 8))], name="net"), "cuda", config=PLAIN)
    for batch in (2, 3, 2, 3, 2, 3):
        np.testing.assert_array_equal(model(numbers(batch, 8))[0], np.maximum(numbers(batch, 8), 0))
    assert sum(line.startswith("record") for line in notes()) == 2
    model.close()
    assert driver().held == 0 and STANDIN.standin_used() == 0


def test_a_forked_process_gets_an_error_and_no_hang(relu: pt.CompiledModel) -> None:
    import os

    relu(X)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            relu(X)
        except pt.PartitaError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert b"NVIDIA's driver does not work in a forked process" in os.read(reading, 1000)
    os.close(reading)
