"""Files of the cache and damaged ones, waiting for locks and slots, cores and memory that are free, ranges of values, measured
costs, stages of models, and pictures for notebooks, of drawn content.

`python -m tests.accelerators.kept_resources` writes the file that `test_kept_resources.py` compares with anew."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import attrs
import numpy as np

import partita as pt
from partita.accelerators import api
from partita.accelerators.building.report import report_html
from partita.accelerators.placement.costs import Costs
from partita.accelerators.placement.placement import placement_html, placement_tables
from partita.accelerators.precision import measured_costs
from partita.accelerators.precision.calibration import METHODS, calibrated
from partita.accelerators.process import compile_slots, cores
from partita.accelerators.runtime.compiled_model import model_html
from partita.accelerators.runtime.package import triton
from partita.accelerators.runtime.package.stages import Border, Stages
from partita.accelerators.runtime.profile import Measurement, Row, Span, profile_html, profile_of, timeline_svg
from partita.accelerators.store import folder as folders
from partita.accelerators.store import store as stores
from partita.accelerators.store import waiting
from partita.accelerators.store.cached_compiling import check_folder, compile_cached
from tests.accelerators.drawn_packages import Exported, in_child, pace, packaged
from tests.accelerators.hetero.small_devices import device
from tests.kept import lines_of, sum_of, told, write_kept
from tests.partition.kept_partitions import graph_of

KEPT = Path(__file__).with_name("kept_resources.txt")

COUNTS = {
    "store": 40, "damaged": 30, "wait": 40, "slots": 40, "cores": 30, "ranges": 40, "turns": 20, "costs": 30, "chain": 30,
    "triton": 40, "picture": 40, "at once": 40, "cached": 24, "settings": 30,
    "package": 20, "child": 30, "pace": 30,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


# -- files ---------------------------------------------------------------------------------------------

def arrays_of(rng: random.Random) -> list[Any]:
    """Arrays at the border between those that have a file and those that share one."""
    sizes = [rng.choice((0, 1, 15, 16, 17, 40)) for _ in range(rng.randint(0, 3))]
    return [np.full(size, rng.choice((1.5, 2.5)), np.float32) for size in sizes]


@contextlib.contextmanager
def small_store(limit: int) -> Iterator[stores.Store]:
    """A cache of few bytes, in which arrays of 64 bytes are large."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(stores, "LARGE", 64), mock.patch.object(stores, "LOCKS", 3),
        mock.patch.object(stores, "_unseen", dict[Path, int]()), mock.patch.object(stores, "_written", dict[str, Any]()),
    ):
        yield stores.Store(Path(folder) / "cache", limit)


def files_of(one: stores.Store) -> str:
    listed = [path for path in sorted(one.folder.rglob("*")) if path.is_file() and path.parent.name != "locks"]
    return str([(path.name[:8], path.stat().st_size) for path in listed])


