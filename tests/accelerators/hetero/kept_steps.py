"""Plans of calls of drawn graphs whose subgraphs run on devices with and without a memory of their own, in turn or overlapping;
spans of memory; the choice between two ways of running; and the ops that are at fault if a subgraph does not compile.

`python -m tests.accelerators.hetero.kept_steps` writes the file that `test_kept_steps.py` compares with anew."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import partita as pt
from partita.accelerators.building.refusals import not_compiled
from partita.accelerators.errors import CompileError
from partita.accelerators.runtime.executor import ConcurrencyTrial, Spans
from partita.accelerators.runtime.overlapping import Overlap
from partita.accelerators.runtime.pipeline import Pipeline
from partita.accelerators.runtime.recorded import Recorded, Sample
from partita.accelerators.runtime.recording import Recorder
from partita.accelerators.runtime.steps import CopyStep, RunStep, plan_run
from partita.graph.rewrite import with_affinities
from partita.mapping.bursts import Burst, read_ahead
from partita.partition import AffinityProperty
from tests.partition.kept_partitions import graph_of

KEPT = Path(__file__).with_name("kept_steps.txt")

COUNTS = {"plan": 160, "spans": 40, "ways": 40, "fault": 60, "recorded": 60, "step": 40, "burst": 30}
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


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "plan": plan, "spans": spans, "ways": ways, "fault": fault,
    "recorded": recorded, "step": step, "burst": burst,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    said: list[str] = []
    try:
        for part in KINDS[subject.rpartition(" ")[0]](random.Random(f"steps {subject}")):
            said.append(part)
    except pt.PartitaError as error:
        said.append(f"{type(error).__name__}: {error}")
    return [f"{subject} | {line!r}" for line in said]


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for subject in SUBJECTS for line in lines(subject)), "utf-8")
