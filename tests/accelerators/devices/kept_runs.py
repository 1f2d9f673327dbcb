"""Small models on devices of numpy: all that is said of each compiled model, what its calls return, and each error that a wrong
argument raises. The clock of profiles is one that counts.

`python -m tests.accelerators.devices.kept_runs` writes the file that `test_kept_runs.py` compares with anew."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console

import partita as pt
from partita.accelerators.runtime import profile
from tests.accelerators.hetero.small_devices import RanOnDevice, device
from tests.kept import write_kept

KEPT = Path(__file__).with_name("kept_runs.txt")

MODELS = {
    "plain": "graph plain(x: float32[2, 3]) -> (y) { w = const float32[3] [1.0, -2.0, 3.0] a = Add(x, w) y = Relu(a) }",
    "two": (
        "graph two(x: float32[2, 3], z: float32[3]) -> (y, again=y, x, w, s) { w = const int64[2] [7, 8] a = Add(x, z)"
        " y = Relu(a) e = Exp(y) s = Sub(e, x) gone = Neg(e) }"
    ),
    "sizes": (
        "graph sizes(x: float32[N, 3], z: float32[N, M]) -> (y, t) { w = const float32[3] [1.0, 2.0, 3.0] a = Mul(x, w)"
        " y = Concat(a, z) {axis=1} r = Relu(z) t = Shape(r) }"
    ),
    "types": (
        "graph types(h: float16[2], b: bfloat16[2], k: bool[2], u: uint8[2], c: complex64[1], t: string[2]) -> (y, v, n, q, d, t)"
        " { y = Add(h, h) v = Neg(b) n = Not(k) q = Add(u, u) d = Identity(c) }"
    ),
    "lists": (
        "graph lists(s: sequence(float32[?]), i: int64[]) -> (y, z) { a = SequenceAt(s, i) y = Relu(a) z = SequenceInsert(s, y) }"
    ),
    "branches": (
        "graph branches(c: bool[], x: float32[2]) -> (y) { r = Relu(x) y = If(c) {"
        " then_branch=graph yes(u) -> (p) { p = Exp(u) }, else_branch=graph no(v) -> (n) { n = Neg(v) }, } captures(r) }"
    ),
    "indices": (
        "graph indices(x: float32[4, 3], i: int64[2], k: int32[3]) -> (y, z) { y = Gather(x, i) a = Exp(y)"
        " s = const int64[2] [1, 3] r = Reshape(k, s) j = Cast(r) {to=7} z = GatherElements(a, j) }"
    ),
    "constants": "graph constants() -> (y, w) { w = const float32[2] [1.0, -1.0] y = Relu(w) }",
    "chance": "graph chance(x: float32[2]) -> (y) { r = RandomUniform() {shape=[2], seed=1.0} a = Mul(r, x) y = Sign(a) }",
    "empty": "graph empty(x: float32[0, 3]) -> (y, m) { y = Relu(x) m = ReduceSum(y) {keepdims=0} }",
    "chain": (
        "graph chain(x: float32[8, 8]) -> (y) { a = Relu(x) b = Exp(a) c = Neg(b) d = Abs(a) e = Add(c, d) f = Tanh(e)"
        " g = Mul(f, a) y = Sub(g, x) }"
    ),
    "claims": (
        "graph claims(x: float32[N, 3], n: int64[2]) -> (y) { a = Relu(x) y = Reshape(a, n) : float32[N, 3] }"
    ),
    "placed": (
        "graph placed(x: float32[2]) -> (y, z) { a = Relu(x) @beta b = Exp(a) @toy y = Neg(b) @toy z = Add(b, a) @alpha }"
    ),
}

DEVICES = ("reference", "HETERO:alpha,beta", "HETERO:breaks,toy,alpha,reference", "MULTI:alpha,beta")

SETTINGS: dict[str, dict[str, Any]] = {
    "measured": {"PERF_COUNT": True}, "in parallel": {"PARALLEL": True}, "one by one": {"PARALLEL": False},
    "as a pipeline": {"PIPELINE": True, "NUM_REQUESTS": 2}, "checksums": {"RECORD": "checksums"}, "nan": {"RECORD": "nan"},
    "sample": {"RECORD": "sample:1"}, "strict": {"STRICT": True}, "of a device": {"beta": {"LEVEL": 3, "PERF_COUNT": True}},
    "unknown": {"LEVELS": 3}, "of another device": {"gamma": {"LEVEL": 3}}, "without a device": {"LEVEL": 3},
    "no number": {"NUM_REQUESTS": "many"}, "no mode": {"RECORD": "sample:0"}, "no word": {"QUEUE_FULL": "errors"},
    "no time": {"REQUEST_SECONDS": -1}, "a key of its own": {"beta": {"LEVELS": 3}}, "no dictionary": {"beta": 3},
    "pinned": {"pin": {"a": "beta", "Exp": "alpha"}}, "pinned to none": {"pin": {"a": "gamma"}},
    "pinned where it cannot be": {"pin": {"s": "alpha", "c": "alpha", "y": "alpha"}}, "forbidden": {"forbid": {"Relu": "alpha"}},
    "forbidden twice": {"forbid": {"Relu": ["alpha", "beta"]}}, "no op": {"pin": {"nothing": "alpha"}},
    "large subgraphs": {"min_subgraph_size": 2}, "of no size": {"min_subgraph_size": 0}, "named": {"name": "other"},
    "sized": {"shapes": {"x": (4, 3)}}, "sized wrongly": {"shapes": {"y": (4, 3)}}, "optimized": {"optimize": True},
}
"""Options of `compile`; in capitals, and by device, those of its configuration."""

SUBJECTS = [
    *[f"{model} | {name} | " for model in MODELS for name in DEVICES],
    "placed | HETERO:alpha,beta,toy,reference | ",
    *[f"{model} | HETERO:alpha,beta | {setting}" for model in ("chain", "two", "sizes") for setting in SETTINGS],
]

TIMES = re.compile(r"\d+\.\d+ s\b")
"""Times of compilation."""


def graph_of(name: str) -> pt.Graph:
    return pt.parse(f"opset 21\n{MODELS[name]}")


@contextlib.contextmanager
def devices() -> Iterator[None]:
    """Devices of few ops, one that fails to compile, and one with a memory of its own."""
    with (
        device("alpha", "Relu Add Exp Mul Sub Gather Identity Concat"),
        device("beta"),
        device("breaks", "Relu Neg Tanh Gather", "Neg Gather"),
        device("toy", "Neg Exp Add Abs Tanh", subgraph_type=RanOnDevice),
    ):
        yield


def inputs_of(graph: pt.Graph, rows: int = 2) -> list[Any]:
    """An array for each input; integers are indices within bounds."""
    listed: list[Any] = []
    for number, node in enumerate(graph.inputs):
        kind = node[0].type
        if isinstance(kind, pt.SequenceType):
            listed.append([np.arange(3, dtype=np.float32) - 1, np.full(2, 2.5, np.float32)])
            continue
        assert isinstance(kind, pt.TensorType)
        shape = [size if isinstance(size, int) else rows for size in kind.shape or ()]
        count = int(np.prod(shape))
        if kind.dtype == "string":
            listed.append(np.array(["a", "bc"] * count, object)[:count].reshape(shape))
        elif kind.dtype == "int64" and node.name == "n":
            listed.append(np.array([-1, 3]))
        else:
            steps = np.arange(count) % 2 if kind.dtype in ("int64", "int32", "bool") else np.arange(count) / 2 - 1 + number
            listed.append(np.asarray(steps).astype(pt.graph.types.numpy_dtype(kind.dtype)).reshape(shape))
    return listed


def described(value: Any) -> str:
    """The type and the elements of a value."""
    if isinstance(value, np.ndarray):
        listed = value.astype(str if value.dtype == object else np.complex64 if value.dtype.kind == "c" else np.float32)
        shown = " ".join(f"{x:.4g}" if value.dtype != object else str(x) for x in listed.ravel()[:12])
        return f"{value.dtype.name}{list(value.shape)}({shown})"
    if isinstance(value, (list, tuple, pt.accelerators.arrays.outputs.Outputs)):
        return f"{type(value).__name__}[{', '.join(map(described, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {described(item)}' for key, item in value.items())}}}"
    return str(value)


def said(action: Callable[[], Any]) -> str:
    """The result of the action, or its error."""
    try:
        return described(action())
    except Exception as error:  # noqa: BLE001  (the kind and the text are kept)
        return f"{type(error).__name__}: {error}"


def printed(*values: Any) -> str:
    """These as rich prints them."""
    with io.StringIO() as file:
        Console(file=file, width=160, color_system=None).print(*values)
        return TIMES.sub("? s", file.getvalue())


def shown(value: Any) -> str:
    """The view in a notebook."""
    return str(value._repr_mimebundle_()["text/html"])


def wrong_calls(graph: pt.Graph, inputs: list[Any]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Arguments with something changed: the name of each, and the arguments."""
    names = [node.name for node in graph.inputs]
    by_name = dict(zip(names, inputs))
    yield "one dictionary", (by_name,), {}
    yield "by name", (), by_name
    yield "another name", (), {**by_name, "nothing": 1}
    yield "too many", (*inputs, *inputs, None), {}
    if not inputs:
        return
    yield "none", (), {}
    yield "the first twice", (*inputs,), {names[0]: inputs[0]}
    yield "a dictionary and more", (by_name, *inputs), {}
    yield "the last is missing", tuple(inputs[:-1]), {}
    yield "a name that is nearly one", (), {**dict(list(by_name.items())[1:]), f"{names[0]}_": inputs[0]}
    yield "tuples", tuple([tuple(x) for x in inputs if getattr(x, "ndim", 1)]), {}
    for number, array in enumerate(inputs):
        for title, other in others(array):
            yield f"{names[number]} {title}", (*inputs[:number], other, *inputs[number + 1 :]), {}


