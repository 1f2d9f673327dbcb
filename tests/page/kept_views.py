"""Pages of drawn graphs and runs: sections, times, steps of calls, differences; rooflines; measurements by a clock that goes as
drawn; inputs from files; the providers of nodes; and the library that onnxruntime loads.

`python -m tests.page.kept_views` writes the file that `test_kept_views.py` compares with anew."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console

import partita as pt
from partita.accelerators.interface.compile_story import CompileStory, KernelWork, read_work
from partita.accelerators.runtime.profile import Measurement, Row, Span, profile_of
from partita.accelerators.runtime.real_runs import Lap, Timeline
from partita.cli import inputs as files
from partita.cli import inspect as looking
from partita.cli import screen as screens
from partita.graph.flops import count_flops
from partita.graph.summary import summarize, summary_table
from partita.insight import explaining
from partita.measuring import rounds
from partita.measuring.roofline import Peak, roofline
from partita.onnxruntime_plugin.library import PROCESSORS, library_file
from partita.page import differences, sections, times
from partita.page.collect import collect
from partita.page.differences import compared, time_text
from partita.page.scene import NOWHERE, Item
from partita.passes.plan_memory import plan as plan_memory
from tests.accelerators.hetero.small_devices import device
from tests.kept import lines_of, sum_of, told, write_kept
from tests.partition.kept_partitions import ONE, TWO, graph_of

KEPT = Path(__file__).with_name("kept_views.txt")

COUNTS = {
    "sections": 60, "page": 30, "roofline": 30, "rounds": 40, "named": 1, "read": 60, "shapes": 40, "owners": 30, "library": 1,
    "screen": 40, "story": 30, "inspected": 24,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


# -- pages ---------------------------------------------------------------------------------------------

def cut(rng: random.Random) -> Iterator[str]:
    """The sections of drawn boxes, and which are open at first."""
    items: list[Any] = []
    for number in range(rng.randint(1, 45)):
        holders = [i for i, item in enumerate(items) if item.kind in ("call", "body", "kernel")]
        parent = rng.choice([NOWHERE, NOWHERE, *holders[-2:]])
        kind = rng.choice(("op", "op", "op", "op", "input", "output", "call", "body", "kernel"))
        name = f"{rng.choice(('block1/', 'block2.', 'block2.inner/', '', '/'))}n{number}"
        us = rng.choice((-1.0, -1.0, 0.0, 2.5))
        items.append(Item(kind, name, "Relu", parent, rng.choice(("", "one", "one", "two")), us=us))
    values = [SimpleNamespace(source=i) for i in range(len(items))]
    edges = [(rng.randrange(box), box) for box in range(1, len(items)) for _ in range(rng.choice((0, 1, 2)))]
    if rng.random() < 0.2:
        edges += [(len(items) - 1, 0)]
    boxes: Any = SimpleNamespace(items=items, values=values, edges=edges)
    shortest, longest = rng.choice(((1, 3), (2, 3), (1, 6), (2, 6), (3, 6)))
    with (
        mock.patch.object(sections, "SHORTEST", shortest), mock.patch.object(sections, "LONGEST", longest),
        mock.patch.object(sections, "MOST", rng.choice((6, 8, 20))), mock.patch.object(sections, "FEW", rng.choice((2, 6))),
        mock.patch.object(sections, "SCREENFUL", rng.choice((5, 12, 60))),
    ):
        count = len(items)
        sections.add_sections(boxes)
        sections.open_some(items)
    yield str([(item.name, item.label, item.parent, item.owner, item.us) for item in items[count:]])
    yield f"{[item.parent for item in items[:count]]} {[i for i, item in enumerate(items) if item.is_open]}"
    members = [i for i, item in enumerate(items) if item.parent == NOWHERE]
    yield str(sections.positions(items, NOWHERE, members))


def timeline_of(rng: random.Random, names: Sequence[str]) -> Timeline:
    """The steps of drawn calls."""
    timeline = Timeline("net")
    timeline._laps = [
        Lap(i // 3 + 1, rng.choice((*names, "copy")), "one", rng.choice(("a", "b")), 7.0 * i + 3, rng.choice((1.0, 4.5)), 0.5)
        for i in range(rng.randint(0, 9))
    ]
    timeline.left_out = rng.choice((0, 0, 3))
    return timeline


def profile_for(rng: random.Random, model: Any, times_more: float = 1.0) -> Any:
    """A profile of drawn times."""
    one = Measurement()
    for unit in model.units:
        ops = [node for node in unit.body.nodes if node.is_op]
        chosen = [node for node in ops if rng.random() < 0.8]
        inside = [
            Row(
                unit.name, i + 1, node.name if rng.random() < 0.9 else "elsewhere",
                rng.choice(("EXECUTED", "EXECUTED", "NOT_RUN")),
                rng.choice((str(node.op), "Copy", "Relu+Neg", f"{node.op}+Relu")),
                rng.choice((0.0, 1.0, 25.0, 300.0)) * times_more, 1.0, unit.device.label, "kernel", "",
            )
            for i, node in enumerate(chosen)
        ]
        if rng.random() < 0.15:
            inside = [Row(unit.name, 1, unit.name, "EXECUTED", "Subgraph", 50.0, 1.0, unit.device.label, "kernel", "")]
        us = sum(row.real_us for row in inside) + 1.0
        one.spans.append(Span(unit.name, unit.device.label, one.total_us, us, tuple(inside)))
        one.total_us += us
    one.elapsed_us = one.total_us
    return profile_of([one], "net", "the inputs given", [])


def placed_graph(rng: random.Random) -> pt.Graph:
    graph = graph_of(rng)
    if rng.random() < 0.3:
        last: Any = graph.outputs[0]
        for number in range(12):
            last = pt.op(rng.choice(ONE), last, name=f"block{number // 4}/m{number}")
        graph = pt.Graph([last, *graph.outputs[1:]], name="drawn")
    return pt.apply_pass(graph, "InferShape")


@contextlib.contextmanager
def two_devices(rng: random.Random) -> Iterator[None]:
    kinds = [*ONE, *TWO, "Split", "Concat"]
    with device("alpha", " ".join(rng.sample(kinds, rng.randint(3, 9)))), device("beta"):
        yield


def page(rng: random.Random) -> Iterator[str]:
    """The pages of a graph, its placement and its models, and the differences of two."""
    graph = placed_graph(rng)
    with (
        mock.patch.object(times, "MOST_BARS", rng.choice((2, 20_000))),
        mock.patch.object(times, "_MOST_LAPS", rng.choice((3, 5000))),
        mock.patch.object(sections, "MOST", rng.choice((6, 240))), mock.patch.object(sections, "SHORTEST", 2),
        mock.patch.object(sections, "LONGEST", 4), mock.patch.object(differences, "MOST_NAMED", rng.choice((1, 4))),
    ):
        scenes = []
        for number in range(2):
            with two_devices(rng):
                placement = pt.query(graph, "HETERO:alpha,beta")
                if number == 0:
                    yield f"{sum_of(collect(placement).to_json())} {sum_of(collect(graph, placement=placement).to_json())}"
                model = pt.compile(graph, "HETERO:alpha,beta")
                profile = profile_for(rng, model, rng.choice((1.0, 1.05, 2.0))) if rng.random() < 0.7 else None
                timeline = timeline_of(rng, [unit.name for unit in model.units]) if rng.random() < 0.4 else None
                scenes.append(collect(model, profile, timeline=timeline))
                model.close()
            scene = scenes[-1]
            yield f"{len(scene.items)} {scene.bars[:3]} {len(scene.bars)} {scene.total_us} {[lap.name for lap in scene.laps]}"
            items = [(item.kind, item.name, item.parent, item.owner, item.us, item.is_open) for item in scene.items]
            yield sum_of(json.dumps(items))
        found = compared(*scenes)
        yield str([(change.what, change.name, change.text) for change in found.changes])[:900]
        yield f"{found.compared} {len(found.changes)}"
    yield str([time_text(us) for us in (0.0, 999.9, 1000.0, 999999.0, 1e6, 2.5e6)])


# -- measuring -----------------------------------------------------------------------------------------

def limits(rng: random.Random) -> Iterator[str]:
    """The roofline of a drawn profile, for drawn peaks."""
    graph = placed_graph(rng)
    if rng.random() < 0.2:
        n = pt.variable("n", "float32", ("n", 3))
        graph = pt.apply_pass(pt.Graph([pt.op("Neg", pt.op("Relu", n, name="a"), name="b")], [n], "dynamic"), "InferShape")
    with two_devices(rng):
        model = pt.compile(graph, "HETERO:alpha,beta")
        profile = profile_for(rng, model)
        peaks = {label: Peak(rng.choice((1.0, 500.0)), rng.choice((2.0, 10000.0))) for label in ("alpha", "beta")}
        found = roofline(model, profile, peaks)
        model.close()
    yield f"{found!r} {found.unknown} {sorted(found.peaks)}"
    for kernel in found.kernels[:5]:
        yield f"{kernel.name} {kernel.nodes} {kernel.flops} {kernel.bytes} {kernel.limit}"
        yield f"{kernel.factor:.4g} {kernel.reached:.4g}"
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(found.to_table(rng.choice((None, 2))))
    yield f"{sum_of(out.getvalue())} {sum_of(json.dumps(found.to_dict()))}"
    wrong: Any = rng.choice((None, 3, {"alpha": 3}))
    yield f"{told(roofline, 3)} {told(roofline, model, 3)} {told(roofline, model, profile, wrong or 'x')}"[:400]
    for rate in (0, -1, "x", True, 2.5, float("inf"), None):
        yield f"{rate!r} {told(Peak, rate, 1.0)}"[:200]


def in_rounds(rng: random.Random) -> Iterator[str]:
    """The runs of contenders, by a clock that goes as drawn."""
    now, busy, said = [0.0], [0.0], list[str]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        busy[0] += rng.choice((0.0, seconds / 5, seconds))

    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: busy[0], sleep=sleep)

    def call(name: str, seconds: float) -> Callable[[Any], Any]:
        def one(inputs: Any) -> Any:
            said.append(name)
            now[0] += seconds
            return [np.ones(3, np.float32)] * (2 if wrong and name == "c" else 1)
        return one

    wrong = rng.random() < 0.1
    graph = pt.apply_pass(pt.Graph([pt.op("Relu", pt.variable("x", "float32", (3,)))], name="net"), "InferShape")
    times_of = [rng.choice((0.001, 0.0099, 0.01, 0.031)) for _ in range(3)]
    every = [rounds.Contender(name, call(name, times_of[i]), SimpleNamespace(graph=graph))  # type: ignore[arg-type]
             for i, name in enumerate("abc"[: rng.randint(1, 3)])]
    effort = rounds.Effort(rng.choice((0.0, 0.5, 1.0)), rng.choice((None, None, 1, 5, 12)), rng.choice((0, 1, 2)))
    with mock.patch.object(rounds, "time", clock):
        yield f"{effort} {times_of} " + told(rounds.measure, every, {}, effort)
        yield f"{[[len(block) for block in one.rounds] for one in every]} {len(said)} {''.join(said)[:60]}"
        yield f"{[len(one.outputs) for one in every]} {[round(sum(block[:1]), 3) for one in every for block in one.rounds][:6]}"
        before = now[0]
        rounds.settle()
        yield f"{now[0] - before:.3f}"
    yield str(rounds.shared({"NUM_THREADS": 1}, "reference", {"PERF_COUNT": True, "STRICT": None}))


def named(rng: random.Random) -> Iterator[str]:
    """The names of rivals."""
    for rivals in ("cpu", ["cpu", "HETERO:a,b"], {"mine": len}, len, [len, "x"], 3, [3], {"a": 3}, [], None):
        yield f"{told(rounds.named, rivals)}"[:160].partition(" at 0x")[0]


# -- inputs --------------------------------------------------------------------------------------------

def read(rng: random.Random) -> Iterator[str]:
    """The arrays that are read from files for a model's inputs."""
    kinds: tuple[Any, ...] = (
        pt.TensorType("float32", (1, 3, 4, 5)), pt.TensorType("uint8", ("n", 4, 5, 3)), pt.TensorType("float32", (2, 3)),
        pt.TensorType("int64", ("n", 3)), pt.TensorType("float16", (None, 1, "h", "w")), pt.TensorType("int64", (1, 3, 4, 5)),
        None, pt.TensorType("float32"), pt.TensorType("string", (2,)), pt.TensorType("float32", (3, 3, 4, 5)),
        pt.TensorType("float32", (1, 2, 4, 5)),
    )
    specs = [(name, rng.choice(kinds)) for name in ("x", "y", "a=b")[: rng.randint(1, 3)]]

    def pixels(path: str, plan: Any) -> Any:
        shape = (plan.height or 6, plan.width or 7, plan.channels)
        return np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.object(files, "_pixels", pixels):
        np.save("one.npy", np.arange(6, dtype=rng.choice(("f4", "f8", "i4", "u1", "f2"))).reshape(2, 3))
        np.save("flat.npy", np.arange(3.0))
        np.savez("two.npz", **{rng.choice(("x", "q")): np.ones(3), "y": np.zeros((2, 3), np.int32)})
        np.savez("single.npz", q=np.ones((4, 5, 3), np.uint8))
        Path("picture.png").write_bytes(b"x")
        Path("bad.npy").write_bytes(rng.choice((b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 99)))
        Path("inner").mkdir()
        names = ("one.npy", "flat.npy", "two.npz", "single.npz", "picture.png", "bad.npy", "inner", "none.npy")
        for _ in range(6):
            asked = [rng.choice(("", "", "x=", "y=", "a=b=", "z=")) + rng.choice(names) for _ in range(rng.randint(1, 3))]
            try:
                found = files.read_inputs(asked, specs, rng.choice(files.NORMALIZE))
            except pt.PartitaError as error:
                yield f"{asked} {type(error).__name__}: {error}"[:300]
            else:
                shown = {name: (array.dtype.name, array.shape, f"{float(array.sum()):.5g}") for name, array in found.items()}
                yield f"{[(name, str(kind)) for name, kind in specs]} {asked} {shown}"


