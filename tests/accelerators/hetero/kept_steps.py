"""Plans of calls of drawn graphs whose subgraphs run on devices with and without a memory of their own, in turn or overlapping;
spans of memory; the choice between two ways of running; the ops that are at fault if a subgraph does not compile; which sizes are
compiled; shape arithmetic in subgraphs; and the checks of a device's outputs.

`python -m tests.accelerators.hetero.kept_steps` writes the file that `test_kept_steps.py` compares with anew."""

from __future__ import annotations

import io
import random
import re
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

import partita as pt
from partita.accelerators.building import replicas
from partita.accelerators.building.refusals import not_compiled
from partita.accelerators.building.sizes_along import sizes_along
from partita.accelerators.building.units import OutputCheck, Unit, compile_unit, measured_units
from partita.accelerators.errors import CompileError
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.runtime import requests
from partita.accelerators.runtime.executor import ConcurrencyTrial, Spans
from partita.accelerators.runtime.multi import Spreading
from partita.accelerators.runtime.overlapping import Overlap
from partita.accelerators.runtime.pipeline import Pipeline
from partita.accelerators.runtime.recorded import Recorded, Sample
from partita.accelerators.runtime.recording import Recorder
from partita.accelerators.runtime.steps import CopyStep, RunStep, plan_run
from partita.graph.rewrite import with_affinities
from partita.mapping.bursts import Burst, read_ahead
from partita.partition import AffinityProperty
from tests.accelerators.hetero.small_devices import RanOnDevice
from tests.accelerators.hetero.small_devices import device as small
from tests.accelerators.hetero.steps_at_any_size import Timed, sizes
from tests.kept import lines_of, write_kept
from tests.partition.kept_partitions import graph_of

KEPT = Path(__file__).with_name("kept_steps.txt")

COUNTS = {"plan": 160, "spans": 40, "ways": 40, "fault": 60, "recorded": 60, "step": 40, "burst": 30, "sizes": 120,
          "crew": 12, "along": 60, "outputs": 60, "unit": 60, "compiled": 60,
          "queue": 50, "spread": 30}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