def store(rng: random.Random) -> Iterator[str]:
    """A cache that is written to, read, trimmed and cleared."""
    limit, portion = rng.choice((400, 800, 100000)), rng.choice((1, 4, 256))
    with small_store(limit) as one, mock.patch.object(stores, "PORTION", portion):
        now = 1000.0
        for number in range(rng.randint(3, 8)):
            key = rng.choice(("aa", "bb", "cc", "dd"))
            chance, arrays = rng.random(), arrays_of(rng)
            if chance < 0.6:
                one.write(key, {"why": "w", "number": number}, b"code" * rng.choice((1, 30)), arrays)
                yield f"{limit} writes {key} {[array.nbytes for array in arrays]} {one.names()} {files_of(one)}"
            elif chance < 0.7:
                one.remove(key)
            elif chance < 0.8:
                digest = f"{number:064x}"
                kept = one.keep_weight(rng.choice(arrays or [np.ones(16, np.float32)]), digest)
                yield f"keeps {None if kept is None else (kept.shape, kept.dtype, len(stores._written))}"
            else:
                found = one.read(key)
                if found is not None:
                    same = [array.tolist()[:1] for array in found.weights]
                    yield f"{found.meta['number']} {found.code[:8]!r} {len(found.code)} {same} {len(stores._written)}"
                    meta = one.meta(key)
                    yield f"{sorted(meta)} {meta['bytes']} {meta['size']}"
            for path in sorted((one.folder / "entries").iterdir()) + sorted((one.folder / "weights").iterdir()):
                if rng.random() < 0.5:
                    os.utime(path, (now, now + rng.choice((0, 1, 5))))
            now += 10
        for name, age in ((f"{stores.PREFIX}a", 10), (f"{stores.PREFIX}b", 3599), (f"{stores.PREFIX}c", 3700), ("odd", 1)):
            path = one.folder / "entries" / name
            path.write_bytes(b"x" * 9)
            os.utime(path, (stores.time.time() - age,) * 2)
        (one.folder / "entries" / "inner").mkdir(exist_ok=True)
        yield str([name for name, _ in one.versions()])
        one.trim(rng.choice((set(), {"aa", "bb"})))
        yield files_of(one)
        yield f"{[(one.folder / 'locks' / name).name for name in ('00', '01', '02')]} {told(locked_under, one, '0000000a')}"
        yield f"{one.clear()} {files_of(one)} {sorted(path.name for path in (one.folder / 'entries').iterdir())}"


def locked_under(one: stores.Store, key: str) -> list[str]:
    """The lock files after one was held."""
    with one.locked(key):
        return sorted(path.name for path in (one.folder / "locks").iterdir())


def damaged(rng: random.Random) -> Iterator[str]:
    """Complaints about an entry whose bytes, metadata or weights are others."""
    with small_store(10**6) as one:
        arrays = [np.ones(16, np.float32), np.ones(3, np.float32), np.ones((0, 2), np.float32)]
        one.write("aa", {"why": "w"}, b"the code", arrays)
        path = one.folder / "entries" / "aa"
        data = path.read_bytes()
        at = rng.randrange(len(data))
        for changed in (data[:at], data + b"x", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], b""):
            path.write_bytes(changed)
            yield f"{len(changed) - len(data)} {told(one.read, 'aa')}"
        words = json.loads(data[stores._HEAD : data.rindex(b"}") + 1])
        name = words["weights"][0][0]
        rows: Any = rng.choice((
            [["../x", 0, "float32", [2]]], [[name, -1, "float32", [2]]], [[name, 0, "float32", [-2]]],
            [[name, 0, "nothing", [2]]], [[name, 64, "float32", [2]]], [[name, 0, "float32", [0, 9]]],
            [[name, 4, "float32", [2, 2]]], "x", [["a" * 64, 0, "int8", [1]]],
            [[name, 0, "float32"]], [[3, 0, "float32", [2]]], [[name, 0, "float32", [10**30]]],
        ))
        change = rng.choice(({"weights": rows}, {"weights": rows}, {"size": 9}, {"code": "x"}, None, [1]))
        content = json.dumps({**words, **change} if isinstance(change, dict) else change).encode()
        if rng.random() < 0.1:
            content = b"{no json"
        head = stores.MAGIC + stores.hashlib.sha256(content).digest() + len(content).to_bytes(8, "little")
        path.write_bytes(head + content + b"the code")
        found = told(one.read, "aa").replace(name, "NAME")
        yield f"{str(change).replace(name, 'NAME')}: {re.sub(r'<.*', '', found)[:200]}"
        stores._maps.clear()
        weights = one.folder / "weights" / name
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
        path.write_bytes(data)
        yield f"{told(one.read, 'aa')} {weights.exists()}"


# -- waiting -------------------------------------------------------------------------------------------