def others(array: Any) -> Iterator[tuple[str, Any]]:
    """Other values in place of an array."""
    yield "None", None
    yield "a word", "word"
    if not isinstance(array, np.ndarray):
        yield "a tuple", tuple(array)
        yield "an array", np.zeros(2, np.float32)
        return
    yield "as a list", array.tolist()
    yield "as float64", array.astype(str if array.dtype == object else np.float64 if array.dtype.kind != "c" else np.complex128)
    yield "as int8", np.zeros(array.shape, np.int8)
    yield "one dimension more", array[None]
    yield "one row more", np.concatenate([array, array[:1]]) if array.ndim and array.size else np.zeros((3, 7), array.dtype)
    yield "backwards", array[::-1] if array.ndim else array
    yield "by columns", np.asfortranarray(array)
    yield "a number", 3
    yield "a fraction", 2.5
    yield "large", np.full(array.shape, 300).tolist()
    yield "yes", np.ones(array.shape, bool).tolist()
    if array.dtype.kind in "iu":
        yield "far", array + np.asarray(90, array.dtype)
        yield "below", array - np.asarray(3, array.dtype)
    if array.dtype == np.float32:
        yield "in foreign order", array.astype(">f4")
        yield "masked", np.ma.masked_greater(array, 0)
        yield "a part", np.repeat(array, 2, -1)[..., ::2] if array.ndim else array