def parts_of(rng: random.Random, labels: str) -> pt.Graph:
    """A drawn graph, partitioned by drawn devices."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    placed = with_affinities(graph, {name: rng.choice(labels) for name in names})
    typed = pt.apply_pass(placed, "InferShape")
    return pt.apply_pass(typed, "PartitionGraph", subgraph_property=AffinityProperty(), growth=rng.choice(("largest", "waves")))


def plan(rng: random.Random) -> Iterator[str]:
    """The steps of a call: what each reads, makes and frees, where values lie, what begins early and when it has to end."""
    labels = "abc"[: rng.randint(2, 3)]
    graph = parts_of(rng, labels)
    memories = {label: rng.choice(("host", "host", "host", f"of {label}", "toy")) for label in labels}
    overlaps = {label: rng.random() < 0.5 for label in labels}
    units: dict[str, Any] = {}
    for node in graph.nodes:
        if node.is_op:
            label = str(node.affinity)
            device, compiled = SimpleNamespace(label=label), SimpleNamespace(overlaps=overlaps[label])
            units[node.name] = SimpleNamespace(
                name=node.name, title=node.name, body=node.subgraph, memory=memories[label], device=device, compiled=compiled
            )
    if len(units) > 2 and rng.random() < 0.2:
        first, *_, last = units.values()
        last.compiled = first.compiled
    if rng.random() < 0.05:
        next(iter(units.values())).body = SimpleNamespace(inputs=())
    made = plan_run(graph, units)
    yield f"{memories} {overlaps} {made.n_inputs} {made.outputs} {made.block_size} {made.ends} {made.levels}"
    for step in made.steps:
        what = f"{'up' if step.up else 'down'} {step.name}" if isinstance(step, CopyStep) else step.unit.name
        yield f"{what} on {step.unit.device.label}: {step.reads} {step.makes} frees {step.frees}"
    yield f"{[(one.step, one.output, one.offset, one.nbytes, one.shape) for one in made.buffers]}"
    overlap = Overlap(made)
    yield f"{overlap.gains} {' '.join(f'{act.does.name}{act.step}.{act.number}' for act in overlap.acts)}"
    pipeline = Pipeline(made)
    yield f"{pipeline.stages} {[pipeline._stage[id(step)] for step in made.steps]}"


def spans(rng: random.Random) -> Iterator[str]:
    """The arrays that may share memory with others."""
    raw = np.zeros(400, np.uint8)

    def drawn() -> Any:
        start = rng.randrange(0, 360)
        view = raw[start : start + rng.choice((0, 1, 8, 24, 40))]
        return rng.choice((view, view[::-1], view[::2], view.reshape(-1, 1).T, np.zeros(3), [view]))

    arrays = [drawn() for _ in range(rng.randint(0, 5))]
    listed = Spans(arrays)
    others = [drawn() for _ in range(12)]
    some = [one for one in others if isinstance(one, np.ndarray)]
    yield f"{listed.overlap} {[listed.may_share(one) for one in some]}"


def ways(rng: random.Random) -> Iterator[str]:
    """The one of two ways that is kept after calls of drawn seconds."""
    trial = ConcurrencyTrial(rng.choice((None, None, None, None, True, False)))
    times = {False: rng.choice((0.0005, 0.001, 0.01)), True: rng.choice((0.002, 0.0089, 0.0091, 0.0095, 0.02))}
    asked = []
    for number in range(12):
        way = trial.next()
        asked.append(int(way))
        trial.note(way, times[way] * (3 if number < 2 else 1))
        if trial.decided is not None:
            break
    yield f"{times} {asked} {trial.decided}"


def step(rng: random.Random) -> Iterator[str]:
    """The values that a step stores: those copied to a device or back, and outputs inside and outside of the block of buffers."""
    breaks = rng.choice((None, None, ValueError("it broke"), pt.RunError("it is full")))

    def copied(way: str) -> Callable[[Any], Any]:
        def copy(value: Any) -> Any:
            if breaks is not None:
                raise breaks
            return way, value

        return copy

    compiled = SimpleNamespace(upload=copied("to"), download=copied("from"))
    unit: Any = SimpleNamespace(name="unit", compiled=compiled, device=SimpleNamespace(label="one"))
    one = CopyStep(unit, rng.random() < 0.5, 0, 1, "x")
    values: list[Any] = ["value", None]
    try:
        one.run(values, None, None)
    except pt.PartitaError as error:
        yield f"{type(error).__name__}: {error}"
    yield f"{one.up} {one.reads} {one.makes} {values}"
    block = np.zeros(256, np.uint8)
    buffer, inside = block[:64].view(np.float32), block[64:128].view(np.float32)
    results = [rng.choice((buffer, inside, np.ones(16, np.float32), [inside, 3], block)) for _ in range(2)]
    buffers = rng.choice(([buffer, None], [None, buffer], None))
    for given in (block, None):
        slots: list[Any] = [None, None, None]
        RunStep(unit, (0,), (2, 1), ()).store(results, slots, buffers, given)
        kept = [slots[2], slots[1]]
        shares = [isinstance(new, np.ndarray) and bool(np.may_share_memory(new, block)) for new in kept]
        yield f"{[new is old for new, old in zip(kept, results)]} {shares} {slots[0]}"


def burst(rng: random.Random) -> Iterator[str]:
    """The number of inputs that a worker gets at once after calls of drawn seconds and bytes, and reading ahead."""
    one, sizes = Burst(), []
    for _ in range(10):
        one.learn(one.size, rng.choice((0.0, 0.0001, 0.002, 0.011, 0.5)), rng.choice((0, 100, 2**18, 2**21)))
        sizes.append(one.size)
    yield f"{sizes}"
    now, slow = [0.0], rng.choice((0.0, 0.002, 0.006))

    def inputs() -> Iterator[Any]:
        for number in range(6):
            now[0] += slow
            yield {"x": number}
        if rng.random() < 0.5:
            raise ValueError("no more")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.mapping.bursts.time", SimpleNamespace(monotonic=lambda: now[0]))
        given = inputs()
        for count in (2, 1, 4, 9):
            taken, error = read_ahead(given, count)
            yield f"{slow} {count}: {[item['x'] for item in taken]} {error!r}"


def array_of(rng: random.Random) -> Any:
    numbers = [rng.choice((0.0, 1.5, -2.0, 7.0)) for _ in range(rng.choice((0, 1, 4)))]
    array = np.array(numbers, rng.choice(("f4", "f4", "i8", "?")))
    if array.size and array.dtype.kind == "f" and rng.random() < 0.3:
        array[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -np.inf))
    return rng.choice((array, array, array, array, array[::-1], np.array(["a"], object), [array]))


def recorded(rng: random.Random) -> Iterator[str]:
    """The calls that a recorder inspects, by a clock that goes as drawn, and what it says of them."""
    now = [0.0]
    recorder = Recorder(rng.choice(("checksums", "nan")))
    body = graph_of(rng)
    memory = rng.choice(("host", "host", "toy"))
    unit: Any = SimpleNamespace(name="unit", device=SimpleNamespace(label="one"), body=body, memory=memory)
    only = RunStep(unit, (0,), tuple(range(len(body.outputs))), ())
    call, look = rng.choice((0.01, 1.0, 0.0)), rng.choice((0.001, 0.02))
    looked: list[int] = []

    class Runs:
        def run(self, arrays: Any, out: Any, observer: Any = None, watcher: Any = None, in_turn: bool = False) -> list[Any]:
            now[0] += call * rng.choice((1, 1, 2))
            if watcher is not None:
                looked.append(number)
                watcher(only, [array_of(rng) for _ in body.outputs])
                now[0] += look
            return []

    def clock() -> float:
        now[0] += look / 8
        return now[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.runtime.recording.perf_counter", clock)
        runs: Any = Runs()
        for _ in range(60):
            number = recorder.due()
            if number:
                recorder.run(runs, [], None, None, number)
            else:
                now[0] += call
    found = recorder.recorded()
    yield f"{found!r} {looked} {found.share:.5f} {found.ok}"
    yield str(found)
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(found.to_table())
    yield out.getvalue()
    samples = tuple([Sample(i, "unit", "one", rng.choice((None, 0.0, 0.01, 0.011, 2.0))) for i in range(rng.randint(0, 3))])
    yield str(Recorded("sample:2", 5, 4, 0.1, found.values, samples, len(samples)))


def fault(rng: random.Random) -> Iterator[str]:
    """The ops that move, if a body does not compile for a drawn reason."""
    graph = parts_of(rng, "a")
    call = next(node for node in graph.nodes if node.is_op)
    assert call.subgraph is not None
    names = [node.name for node in call.subgraph.nodes if node.is_op]
    count = rng.choice((1, 1, 2, len(names)))
    bad = set(rng.sample(names, min(count, len(names))))
    is_together, tried = rng.random() < 0.3, []

    def why_not(body: pt.Graph) -> CompileError | None:
        held = {node.name for node in body.nodes if node.is_op}
        tried.append(len(held))
        if not bad <= held if is_together else not bad & held:
            return None
        return CompileError(rng.choice(("so it is", "so it is", f"{len(held)} ops")))

    first = CompileError("so it is", where="whole")
    for why in (why_not, None):
        failed = not_compiled(call, first, why)
        yield f"{sorted(bad)} {is_together}: {failed.ops} {failed.reason} {failed.error} {tried}"


def crew(rng: random.Random) -> Iterator[str]:
    """The instances that concurrent callers borrow."""
    made: list[str] = []
    most = rng.choice((0, 2, 9))

    class One(Timed):
        def another(self) -> Any:
            if made.count("new") >= most:
                return None
            made.append("new")
            return One(self.graph, f"number {made.count('new')}", [], lambda: None)

    graph = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2,)))])
    both = replicas.SideBySide(One(graph, "first", [], lambda: None))
    loans: list[Any] = []
    for _ in range(9):
        crew = both._replicas
        if loans and rng.random() < 0.4:
            loans.pop(rng.randrange(len(loans))).__exit__()
        elif crew._idle or len(crew._all) < min(most + 1, replicas.MOST):
            loans.append(both.lent())
            made.append(loans[-1].__enter__().name)
        yield f"{made} {len(crew._idle)} {len(crew.all())} {crew._waiting}"
    given: list[str] = []

    def borrower() -> None:
        with both.lent() as lent:
            given.append(lent.name)

    while both._replicas._idle or len(both._replicas._all) < min(most + 1, replicas.MOST):
        loans.append(both.lent())
        loans[-1].__enter__()
    waiting = threading.Thread(target=borrower)
    waiting.start()
    while not both._replicas._waiting and waiting.is_alive():
        time.sleep(0.001)
    loans.pop().__exit__()
    waiting.join(20)
    yield f"{len(given)} {both._replicas._waiting} {len(both._replicas._idle)}"
    both.renew()
    yield str(len(both._replicas._idle))


def _counted_on(rng: random.Random, size: Any, y: Any, number: str) -> Any:
    """An op that reads a size."""
    return rng.choice((
        lambda: pt.op("Mul", size, pt.constant(np.array([1, 1])), name=f"m{number}"),
        lambda: pt.op("Concat", pt.op("Gather", size, pt.constant(np.array([0])), name=f"g{number}"), pt.constant(np.array([-1])),
                      axis=0, name=f"c{number}"),
        lambda: pt.op("Identity", size, name=f"i{number}"),
        lambda: pt.op("Add", size, pt.op("Cast", pt.op("RandomUniform", shape=[2], name=f"u{number}"), to=7, name=f"k{number}"),
                      name=f"a{number}"),
        lambda: pt.op("Add", size, pt.op("Shape", y, name=f"s{number}"), name=f"b{number}"),
    ))()


def along(rng: random.Random) -> Iterator[str]:
    """Subgraphs that compute their sizes themselves."""
    x, y = pt.variable("x", "float32", ("n", 4)), pt.variable("y", "float32", ("n", "m"))
    read: Any = rng.choice((x, y, pt.op("Relu", x, name="relu")))
    size: Any = pt.op("Shape", read, name="size")
    for number in range(rng.randint(0, 3)):
        size = _counted_on(rng, size, y, str(number))
    z = pt.op("Reshape", rng.choice((x, pt.op("Neg", x, name="neg"))), size, name="shaped")
    outputs = [pt.op("Exp", z, name="exp")] + [size] * (rng.random() < 0.2) + [read] * (rng.random() < 0.3)
    graph = pt.apply_pass(pt.Graph(outputs, [x, y], "sizes", opsets={"": 17}), "InferShape", verify=False, strict=False)
    names = [node.name for node in graph.nodes if node.is_op]
    placed = with_affinities(graph, {name: rng.choice("ab") for name in names})
    parts = pt.apply_pass(placed, "PartitionGraph", subgraph_property=AffinityProperty(), growth="largest", infer_types=False)
    opened = rng.choice(("a", "b", "ab", ""))
    with mock.patch("partita.accelerators.building.sizes_along.MOST", rng.choice((2, 3, 512))):
        found = sizes_along(parts, lambda call: str(call.affinity) in opened)
    yield f"{opened} {len(parts.nodes)} {len(found.nodes)} {zlib.crc32(str(found).encode()):08x}"
    for call in found.nodes:
        if call.subgraph is not None:
            reads = [entry and entry.name for entry in call.inputs]
            yield f"{call.name} {call.affinity}: {[node.name for node in call.subgraph.nodes]} {reads}"


def outputs(rng: random.Random) -> Iterator[str]:
    """A device's results, checked against its body."""
    def made(returned: Any) -> Any:
        return [getattr(value, "shape", value) for value in check.checked(returned, [np.ones((2, 3), "f4")], "here")]

    shapes: Any = ((2, 3), ("n", 3), (2, "m"), None)
    dtypes = ("float32", "float32", "int64", "string")
    x = pt.variable("x", "float32", ("n", 3))
    nodes = [
        pt.op("Own", x, domain="mine", name=f"y{i}").evolve(output_types=(rng.choice((
            pt.TensorType(rng.choice(dtypes), rng.choice(shapes)), pt.TensorType(rng.choice(dtypes), rng.choice(shapes)),
            pt.SequenceType(pt.TensorType("float32")), None)),))
        for i in range(rng.randint(1, 2))
    ]
    check = OutputCheck(pt.Graph(nodes, [x], "body"))
    arrays = (np.ones((2, 3), "f4"), np.ones((2, 3), "i8"), np.ones((4, 3), "f4"), np.ones(3, "f4"), np.full((2, 3), "a"),
              np.ones((2, 3), ">f4"), np.float32(1), [1.0], None, np.full((2, 3), "a", object), np.ones((2, 5), "f4"))
    yield str([str(node.output_types[0]) for node in nodes])
    for _ in range(7):
        returned: Any = [rng.choice(arrays) for _ in nodes]
        others = (tuple(returned), returned[:-1], returned[0], "ab", [*returned, None])
        returned = rng.choice((returned, returned, returned, *others))
        try:
            result = str(made(returned))
        except pt.PartitaError as error:
            result = f"{type(error).__name__}: {error}"
        yield f"{check.fits(returned)} {result}"


