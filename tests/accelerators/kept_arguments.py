"""Readings of drawn arguments of calls, device names and configurations, and messages about them; values as messages between
processes; the form of untrusted data; profiles and benchmarks of drawn times; and ops over nothing.

`python -m tests.accelerators.kept_arguments` writes the file that `test_kept_arguments.py` compares with anew."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console

import partita as pt
from partita.accelerators.arrays.inputs import InputChecker, out_arrays
from partita.accelerators.arrays.layout import aligned_empty, aligned_zeros, array_ids, array_layout, is_laid_out, laid_out, owned
from partita.accelerators.interface import keys
from partita.accelerators.interface.cached_attention import cached_attention, says_what_it_is
from partita.accelerators.interface.device_list import asked_devices, find_device, parse_auto, parse_devices
from partita.accelerators.interface.empty_reductions import axes_of, may_be_empty, may_reduce_nothing, sums_nothing
from partita.accelerators.interface.settings import read_config, settings_of_file, with_key
from partita.accelerators.process.json_form import form_error
from partita.accelerators.process.memory import Packing, SharedMemory, described
from partita.accelerators.process.messages import config_of, config_told, error_of, error_told
from partita.accelerators.runtime.pipeline import PipelineTrial
from partita.accelerators.runtime.profile import Measurement, Row, Span, _unit_rows, profile_of
from partita.compare import Difference
from partita.measuring.bench_report import report
from partita.measuring.rounds import Contender, Effort
from tests.accelerators.hetero.small_devices import device
from tests.kept import lines_of, write_kept

KEPT = Path(__file__).with_name("kept_arguments.txt")

COUNTS = {
    "call": 80, "out": 60, "laid": 16, "keys": 1, "devices": 1, "config": 60, "message": 50, "form": 60, "trial": 40,
    "profile": 30, "bench": 20, "empty": 300, "attention": 16,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]

DTYPES = ("float32", "float32", "int64", "uint8", "bool", "float16", "string", "bfloat16", "complex64")


def told(call: Callable[..., Any], *args: Any) -> str:
    """What a call returns, or the error."""
    try:
        return shown(call(*args))
    except pt.PartitaError as error:
        return f"{type(error).__name__}: {error}"


def shown(value: Any) -> str:
    """A value without addresses."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}{value.reshape(-1)[:4].tolist()}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {shown(item)}' for name, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{', '.join(map(shown, value))}]"
    return str(value) if not isinstance(value, (str, float)) else repr(value)


def wide(*things: Any) -> str:
    """Tables as a wide terminal shows them, as a sum."""
    out = io.StringIO()
    Console(file=out, width=240, color_system=None).print(*things)
    return f"{len(out.getvalue().splitlines())} {zlib.crc32(out.getvalue().encode()):08x}"


def model_of(rng: random.Random) -> pt.Graph:
    inputs = []
    for name in ("first", "second", "third")[: rng.randint(0, 3)]:
        shape = rng.choice(((2, 3), (2,), (), ("n", 3), ("n",), (None, 2), None))
        kind: Any = pt.TensorType(rng.choice(DTYPES), shape)
        if rng.random() < 0.08:
            kind = rng.choice((None, pt.SequenceType(kind)))
        inputs.append(pt.variable(name, type=kind))
    return pt.Graph([pt.op("Identity", node) for node in inputs] or [pt.constant(np.ones(2, "f"))], inputs, "small")


def value_of(rng: random.Random) -> Any:
    shape = rng.choice(((2, 3), (2, 3), (2,), (4, 3), (), (5,), (0,)))
    dtype = rng.choice(("float32", "float32", "float64", "int64", "uint8", "bool", "float16", ">f4", "U3", "complex64"))
    array = np.ones(shape, dtype)
    return rng.choice((
        array, array, array, array, array.tolist(), 3, 300, -1, 2.5, 1e30, True, "text", None, {3}, 1 + 2j, {"a": 1},
        array.T, np.ma.masked_array(array, array == 1), np.float32(2), [array, array], (1, 2), [1.5, 2],
    ))


