"""`pt.map_batches`: a model over many inputs by several processes, in order, with the same bytes as one call after another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.process.memory import Packing, SharedMemory, described
from partita.mapping.bursts import BYTES, MOMENT, MOST, Burst, read_ahead
from partita.mapping.processes import Answers, Worker, WorkerCrew, packed


def graph() -> pt.Graph:
    x = pt.variable("x", "float32", (2, 3))
    scaled = pt.op("Mul", x, pt.constant(np.float32(3)), name="scaled")
    return pt.Graph([scaled, pt.op("ReduceSum", scaled, keepdims=0, name="total")], name="small")


def model() -> pt.CompiledModel:
    return pt.compile(graph(), "reference")


def inputs(count: int) -> list[np.ndarray]:
    return [np.full((2, 3), number, np.float32) for number in range(count)]


Calls = Mapping[int, Mapping[str, np.ndarray]]


def echoed(calls: Calls) -> Answers:
    return Answers({number: dict(arrays) for number, arrays in calls.items()}, 1e-6)


def listed(results: Iterator[dict[str, np.ndarray]]) -> list[list[bytes]]:
    return [[array.tobytes() for array in result.values()] for result in results]


def test_arrays_keep_types_shapes_and_names_on_their_way() -> None:
    import ml_dtypes

    arrays = {"a": np.arange(6, dtype=np.int8).reshape(2, 3)[:, ::2], "b": np.float64(2.5), "c": np.zeros((0, 4), bool)}
    arrays["d"] = np.array([1, 2], ml_dtypes.bfloat16)
    arrays["e"] = np.array([["a\0", "\u00e9"]], object)
    packing, memory = Packing(), SharedMemory()
    told = json.loads(json.dumps(packed(arrays, packing)))
    packing.write(memory)
    for name, array in arrays.items():
        value = described(told[name], memory)
        assert value.dtype == array.dtype and value.shape == array.shape and np.array_equal(value, array)
    with pytest.raises(pt.NotSupported, match="value 'x': a list cannot be sent to another process\n  Use executor='serial'"):
        packed({"x": [1]}, packing)  # type: ignore[dict-item]


def test_processes_give_the_bytes_and_the_order_of_the_serial_run() -> None:
    compiled = model()
    serial = listed(pt.map_batches(inputs(20), compiled, executor="serial"))
    assert listed(pt.map_batches(inputs(20), compiled, workers=3)) == serial
    assert serial[2] == [np.full((2, 3), 6, np.float32).tobytes(), np.float32(36).tobytes()]


def test_a_signed_file_is_verified_by_each_worker(tmp_path: Path) -> None:
    model().export(tmp_path / "signed.partita", key=b"secret")
    expected = listed(pt.map_batches(inputs(4), model(), executor="serial"))
    for executor in ("processes", "serial"):
        results = pt.map_batches(inputs(4), tmp_path / "signed.partita", executor=executor, workers=2, key=b"secret")
        assert listed(results) == expected
        with pytest.raises(pt.PartitaError, match="signed with another key"):
            list(pt.map_batches(inputs(4), tmp_path / "signed.partita", executor=executor, workers=1, key=b"another"))
    assert listed(pt.map_batches(inputs(4), model(), workers=1, key=b"secret")) == expected


def test_items_may_be_arrays_sequences_or_mappings(tmp_path: Path) -> None:
    model().export(tmp_path / "small.partita")
    x = np.ones((2, 3), np.float32)
    results = list(pt.map_batches([x, [x], {"x": x}], tmp_path / "small.partita", workers=1))
    assert [float(result["total"]) for result in results] == [18.0] * 3


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    model().export(tmp_path / "small.partita")
    crew = WorkerCrew(str(tmp_path / "small.partita"), 2, 4)
    killed, totals = [], []
    for number, result in enumerate(crew.results(iter([{"x": x} for x in inputs(30)]))):
        totals.append(float(result["total"]))
        if number in (5, 15):
            pid = next(worker.pid for worker in crew.workers if worker.pid not in (None, *killed))
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    assert totals == [18.0 * number for number in range(30)] and len(set(killed)) == 2
    assert not any(worker.pid for worker in crew.workers)


def test_an_input_that_ends_every_worker_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model().export(tmp_path / "small.partita")
    monkeypatch.setattr("sys.executable", "/bin/false")
    crew = WorkerCrew(str(tmp_path / "small.partita"), 2, 4)
    with pytest.raises(pt.RunError, match=r"input 0: 3 workers ended on it\n  Look at this input"):
        next(crew.results(iter([{"x": x} for x in inputs(1)])))


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Iterator[dict[str, np.ndarray]], threading.Event]]:
    """The results for a data set of two items, the second of which comes once the event is set."""
    monkeypatch.setattr(Worker, "call", lambda worker, calls: echoed(calls))
    go_on = threading.Event()

    def slow() -> Iterator[dict[str, np.ndarray]]:
        for x in inputs(2):
            yield {"x": x}
            go_on.wait(20)

    yield WorkerCrew("nowhere", 2, 4).results(slow()), go_on
    go_on.set()


def test_a_result_does_not_wait_for_the_next_item_of_a_data_set(blocked: Any) -> None:
    results, go_on = blocked
    began = time.monotonic()
    assert float(next(results)["x"][0, 0]) == 0
    assert time.monotonic() - began < 10
    go_on.set()
    assert [float(result["x"][0, 0]) for result in results] == [1]


def test_an_interrupt_does_not_wait_for_the_next_item_of_a_data_set(blocked: Any) -> None:
    results, _ = blocked
    next(results)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        next(results)
    assert time.monotonic() - began < 10


def test_nothing_is_read_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "call", lambda worker, calls: Answers(dict.fromkeys(calls, pt.RunError("it fails")), 1e-6))
    read: list[int] = []

    def endless() -> Iterator[dict[str, np.ndarray]]:
        while True:
            read.append(len(read))
            yield {"x": inputs(1)[0]}

    with pytest.raises(pt.RunError, match="it fails"):
        next(WorkerCrew("nowhere", 1, 1).results(endless()))
    count = len(read)
    time.sleep(0.2)
    assert len(read) == count < 5


def test_a_worker_that_cannot_be_started_again_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse another process: the input is not waited for then, since no worker takes it."""
    real, asked = subprocess.Popen, []

    def start(_: Any, **pipes: Any) -> subprocess.Popen[bytes]:
        asked.append(pipes)
        if len(asked) > 1:
            raise OSError("no more processes")
        return real(["/bin/false"], **pipes)

    monkeypatch.setattr("partita.accelerators.process.child.subprocess.Popen", start)
    crew, errors = WorkerCrew("nowhere", 1, 2), []

    def ask() -> None:
        with pytest.raises(pt.RunError) as caught:
            list(crew.results(iter([{"x": inputs(1)[0]}])))
        errors.append(str(caught.value))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(60)
    assert errors and "no worker can be started: no more processes" in errors[0]