def unit(rng: random.Random) -> Iterator[str]:
    """A body that is compiled by a device, runs there, and is measured."""
    dims = rng.choice(((2, 3), ("n", 3)))
    x = pt.variable("x", "float32", dims)
    y = pt.op(rng.choice(("Relu", "Exp", "Neg")), pt.op("Abs", x, name="abs"), name="last")
    body = pt.apply_pass(pt.Graph([y], [x], "body"), "InferShape")
    if rng.random() < 0.15:
        body = pt.Graph([y.evolve(output_types=(pt.TensorType("float32", (7, 3)),))], [x], "body")
    members: dict[str, Any] = {"dynamic_shapes": rng.random() < 0.5, "concurrent": rng.random() < 0.5}
    if rng.random() < 0.15:
        members["compile"] = lambda self, graph, config: None
    elif rng.random() < 0.3:
        members["subgraph_type"] = RanOnDevice
    others = rng.choice(((), ("other",)))
    with (
        small("one", rng.choice((None, "Abs Relu Exp")), rng.choice(("", "", "Exp")), **members) as accelerator, small("other"),
        warnings.catch_warnings(action="ignore"),
    ):
        (device,), (other,) = parse_devices("one"), parse_devices("other")
        config = accelerator.full_config({"PERF_COUNT": rng.random() < 0.3})
        stand_ins = [(other, other.accelerator.full_config({}))] if others else []
        try:
            found = compile_unit("unit", device, body, config, stand_ins, rng.random() < 0.2, "model", checked=rng.random() < 0.5)
        except pt.PartitaError as error:
            yield f"{type(error).__name__}: {error}"
            return
        yield f"{found.title} {found.ops} {found.memory} {found.keeps_arrays} {type(found.compiled).__name__}"
        for size in (2, 2, 0):
            array: Any = np.ones((size, 3), np.float32)
            given = [array] if found.memory == "host" else [found.compiled.upload(array)]
            try:
                result = str([getattr(value, "shape", type(value).__name__) for value in found.run(given, None)])
            except pt.PartitaError as error:
                result = f"{type(error).__name__}: {error}"
            yield f"{size} {result} {len(accelerator.compiled)}"
        again: list[Any] = []

        def once_more(one: Unit, values: Mapping[str, Any]) -> Unit:
            again.append(values["PERF_COUNT"])
            return one

        try:
            measured = measured_units({"first": found, "second": found}, once_more)
        except pt.PartitaError as error:
            yield f"{type(error).__name__}: {error}"
            return
        yield f"{again} {[one.name for one in measured.values()]} {len({id(one.compiled) for one in measured.values()})}"