def call(rng: random.Random) -> Iterator[str]:
    """The arrays that a checker finds in arguments."""
    checker = InputChecker(model_of(rng))
    yield str([str(spec) for spec in checker.specs])
    yield told(lambda: [(np.shape(value), getattr(value, "dtype", None)) for value in checker.made_up(1, 2)])
    names = ("first", "second", "third", "secnd")
    for _ in range(8):
        chance = rng.random()
        if chance < 0.5:
            args = [value_of(rng) for _ in checker.specs[: len(checker.specs) - (rng.random() < 0.1)]]
            named = {rng.choice(names): value_of(rng)} if rng.random() < 0.15 else {}
        elif chance < 0.6:
            args, named = [value_of(rng) for _ in range(4)], {}
        else:
            args, named = [], {spec.name: value_of(rng) for spec in checker.specs}
            if rng.random() < 0.2:
                named[rng.choice(names)] = value_of(rng)
            if rng.random() < 0.5:
                args, named = [named], {}
                args += [3] if rng.random() < 0.1 else []
        yield told(checker.arrays, args, named)[:300]
        yield told(checker.some, {name: value_of(rng) for name in names[: rng.randint(0, 3)]})[:300]


def out(rng: random.Random) -> Iterator[str]:
    """The arrays for outputs."""
    names = ["first", "second"][: rng.randint(1, 2)]
    kinds = (pt.TensorType("float32", (2, 3)), pt.TensorType("float32", ("n", 3)), pt.TensorType("int8", None), None)
    types = [rng.choice(kinds) for _ in names]
    base = np.zeros((4, 3), np.float32)
    frozen = np.zeros((2, 3), np.float32)
    frozen.setflags(write=False)
    arrays = (np.zeros((2, 3), np.float32), np.zeros((5, 3), np.float32), np.zeros((2, 3), np.int8), base[:2], base[1:3],
              base[2:], frozen, None, "device", "elsewhere", 3)
    for _ in range(6):
        given: Any = [rng.choice(arrays) for _ in names]
        given = rng.choice((given, tuple(given), given[0], dict(zip(names, given)), {"frist": None}, [*given, None]))
        yield told(out_arrays, given, names, types, "m")


def laid(rng: random.Random) -> Iterator[str]:
    """Whether arrays are laid out as a device wants them, and whose they are."""
    raw = np.zeros(4096, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    offset = rng.choice((0, 4, 16, 32, 64))
    array = raw[start + offset : start + offset + 96].view(np.float32).reshape(4, 6)
    array = rng.choice((array, array.T, array[:, ::2], array[1:]))
    if rng.random() < 0.3:
        array.setflags(write=False)
    for alignment in (1, 8, 16, 32, 64):
        found = laid_out(array, alignment)
        yield f"{alignment} {is_laid_out(array, alignment)} {found is array} {is_laid_out(found, alignment)} {shown(found)}"
        for made in (aligned_empty((3, 5), np.dtype("f4"), alignment), aligned_zeros((3, 5), np.dtype("f4"), alignment)):
            yield f"{made.shape} {made.__array_interface__['data'][0] % alignment}"
    whole, text = np.ones((2, 2), np.float32), np.array(["a"], object)
    values = [whole, whole, whole.T, whole[:1], [whole, text], 3, np.ones(2, np.float32)]
    rng.shuffle(values)
    target = np.zeros((2, 2), np.float32)
    outs = [rng.choice((None, None, target)) for _ in values]
    foreign = array_ids([rng.choice(values)])
    kept = owned(values, foreign, outs if rng.random() < 0.5 else None)
    yield str([(a is b, a is target) for a, b in zip(kept, values)])
    kinds = [pt.TensorType(*kind) for kind in (("float32", (2, 3)), ("string", (2,)), ("int4", (2,)), ("int8", ("n",)))]
    yield str([array_layout(kind) for kind in (*kinds, None)])


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 1024, 1025, 2.5, 0.0, float("nan"), float("inf"), 1e12, "", "on", "OFF", "yes", "No", "TRUE",
    "1", "0", "none", "12", "-3", "1.5", "a b", "AUTO", "auto", "checksums", "NaN", "sample:10", "sample:0", "sample:",
    "sample:x", [], ["a"], ("a", 1), {"a": 1}, {1: 2}, np.int64(3), np.float32(0.5), np.bool_(True), b"x", "first", "frist",
    Path("x"),
)