def outs(model: Any, outputs: list[Any]) -> Iterator[tuple[str, Any]]:
    """Values of `out`: the name of each, and the value."""

    def blank() -> list[Any]:
        return [np.zeros_like(x) if isinstance(x, np.ndarray) else None for x in outputs]

    first = blank()[0]
    yield "arrays", blank()
    yield "the first alone", blank()[0]
    yield "by name", dict(zip(model.graph.output_names, blank()))
    yield "another name", {"nothing": first}
    yield "too few", blank()[:-1]
    yield "a number", 3
    yield "a word", "word"
    yield "device", "device"
    yield "words", ["device"] * len(outputs)
    yield "one for all", [first] * len(outputs)
    if isinstance(first, np.ndarray):
        fixed = np.zeros_like(first)
        fixed.flags.writeable = False
        rest = [None] * (len(outputs) - 1)
        yield "read-only", [fixed, *rest]
        yield "of other sizes", [np.zeros((9, *first.shape), first.dtype), *rest]
        yield "of another type", [np.zeros(first.shape, np.int16), *rest]
        yield "backwards", [np.zeros_like(first)[..., ::-1] if first.ndim else np.zeros_like(first), *rest]


def told(model: pt.CompiledModel) -> Iterator[tuple[str, str]]:
    """All that is said of a model."""
    report = model.report
    yield "repr", repr(model)
    yield "report", TIMES.sub("? s", f"{report!r}\n{report}\n{report.compiling()}")
    yield "tables", printed(model.properties, report, report.placement)
    yield "data", json.dumps({**report.to_dict(), "subgraphs": [(row.name, row.ops, row.why) for row in report.subgraphs]})
    yield "page", TIMES.sub("? s", "".join(map(shown, (model, report, report.placement))))
    for name in report.placement:
        yield f"why {name}", report.why(name)
    for name in ("nothing", *[node.name for node in report.placement.graph.inputs][:1]):
        yield f"why {name}", said(lambda name=name: report.why(name))
    yield "units", str([(unit.title, unit.memory, list(unit.ops)) for unit in model.units])
    yield "fusions", str(model.fusions)


