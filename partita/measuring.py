"""How fast models run, measured beside each other.

Contenders take turns, in changing order: in each round each one runs once unmeasured and then several times under the clock, so
that whatever else the machine does falls on all alike."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from accelerators import AcceleratorError, CompiledModel, InputError, Profile, RunError, compile, import_model
from accelerators.interface.device_list import DEFAULT, asked_devices
from accelerators.process.settling import settle
from graph.errors import GraphError, PartitaError
from graph.graph import Graph
from graph.readers import load
from graph.types import Dim, TensorType
from graph.words import counted
from partita.compare import PRECISIONS, Difference, compare
from passes import apply_pass

if TYPE_CHECKING:
    from rich.table import Table

Call = Callable[[Mapping[str, Any]], Sequence[Any]]
"""Gets arrays by the names of the model's inputs, and gives the outputs in order."""

Rival = str | CompiledModel | Call
"""Devices for the same graph, a compiled model, or a function."""

BLOCK_SECONDS = 0.03
"""The seconds that each contender runs in a round, or once if one run takes longer."""

STREAM_SECONDS = 0.2
"""The seconds that several streams run together in a round, or four calls of each if these take longer."""

ROUNDS = 3
"""The fewest rounds of a measurement that no number of iterations ends."""

PACKAGE = ".partita"
"""The ending of the name of a file that `CompiledModel.export` wrote."""


@attrs.frozen(slots=True)
class Effort:
    """How long is measured, and how."""

    seconds: float = 5.0
    """About so long, unless `iterations` says how often."""
    iterations: int | None = None
    """Exactly so many measured runs of each contender."""
    warmup: int = 1
    """So many runs of each contender before anything is measured."""
    streams: int = 1
    """So many threads call the model at once where throughput is measured."""


@attrs.define(slots=True, eq=False)
class Contender:
    """One model that takes part, and what was measured of it."""

    name: str
    """The devices, as the user named them."""
    call: Call
    """Runs it."""
    model: CompiledModel | None
    """The compiled model; None for a function."""
    compile_seconds: float | None = None
    """The seconds that compiling took; few where the cache had the model."""
    outputs: Sequence[Difference] = ()
    """The distance of each output from that of the first contender."""
    rounds: list[list[float]] = attrs.field(factory=list)
    """The milliseconds of each run, round by round."""
    rates: list[float] = attrs.field(factory=list)
    """The calls in a second of all streams together, round by round."""


@attrs.frozen(slots=True)
class Row:
    """One contender's measurements."""

    devices: str
    """The devices, as the user named them."""
    subgraphs: int | None
    """How many subgraphs the compiled model has; None for a function."""
    compile_seconds: float | None
    """The seconds that compiling took; few where the cache had the model."""
    median_ms: float
    """Half of the runs took longer."""
    p90_ms: float
    """One run in ten took longer."""
    p99_ms: float
    """One run in a hundred took longer."""
    min_ms: float
    """The fastest run."""
    runs: int
    """How many runs were measured one by one."""
    throughput: float
    """The items in a second, with as many calls at once as there are streams: calls times the batch."""
    ratio: float
    """The median over the rounds of its time over the first contender's time in the same round."""
    ratio_spread: float
    """Half the distance between the 10th and the 90th percentile of that ratio."""
    outputs: tuple[Difference, ...]
    """The distance of each output from that of the first contender; none for the first itself."""

    @property
    def difference(self) -> float:
        """The largest distance of any output."""
        return max((one.worst for one in self.outputs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        fields = attrs.asdict(self, recurse=False)
        return {**fields, "difference": self.difference, "outputs": [one.as_data() for one in self.outputs]}


@attrs.frozen(slots=True, eq=False, repr=False)
class BenchReport:
    """The object that `bench` gives."""

    model: str
    """The model's name."""
    batch: int
    """How many items one call computes: the first size of the first input."""
    streams: int
    """How many calls ran at once where throughput was measured."""
    rows: tuple[Row, ...]
    """The contenders in order; the first is the one that the others are compared with."""
    refused: Mapping[str, str]
    """The contenders that could not be compiled, each with the reason."""
    profile: Profile | None = None
    """Where the first contender's time goes, if that was asked for."""

    def __getitem__(self, devices: str) -> Row:
        """The row of that contender."""
        for row in self.rows:
            if row.devices == devices:
                return row
        raise KeyError(devices)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "model": self.model,
            "batch": self.batch,
            "streams": self.streams,
            "contenders": [row.to_dict() for row in self.rows],
            "refused": dict(self.refused),
            "profile": None if self.profile is None else self.profile.to_dict(),
        }

    def to_table(self) -> Table:
        """A row for each contender, for a terminal, by rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"{self.model}: one call of {counted(self.batch, 'item')}"))
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == COLUMNS[0] else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, _cells(row)))
        table.caption = f"throughput in items per second, {counted(self.streams, 'call')} at once"
        return table

    def __rich__(self) -> Table:
        return self.to_table()

    def __str__(self) -> str:
        from rich.console import Console

        stream = StringIO()
        Console(file=stream, width=160).print(self.to_table())
        return stream.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        times = ", ".join(f"{row.devices} {row.median_ms:.3f} ms" for row in self.rows)
        return f"<BenchReport of {self.model!r}: {times}>"


TIMES = ("median", "90 %", "99 %", "fastest")
"""The columns of milliseconds."""

COLUMNS = ("devices", "subgraphs", *TIMES, "runs", "throughput", "times the first", "difference", "ready in")
"""The titles of the table's columns."""


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.devices,
        "" if row.subgraphs is None else str(row.subgraphs),
        *(f"{value:.3f} ms" for value in (row.median_ms, row.p90_ms, row.p99_ms, row.min_ms)),
        str(row.runs),
        f"{row.throughput:,.1f}",
        f"{row.ratio:.2f} ±{row.ratio_spread:.2f}",
        f"{row.difference:.0e}",
        "" if row.compile_seconds is None else f"{row.compile_seconds:.1f} s",
    )