def read_keys(rng: random.Random) -> Iterator[str]:
    """What each check of a key makes of values."""
    checks = {
        "flag": keys.flag, "count": keys.count, "positive": keys.positive, "natural": keys.natural, "seconds": keys.seconds,
        "callback": keys.callback, "mapping": keys.mapping, "texts": keys.texts, "text": keys.text, "cache": keys.cache_folder,
        "folder": keys.folder_or_flag, "record": keys.record, "auto": keys.flag_or_auto, "one of": keys.one_of("first", "second"),
        "none": keys.one_of(), "optional": keys.optional(keys.positive),
    }
    for name, check in checks.items():
        for value in VALUES:
            yield f"{name} {value!r}: {told(keys.Key(None, check).read, 'KEY', value, 'here')}"
    known = {"A": keys.Key(1, keys.positive), "B": keys.Key("x", names_files=True)}
    given = {"A": 2, "B": keys.Key(3, keys.natural), "C": "c"}
    yield str([(name, key.default, key.names_files, key.check is not None) for name, key in keys.declared(given, known).items()])


def labels_of(read: Callable[[Any], Any], wanted: Any) -> list[str]:
    return [getattr(one, "label", one) for one in read(wanted) or ()]


def read_devices(rng: random.Random) -> Iterator[str]:
    """What is read from the names of devices."""
    named: tuple[Any, ...] = (
        "alpha", "beta", "HETERO:alpha,beta", " HETERO : beta , alpha ", "hetero:alpha", "alpha,beta", "alpha:1", "ALPHA",
        "alpah", "", "HETERO:", "HETERO", "HETERO:alpha,alpha", "MULTI:alpha,beta", "MULTI:alpha", "multi:alpha, beta",
        "AUTO:alpha,beta",
        "auto: alpha ,", "AUTO", ["alpha", "beta"], ("beta",), [], ["alpha", 3], 3, np.ones(2), [np.ones(2)], "alpha.",
        "reference", "reference.1", ["HETERO"], "HETERO:HETERO",
    )
    with device("alpha"), device("beta", "Relu"):
        for wanted in named:
            for read in (parse_devices, asked_devices, parse_auto):
                yield f"{wanted!r}: {told(labels_of, read, wanted)}"
        both = parse_devices("HETERO:alpha,beta")
        for label in ("alpha", "beta", "bta", "zzz", 3):
            yield told(lambda given: find_device(given, both, "here").label, label)


def config(rng: random.Random) -> Iterator[str]:
    """What is read from a drawn configuration."""
    alone = rng.random() < 0.4
    names = ("NUM_REQUESTS", "QUEUE_SIZE", "QUEUE_FULL", "REQUEST_SECONDS", "PARALLEL", "PIPELINE", "STRICT", "START", "LEVL",
             "CAPSULES", "RECORD", "KEY_STRICT", "LEVEL", "KEY_LEVEL", "PERF_COUNT", "START_WITH", "DEVICE_ID",
             "HETERO_DUMP_GRAPH_DOT")
    values = (1, 2, "wait", "error", "AUTO", True, False, None, 2.5, "sample:3", -1, "x")

    def drawn(count: int) -> dict[Any, Any]:
        return {rng.choice(names): rng.choice(values) for _ in range(rng.randint(0, count))}

    given: Any = drawn(2)
    if not alone or rng.random() < 0.3:
        labels = [label for label in ("alpha", "beta", "HETERO", "alhpa") if rng.random() < 0.3]
        given |= {label: rng.choice((drawn(2), drawn(1), 3)) for label in labels}
    given = rng.choice((given, given, given, given, None, [1], {1: 2}))
    with device("alpha"), device("beta", "Relu"):
        devices = parse_devices("alpha" if alone else "HETERO:alpha,beta")

        def read() -> Any:
            found = read_config(given, devices)
            by_device = {label: dict(sorted(one.items())) for label, one in found.by_device.items()}
            return [str(found.hetero), by_device, {label: sorted(said) for label, said in found.said.items()},
                    [str(found.of(one, i == 0).hetero.dot_folder) for i, one in enumerate(devices)]]

        yield f"{given!r}: {told(read)}"
        if isinstance(given, dict) and all(isinstance(key, str) for key in given):
            asked = "alpha" if alone else "HETERO:alpha,beta"
            if not any(given.get(label) == 3 for label in ("alpha", "beta")):
                yield told(lambda: with_key(given, asked, rng.choice(("LEVEL", "PERF_COUNT", "NO")), 7))
    fields = {"strict": rng.choice(values), "requests": rng.choice(values), "start": "now", "record": rng.choice(values)}
    yield told(lambda: str(settings_of_file(fields, "the file")))


