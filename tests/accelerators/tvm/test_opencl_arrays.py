"""Arrays in the memory of an OpenCL device: models there read and write them where they are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.tvm.run import opencl_driver

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")

X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")


def there(array: np.ndarray) -> Any:
    return pt.to_device(array, "opencl")


def room(*shape: int) -> Any:
    return there(np.full(shape, np.nan, "float32"))


def x() -> Any:
    return pt.variable("x", "float32", (4, 8))


@pytest.fixture(scope="module")
def relu() -> pt.CompiledModel:
    return pt.compile(pt.Graph([pt.op("Relu", x(), name="y")], name="net"), "opencl")


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The copies that are made, each by what it goes to."""
    targets, enqueue = list[Any](), opencl_driver.opencl().enqueue_copy

    def noted(queue: Any, target: Any, *rest: Any, **more: Any) -> Any:
        targets.append(target)
        return enqueue(queue, target, *rest, **more)

    monkeypatch.setattr(opencl_driver.opencl(), "enqueue_copy", noted)
    yield targets


def test_they_are_read_and_written_where_they_are(relu: pt.CompiledModel, copies: list[Any]) -> None:
    given, target = there(X), room(4, 8)
    relu(-X)  # The weights are there.
    copies.clear()
    (result,) = relu(given, out=target)
    assert result is target and copies == []
    np.testing.assert_array_equal(target.numpy(), np.maximum(X, 0))
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(relu(-X)[0], np.maximum(-X, 0))
    np.testing.assert_array_equal(relu(given)[0], np.maximum(X, 0))
    assert relu(-X, out={"y": target})["y"] is target
    np.testing.assert_array_equal(target.numpy(), np.maximum(-X, 0))
    np.testing.assert_array_equal(relu.start(given, out=[target]).result()[0].numpy(), np.maximum(X, 0))
    assert relu.profile(given).rows


def test_outputs_left_on_the_device_are_new_arrays(relu: pt.CompiledModel, copies: list[Any]) -> None:
    """Kernels write to them, nothing is copied, and no later call writes to them."""
    given = there(X)
    relu(X)
    copies.clear()
    first, second = (relu(given, out="device")[0] for _ in range(2))
    assert isinstance(first, DeviceArray) and not first.shares(second) and not first.shares(given) and copies == []
    (third,) = relu(first, out={"y": "device"})
    relu(-X)
    for result in (first, second, third):
        np.testing.assert_array_equal(result.numpy(), np.maximum(X, 0))
    np.testing.assert_array_equal(relu.start(-X, out="device").result()[0], np.maximum(-X, 0))


def test_all_kinds_of_outputs_are_left_on_the_device_each_in_an_array_of_its_own() -> None:
    given, five = x(), pt.constant(np.full((2,), 5, "float32"))
    relu, view = pt.op("Relu", given), pt.op("Reshape", given, pt.constant(np.array([8, 4])))
    outputs = [relu, relu, pt.op("Reshape", relu, pt.constant(np.array([32]))), view, pt.op("Identity", five), given]
    model, positive = pt.compile(pt.Graph(outputs, name="net"), "opencl"), np.maximum(X, 0)
    wanted = [positive, positive, positive.reshape(32), X.reshape(8, 4), np.full((2,), 5, "float32"), X]
    for data in (X, there(X)):
        results = list(model(data, out="device"))
        assert [isinstance(result, DeviceArray) for result in results] == [True] * 5 + [False]
        for i, (result, array) in enumerate(zip(results, wanted, strict=True)):
            np.testing.assert_array_equal(result, array)
            assert not any(result.shares(other) for other in results[:i] if isinstance(result, DeviceArray))


def test_only_what_the_device_computes_is_left_there() -> None:
    """An output that the processor reads too goes to the host, and back; without such a device all outputs are the host's."""
    first = pt.op("Relu", x(), name="a")
    second = pt.op("Exp", first, name="b")
    first.affinity, second.affinity = "opencl", "reference"
    left, beside = pt.compile(pt.Graph([first, second], name="net"), "HETERO:opencl,reference")(X, out="device")
    assert isinstance(left, DeviceArray) and isinstance(beside, np.ndarray)
    np.testing.assert_array_equal(left, np.maximum(X, 0))
    np.testing.assert_allclose(beside, np.exp(np.maximum(X, 0)), rtol=1e-6)
    (result,) = pt.compile(pt.Graph([pt.op("Relu", x())], name="net"), "reference")(X, out="device")
    assert isinstance(result, np.ndarray) and not np.may_share_memory(result, X)


def test_outputs_of_any_size_are_left_on_the_device() -> None:
    model = pt.compile(pt.Graph([pt.op("Relu", pt.variable("x", "float32", ("n", 8)))], name="net"), "opencl")
    for rows in (2, 4, 2):
        (result,) = model(X[:rows], out="device")
        assert isinstance(result, DeviceArray) and result.shape == (rows, 8)
        np.testing.assert_array_equal(result, np.maximum(X[:rows], 0))


def test_views_of_inputs_and_outputs_are_left_on_the_device_each_in_memory_of_its_own() -> None:
    given, flat = x(), pt.constant(np.array([-1]))
    relu = pt.op("Relu", given)
    outputs = [relu, pt.op("Reshape", relu, flat), pt.op("Reshape", given, flat), pt.op("Relu", given)]
    model, there = pt.compile(pt.Graph(outputs, [given]), "opencl"), pt.to_device(X, "opencl")
    results = list(model(there, out="device"))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(np.asarray(result).reshape(X.shape), X if i == 2 else np.maximum(X, 0))
        others = [there, *results[:i]]
        assert not isinstance(result, DeviceArray) or not any(result.shares(other) for other in others)
    assert isinstance(results[0], DeviceArray)