def bench(
    model: Graph | CompiledModel | str | os.PathLike[str],
    devices: str | None = None,
    *,
    vs: Rival | Sequence[Rival] | Mapping[str, Rival] = (),
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    iterations: int | None = None,
    warmup: int = 1,
    seconds: float = 5.0,
    batch: int | None = None,
    threads: int | None = None,
    streams: int = 1,
    precision: str | None = None,
    profile: bool = False,
) -> BenchReport:
    """How fast a model runs on some devices, beside others.

    `model` is a graph, a compiled model, or what `load` or `import_model` reads. `vs` are the rivals, by name if it is a mapping:
    devices that run the same graph, compiled models, or functions that get the inputs by name. All take turns. Latency is
    measured for about `seconds`, or in exactly `iterations` runs of each, after `warmup` runs; throughput with `streams` calls
    at once. `batch` sets the first size of the inputs. `threads` and `precision` are NUM_THREADS and PRECISION of every device
    that has them; `config` is that of the first contender. `inputs` are made up where they are not given. With `profile` the
    report says where the first contender's time goes."""
    effort = _checked(Effort(seconds, iterations, warmup, streams))
    _check_count("batch", batch, 1)
    if isinstance(model, (str, os.PathLike)):
        model = import_model(model) if os.fspath(model).endswith(PACKAGE) else load(model)
    if not isinstance(model, (Graph, CompiledModel)):
        raise AcceleratorError(
            f"it measures a graph or a compiled model, not a {type(model).__name__}",
            where="bench",
            remedy="Other programs take part as functions: vs={'mine': function}",
        )
    if batch is not None and isinstance(model, CompiledModel):
        raise AcceleratorError("the sizes of a compiled model are fixed", where="bench, option batch", remedy="Give the graph")
    subject = model if isinstance(model, CompiledModel) or batch is None else batched(model, batch)
    same = {"NUM_THREADS": threads, "PRECISION": precision}
    _check_precision(precision, [devices, *(rival for rival in _named(vs).values() if isinstance(rival, str))])
    first = contender(devices, subject, _shared(config or {}, devices, same))
    assert first.model is not None
    graph = subject if isinstance(subject, Graph) else subject.graph
    contenders, refused = [first], {}
    for name, rival in _named(vs).items():
        try:
            contenders.append(contender(name, rival, {}) if not isinstance(rival, str) else _compiled(name, rival, graph, same))
        except PartitaError as error:
            refused[name] = str(error)
    arrays = _inputs(first.model, inputs)
    measure(contenders, arrays, effort, precision or "f32")
    return report(contenders, arrays, effort, refused, profile)


def contender(name: str | None, subject: Graph | Rival, config: Mapping[str, Any]) -> Contender:
    """A graph compiled for the devices, a compiled model, or a function, ready to be measured."""
    if isinstance(subject, Graph):
        start = time.perf_counter()
        model = compile(subject, name, config)
        return Contender(name or DEFAULT, model, model, time.perf_counter() - start)
    if isinstance(subject, CompiledModel):
        return Contender(name or _devices_of(subject), subject, subject)
    assert not isinstance(subject, str)
    return Contender(str(name), subject, None)