def message(rng: random.Random) -> Iterator[str]:
    """Values in shared memory, configurations and errors, there and back."""
    random = np.random.default_rng(rng.randrange(10**6))

    def drawn() -> Any:
        array = random.integers(0, 9, rng.choice(((2, 3), (), (0, 2), (70,))))
        return rng.choice((
            array.astype(rng.choice(("f4", "i8", "u1", ">f4", "?", "c8", "f2"))), array.astype(ml_dtypes.bfloat16),
            array.astype(ml_dtypes.int4), None, b"bytes", bytearray(b""), np.array(["a", b"b", "long"], object), np.float32(2.5),
            [array, None, [array]], array.T, "text", 3, np.array([object()])[:0],
        ))

    packing, memory = Packing(), SharedMemory()
    values = [drawn() for _ in range(4)]
    told_of = []
    for value in values:
        try:
            told_of.append(packing.describe(value))
        except pt.PartitaError as error:
            yield str(error)
    told_of.append(packing.room(np.dtype("f8"), (3, 2)))
    packing.write(memory)
    through = json.loads(json.dumps(told_of))
    yield f"{packing.end} {through}"
    yield f"{[shown(described(one, memory)) for one in through[:-1]]} {described(through[-1], memory).shape}"
    del values
    memory.close()
    plain = (1, 2.5, None, True, "x", Path("a/b"), [1, (2, "y")], {"k": [Path("c")]}, object, {1: 2}, np.int64(3), {"path": "p"})
    chosen = {f"K{i}": rng.choice(plain) for i in range(3)}
    yield told(lambda: [config_told(chosen, "here"), config_of(json.loads(json.dumps(config_told(chosen, "here"))))])
    errors = (pt.NotSupported("no", where="w", remedy="r"), pt.PartitaError("c"), ValueError("v"), KeyError("k"), OSError())
    said = error_told(rng.choice(errors))
    yield f"{said} {error_of(said, 'there')!r} {error_of({**said, 'kind': 'Nothing'}, 'there')}"


def form(rng: random.Random) -> Iterator[str]:
    """The first part of drawn data that has another form."""
    wanted: Any = {"a": int, "b": [str], "c": {str: float}, "d": {"e": bool, "f": [{"g": int}]}}
    content: Any = {"a": 1, "b": ["x", "y"], "c": {"p": 1, "q": 2.5}, "d": {"e": True, "f": [{"g": 3}, {"g": 4}]}, "more": None}
    yield str(form_error(content, wanted))
    odd = (None, 1, 1.5, True, "x", [], {}, [1], {"e": 1}, float("nan"), float("inf"), 10**400, [{"g": "h"}])
    for _ in range(4):
        changed = json.loads(json.dumps(content))
        place = rng.choice((changed, changed["d"], changed["c"], changed["d"]["f"][1]))
        key = rng.choice([*place])
        if rng.random() < 0.2:
            del place[key]
        else:
            place[key] = rng.choice(odd)
        yield str(form_error(changed, wanted))
    yield str(form_error(rng.choice(odd), rng.choice((wanted, [int], str, float, bool, int))))


def trial(rng: random.Random) -> Iterator[str]:
    """The way that is chosen of two whose requests take drawn times."""
    now = [0.0]
    tried = PipelineTrial(rng.choice((None, None, None, True)), lambda: now[0])
    times = {False: rng.choice((1.0, 2.0)), True: rng.choice((0.85, 0.95, 1.0, 1.85))}
    running: list[Any] = []
    ways = []
    idle = rng.choice((0.0, 0.0, 0.02))
    fails = rng.choice((0.0, 0.01))
    for _ in range(200):
        window = tried.begin()
        if window is None:
            break
        ways.append(window.in_turn)
        running.append(window)
        if len(running) > 1 or rng.random() < idle:
            for one in [running.pop(0)] if len(running) > 1 else [running.pop()]:
                now[0] += times[one.in_turn]
                tried.end(one, rng.random() >= fails)
    runs = [(way, len([*group])) for way, group in itertools.groupby(ways)]
    yield f"{times} {tried.decided} {len(ways)} {runs}"