def test_an_input_does_not_wait_until_its_worker_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker ends on its first input, and is started again only after all other inputs have results."""
    others, ended = threading.Event(), threading.Event()
    answered: list[int] = []

    def call(worker: Worker, calls: Calls) -> Answers | None:
        if worker is crew.workers[0]:
            ended.set()
            return None
        ended.wait()
        answered.extend(calls)
        return echoed(calls)

    monkeypatch.setattr(Worker, "call", call)
    monkeypatch.setattr(Worker, "start_again", lambda worker: others.wait())
    crew = WorkerCrew("nowhere", 2, 4)
    results = crew.results(iter([{"x": x} for x in inputs(5)]))
    try:
        first = [next(results) for _ in range(5)]
    finally:
        others.set()
    assert list(results) == [] and [float(result["x"][0, 0]) for result in first] == [0, 1, 2, 3, 4]
    assert sorted(answered) == [0, 1, 2, 3, 4]


def test_a_fast_model_is_given_several_inputs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def call(worker: Worker, calls: Calls) -> Answers | None:
        counts.append(len(calls))
        return echoed(calls)

    monkeypatch.setattr(Worker, "call", call)
    monkeypatch.setattr("partita.mapping.bursts.READING", 60.0)
    results = list(WorkerCrew("nowhere", 1, None).results(iter([{"x": x} for x in inputs(100)])))
    assert [float(result["x"][0, 0]) for result in results] == list(range(100))
    assert counts == [1, 2, 4, 8, 16, 32, 37]


def test_an_input_that_ends_workers_leaves_the_others_of_its_burst_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[list[int]] = []

    def call(worker: Worker, calls: Calls) -> Answers | None:
        if 5 not in calls:
            return echoed(calls)
        ended.append(list(calls))
        return None

    monkeypatch.setattr(Worker, "call", call)
    monkeypatch.setattr(Worker, "start_again", lambda worker: None)
    monkeypatch.setattr("partita.mapping.bursts.READING", 60.0)
    firsts = []
    with pytest.raises(pt.RunError, match="input 5: 3 workers ended on it"):
        for result in WorkerCrew("nowhere", 1, None).results(iter([{"x": x} for x in inputs(10)])):
            firsts.append(float(result["x"][0, 0]))
    assert firsts == [0, 1, 2, 3, 4] and ended == [[3, 4, 5, 6], [5], [5]]


def test_what_is_given_at_once_is_a_moments_work_and_few_bytes() -> None:
    burst = Burst()
    burst.learn(1, 2 * MOMENT, 1)
    assert burst.size == 1
    burst.learn(1, MOMENT / 1000, 1)
    assert burst.size == 2
    for _ in range(10):
        burst.learn(2, MOMENT / 1000, 2)
    assert burst.size == MOST
    burst.learn(4, MOMENT, 4)
    assert burst.size == 4
    burst.learn(4, MOMENT / 1000, 2 * BYTES)
    assert burst.size == 2


def test_inputs_that_are_read_slowly_do_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.mapping.bursts.READING", -1.0)
    numbers = iter([{"x": x} for x in inputs(1)])
    taken, error = read_ahead(numbers, 8)
    assert len(taken) == 1 and error is None
    taken, error = read_ahead(numbers, 8)
    assert taken == [] and isinstance(error, StopIteration)


def test_as_many_inputs_are_read_ahead_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.mapping.bursts.READING", 60.0)
    numbers = iter([{"x": x} for x in inputs(6)])
    counts = []
    for most in (1, 3, 4, 4):
        taken, error = read_ahead(numbers, most)
        counts.append((len(taken), type(error)))
    assert counts == [(1, type(None)), (3, type(None)), (2, StopIteration), (0, StopIteration)]


@pytest.mark.parametrize("executor", ["processes", "serial"])
def test_a_wrong_input_is_an_error_after_the_results_before_it(executor: str) -> None:
    items = [*inputs(3), np.ones((2, 4), np.float32), *inputs(3)]
    totals = []
    with pytest.raises(pt.PartitaError, match="input 'x'"):
        for result in pt.map_batches(items, model(), executor=executor, workers=2):
            totals.append(float(result["total"]))
    assert totals == [0.0, 18.0, 36.0]


def test_a_data_set_that_fails_is_an_error_after_the_results_before_it() -> None:
    def failing() -> Iterator[np.ndarray]:
        yield from inputs(2)
        raise OSError("the disk is gone")

    totals = []
    with pytest.raises(OSError, match="the disk is gone"):
        for result in pt.map_batches(failing(), model(), workers=2):
            totals.append(float(result["total"]))
    assert totals == [0.0, 18.0]


def test_no_more_is_read_than_may_wait() -> None:
    taken: list[int] = []

    def reading() -> Iterator[np.ndarray]:
        for number, x in enumerate(inputs(50)):
            taken.append(number)
            yield x

    results = pt.map_batches(reading(), model(), workers=2, ahead=3)
    next(results)
    assert len(taken) <= 1 + 3
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 1 + 3


def test_progress_is_told() -> None:
    numbers: list[int] = []
    list(pt.map_batches(inputs(4), model(), executor="serial", progress=numbers.append))
    assert numbers == [1, 2, 3, 4]


def test_what_cannot_be_asked_for_is_an_error() -> None:
    with pytest.raises(pt.BadConfig, match="there is no executor 'threads'\n  Use one of processes, ray, serial"):
        pt.map_batches([], model(), executor="threads")
    numbers: list[Any] = [-1, 0, 2.5, "two", True]
    for number in numbers:
        message = re.escape(f"map_batches: workers cannot be {number!r}\n  Give a whole number from 1 on")
        with pytest.raises(pt.BadConfig, match=message):
            pt.map_batches([], model(), workers=number)
        with pytest.raises(pt.BadConfig, match="ahead cannot be"):
            pt.map_batches([], model(), ahead=number)
    others: list[Any] = [None, 5, model().graph]
    for other in others:
        with pytest.raises(pt.BadConfig, match=f"map_batches: a model is .*not {type(other).__name__}\n  Compile it first"):
            pt.map_batches([], other)
    with pytest.raises(pt.BadConfig, match="map_batches: int is not a data set\n  Give what can be iterated over"):
        pt.map_batches(others[1], model())
    with pytest.raises(pt.BadConfig, match="map_batches: progress cannot be 5\n  Give a function, or None"):
        pt.map_batches([], model(), progress=others[1])
    with pytest.raises(pt.InputError, match="input 0, model 'small': 2 inputs were given for 1"):
        list(pt.map_batches([[1, 2]], model(), executor="serial"))


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is here")
def test_without_ray_the_error_names_the_extra() -> None:
    with pytest.raises(pt.MissingDependency, match=r"partita\[ray\]"):
        list(pt.map_batches(inputs(1), model(), executor="ray"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_ray_gives_the_bytes_and_the_order_of_the_serial_run() -> None:
    import ray

    compiled = model()
    serial = listed(pt.map_batches(inputs(20), compiled, executor="serial"))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert listed(pt.map_batches(inputs(20), compiled, executor="ray", workers=2)) == serial
        with pytest.raises(pt.InputError, match="input 1, .*input 'x'"):
            list(pt.map_batches([inputs(1)[0], np.ones((2, 4), np.float32)], compiled, executor="ray", workers=2))
    finally:
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_an_actor_that_is_killed_changes_nothing() -> None:
    import ray

    compiled = model()
    serial = listed(pt.map_batches(inputs(200), compiled, executor="serial"))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    results = []
    try:
        for number, result in enumerate(pt.map_batches(inputs(200), compiled, executor="ray", workers=2)):
            results.append([array.tobytes() for array in result.values()])
            if number == 100:
                os.kill(min(descendants(os.getpid(), b"ray::_Actor")), signal.SIGKILL)
    finally:
        ray.shutdown()
    assert results == serial


def descendants(pid: int, title: bytes) -> list[int]:
    """The processes that this one started, over any number of others, whose command line begins so."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            titles[int(folder.name)] = (folder / "cmdline").read_bytes()

    def is_below(child: int) -> bool:
        parent = parents.get(child, 0)
        return parent == pid or (parent > 1 and is_below(parent))

    return [child for child, line in titles.items() if line.startswith(title) and is_below(child)]