def batched(graph: Graph, batch: int) -> Graph:
    """The graph with another first size: that of each input whose first size is the first input's, or open."""
    from graph.writers.onnx import to_model

    proto = to_model(graph)
    shapes = _with_batch(graph, batch)
    for value in proto.graph.input:
        if value.name in shapes:
            value.type.tensor_type.shape.dim[0].Clear()  # open, so that another size fits
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    try:
        return apply_pass(load(proto, shapes=shapes), "InferShape", strict=True).evolve(name=graph.name)
    except PartitaError as error:
        raise GraphError(
            f"the model does not take a batch of {batch}: {error.cause}",
            where=error.where or f"graph {graph.name!r}",
            remedy="A size is written into the model; export it with an open first size, or leave batch out",
        ) from error


def _with_batch(graph: Graph, batch: int) -> dict[str, Sequence[Dim]]:
    """The sizes of the inputs that have the batch as their first size."""
    shapes: dict[str, Sequence[Dim]] = {}
    first: object = None
    for node in graph.inputs:
        kind = node[0].type
        if isinstance(kind, TensorType) and kind.shape:
            first = kind.shape[0] if first is None else first
            if kind.shape[0] == first or not isinstance(kind.shape[0], int):
                shapes[node.name] = (batch, *kind.shape[1:])
    return shapes


def measure(contenders: Sequence[Contender], inputs: Mapping[str, Any], effort: Effort, precision: str = "f32") -> None:
    """Compare the outputs with the first contender's, then fill `rounds` and `rates`."""
    expected, graph = contenders[0].call(inputs), contenders[0].model
    for one in contenders[1:]:
        assert graph is not None
        one.outputs = compare(graph.graph, _outputs(one, inputs, len(expected)), list(expected), precision=precision)
    for one in contenders:
        for _ in range(effort.warmup):
            one.call(inputs)
    end = time.perf_counter() + effort.seconds
    while _goes_on(contenders[0], effort, end):
        shift = len(contenders[0].rounds) % len(contenders)
        for one in [*contenders[shift:], *contenders[:shift]]:
            settle()
            left = None if effort.iterations is None else effort.iterations - sum(map(len, one.rounds))
            one.rounds.append(_block(one.call, inputs, left))
            if effort.streams > 1:
                one.rates.append(_rate(one.call, inputs, effort.streams, statistics.median(one.rounds[-1]) / 1e3))


def _outputs(one: Contender, inputs: Mapping[str, Any], count: int) -> list[Any]:
    """The outputs of a contender; what a function of the user's does wrong is an error that names it."""
    where = f"bench, rival {one.name!r}"
    try:
        outputs = one.call(inputs)
    except PartitaError:
        raise
    except Exception as error:
        raise RunError(f"it raises {type(error).__name__}: {error}", where=where) from error
    listed = [outputs] if isinstance(outputs, np.ndarray) and count == 1 else list(outputs)
    if len(listed) != count:
        raise RunError(f"it gives {counted(len(listed), 'output')}, and the model has {count}", where=where)
    return listed


def _goes_on(first: Contender, effort: Effort, end: float) -> bool:
    """All contenders have as many rounds as the first one, and with iterations as many runs."""
    if effort.iterations is not None:
        return sum(map(len, first.rounds)) < effort.iterations
    return time.perf_counter() < end or len(first.rounds) < ROUNDS


def _block(call: Call, inputs: Mapping[str, Any], left: int | None) -> list[float]:
    """The milliseconds of some runs in a row, after one that is not measured."""
    call(inputs)
    milliseconds: list[float] = []
    last = time.perf_counter()
    stop = last + BLOCK_SECONDS
    while last < stop and (left is None or len(milliseconds) < left):
        call(inputs)
        now = time.perf_counter()
        milliseconds.append(1e3 * (now - last))
        last = now
    return milliseconds


def _rate(call: Call, inputs: Mapping[str, Any], streams: int, seconds: float) -> float:
    """The calls in a second of several threads that call at once."""
    together = threading.Barrier(streams + 1)
    wanted = max(STREAM_SECONDS, 4 * streams * seconds)
    stop = 0.0

    def calls() -> int:
        together.wait()
        count = 0
        while not count or time.perf_counter() < stop:
            call(inputs)
            count += 1
        return count

    with ThreadPoolExecutor(streams, "partita-bench") as threads:
        running = [threads.submit(calls) for _ in range(streams)]
        start = time.perf_counter()
        stop = start + wanted
        together.wait()
        total = sum(one.result() for one in running)
        return total / (time.perf_counter() - start)


def report(
    contenders: Sequence[Contender], inputs: Mapping[str, Any], effort: Effort, refused: Mapping[str, str], profile: bool
) -> BenchReport:
    """What was measured, as rows."""
    first = contenders[0]
    assert first.model is not None
    batch = next((len(value) for value in inputs.values() if isinstance(value, np.ndarray) and value.ndim), 1)
    rows = tuple(_row(one, first, batch) for one in contenders)
    where = first.model.profile(dict(inputs)) if profile else None
    return BenchReport(first.model.graph.name, batch, effort.streams, rows, dict(refused), where)