def profile(rng: random.Random) -> Iterator[str]:
    """Several measured runs as one profile: as text, as a table, as data and for a trace viewer."""
    measured = []
    steps = [(f"s{i}", rng.choice(("one", "two")), rng.randint(1, 3)) for i in range(rng.randint(1, 3))]
    kinds = rng.choice((("",), ("", "float32"), ("", "float16")))
    for number in range(rng.randint(1, 4)):
        one = Measurement()
        for name, label, count in steps:
            rows = tuple([
                Row(name, i + 1, rng.choice((f"n{i}", f"n{i}", name)) if number == 0 else f"n{i}",
                    rng.choice(("EXECUTED", "EXECUTED", "OPTIMIZED_OUT")), "Relu", float(rng.randint(0, 4000)),
                    float(rng.randint(0, 900)), label, "kernel", rng.choice(kinds))
                for i in range(count)
            ])
            total = sum(row.real_us for row in rows)
            one.spans.append(Span(name, label, one.total_us, total, rows))
            one.total_us += total
        one.elapsed_us = one.total_us + rng.choice((0.0, 0.0005, 30.0))
        one.outside_cpu_us = 1.5 * number
        measured.append(one)
    dead = [pt.op("Neg", pt.variable("x", "float32", (2,)), name="gone")] if rng.random() < 0.3 else []
    found = profile_of(measured, "model", "the inputs given", dead)
    yield str(found)
    yield f"{found!r} {wide(found)} {wide(found.to_table(2))}"
    body = SimpleNamespace(inputs=[SimpleNamespace(name="x")], output_names=["y"],
                           nodes=[SimpleNamespace(name=f"n{i}", op="Neg", is_op=i != 1) for i in range(rng.randint(1, 4))])
    unit = SimpleNamespace(name="unit", title="unit", device=SimpleNamespace(label="one"), ops=["n0"], body=body)
    names = ("n0", "n2", "input 0", "output 0", "other")
    rows = [
        pt.ProfileRow(rng.choice(names), rng.choice(("Copy", "Neg")), "EXECUTED", 2.0, 1.0, "k") for _ in range(rng.randint(0, 3))
    ]
    step: Any = SimpleNamespace(unit=unit)
    yield str(_unit_rows(step, rows, 5.0, 4.0))
    yield f"{zlib.crc32(found.to_json().encode()):08x} {json.dumps(found._events())}"


def bench(rng: random.Random) -> Iterator[str]:
    """A benchmark of drawn times."""
    def contender(name: str) -> Contender:
        model: Any = SimpleNamespace(properties=SimpleNamespace(subgraphs=rng.randint(1, 3)), graph=SimpleNamespace(name="net"))
        one = Contender(name, len, model, rng.choice((None, 1.25)))  # type: ignore[arg-type]
        one.rounds = [[float(rng.randint(1, 40)) / 8 for _ in range(rng.randint(1, 5))] for _ in range(3)]
        one.rates = [float(rng.randint(1, 100)) for _ in range(rng.choice((0, 3)))]
        one.outputs = [Difference("y", rng.choice((0.0, 0.004, 0.5)), (1,), False) for _ in range(rng.randint(0, 2))]
        return one

    first, *others = [contender(name) for name in ("cpu", "HETERO:a,b", "mine")[: rng.randint(1, 3)]]
    if others and rng.random() < 0.5:
        others[-1].model = None
    inputs = rng.choice(({"n": np.float32(3), "x": np.ones((3, 2), "f")}, {}, {"n": np.ones((), "f")}))
    found = report([first, *others], inputs, Effort(streams=rng.randint(1, 3)), {"gone": "it has no Relu"}, False)
    yield str(found)
    yield f"{found!r} {json.dumps(found.to_dict())}"