def shapes(rng: random.Random) -> Iterator[str]:
    """Examples of sizes, and arrays that are fitted to an input."""
    dims = (1, 3, 224, "n", "h", None)
    for _ in range(6):
        shape = tuple([rng.choice(dims) for _ in range(rng.choice((0, 1, 2, 3, 4, 4, 5)))])
        kind: Any = rng.choice((pt.TensorType(rng.choice(("float32", "int64", "uint8")), shape), pt.TensorType("float32"), None))
        yield f"{kind} {files.shape_options([('x', kind)])} {files.listed([('x', kind)])}"
        array: Any = np.ones(tuple([2] * rng.randint(0, 4)), rng.choice(("f8", "i4", "u1", "f4", "i8", "f2")))
        found = files.fitted(rng.choice((array, array, "text")), kind)
        yield f"{getattr(found, 'dtype', found)} {getattr(found, 'shape', '')}"


# -- onnxruntime ---------------------------------------------------------------------------------------

def owners(rng: random.Random) -> Iterator[str]:
    """The provider of each node, as a record tells it."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    body = pt.Graph([pt.op("Relu", pt.variable("q", "float32", (2,)), name="inner")], name="then")
    choice = pt.op("If", pt.constant(np.array(True)), then_branch=body, else_branch=body, name="if")
    whole = pt.Graph([*graph.outputs, choice.evolve(captures=())], name="both") if rng.random() < 0.3 else graph
    parts = []
    for _ in range(rng.randint(1, 4)):
        listed = rng.choices((*names, "inner", "made", "reorder"), k=rng.randint(0, 3))
        nodes = [(name, rng.choice(("Relu", "Reorder"))) for name in listed]
        parts.append((rng.choice(("MineEP", "CPUExecutionProvider")), nodes))
    found, made = explaining._owners(whole, parts)
    yield f"{found} {sorted(Counter(made).items())}"
    for named_nodes in ([("n0", "Relu")], [("", "Relu")], []):
        told_of = [("MineEP", [SimpleNamespace(name=name, op_type=op) for name, op in named_nodes])]
        with mock.patch.object(explaining, "assigned", lambda session, told_of=told_of: told_of):
            yield str(explaining._recorded(None))
    placement = explaining._placement(
        graph, {"MineEP": {}, "CPUExecutionProvider": {}}, parts, ["a note"], False, {"MineEP": {names[0]: "it is too large"}},
    )
    yield f"{placement.notes}"[:500]
    yield sum_of("\n".join(told(placement.why, name) for name in names))


def library(rng: random.Random) -> Iterator[str]:
    """The library that onnxruntime loads, for each processor."""
    for processor in PROCESSORS:
        file = library_file(processor)
        yield f"{processor} {sum_of(file.content)} {file.data} {sorted(file.functions.items())}"
        for start in range(0, len(file.content), 512):
            yield f"{start} {sum_of(file.content[start : start + 512])}" if any(file.content[start : start + 512]) else f"{start}"
    yield told(library_file, "pdp11")


# -- the command line ----------------------------------------------------------------------------------

def on_screen(rng: random.Random) -> Iterator[str]:
    """Tables, lines and data on both streams, as wide as drawn."""
    columns = [f"column {i}" for i in range(rng.choice((2, 6, 7, 8)))]
    cells = ("a", "long text in a cell", "1,234", "with \x1b[31m colour", "two\nlines", "\u202e turned")
    rows = [[rng.choice(cells) for _ in columns] for _ in range(rng.randint(0, 3))]
    one = screens.Screen(rng.random() < 0.3, rng.random() < 0.3)
    out, err = io.StringIO(), io.StringIO()
    width = {"COLUMNS": str(rng.choice((60, 120, 160)))} if rng.random() < 0.7 else {}
    with mock.patch.dict(os.environ, width), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if not width:
            os.environ.pop("COLUMNS", None)
        one.show(screens.table("a \x07title: of it", columns, rows, right=columns[1:2]), "a line of text")
        one.write_json({"a": [1.0, float("nan"), float("inf")], 3: (None, True), "b": {"c": "ü"}})
        one.say("progress: goes on")
        one.note_all(["first", "second"])
        one.warn("it is slow: very")
        one.fail("no such file: x", {"cause": "none", "number": float("-inf")})
    yield f"{one} {width} {len(columns)} {out.getvalue()!r}"[:1500]
    yield f"{sum_of(out.getvalue())} {err.getvalue()!r}"


def story(rng: random.Random) -> Iterator[str]:
    """Why a subgraph was compiled, with its slowest kernels."""
    works = tuple([
        KernelWork(f"kernel{i}", ("n0", "n1")[: rng.randint(1, 2)], rng.choice((0.0, 0.1, 2.5)), rng.random() < 0.2)
        for i in range(rng.choice((0, 1, 9, 10, 11, 13)))
    ])
    one = CompileStory(rng.random() < 0.5, "it is the first of its kind", 2.345, works)
    yield str(one.lines())
    yield str(one.lines(rng.choice((0, 1, 2))))
    rows = [["k", ["a", "b"], 1, rng.choice((0, 1))], ["l", ["c"], "0.5", False]]
    yield str(read_work(rows, {"a": "x", "c": "y"}))


def inspected(rng: random.Random) -> Iterator[str]:
    """A graph's contents and costs, as the command line tells it."""
    graph = placed_graph(rng)
    if rng.random() < 0.5:
        shape = rng.choice((("n", 3), ("n", 3, "h", "w"), (2, 3)))
        x: Any = pt.variable("odd", "float32", shape)
        for i in range(rng.choice((1, 3, 4, 5, 6))):
            x = pt.op("Own", x, domain="mine", name=f"own{i}").evolve(output_types=(x[0].type,))
        last = pt.op("MatMul", graph.outputs[0], pt.constant(np.ones((3, 3), np.float32), name="w"), name="product")
        shared: Any = last.inputs[1]
        again = pt.op("Add", last, pt.constant(shared.node.value, name="w2"), name="added")
        graph = pt.apply_pass(pt.Graph([again, x], name="drawn", opsets={"": 18, "mine": 1}), "InferShape", strict=False)
    summary, flops, memory = summarize(graph), count_flops(graph), plan_memory(graph, 64, {})
    ops = looking._ops(graph, summary, flops)
    yield f"{ops}"
    yield sum_of(json.dumps(looking._nodes(graph, flops)))
    held = looking._held(graph, memory)
    yield f"{held[:3]} {len(held)}"
    yield looking._not_counted(flops, summary.inputs)
    yield sum_of(json.dumps(looking._as_data(summary, flops, memory.peak, ops, None)))
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(
        *looking._tables(ops, looking._nodes(graph, flops), flops.flops), looking._memory_table(held, memory),
        summary_table(summary),
    )
    yield sum_of(out.getvalue())


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "sections": cut, "page": page, "roofline": limits, "rounds": in_rounds, "named": named, "read": read, "shapes": shapes,
    "owners": owners, "library": library, "screen": on_screen, "story": story, "inspected": inspected,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "views", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