def test_another_word_is_an_error(relu: pt.CompiledModel) -> None:
    with pytest.raises(pt.InputError, match=r"""out for 'y': 'cuda' is nowhere for an output to be.*\n  Say "device", or give"""):
        relu(X, out=["cuda"])


def test_results_may_take_the_place_of_what_was_read(relu: pt.CompiledModel) -> None:
    both = there(X)
    relu(both, out=both)
    np.testing.assert_array_equal(both, np.maximum(X, 0))


def test_outputs_that_are_views_inputs_constants_and_one_value_twice(copies: list[Any]) -> None:
    """A view of an input has no kernel that writes it: that is a copy within the device."""
    given, five = x(), pt.constant(np.full((2,), 5, "float32"))
    relu = pt.op("Relu", given)
    view = pt.op("Reshape", given, pt.constant(np.array([8, 4])))
    outputs = [relu, relu, pt.op("Reshape", relu, pt.constant(np.array([32]))), view, given, pt.op("Identity", five)]
    model = pt.compile(pt.Graph(outputs, name="net"), "opencl")
    positive = np.maximum(X, 0)
    wanted = [positive, positive, positive.reshape(32), X.reshape(8, 4), X, np.full((2,), 5, "float32")]
    targets = [room(*array.shape) for array in wanted]
    results = model(there(X), out=targets)
    for result, target, array in zip(results, targets, wanted, strict=True):
        assert result is target
        np.testing.assert_array_equal(target, array)
    for result, array in zip(model(X), wanted, strict=True):
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, array)


def test_other_devices_get_copies() -> None:
    """Neither the reference nor a subgraph that shares the input with it reads what is on the device."""
    given = x()
    first, second = pt.op("Relu", given, name="a"), pt.op("Exp", given, name="b")
    first.affinity, second.affinity = "opencl", "reference"
    mixed = pt.compile(pt.Graph([first, second], name="net"), "HETERO:opencl,reference")
    targets = [room(4, 8), room(4, 8)]
    results = mixed(there(X), out=targets)
    assert [result is target for result, target in zip(results, targets, strict=True)] == [True, True]
    np.testing.assert_array_equal(targets[0], np.maximum(X, 0))
    np.testing.assert_allclose(targets[1], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(mixed(x=there(X))[0], np.maximum(X, 0))


def test_what_another_subgraph_reads_is_copied_to_the_device_at_the_end() -> None:
    first = pt.op("Relu", x(), name="a")
    second = pt.op("Exp", first, name="b")
    first.affinity, second.affinity = "opencl", "reference"
    model = pt.compile(pt.Graph([first, second], name="net"), "HETERO:opencl,reference")
    target = room(4, 8)
    model(there(X), out=[target, None])
    np.testing.assert_array_equal(target, np.maximum(X, 0))


def test_arrays_of_pyopencl(relu: pt.CompiledModel, copies: list[Any]) -> None:
    """Those of the device's context are taken as they are, parts of one by a copy."""
    arrays = pytest.importorskip("pyopencl.array")
    with opencl_driver.opencl().CommandQueue(opencl_driver.drivers()[0].context) as queue:
        given, target = arrays.to_device(queue, X), arrays.empty(queue, (4, 8), np.float32)
        relu(X)
        copies.clear()
        assert relu(given, out=target)[0] is target and copies == []
        np.testing.assert_array_equal(target.get(), np.maximum(X, 0))
        both = arrays.to_device(queue, np.concatenate([X, -X]))
        np.testing.assert_array_equal(relu(both[4:])[0], np.maximum(-X, 0))
        with pytest.raises(pt.InputError, match="out for 'y': it is not a numpy array that may be written to"):
            relu(X, out=[both[4:]])
        with pytest.raises(pt.InputError, match="cannot be read as an array"):
            relu(both[::2])


def test_those_that_do_not_fit_are_errors(relu: pt.CompiledModel) -> None:
    with pytest.raises(pt.InputError, match=r"dimension 0 is 4 \(float32\[4, 8\]\), and that of the array given 2: \(2, 8\)"):
        relu(there(X[:2]))
    with pytest.raises(pt.InputError, match=r"it is float32, and the array given float64"):
        relu(there(X.astype("d")))
    with pytest.raises(pt.InputError, match=r"the output is float32\[4, 8\], and the array float32\[2, 8\]"):
        relu(X, out=room(2, 8))
    given = x()
    two = pt.compile(pt.Graph([pt.op("Relu", given), pt.op("Neg", given)], name="net"), "reference")
    target = room(4, 8)
    with pytest.raises(pt.InputError, match="it shares memory with the array for another output"):
        two(X, out=[target, target])


def test_only_devices_with_memory_of_their_own_take_any() -> None:
    with pytest.raises(pt.NotSupported, match="device 'reference' takes arrays of the host alone"):
        pt.to_device(X, "reference")
    with pytest.raises(pt.AcceleratorError, match="'HETERO:opencl,reference' is several devices"):
        pt.to_device(X, "HETERO:opencl,reference")


def test_they_are_counted_among_what_the_device_holds() -> None:
    gc.collect()
    driver = opencl_driver.drivers()[0]
    before, array = driver.held, there(X)
    assert isinstance(array, DeviceArray) and driver.held - before == X.nbytes == array.nbytes
    assert repr(array) == "<OpenClArray float32[4, 8]>"
    with pytest.raises(ValueError, match="by a copy"):
        np.asarray(array, copy=False)
    del array
    gc.collect()
    assert driver.held == before
