"""The recorder: what values looked like while a model was at work, and how far samples are from numpy."""

from __future__ import annotations

import queue
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime import recording
from partita.accelerators.runtime.recording import Recorder
from tests.graphs.small_models import convolutions
from tests.insight.small_devices import device_of

DEVICES = "HETERO:onnxruntime,reference"


@pytest.fixture
def every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls are looked at, however long looking takes."""
    monkeypatch.setattr(recording, "SHARE", 1e9)


def ratio() -> pt.Graph:
    x, y = pt.variable("x", "float32", (4,)), pt.variable("y", "float32", (4,))
    return pt.Graph([pt.op("Neg", pt.op("Div", x, y, name="ratio"), name="neg")], name="ratio", output_names=["z"])


def compiled(mode: str, **more: Any) -> pt.CompiledModel:
    config = {"HETERO": {"RECORD": mode, **more}}
    return pt.compile(ratio(), DEVICES, config, forbid={"Neg": "onnxruntime"})


@pytest.mark.usefixtures("every_call")
def test_checksums_nan_and_ranges_of_each_border() -> None:
    model = compiled("checksums")
    ones = np.ones(4, np.float32)
    model(2 * ones, ones)
    model(np.array([0, 3, 4, -6], np.float32), np.array([0, 1, 0, 2], np.float32))
    outputs = model(ones, ones)
    recorded = model.recorded
    assert (recorded.calls, recorded.looked_at, recorded.ok) == (3, 3, False)
    inner, outer = recorded.values
    assert (inner.name, inner.subgraph, inner.device) == ("ratio", "onnxruntime_0", "onnxruntime")
    assert (inner.calls, inner.nans, inner.infinities, inner.first) == (3, 1, 1, 2)
    assert (inner.low, inner.high) == (-3, 3)
    assert outer.checksum == zlib.crc32(outputs["z"].tobytes())
    assert str(recorded) == (
        "checksums: 3 of 3 calls looked at: odd\n"
        "  ratio of onnxruntime_0 on onnxruntime: 1 NaN and 1 infinity, first in call 2\n"
        "  neg of reference_1 on reference: 1 NaN and 1 infinity, first in call 2"
    )
    assert recorded.to_table().row_count == 2
    assert recorded.to_dict()["values"][0]["nans"] == 1


@pytest.mark.usefixtures("every_call")
def test_nan_leaves_the_checksums_out() -> None:
    model = compiled("nan")
    model(np.ones(4, np.float32), np.ones(4, np.float32))
    assert [value.checksum for value in model.recorded.values] == [None, None]
    assert repr(model.recorded) == "<Recorded nan: 1 of 1 call, nothing odd>"


def test_the_recorder_looks_at_no_more_calls_than_its_share_allows() -> None:
    model, ones = compiled("nan"), np.ones(4, np.float32)
    recorder = model._recorder
    assert isinstance(recorder, Recorder)
    model(ones, ones)
    recorder._spent = recorder._latest = 1.0
    recorder._timed(1, 0.01, 0.0)
    assert recorder._due == 2 + min(recording.LONGEST, int((2 / recording.SHARE - recorder._elapsed) / 0.02))
    for _ in range(5):
        model(ones, ones)
    assert (model.recorded.calls, model.recorded.looked_at) == (6, 1)
    recorder._elapsed, recorder._due = 100.0, 7
    model(ones, ones)
    assert model.recorded.looked_at == 2


def test_the_time_of_an_inspection_is_that_during_the_call_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 10.25, 20.0, 20.5])
    monkeypatch.setattr(recording, "perf_counter", lambda: next(clock))
    recorder = Recorder("nan")
    assert [recorder.note({}, [], 0.5), recorder.note({}, [], 0.0)] == [0.75, 0.5]
    assert (recorder._looked, recorder._latest, recorder._spent) == (2, 0.5, 1.25)


def test_calls_between_two_on_the_clock_count_as_the_shorter_of_them() -> None:
    recorder = Recorder("nan")
    recorder._timed(1, 0.5, 0.1)
    recorder._timed(11, 0.2, 0.0)
    assert recorder._elapsed == pytest.approx(0.5 + 0.2 + 9 * 0.2)


def test_a_call_that_is_not_due_runs_as_without_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ones = compiled("sample:3"), np.ones(4, np.float32)
    runs: list[int] = []
    original = Recorder.run

    def counting(self: Recorder, *args: Any) -> Any:
        runs.append(args[-1])
        return original(self, *args)

    monkeypatch.setattr(Recorder, "run", counting)
    for _ in range(4):
        model(ones, ones)
    for future in [model.start(ones, ones) for _ in range(3)]:
        future.result()
    assert (runs, model.recorded.calls, model.recorded.looked_at) == ([3, 6], 7, 2)


def test_a_call_that_begins_while_a_due_one_runs_is_not_due_too() -> None:
    recorder = Recorder("sample:3")
    assert [recorder.due() for _ in range(7)] == [0, 0, 3, 0, 0, 6, 0]


def test_every_so_manieth_call_is_held_against_numpy(tmp_path: Path) -> None:
    calls: list[int] = []

    def kernel(node: pt.Node, inputs: Any) -> Any:
        calls.append(0)
        return [np.maximum(inputs[0], 0) * (1.5 if len(calls) > 9 else 1)]

    with device_of(kernel, "Relu") as device:
        model = pt.compile(convolutions(), device, {"RECORD": "sample:2", "CAPSULES": tmp_path})
        array = np.ones((1, 3, 12, 12), np.float32)
        for _ in range(4):
            model(array)
            recorded = model.recorded
    assert (recorded.calls, recorded.looked_at) == (4, 2)
    first, second = recorded.samples
    assert (first.call, first.ok, second.call, second.ok) == (2, True, 4, False)
    assert str(recorded).startswith("sample:2: 2 of 4 calls looked at, 2 samples: odd\n  small_0 on small: error ")
    assert [path.name for path in tmp_path.iterdir()] == ["small_0"]


def test_a_model_without_a_recorder_has_nothing_recorded() -> None:
    assert pt.compile(ratio(), "reference").recorded is None


def test_what_cannot_be_recorded_says_so() -> None:
    with pytest.raises(pt.BadConfig, match='Give "checksums", "nan", or "sample:100" for every hundredth call'):
        pt.compile(ratio(), "reference", {"RECORD": "sample:0"})


@pytest.mark.usefixtures("every_call")
def test_a_model_on_several_devices_is_recorded_by_device() -> None:
    model = pt.compile(ratio(), "MULTI:reference,onnxruntime", {"HETERO": {"RECORD": "nan"}})
    ones = np.ones(4, np.float32)
    together = threading.Barrier(2, timeout=300)

    def call() -> None:
        together.wait()
        for _ in range(20):
            model(ones, 0 * ones)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (model.recorded.calls, model.recorded.looked_at) == (40, 40)
    assert {value.device for value in model.recorded.values} <= {"reference", "onnxruntime"}
    assert sum(value.calls for value in model.recorded.values) == 40
    assert sum(value.infinities for value in model.recorded.values) == 160


@pytest.mark.usefixtures("every_call")
def test_a_model_that_answers_at_once_is_recorded_before_and_after() -> None:
    model = pt.compile(ratio(), "onnxruntime", {"HETERO": {"RECORD": "checksums", "START": "now"}})
    ones = np.ones(4, np.float32)
    model(ones, ones)
    model.wait()
    model(ones, ones)
    recorded = model.recorded
    assert (recorded.calls, sum(value.calls for value in recorded.values)) == (2, 2)
    assert len({value.checksum for value in recorded.values}) == 1


@pytest.mark.usefixtures("every_call")
def test_the_page_says_what_was_recorded() -> None:
    model = compiled("nan")
    model(np.zeros(4, np.float32), np.zeros(4, np.float32))
    from partita.page.collect import collect

    notes = collect(model).notes
    assert "recorded: nan: 1 of 1 call looked at: odd" in notes
    assert "recorded:   ratio of onnxruntime_0 on onnxruntime: 4 NaN and 0 infinities, first in call 1" in notes


def test_a_sample_of_each_call_misses_no_nan() -> None:
    """numpy made the same NaN, and so the sample was right."""
    model, ones = compiled("sample:1"), np.ones(4, np.float32)
    model(ones, ones)
    model(np.zeros(4, np.float32), np.zeros(4, np.float32))
    recorded = model.recorded
    assert not recorded.ok and all(sample.ok for sample in recorded.samples)
    value = next(value for value in recorded.values if value.nans)
    assert (value.name, value.nans, value.first, value.calls) == ("ratio", 4, 2, 2)
    assert "4 NaN and 0 infinities, first in call 2" in str(recorded)


def test_the_thread_of_the_samples_ends_when_none_waits() -> None:
    model = compiled("sample:1")
    model(np.ones(4, np.float32), np.ones(4, np.float32))
    assert len(model.recorded.samples) == 2
    for thread in [thread for thread in threading.enumerate() if thread.name == "partita-recorder"]:
        thread.join(300)  # It says that it has ended just before it has.
        assert not thread.is_alive()
    model(np.ones(4, np.float32), np.ones(4, np.float32))
    assert len(model.recorded.samples) == 4


def test_what_was_recorded_is_told_while_samples_go_on_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample that is computed brings the next one, as calls do that come faster than numpy computes."""
    model, ones = compiled("sample:1"), np.ones(4, np.float32)
    report_is_in, original, waited = threading.Event(), recording._Taken.compared, []

    def compared(taken: recording._Taken) -> Any:
        if not report_is_in.is_set() and len(waited) < 400:
            waited.append(report_is_in.wait(0.05))
            model(ones, ones)
        return original(taken)

    monkeypatch.setattr(recording._Taken, "compared", compared)
    model(ones, ones)
    recorded = model.recorded
    report_is_in.set()
    assert recorded.compared >= 2
    assert len(waited) < 400