def _row(one: Contender, first: Contender, batch: int) -> Row:
    every = [milliseconds for block in one.rounds for milliseconds in block]
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(one.rounds, first.rounds)]
    low, ratio, high = np.percentile(ratios, (10, 50, 90))
    median, p90, p99 = np.percentile(every, (50, 90, 99))
    rate = statistics.median(one.rates) if one.rates else 1e3 * len(every) / sum(every)
    return Row(
        devices=one.name,
        subgraphs=None if one.model is None else one.model.properties.subgraphs,
        compile_seconds=one.compile_seconds,
        median_ms=float(median),
        p90_ms=float(p90),
        p99_ms=float(p99),
        min_ms=min(every),
        runs=len(every),
        throughput=rate * batch,
        ratio=float(ratio),
        ratio_spread=float(high - low) / 2,
        outputs=tuple(one.outputs),
    )


def _checked(effort: Effort) -> Effort:
    _check_count("iterations", effort.iterations, 1)
    _check_count("streams", effort.streams, 1)
    _check_count("warmup", effort.warmup, 0)
    seconds = effort.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise AcceleratorError(f"it is a number above zero, not {seconds!r}", where="bench, option seconds")
    return effort


def _check_count(option: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise AcceleratorError(f"it is a whole number from {least} on, not {value!r}", where=f"bench, option {option}")


def _check_precision(precision: str | None, devices: Sequence[str | None]) -> None:
    """One of the known ones, that at least one of the devices offers."""
    if precision is None:
        return
    where = "bench, option precision"
    if precision not in PRECISIONS:
        raise AcceleratorError(f"it is one of {', '.join(PRECISIONS)}, not {precision!r}", where=where)
    if not any(map(offers_precision, devices)):
        remedy = "`partita devices NAME` lists the keys of a device"
        raise AcceleratorError("none of the devices offers a PRECISION", where=where, remedy=remedy)


def offers_precision(devices: str | None) -> bool:
    """Is PRECISION a key of one of these devices? No, if one of them cannot be used: that is said where it is compiled for."""
    try:
        return bool(with_key({}, devices, "PRECISION", "f32"))
    except PartitaError:
        return False


def _named(rivals: Rival | Sequence[Rival] | Mapping[str, Rival]) -> dict[str, Rival]:
    """The rivals by name; devices are named as they are written, functions by their own name."""
    if isinstance(rivals, str) or callable(rivals):
        rivals = [rivals]
    named = dict(rivals) if isinstance(rivals, Mapping) else {_name_of(rival): rival for rival in rivals}
    for name, rival in named.items():
        if not isinstance(rival, str) and not callable(rival):
            cause = f"it is devices, a compiled model or a function, not {rival!r:.80}"
            raise AcceleratorError(cause, where=f"bench, rival {name!r}")
    return named


def _name_of(rival: Rival) -> str:
    if isinstance(rival, str):
        return rival
    return _devices_of(rival) if isinstance(rival, CompiledModel) else getattr(rival, "__name__", repr(rival))


def _devices_of(model: CompiledModel) -> str:
    devices = model.properties.devices
    return ("HETERO:" if len(devices) > 1 else "") + ",".join(devices)


def _compiled(name: str, devices: str, graph: Graph, same: Mapping[str, Any]) -> Contender:
    made_for = contender(devices, graph, _shared({}, devices, same))
    made_for.name = name
    return made_for


def _shared(config: Mapping[str, Any], devices: str | None, same: Mapping[str, Any]) -> dict[str, Any]:
    extended = dict(config)
    for key, value in same.items():
        if value is not None:
            extended = with_key(extended, devices, key, value)
    return extended


def with_key(config: Mapping[str, Any], devices: str | Sequence[str] | None, key: str, value: Any) -> dict[str, Any]:
    """The configuration with the key set for each of the devices that has it and is not configured otherwise."""
    extended = dict(config)
    asked = asked_devices(devices)
    for device in asked:
        if key in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS") and not (len(asked) == 1 and key in config):
            extended[device.label] = {key: value, **extended.get(device.label, {})}
    return extended


def _inputs(model: CompiledModel, given: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    names = [name for name, _ in model.properties.inputs]
    if isinstance(given, Mapping):
        return dict(given)
    arrays = model.example_inputs() if given is None else list(given)
    if len(arrays) != len(names):
        raise InputError(f"there are {counted(len(names), 'input')}, and {len(arrays)} were given", where="bench, option inputs")
    return dict(zip(names, arrays))