@pytest.mark.slow
def test_two_thousand_images_with_a_worker_killed_in_the_middle(tmp_path: Path) -> None:
    """The model is a small convolutional network on `cpu`."""
    pytest.importorskip("tvm")
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", (1, 3, 32, 32))
    weights = pt.constant(random.standard_normal((16, 3, 3, 3)).astype("float32"))
    pooled = pt.op("GlobalAveragePool", pt.op("Relu", pt.op("Conv", x, weights, pads=[1, 1, 1, 1])))
    compiled = pt.compile(pt.Graph([pooled], name="images"), "cpu", {"NUM_THREADS": 1})
    compiled.export(tmp_path / "images.partita")
    images = [np.random.default_rng(number).standard_normal((1, 3, 32, 32)).astype("float32") for number in range(2000)]
    serial = listed(pt.map_batches(images, compiled, executor="serial"))
    crew = WorkerCrew(str(tmp_path / "images.partita"), 2, 8)
    results = []
    for number, result in enumerate(crew.results(iter([{"x": image} for image in images]))):
        results.append([array.tobytes() for array in result.values()])
        if number == 1000:
            os.kill(next(worker.pid for worker in crew.workers if worker.pid is not None), signal.SIGKILL)
    assert results == serial


@pytest.mark.parametrize("executor", ["processes", "serial"])
@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (np.ones((2, 3), ">f4"), "float32 in foreign byte order"),
        (np.ma.masked_equal(np.ones((2, 3), np.float32), 1), "some of its elements are masked"),
        (np.full((2, 3), "a"), "the array given str32"),
        (None, "it is None"),
        ([[[1, 2, 3], [4]]], "cannot be read as an array"),
    ],
)
def test_an_item_is_checked_as_a_call_is_before_it_is_sent(executor: str, item: object, cause: str) -> None:
    with pytest.raises(pt.InputError, match=f"input 0, model 'small', input 'x': .*{cause}"):
        list(pt.map_batches([item], model(), executor=executor, workers=1))


def test_numbers_of_pythons_own_are_taken_as_in_a_call() -> None:
    item = {"x": [[1, 2, 3], [4, 5, 6]]}
    assert [float(result["total"]) for result in pt.map_batches([item], model(), executor="serial")] == [63.0]