def compiled(rng: random.Random) -> Iterator[str]:
    """Models compiled with drawn options: what the report tells, or why they are refused."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    kinds = sorted({str(node.op) for node in graph.nodes if node.is_op})
    options: dict[str, Any] = {}
    for name, drawn in {
        "pin": {rng.choice(names): rng.choice(("alpha", "beta"))}, "forbid": {rng.choice((*names, *kinds)): "alpha"},
        "strict": True,
        "optimize": rng.choice((True, "yes")), "min_subgraph_size": rng.choice((1, 2, 3, -1)), "name": "another",
    }.items():
        if rng.random() < 0.2:
            options[name] = drawn
    if rng.random() < 0.2:
        chosen = rng.sample(names, rng.randint(1, len(names)))
        graph = with_affinities(graph, {name: rng.choice(("alpha", "beta", "beta", "gamma")) for name in chosen})
    where = rng.choice((None, "HETERO:alpha,beta", "HETERO:alpha,beta", "HETERO:alpha,beta", "beta", "MULTI:alpha,beta"))
    with (
        small("alpha", " ".join(rng.sample(kinds, rng.randint(1, len(kinds)))), rng.choice(("", "", *kinds))), small("beta"),
        warnings.catch_warnings(action="ignore"),
    ):
        if where is None or rng.random() < 0.15:
            try:
                placement = pt.query(graph, "HETERO:alpha,beta")
                options["plan"] = rng.choice((placement, placement, 3, "nowhere.json"))
            except pt.PartitaError:
                where = "beta"
        yield f"{where} {[*options]}"
        try:
            model = pt.compile(graph, where, **options)
            results = model(*[np.full((3, 3), 0.5, np.float32) for _ in model.graph.inputs])
        except pt.PartitaError as error:
            yield f"{type(error).__name__}: {error}"[:500]
            return
        said = re.sub(r"[\d.]+ s\b", "# s", str(model.report))
        units = [(unit.name, unit.device.label, unit.ops) for unit in model.units]
        yield f"{model.graph.name} {units} {zlib.crc32(said.encode()):08x}"
        yield f"{said[-300:]} {[array.shape for array in results]}"
        model.close()


def queue(rng: random.Random) -> Iterator[str]:
    """Requests that wait, run, are withdrawn, refused or late, by a clock and threads that go on as drawn."""
    now, threads = [0.0], list[Any]()

    class Threaded:
        def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
            self.target, self.name = target, name

        def start(self) -> None:
            if breaks and len(threads) > 2:
                raise RuntimeError("no more threads")
            threads.append(self)

    breaks = rng.random() < 0.1
    running, waits, limit = rng.randint(1, 2), rng.randint(0, 2), rng.choice((None, None, 0.001))
    fakes = SimpleNamespace(Condition=threading.Condition, TIMEOUT_MAX=threading.TIMEOUT_MAX, Thread=Threaded)
    with (
        mock.patch.object(requests, "threading", fakes), mock.patch.object(requests, "LINGER", 0.0),
        mock.patch.object(requests, "time", SimpleNamespace(monotonic=lambda: now[0])),
    ):
        one = requests.RequestQueue(running, waits, limit, limit is None or rng.random() < 0.5)
        asked: list[Any] = []
        yield f"{running} {waits} {limit} {one._refuses}"
        for _ in range(9):
            chance, said = rng.random(), ""
            if chance < 0.55:
                try:
                    asked.append(one.submit(rng.choice((lambda: 1, lambda: 1 // 0)), rng.choice((None, lambda: None))))
                except pt.PartitaError as error:
                    said = f"{type(error).__name__}: {error}"
            elif chance < 0.7 and threads:
                thread = threads.pop(0)
                if thread.name == "partita-request":
                    thread.target()
                else:
                    now[0] += 1.0
                    thread.target()
            elif chance < 0.85 and asked:
                said = f"cancels {rng.choice(asked).cancel()}"
            elif chance < 0.9:
                request = one._next()
                if request is not None:
                    request.run()
                    one._running.discard(request)
                    one._threads += 1
            ended = [(each.cancelled(), each.done() and not each.cancelled() and repr(each.exception())) for each in asked]
            counts = [len(one._waiting), len(one._running), one._threads, one._idle, one._watched, len(threads)]
            yield f"{said} {ended} {counts}"
        for request in list(one._waiting):
            request.cancel()
        one.close()
        try:
            one.submit(lambda: 1)
        except pt.PartitaError as error:
            yield f"{error}"
        one.renew()
        yield f"{one._threads} {one._watched} {len(one._waiting)}"


def spread(rng: random.Random) -> Iterator[str]:
    """The executors that take concurrent and nested runs."""
    rooms = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    executors: list[Any] = [SimpleNamespace(name=f"e{i}", close=lambda: None) for i in range(len(rooms))]
    one = Spreading(executors, rooms)
    held: list[Any] = []
    for _ in range(10):
        chance = rng.random()
        if chance < 0.6 and one._is_room():
            one._here.number = None
            held.append(one._taken())
            name = held[-1].__enter__().name
            with one._taken() as nested:
                yield f"{name} {nested.name} {one._running}"
        elif held and chance < 0.9:
            held.pop(rng.randrange(len(held))).__exit__(None, None, None)
        elif chance > 0.95:
            one.renew()
        yield f"{one._running} {one._is_room()} {one._here.__dict__.get('number')}"
    one.close()


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "plan": plan, "spans": spans, "ways": ways, "fault": fault,
    "recorded": recorded, "step": step, "burst": burst, "sizes": sizes, "crew": crew, "along": along, "outputs": outputs,
    "unit": unit, "compiled": compiled, "queue": queue,
    "spread": spread,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "steps", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