def test_of_many_samples_the_wrong_ones_and_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_SAMPLES", 2)
    calls: list[int] = []

    def kernel(node: pt.Node, inputs: Any) -> Any:
        calls.append(0)
        return [inputs[0] / inputs[1] * (1.5 if len(calls) <= 3 else 1)]

    with device_of(kernel, "Div") as device:
        model = pt.compile(ratio(), device, {"HETERO": {"RECORD": "sample:1"}})
        for _ in range(8):
            model(np.ones(4, np.float32), np.ones(4, np.float32))
            recorded = model.recorded
    assert [(sample.call, sample.ok) for sample in recorded.samples] == [(1, False), (2, False), (7, True), (8, True)]
    assert str(recorded).startswith("sample:1: 8 of 8 calls looked at, 8 samples: odd")


def test_an_error_in_the_thread_of_the_samples_ends_neither_calls_nor_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ones, original = compiled("sample:1"), np.ones(4, np.float32), recording._Taken.compared
    recorder, failed = model._recorder, queue.Queue[threading.Thread]()
    errors: list[type[BaseException]] = []
    assert isinstance(recorder, Recorder)

    def failing(taken: recording._Taken) -> Any:
        with recorder._lock:
            recorder._compare([taken])
        failed.put(threading.current_thread())
        raise SystemExit

    monkeypatch.setattr(threading, "excepthook", lambda thrown: errors.append(thrown.exc_type))

    monkeypatch.setattr(recording._Taken, "compared", failing)
    model(ones, ones)
    assert model.recorded.compared == 0
    failed.get(timeout=300).join()
    assert errors == [SystemExit]
    monkeypatch.setattr(recording._Taken, "compared", original)
    model(ones, ones)
    assert [sample.call for sample in model.recorded.samples] == [1]