def empty(rng: random.Random) -> Iterator[str]:
    """Ops that combine elements of which there may be none."""
    def size() -> Any:
        return rng.choice((0, 1, 2, 3, "n", "m", None))

    x = pt.variable("x", "float32", rng.choice(((size(), size(), 4), (size(),), (), None)))
    n = pt.variable("given", "float32", ("n",))
    axes = pt.variable("axes", "int64", (1,))
    kind = rng.choice("ReduceSum ReduceMax ArgMax MatMul Conv Concat RNN Relu GlobalAveragePool Expand".split())
    options: dict[str, Any] = {}
    inputs: list[Any] = [x]
    if kind.startswith("Reduce"):
        inputs += rng.choice(([], [pt.constant(np.array([rng.choice((0, 1, -1, 5))]))], [axes], [None]))
        options = rng.choice(({}, {"keepdims": 0}))
    elif kind == "ArgMax":
        options = rng.choice(({}, {"axis": 1}, {"axis": -1}))
    elif kind not in ("Relu", "GlobalAveragePool"):
        count = 2 if kind == "RNN" else 1
        inputs += [pt.constant(np.ones(rng.choice(((4, 2), (0, 2), (2, 4, 1))), np.float32)) for _ in range(count)]
        options = {"Concat": {"axis": 0}, "RNN": {"hidden_size": 2}}.get(kind, {})
    node = pt.op(kind, *inputs, name="op", **options).evolve(domain=rng.choice(("", "", "", "mine")))
    outputs = (pt.TensorType("float32", (2, size())), None, pt.TensorType("float32", (0, 2)))
    types = tuple([rng.choice(outputs) for _ in node.output_types])
    node = node.evolve(output_types=types)
    if kind.startswith("Reduce") and rng.random() < 0.3:
        node = node.evolve(attrs={**node.attrs, "axes": [rng.choice((0, 1))]})
    graph = pt.Graph([node], [x, n, axes], "small")
    yield f"{kind} {x[0].type} {node.domain} {options} {types}"
    for asked in (lambda: sums_nothing(node), lambda: may_be_empty(node, graph), lambda: may_reduce_nothing(node, graph)):
        yield told(asked)
    if kind.startswith(("Reduce", "Arg")):
        yield told(lambda: axes_of(node))


def attention(rng: random.Random) -> Iterator[str]:
    """Attention over buffers: its body, and variations that are something else."""
    batch, groups, heads, rows = rng.randint(1, 2), rng.choice((1, 2)), rng.choice((2, 4)), rng.choice((1, 3))
    depth, positions = 4, 5
    shape, room = (batch, heads, rows, depth), (batch, groups, positions, depth)
    query = pt.variable("q", "float32", shape)
    buffers = [pt.variable(name, "float32", room) for name in ("k", "v")]
    new = [pt.variable(name, "float32", (batch, groups, rows, depth)) for name in ("nk", "nv")]
    length = pt.variable("length", "int64", (1,))
    window = rng.choice((0, 0, 2))
    node = cached_attention(query[0], (buffers[0][0], buffers[1][0]), (new[0][0], new[1][0]), length[0], shape, room,
                            rng.choice((1.0, 0.5)), "attention", window)
    yield f"{shape} {room} {window} {says_what_it_is(node)} {zlib.crc32(str(node.subgraph).encode()):08x}"
    array = np.random.default_rng(0).integers(-4, 5, 10**4).astype(np.float32) / 4
    values = [array[: math.prod(one[0].type.shape)].reshape(one[0].type.shape) for one in (query, *buffers, *new)]
    assert node.subgraph is not None
    answers = pt.compile(node.subgraph, "reference")(*values, np.array([3]))
    yield f"{[round(float(number), 3) for number in np.asarray(answers[0]).reshape(-1)[:6]]}"
    other = pt.variable("other", "float32", rng.choice((shape, room, (batch, 3, positions, depth), (1,), (batch, "n", 2, 2))))
    slot = rng.randrange(6)
    variations = [
        node.evolve(attrs={**node.attrs, "scale": 0.25}), node.evolve(attrs={**node.attrs, "window": 3}),
        node.evolve(op="Attention"), node.evolve(domain="mine"), node.evolve(inputs=(*node.inputs[:slot], other[0],
        *node.inputs[slot + 1 :])),
        node.evolve(inputs=node.inputs[:5]), node.evolve(inputs=(*node.inputs[:slot], None, *node.inputs[slot + 1 :])),
        node.evolve(inputs=(node.inputs[0], node.inputs[2], node.inputs[1], *node.inputs[3:])),
    ]
    yield f"{slot} {other[0].type} {[says_what_it_is(one) for one in variations]}"


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "call": call, "out": out, "laid": laid, "keys": read_keys, "devices": read_devices, "config": config, "message": message,
    "form": form, "trial": trial, "profile": profile, "bench": bench, "empty": empty, "attention": attention,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "arguments", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
