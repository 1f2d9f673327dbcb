"""The host side of `opencl`: its memory, copies, threads and errors."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.compiled.launch_list import planned
from partita.accelerators.tvm.compiled.launched import CompiledOpenCl
from partita.accelerators.tvm.run import device_memory, opencl_driver
from tests.accelerators.tvm.opencl_nets import alone, net, numbers, unit, x

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")


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
        small.setattr(device_memory, "_held", {driver.memory_key: {0: driver.device.global_mem_size - size + 1}})
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
    monkeypatch.setattr(device_memory, "_held", {})

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


@pytest.mark.parametrize("rows", [4, "N"])
def test_a_call_that_comes_to_a_subgraph_after_the_model_was_closed_leaves_no_memory(rows: int | str) -> None:
    driver = opencl_driver.drivers()[0]
    gc.collect()
    before = driver.held
    model = pt.compile(pt.Graph([pt.op("Add", pt.op("Softmax", x(rows, 8)), pt.constant(numbers(8)))]), "opencl")
    model.close()
    (result,) = model.units[0].run([numbers(4, 8)], None)
    assert result.shape == (4, 8) and driver.held == before


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
    assert isinstance(second, CompiledOpenCl) and not {*second._sessions.values()} & {*first._sessions.values()}


def test_a_run_that_fails_is_an_error_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pt.compile(net(), "opencl")
    (wanted,) = model(numbers(4, 8))

    def lost(*_: object) -> None:
        raise opencl_driver.opencl().Error("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")

    with monkeypatch.context() as broken:
        broken.setattr(opencl_driver.opencl(), "enqueue_nd_range_kernel", lost)
        with pytest.raises(pt.RunError, match="the OpenCL driver failed: clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES"):
            model(numbers(4, 8))
    assert not unit(model)._sessions
    np.testing.assert_array_equal(model(numbers(4, 8))[0], wanted)


def test_several_threads_share_a_model() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = pt.compile(net(), "opencl")
    inputs = [numbers(4, 8, seed=i) for i in range(8)]
    one_by_one = [model(data)[0] for data in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda data: model(data)[0], inputs * 3))
    for ours, wanted in zip(together, one_by_one * 3, strict=True):
        np.testing.assert_array_equal(ours, wanted)


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


def test_the_profile_has_a_row_for_each_kernel() -> None:
    model = pt.compile(net(), "opencl", config={"PERF_COUNT": True})
    model(numbers(4, 8))
    rows = {row.node: row for row in unit(model).profile_rows()}
    assert list(rows) == ["input 0", "first", "second", "last", "output 0"] and all(row.real_us > 0 for row in rows.values())
    shown = [row for row in model.profile().rows if row.layer_type == "Copy"]
    (given,), (computed,) = model.graph.inputs, model.graph.output_names
    assert [(row.node, row.exec_type) for row in shown] == [(given.name, "host to device"), (computed, "device to host")]


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