def measured(model: pt.CompiledModel, inputs: list[Any]) -> Iterator[tuple[str, str]]:
    """The profile of a model, by a clock that counts."""
    ticks = itertools.count(0, 1500)
    with mock.patch.object(profile, "perf_counter_ns", lambda: next(ticks) * 1000), mock.patch.object(
        profile, "thread_time_ns", lambda: next(ticks) * 700
    ):
        found = model.profile(*inputs)
    yield "profile", f"{found!r}\n{found}"
    yield "profile as a table", printed(found, found.to_table(2)) + found.to_json()
    yield "profile as a picture", shown(found) + json.dumps(found._events())


def timed(model: pt.CompiledModel, inputs: list[Any]) -> str:
    """The steps of two calls, by name: devices may work at the same time."""
    with model.timeline() as timeline:
        model(*inputs)
        model.start(*inputs).result(60)
    return str(sorted((lap.request, lap.name, lap.device, lap.is_copy) for lap in timeline.laps))


def packaged(model: pt.CompiledModel, inputs: list[Any]) -> Iterator[tuple[str, str]]:
    """The model after it was written to a file and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.partita"
        yield "exported", said(lambda: model.export(path)).replace(folder, "")
        if path.exists():
            again = pt.import_model(path)
            yield "imported", f"{again!r}\n{again.properties}\n{again.report}\n{described(again(*inputs))}"


def answers(subject: str) -> Iterator[tuple[str, str]]:
    """The answers of one subject, each with its name."""
    name, asked, setting = subject.split(" | ")
    graph = graph_of(name)
    try:
        model = compiled(graph, asked, SETTINGS.get(setting, {}))
    except pt.PartitaError as error:
        yield "refused", f"{type(error).__name__}: {error}"
        return
    with model:
        inputs = inputs_of(graph)
        if setting:
            yield from configured(model, inputs)
            return
        yield from told(model)
        outputs = model(*inputs)
        yield "outputs", f"{outputs!r} {outputs.names} {described(outputs)} {said(lambda: outputs['nothing'])}"
        yield "started", said(lambda: model.start(*inputs).result(60))
        if not any(isinstance(x, list) or x.dtype == object for x in inputs):
            yield "made up", said(lambda: model.example_inputs(seed=3, size=2))
        yield "more rows", said(lambda: model(*inputs_of(graph, 5)))
        for title, args, named in wrong_calls(graph, inputs) if asked in DEVICES[:2] else ():
            yield f"with {title}", said(lambda args=args, named=named: model(*args, **named))
        for title, out in outs(model, list(outputs)) if asked in DEVICES[2:] else ():
            yield f"out {title}", f"{said(lambda out=out: model(*inputs, out=out))} {described(out)}"
        if asked == "HETERO:alpha,beta":
            yield from measured(model, inputs)
        if asked.startswith("HETERO"):
            yield "timeline", said(lambda: timed(model, inputs))
        yield from packaged(model, inputs)
    yield "closed", said(lambda: model(*inputs))
    yield "closed, started", said(lambda: model.start(*inputs).result(60))
    yield "closed, measured", said(lambda: model.profile(*inputs))


def compiled(graph: pt.Graph, asked: str, setting: dict[str, Any]) -> pt.CompiledModel:
    """The compiled model, with options."""
    options = {key: value for key, value in setting.items() if key.islower() and key not in ("beta", "gamma")}
    config = {key: value for key, value in setting.items() if key not in options}
    return pt.compile(graph, asked, config or None, **options)


def configured(model: pt.CompiledModel, inputs: list[Any]) -> Iterator[tuple[str, str]]:
    """The changes in a model by its settings."""
    yield "settings", f"{model.settings}\n{[unit.config for unit in model.units]}"
    yield "report", TIMES.sub("? s", str(model.report))
    yield "output", said(lambda: model(*inputs))
    yield "recorded", str(model.recorded)
    yield "outputs", said(lambda: [model(*inputs), *[model.start(*inputs).result(60) for _ in range(3)]])
    with np.errstate(all="ignore"):
        yield "with NaN", said(lambda: model(*[np.full_like(x, np.nan) for x in inputs]))
    yield "pipelined", str(model.pipelined)
    yield "rows", said(lambda: [f"{row.node} {row.status} {row.device} {row.exec_type}" for row in model.profile(*inputs).rows])


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject: short answers as they are, of long ones a sum."""
    with devices(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        listed = [*answers(subject)]
    listed += [("warning", str(each.message)) for each in warned if each.category is UserWarning]
    return [f"{subject} | {name} | {shortened(text)}" for name, text in listed]


def shortened(text: str) -> str:
    text = text.strip()
    return repr(text) if len(text) <= 240 else f"{len(text)} characters, {zlib.crc32(text.encode()):08x}"


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