def wait(rng: random.Random) -> Iterator[str]:
    """Words while a lock is held by another process, and the moment it is given up."""
    now = [100.0]
    holder = rng.choice((b"12345", b"", b"x", str(os.getpid()).encode()))
    stops = rng.choice((0, 0, 1, 1, 2))
    clock = SimpleNamespace(monotonic=lambda: now[0])
    with (
        tempfile.NamedTemporaryFile() as file, mock.patch.object(waiting, "time", clock),
        mock.patch.object(waiting, "_is_stopped", lambda process: stops == 1 or (stops == 2 and rng.random() < 0.5)),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        file.write(holder)
        file.flush()
        one = waiting._Wait(file.fileno(), Path("lock"))
        yield f"{holder if holder != str(os.getpid()).encode() else 'us'!r} {stops}"
        while now[0] < 800:
            now[0] += rng.choice((0.5, 0.9, 1.0, 4.9, 5.0, 9.9, 60.0))
            found = told(one.look)
            if warned or found != "None":
                yield f"{now[0]:.1f} {found} {[str(one.message) for one in warned]}".replace(str(os.getpid()), "us")
                warned.clear()
            if found != "None":
                break
        yield f"{now[0]:.1f} {one._next - now[0]:.1f}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lock"
        with waiting.locked(path):
            yield f"{path.read_bytes() == str(os.getpid()).encode()} {len(waiting._files.threads)}"
            number = os.open(path, os.O_RDWR)
            over = threading.Event()
            over.set()
            with mock.patch.object(waiting._wanted, "abandoned", over):
                yield told(waiting.lock, number, path)
            os.close(number)
        yield f"{len(waiting._files.threads)} {waiting._is_stopped(os.getpid())} {waiting._is_stopped(None)}"


def slots(rng: random.Random) -> Iterator[str]:
    """Who gets a slot, and the memory that is free."""
    most, free = rng.choice((1, 2, 3)), rng.choice((None, 10, 20, 30))
    places = compile_slots.Places(lambda: most, lambda: free)
    workers: list[Any] = []
    for number in range(12):
        if rng.random() < 0.5 or not workers:
            seeker = compile_slots.SlotSeeker()
            seeker.number, seeker.needed = number, rng.choice((9, 10, 11, 25))  # type: ignore[attr-defined]
            places._waiting.append(seeker)
            workers.append(seeker)
        elif rng.random() < 0.6:
            one = rng.choice(workers)
            if one in places._waiting:
                yield f"{one.number} enters {one.needed}: {places._enters(one, one.needed)}"
        else:
            one = workers.pop(rng.randrange(len(workers)))
            places._leave(one)
        woken = [each.number for each in workers if not each._news.empty()]
        yield f"{[each.number for each in places._inside]} {[each.number for each in places._waiting]} {woken}"
        yield f"{places.are_free} {places.is_wanted} {places._has_room(10)}"
    gone = compile_slots.SlotSeeker()
    gone.give_up()
    try:
        with places.place(gone, 1):
            yield "inside"
    except compile_slots.GivenUp:
        yield f"given up, {len(places._waiting)}"
    places.renew()
    with places.place(compile_slots.SlotSeeker(), 10**9):
        yield f"{len(places._inside)} {places.are_free}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        machine = root / "meminfo"
        machine.write_text(rng.choice(("MemTotal: 9 kB\nMemAvailable:   64 kB\n", "MemFree: 3 kB\n", "MemAvailable: x kB\n")))
        group = root / "group"
        group.mkdir()
        limit, used = rng.choice((("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")))
        (group / limit).write_text(rng.choice(("max\n", "50000\n", "100\n")))
        (group / used).write_text("300\n")
        idle = rng.choice(("inactive_file 7\n", "total_inactive_file 9\ninactive_file 7\n", "anon 3\n"))
        (group / "memory.stat").write_text(idle)
        with (
            mock.patch.object(compile_slots, "_MACHINE", machine),
            mock.patch.object(compile_slots, "group_folders", lambda kind: [group] if rng.random() < 0.8 else []),
        ):
            yield str(compile_slots.free_memory())


def count_cores(rng: random.Random) -> Iterator[str]:
    """The cores and threads that may be used, by the system's files."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cpus, groups = root / "cpus", root / "groups"
        siblings = rng.choice((("0,4", "1,5", "2", "3", "0,4", "1,5"), tuple("012345"), ()))
        for number, listed in enumerate(siblings):
            (cpus / f"cpu{number}" / "topology").mkdir(parents=True)
            (cpus / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{listed}\n")
        inner = groups / "cpu" / "a" / "b" if rng.random() < 0.4 else groups / "a" / "b"
        inner.mkdir(parents=True)
        for place in (inner, inner.parent):
            if rng.random() < 0.6:
                quota = rng.choice(("max 100000\n", "250000 100000\n", "40000 100000\n", "-1 100000\n", "bad\n"))
                (place / "cpu.max").write_text(quota)
            if rng.random() < 0.4:
                (place / "cpu.cfs_quota_us").write_text(rng.choice(("-1\n", "350000\n", "0\n")))
                (place / "cpu.cfs_period_us").write_text("100000\n")
        own = root / "own"
        own.write_text(rng.choice(("0::/a/b\n", "3:cpu,cpuacct:/a/b\n2:memory:/a\n", "0::/\n")))
        allowed = {0, 1, 2, 4} if rng.random() < 0.5 else {0, 4}
        chosen = {name: rng.choice(("3", "0", "", "x", "2,1", " 5 ")) for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
        for each in (cores._physical, cores._core, cores._quota):
            each.cache_clear()
        try:
            with (
                mock.patch.object(cores, "_CPUS", cpus), mock.patch.object(cores, "_ROOT", groups),
                mock.patch.object(cores, "_OWN", own), mock.patch.object(os, "sched_getaffinity", lambda process: allowed),
                mock.patch.dict(os.environ, chosen),
            ):
                yield f"{cores.usable_cores()} {cores._quota()} {sorted(cores.all_but_one_core())}"
                yield f"{chosen} {cores.default_threads()}"
                yield str([str(path.relative_to(groups)) for path in cores.group_folders("cpu")])
        finally:
            for each in (cores._physical, cores._core, cores._quota):
                each.cache_clear()


# -- numbers -------------------------------------------------------------------------------------------

def ranges(rng: random.Random) -> Iterator[str]:
    """The ranges of values that were seen, by each method."""
    random = np.random.default_rng(rng.randrange(10**6))

    def drawn() -> Any:
        array = random.standard_normal(rng.choice((1, 7, 500, 30000))).astype(np.float32) * rng.choice((0.0, 1.0, 8.0))
        array[rng.randrange(array.size)] = rng.choice((0.0, 50.0, -70.0, np.nan, np.inf))
        return rng.choice((array, array, np.abs(array), -np.abs(array), array[:0], np.full(3, np.nan)))

    seen = [{name: drawn() for name in ("x", "y")} for _ in range(rng.randint(1, 3))]
    for method in METHODS:
        found = calibrated(lambda: seen, method)
        yield f"{method} {[(name, *(f'{bound:.5g}' for bound in bounds)) for name, bounds in found.items()]}"


def turns(rng: random.Random) -> Iterator[str]:
    """Calls that take turns, by a clock that goes as drawn."""
    now = [0.0]
    asked: list[int] = []

    def call(number: int, seconds: float) -> Callable[[], None]:
        def one() -> None:
            asked.append(number)
            now[0] += seconds
        return one

    calls = [call(number, rng.choice((0.001, 0.1, 0.5, 2.0))) for number in range(rng.randint(1, 3))]
    with mock.patch.object(measured_costs, "perf_counter", lambda: now[0]):
        times = measured_costs.in_turns(calls, rng.choice((0.01, 1.0, 3.0)), rng.choice((1, 2)))
    yield f"{[(len(each), round(sum(each))) for each in times]} {len(asked)} {asked[:5]}"


def costs(rng: random.Random) -> Iterator[str]:
    """The costs of ops and hand-overs, as drawn measurements give them."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    labels = ("one", "two", "three")[: rng.randint(1, 3)]
    base: Any = type("Base", (dict,), {})(dict.fromkeys(names, labels[0]))
    base.graph, base.computed = graph, set(names[:1])
    base.able = lambda name: labels if name != names[-1] else labels[:1]
    now, late = [0.0], rng.choice((1e9, 2.5, 4.5))
    counters = dict.fromkeys(labels) if rng.random() < 0.4 else {}
    with device("one"), device("two"), device("three"):
        target: Any = SimpleNamespace()
        one = measured_costs._OnThisMachine(base, target, None, labels, late, False, counters)  # type: ignore[arg-type]
        one.power = {label: 2.0 + number for number, label in enumerate(labels)}

        def times(self: Any, label: str) -> dict[str, float]:
            now[0] += 1
            return {} if rng.random() < 0.15 else {name: float(len(name) + len(label)) for name in self._names(label)}

        def crossings(self: Any, a: str, b: str, count: int) -> tuple[float, float]:
            now[0] += 1
            if rng.random() < 0.15:
                raise pt.CompileError("it is too slow")
            return tuple(5.0 + count * rng.choice((0.0, 1e-3, -1e-4)) for _ in range(2))  # type: ignore[return-value]

        with (
            mock.patch.object(type(one), "_times", times), mock.patch.object(type(one), "_crossings", crossings),
            mock.patch.object(type(one), "_fitted", lambda self, times, over: over),
            mock.patch.object(measured_costs, "perf_counter", lambda: now[0]),
            mock.patch.object(type(one), "_fitted", lambda self, times, over: over),
            mock.patch.object(measured_costs, "processor", lambda: "a processor"),
        ):
            found = one.costs(rng.random() < 0.5)
    yield f"{labels} {late} {one.is_late} {one.has_failed} {one._names(labels[0])[:2]}"
    over = sorted((pair, f"{one.launch_us:.4g} {one.bytes_per_us:.4g}") for pair, one in found.hand_overs.items())
    yield f"{sum_of(json.dumps({label: dict(own) for label, own in found.times.items()}))} {found.unit} {found.source} {over}"
    for node in [node for node in graph.nodes if node.is_op][:3]:
        yield sum_of(str(measured_costs.op_alone(node, graph)))
    content = json.loads(found.to_json())
    change: Any = rng.choice((
        {"partita_costs": 2}, {"unit": "miles"}, {"unit": "uJ"}, {"times": {"a": {"b": -1}}}, {"times": 3}, {"times": {}},
    ))
    yield told(lambda: sum_of(Costs.from_json(json.dumps({**content, **change})).to_json()))


# -- stages --------------------------------------------------------------------------------------------

def chain(rng: random.Random) -> Iterator[str]:
    """The stages of a model that runs on several devices."""
    graph = graph_of(rng)
    kinds = sorted({str(node.op) for node in graph.nodes if node.is_op})
    first = " ".join(rng.sample(kinds, rng.randint(1, len(kinds))))
    if rng.random() < 0.2:
        outputs = [*graph.outputs, pt.constant(np.ones(2, np.float32), name="fixed")[0], graph.inputs[0][0]]
        graph = pt.Graph(outputs, graph.inputs, "with a constant")
    with device("alpha", first), device("beta"):
        model = pt.compile(graph, "HETERO:alpha,beta")
        names = [*model.report.placement] if rng.random() < 0.7 else kinds
        times = {label: dict.fromkeys(names, 1.5) for label in ("alpha", "beta")}
        if rng.random() < 0.3:
            times.pop("beta")
        found = model.stages(Costs(times, {}, "drawn"))
        yield f"{found} {found!r} {found[0].name} {len(found[:1])}"
        yield sum_of(json.dumps(found.to_dict()))
        yield told(found.save, "nowhere", rng.choice(("partito", "onnx")), key=b"k" * 32)
        model.close()


def written_for_triton(rng: random.Random) -> Iterator[str]:
    """The files of a repository for Triton, or why there is none."""
    kinds = [pt.TensorType(dtype, shape) for dtype, shape in (
        ("float32", (2, 3)), ("int8", ("n", 3)), ("bool", ()), ("uint16", (None,)), ("float64", (1,)), ("float16", (2,)))]
    if rng.random() < 0.15:
        kinds.append(rng.choice((pt.TensorType("bfloat16", (2,)), pt.TensorType("float32"), pt.SequenceType(kinds[0]))))  # type: ignore[arg-type]
    exported: list[str] = []
    model: Any = SimpleNamespace(export=lambda path: exported.append(path.name))
    names = ("x", "y\"z")[: rng.randint(1, 2)]
    given = tuple([Border(name, name, None, rng.choice(kinds), rng.choice((None, 24))) for name in names])
    stages, values = [], [*given]
    for number in range(rng.randint(1, 3)):
        name = f"net_{number}"
        made = tuple([Border(f"o{i}", f"v{number}{i}", name, rng.choice(kinds), 2000) for i in range(rng.randint(1, 2))])
        read = tuple([attrs.evolve(one, name=f"i{i}") for i, one in enumerate(rng.sample(values, rng.randint(1, len(values))))])
        stages.append(SimpleNamespace(name=name, device="one", model=model, inputs=read, outputs=made, ops=1, predicted_us=None))
        values += made
    chosen = rng.sample(values, min(2, len(values)))
    results = [attrs.evolve(one, name=rng.choice((f"r{i}", one.value))) for i, one in enumerate(chosen)]
    if rng.random() < 0.1:
        results.append(results[0])
    if rng.random() < 0.1:
        results[0] = attrs.evolve(results[0], name=values[-1].value)
    whole = Stages("net", given, tuple(results), "given", tuple(stages))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        yield told(triton.write_repository, whole, Path(folder), b"k" if rng.random() < 0.05 else None)
        for path in sorted(Path(folder).rglob("*.pbtxt")):
            yield path.read_text()
        yield f"{exported} {sorted(str(path.relative_to(folder)) for path in Path(folder).rglob('*.py'))}"


# -- pictures ------------------------------------------------------------------------------------------

def picture(rng: random.Random) -> Iterator[str]:
    """A profile as a timeline, and the tables of a placement, as a notebook shows them."""
    one = Measurement()
    for number in range(rng.randint(0, 4)):
        label, start = rng.choice(("one", "two", "a device of a long name")), one.total_us
        inside = tuple([
            Row(f"s{number}", i + 1, f"node<{i}", "EXECUTED", "Relu", rng.choice((0.1, 5.0, 400.0, 3000.0)), 1.0, label, "k", "")
            for i in range(rng.choice((0, 1, 4, 9)))
        ])
        us = sum(row.real_us for row in inside) + rng.choice((0.0, 1.0, 50.0))
        one.spans.append(Span(f"s{number}", label, start, us, inside))
        one.total_us += us
    one.elapsed_us = one.total_us
    found = profile_of([one], rng.choice(("net", "a & b" * 20)), "the inputs given", [])
    yield f"{len(one.spans)} {sum_of(timeline_svg(found))} {sum_of(timeline_svg(found, 300))}"
    yield re.sub(r"<title>.*?</title>", "", timeline_svg(found, rng.choice((200, 900))))[-600:]
    yield sum_of(profile_html(found))
    graph = graph_of(rng)
    ops = sorted({str(node.op) for node in graph.nodes if node.is_op})
    with device("alpha", " ".join(rng.sample(ops, rng.randint(0, len(ops))))), device("beta"):
        placement = pt.query(graph, "HETERO:alpha,beta")
        yield f"{sum_of(placement_html(placement))} {sum_of(placement_tables(placement))}"
        if rng.random() < 0.3:
            model = pt.compile(graph, "HETERO:alpha,beta")
            yield f"{sum_of(model_html(model))}"
            text = report_html(model.report, ["moved"])  # type: ignore[arg-type]
            yield sum_of(re.sub(r"[\d.]+ s\b", "# s", text))
            model.close()


# -- beginnings ----------------------------------------------------------------------------------------

def at_once(rng: random.Random) -> Iterator[str]:
    """Whether an engine may answer a request before anything is checked, and where the cache is."""
    with (
        tempfile.TemporaryDirectory() as name, contextlib.chdir(name),
        mock.patch.dict(os.environ, {"XDG_CACHE_HOME": rng.choice((f"{name}/cache", "cache")), "HOME": f"{name}/home"}),
    ):
        folder = Path(name)
        (folder / "file").write_text("x")
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        (folder / "own").mkdir(mode=0o700)
        places = ("on", "off", "OFF", "", str(folder / "own"), str(folder / "open"), str(folder / "file"), str(folder / "a/b"),
                  str(folder / "open/c"))
        pairs: tuple[tuple[str, Any], ...] = (
            ("START", "now"), ("START", "now"), ("START", "wait"), ("START_WITH", "onnxruntime"), ("NUM_THREADS", 4),
            ("NUM_THREADS", 64), ("NUM_THREADS", 65), ("NUM_THREADS", -1), ("NUM_THREADS", "2"),
            ("CACHE_DIR", rng.choice(places)), ("CACHE_DIR", 3), ("PERF_COUNT", True),
        )
        for _ in range(4):
            drawn = [dict(rng.sample(pairs, rng.randint(0, 3))) for _ in range(3)]
            inner = {key: value for key, value in zip(("HETERO", "cpu"), drawn[1:]) if rng.random() < 0.4}
            config: Any = {**drawn[0], **inner}
            config = rng.choice((config, config, config, {"START": "now", **config}, None, [1]))
            asked = rng.choice((*api.DEVICES, "cpu", None, "reference", ["cpu"], 3))
            yield f"{asked} {config}: {api._threads(asked, config)}".replace(name, "")
        for place in places:
            yield f"{place} {api._may_hold_the_cache(place)} {told(folders.chosen_folder, place)}"[:200].replace(name, "")
            yield f"{folders.lasting(place, '/home')} {told(folders.private_folder, Path(place or '.'))[:160]}".replace(name, "")
    for place in (None, True, False, Path("x")):
        yield f"{folders.lasting(place, '/home')}"


def cached(rng: random.Random) -> Iterator[str]:
    """Compilations through a cache: why each was done, and what is warned of."""
    compiled: list[str] = []

    def compile_one(self: Any, graph: pt.Graph, config: Any) -> Any:
        compiled.append(graph.name)
        return Exported(graph)

    kinds: dict[str, Any] = {
        "compile": compile_one, "may_cache": lambda self, graph: True,
        "identity": lambda self, config: {"library": f"lib {version[0]}", "target": "llvm"},
        "import_": lambda self, data, graph, config, weights: Exported(graph),
    }
    version, made = [1], list[Path]()
    if rng.random() < 0.1:
        kinds["why_no_export"] = lambda self: "it has no format"
    if rng.random() < 0.1:
        kinds["may_cache"] = lambda self, graph: False
    with (
        tempfile.TemporaryDirectory() as name, device("keeps", **kinds) as accelerator,
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        for number in range(6):
            x = pt.variable(rng.choice(("x", "y")), "float32", (rng.choice((2, 3)), 3))
            body: Any = pt.op(rng.choice(("Relu", "Neg")), x, name=f"n{rng.randint(0, 1)}")
            if rng.random() < 0.3:
                body = pt.op("Add", body, pt.constant(np.full(3, rng.choice((1.0, 2.0)), np.float32)), name="sum")
            graph = pt.apply_pass(pt.Graph([body], [x], rng.choice(("one", "two"))), "InferShape")
            version[0] = rng.choice((1, 1, 1, 2))
            settings = {"LEVEL": rng.choice((1, 1, 2)), "CACHE_DIR": rng.choice((name, name, name, name, "off"))}
            config = accelerator.full_config(settings)
            made += [path for path in Path(name).glob("entries/*") if path not in made]  # one at most
            entries = [path for path in made if path.exists()]
            if entries and rng.random() < 0.2:
                entries[0].write_bytes(rng.choice((b"", entries[0].read_bytes()[:-1], entries[-1].read_bytes())))
            compiles = partial(compile_one, None, graph, None)
            found = compile_cached(accelerator, graph, config, compiles, rng.choice(("net", "other")))
            story = found.story
            assert story is not None
            yield f"{number} {story.from_cache} {story.because} {len(compiled)}"
            yield f"{getattr(found, 'names', None)} {[str(one.message) for one in warned]}".replace(name, "")
            del warned[:]
        listed = told(lambda: len(list(Path(name).glob("entries/*"))))
        yield f"{listed} {told(check_folder, accelerator, graph, {'CACHE_DIR': '/dev/null/x'})}"


def settings(rng: random.Random) -> Iterator[str]:
    """Keys, metrics and precisions of a device."""
    able = rng.choice((["FP32"], ["FP32", "FP16"], ["FP32", "BF16", "FP16"]))
    members: dict[str, Any] = {}
    if rng.random() < 0.7:
        members["metrics"] = lambda self: {
            "FULL_DEVICE_NAME": "mine", "OPTIMIZATION_CAPABILITIES": able, **ids,
        }
    ids = {"AVAILABLE_DEVICES": ["0", "1"]} if rng.random() < 0.7 else {}
    if rng.random() < 0.5:
        members["config_keys"] = {"LEVEL": 1, "PRECISION": "f32"}
    values: tuple[Any, ...] = (
        {}, {"LEVEL": 2}, {"KEY_LEVEL": 3}, {"DEVICE_ID": "1"}, {"DEVICE_ID": "2"}, {"PRECISION": "f16"}, {"PRECISION": "f8"},
        {"PRECISION": "bf16", "DEVICE_ID": "1"}, {"LEVL": 1}, {3: 4}, [1], {"PERF_COUNT": "yes"}, {"KEY_KEY_LEVEL": 1},
    )
    with device("mine", **members) as one:
        for value in values:
            yield f"{value} {told(one.full_config, value)}"
        keys: tuple[Any, ...] = ("METRIC_FULL_DEVICE_NAME", "METRIC_KEY_SUPPORTED_METRICS", "SUPPORTED_CONFIG_KEYS", "NO", 3)
        for key in ("AVAILABLE_DEVICES", *keys):
            yield f"{key} {told(one.get_metric, key)}"
        yield told(one.get_metric, "FULL_DEVICE_NAME", {"LEVEL": 3})
        yield f"{one.configured({}) is one} {one.configured({'LEVEL': 1}) is one} {one.configured({'LEVEL': 4}) is one}"
        yield f"{told(one.set_config, {'LEVEL': 5})} {told(one.get_config, 'LEVEL')} {told(one.get_config, 'KEY_LEVEL')}"
        yield f"{told(one.get_config, 'LEVL')} {told(one.set_config, {'LEVL': 5})}"
        yield f"{told(one.to_device, np.ones(2))} {one.labelled('3')} {one.beneath()}"


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "store": store, "damaged": damaged, "wait": wait, "slots": slots, "cores": count_cores, "ranges": ranges, "turns": turns,
    "costs": costs, "chain": chain, "triton": written_for_triton, "picture": picture, "at once": at_once, "cached": cached,
    "settings": settings, "package": packaged, "child": in_child, "pace": pace,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "resources", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
