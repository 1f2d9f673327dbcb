"""A compiled model, ready to run."""

from __future__ import annotations

import os
import threading
import time
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import attrs

from partita.accelerators.arrays.inputs import InputChecker, Stays, out_arrays
from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.building.report import CompileReport
from partita.accelerators.building.specialized import SpecializedSubgraph, is_static
from partita.accelerators.building.units import Unit
from partita.accelerators.errors import AcceleratorError, RunError
from partita.accelerators.interface.habits import METHODS
from partita.accelerators.interface.second_level import SecondLevel
from partita.accelerators.interface.settings import HeteroSettings
from partita.accelerators.interface.stub_body import is_skeleton
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.runtime.executor import Executor, Observer, Runs, root
from partita.accelerators.runtime.pipeline import Pipeline
from partita.accelerators.runtime.profile import CALLS, FEWEST, LONGEST, SECONDS, Measurement, Profile, profile_of
from partita.accelerators.runtime.real_runs import Timeline, Tracing
from partita.accelerators.runtime.recorded import Recorded
from partita.accelerators.runtime.recording import Recorder
from partita.accelerators.runtime.requests import RequestQueue
from partita.accelerators.runtime.steps import plan_run
from partita.accelerators.runtime.symbol_checks import SizeClaims, is_of_a_claim
from partita.graph.errors import PartitaError, check_path
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.pictures.html import bundle, picture, table
from partita.graph.pictures.svg import notebook_svg
from partita.graph.types import Type

if TYPE_CHECKING:
    from rich.table import Table

    from partita.accelerators.decoder.conversation import Session
    from partita.accelerators.decoder.decoder import Decoder
    from partita.accelerators.placement.costs import Costs
    from partita.accelerators.runtime.package.imported_report import ImportedReport
    from partita.accelerators.runtime.package.stages import Stages

CHUNKS = (128, 16, 1)
"""The numbers of new tokens for which a session's steps are compiled."""


@attrs.frozen(slots=True)
class ModelProperties:
    """The type of `model.properties`."""

    name: str
    """The model's name."""
    devices: tuple[str, ...]
    """The devices that run it, in order of first use."""
    subgraphs: int
    """Number of subgraphs."""
    optimal_requests: int
    """The useful number of concurrent calls."""
    inputs: tuple[tuple[str, Type | None], ...]
    """Names and types of the inputs."""
    outputs: tuple[tuple[str, Type | None], ...]
    """Names and types of the outputs."""

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table("property", "value", show_header=False)
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if field.name in ("inputs", "outputs"):
                value = ", ".join(f"{name}: {'?' if kind is None else kind}" for name, kind in value)
            table.add_row(field.name, Text(", ".join(value) if isinstance(value, tuple) else str(value)))
        return table


@attrs.frozen(slots=True, eq=False)
class Origin:
    """The source from which a model was compiled."""

    graph: Graph
    """The graph as the caller passed it."""
    step: Callable[[Graph], CompiledModel] | None
    """Compiles a decoder's step in the same way; None if its devices do not append to caches."""


class CompiledModel(metaclass=ABCMeta):  # noqa: B024  for the hook
    """Call it with arrays, from any number of threads; the returned arrays belong to the caller.

    `graph` is the partitioned graph, `report` tells which device runs each op, and why."""

    @classmethod
    def __subclasshook__(cls, other: Any) -> bool:
        """True for a class that does whatever a compiled model does, but loads less."""
        return True if cls is CompiledModel and "loads_compiled_model" in vars(other) else NotImplemented

    def __init__(
        self,
        graph: Graph,
        units: Mapping[str, Unit],
        report: CompileReport | ImportedReport,
        settings: HeteroSettings,
        dead: Sequence[Node],
        measured: bool,
        measuring_units: Callable[[], Mapping[str, Unit]],
    ) -> None:
        self.graph = graph
        """The partitioned graph: each op is the call of a compiled subgraph."""
        self.report = report
        """Placement, moves, subgraphs, and the partition of the graph."""
        self._units = units
        self.settings = settings
        """The settings of the model as a whole."""
        self.dead = tuple(dead)
        """The nodes that no output needs."""
        self.measured = measured
        """True if every call is measured."""
        self.measuring_units = measuring_units
        """Compiles the subgraphs for profiles; those that can be measured are the model's own."""
        self._checker = InputChecker(graph, _asked_weakly(WeakMethod(self._stays)))
        self._claims = SizeClaims(graph)
        self._names: dict[str, int] = {}
        for i, name in enumerate(graph.output_names):
            self._names.setdefault(name, i)
        self.without_claims: Callable[[], CompiledModel] | None = None
        """Compiles the same model without declared sizes that contradict inference; None if there is no such variant."""
        self._renouncing = threading.Lock()
        self.origin: Origin | None = None
        """The source it was compiled from; None if it was read from a file."""
        self._decoder: Decoder | None = None
        self._constants = _constant_ids(graph)
        self._executor = self._runs()
        self._pipeline = self._stages()
        self._measuring: Runs | None = self._executor if measured else None
        self._last: Measurement | None = None
        self._recorder = None if settings.record is None else Recorder(settings.record, settings.capsules)
        self._requests: RequestQueue | None = None
        self._timeline: Timeline | None = None
        self._lock = threading.Lock()
        self._profiling = threading.Lock()
        self._closed = False
        renewed_in_children(self)

    def _runs(self) -> Runs:
        """The object that runs the model on checked arrays."""
        return Executor(plan_run(self.graph, self._units), self._constants, self.settings.parallel)

    def _stays(self, number: int, array: DeviceArray) -> bool:
        """True if an input on a device may be read there: it is not recorded, and all its readers are on that device."""
        executor = self._executor
        return isinstance(executor, Executor) and self._recorder is None and executor.stays(number, array)

    def _stages(self) -> Pipeline | None:
        """The stages of requests, if PIPELINE is set and there are several."""
        if self.settings.pipeline is False or not isinstance(self._executor, Executor):
            return None
        pipeline = Pipeline(self._executor.plan, self.settings.pipeline)
        return pipeline if pipeline.stages > 1 else None

    @property
    def runs(self) -> Runs:
        """The object that runs the model on checked arrays."""
        return self._executor

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in METHODS:
                raise AttributeError(f"a compiled model has no {name!r}. {METHODS[name]}")
            return object.__getattribute__(self, name)

    # -- running -----------------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """The outputs for these inputs, which are given by position, as one dictionary, or by keyword.

        `out` may hold arrays to write the outputs to: one, a list with one (or None) for each output, or some by name. Arrays in
        a device's memory are read and written there by the device that owns them. The word "device" leaves an output in new
        memory of the device that computes it."""
        arrays = self._checker.arrays(args, named)
        due = 0 if self._recorder is None else self._recorder.due()
        plain = not (due or self.measured or self._closed)
        if out is None and plain and self._timeline is None:
            sizes = self._claims.sizes(arrays) if self._claims else ()
            try:
                outputs = self._executor.run(arrays)
                if self._claims:
                    self._claims.check(outputs, sizes)
            except PartitaError as error:
                if not self._has_renounced_claims(error):
                    raise
                return self(*args, **named)
            return Outputs(outputs, self._names)
        return self._run(arrays, out, traced=self._traced(), due=due)

    def _traced(self) -> Tracing | None:
        """The tracing of the next call; None if no timeline is open."""
        timeline = self._timeline
        return None if timeline is None else timeline.request()

    def _run(
        self, arrays: list[Any], out: Any, turn: Observer | None = None, traced: Tracing | None = None, due: int | None = None
    ) -> Outputs:
        given = list(arrays)
        try:
            return self._run_once(arrays, out, turn, traced, due)
        except PartitaError as error:
            if not self._has_renounced_claims(error):
                raise
        return self._run_once(given, out, None, None, due)

    def _has_renounced_claims(self, error: PartitaError) -> bool:
        """Compiles again with inferred sizes if the error is a wrong size that the file declares; False if it is not, or if that
        fails too."""
        if self.without_claims is None or not is_of_a_claim(error):
            return False
        with self._renouncing:
            make, self.without_claims = self.without_claims, None
            if make is not None:
                try:
                    final = make()
                except PartitaError:
                    return False
                final.without_claims = None
                note = f"{error.cause}; the inferred sizes are used instead"
                logger("compile").warning("%s: %s", self.graph.name, note)
                self._adopt(final, attrs.evolve(final.report, notes=(*final.report.notes, note)))
        return True

    def _adopt(self, final: CompiledModel, report: CompileReport | ImportedReport) -> None:
        """Replaces the executable by that of `final`, from the next call on."""
        with self._profiling, self._lock:
            if self._closed:
                final.close()
                return
            before, measuring = self._executor, self._measuring
            self.graph, self.dead, self.report = final.graph, final.dead, report
            self._units, self._constants, self._claims = final._units, final._constants, final._claims
            self.measuring_units, self._measuring, self._last = final.measuring_units, final._measuring, None
            self._executor, self._pipeline = final._executor, final._pipeline
            self.origin, self.measured, self.without_claims = final.origin, final.measured, final.without_claims
        before.close()
        if measuring is not None:
            measuring.close()

    def _run_once(
        self, arrays: list[Any], out: Any, turn: Observer | None, traced: Tracing | None, due: int | None = None
    ) -> Outputs:
        if self._closed:
            raise RunError("the model is closed", where=f"model {self.graph.name!r}", remedy="Compile it again")
        targets = None
        if out is not None:
            types = [entry.type for entry in self.graph.outputs]
            targets = out_arrays(out, self.graph.output_names, types, f"model {self.graph.name!r}")
        sizes = self._claims.sizes(arrays)
        measurement = Measurement() if self.measured else None
        inner = _one_in_the_other(turn, measurement)
        observer = inner if traced is None else traced(inner)
        if due is None and self._recorder is not None:
            due = self._recorder.due()
        if due:
            assert self._recorder is not None
            outputs = self._recorder.run(self._executor, arrays, targets, observer, due)
        else:
            outputs = self._executor.run(arrays, targets, observer, in_turn=inner is not None)
        self._last = self._last if measurement is None else measurement
        self._claims.check(outputs, sizes)
        if targets is not None:
            outputs = [value.known_as if isinstance(value, DeviceArray) else value for value in outputs]
        return Outputs(outputs, self._names)

    def start(self, /, *args: Any, out: Any = None, **named: Any) -> Future[Outputs]:
        """Start a call on another thread: `.result(timeout)` of the future waits for the outputs, `.cancel()` withdraws a call
        that has not begun.

        Inputs are checked immediately, and must not change until the call is done. While the queue is full, `start` waits, or
        raises QueueFull if QUEUE_FULL is "error"; past REQUEST_SECONDS the future ends with RequestTimeout."""
        arrays = self._checker.arrays(args, named)
        queue, traced = self._queue(), self._traced()
        pipeline = self._pipeline
        if pipeline is None:
            return queue.submit(lambda: self._run(arrays, out, traced=traced))
        return pipeline.submit(queue.submit, lambda request: self._run(arrays, out, request, traced))

    @property
    def pipelined(self) -> bool | None:
        """True if requests pass through the devices as a pipeline (PIPELINE). None while "AUTO" is still measuring."""
        pipeline = self._pipeline
        return False if pipeline is None else pipeline.trial.decided

    @contextmanager
    def timeline(self) -> Iterator[Timeline]:
        """Record when the steps of each call inside ran, on which devices and threads, and what they waited for.

            with model.timeline() as timeline:
                futures = [model.start(x) for x in inputs]
                results = [future.result() for future in futures]
            print(timeline)"""
        timeline = Timeline(self.graph.name)
        with self._lock:
            if self._timeline is not None:
                raise RunError("a timeline is open already", where=f"model {self.graph.name!r}", remedy="Close it first")
            self._timeline = timeline
        try:
            yield timeline
        finally:
            self._timeline = None

    @property
    def ready(self) -> Future[CompiledModel]:
        """The future of the model on its own devices: done, unless other devices answer first (START)."""
        future: Future[CompiledModel] = Future()
        future.set_result(self)
        return future

    def wait(self, timeout: float | None = None) -> CompiledModel:
        """The model, once its own devices are ready; their error if they cannot compile it, TimeoutError if it takes longer."""
        return self.ready.result(timeout)

    def session(self, longest: int | None = None, chunks: Sequence[int] = CHUNKS) -> Session:
        """A conversation with a decoder: the keys and values of earlier tokens are kept, and each call takes only new tokens.

        `longest` is the number of tokens to reserve room for; without it the room doubles when it is full. On `cpu` a step is
        compiled for each number of new tokens in `chunks`. A prompt of another length is read by the model itself, or in chunks
        of these lengths if the model is compiled for each size."""
        from partita.accelerators.decoder.conversation import opened  # upward: users call a method

        model = self.wait()
        with self._lock:
            if self._closed:
                raise RunError("the model is closed", where=f"model {self.graph.name!r}", remedy="Compile it again")
            self._decoder, session = opened(model, self._decoder, longest, chunks)
        return session

    def renew(self) -> None:
        """Resets the model in a forked process, which has none of the threads or their work."""
        self._requests, self._timeline = None, None
        self._lock, self._profiling, self._renouncing = threading.Lock(), threading.Lock(), threading.Lock()

    def profile(self, /, *args: Any, **named: Any) -> Profile:
        """The time of a run by subgraph and node.

        With inputs, the model runs on them several times, and each row is the median. Without inputs, it is the last call if
        the model was compiled with PERF_COUNT, else runs on generated inputs. Other threads may call the model meanwhile."""
        if args or named:
            return self._profiled(self._checker.arrays(args, named), "the inputs given")
        if self._last is not None:
            return profile_of([self._last], self.graph.name, "the last call", self.dead)
        return self._profiled(self.example_inputs(), "inputs made up" if self.graph.inputs else "no inputs")

    @at_a_device()
    def _profiled(self, arrays: list[Any], inputs: str) -> Profile:
        with self._profiling:
            if self._closed:
                raise RunError("the model is closed", where=f"model {self.graph.name!r}", remedy="Compile it again")
            if self._measuring is None:
                self._measuring = Executor(plan_run(self.graph, self.measuring_units()), self._constants, False)
                self._measuring.run(list(arrays), observer=Measurement(), in_turn=True)
            measurements = _measured(self._measuring, arrays)
        return profile_of(measurements, self.graph.name, inputs, self.dead)

    @property
    def recorded(self) -> Recorded | None:
        """The recorder's results so far; None without RECORD."""
        return None if self._recorder is None else self._recorder.recorded()

    def example_inputs(self, seed: int = 0, size: int = 1) -> list[Any]:
        """Arrays that fit the inputs: random values, ones for integers; `size` replaces dynamic sizes."""
        return self._checker.made_up(seed, size)

    def _queue(self) -> RequestQueue:
        with self._lock:
            if self._closed:
                raise RunError("the model is closed", where=f"model {self.graph.name!r}", remedy="Compile it again")
            if self._requests is None:
                running = self.settings.requests or self.properties.optimal_requests
                waiting = self.settings.queue or 2 * running
                self._requests = RequestQueue(running, waiting, self.settings.limit, self.settings.full == "error")
            return self._requests

    # -- properties --------------------------------------------------------------------------------------

    @property
    def properties(self) -> ModelProperties:
        """Devices, number of subgraphs, useful number of concurrent calls, inputs and outputs."""
        devices = tuple(dict.fromkeys(unit.device.label for unit in self._units.values()))
        graph = self.graph
        return ModelProperties(
            graph.name,
            devices,
            len(self._units),
            min(os.cpu_count() or 1, len(devices) + 1),
            tuple((node.name, node[0].type) for node in graph.inputs),
            tuple((name, entry.type) for name, entry in zip(graph.output_names, graph.outputs)),
        )

    @property
    def units(self) -> tuple[Unit, ...]:
        """The compiled subgraphs, in order."""
        return tuple(self._units[node.name] for node in self.graph.nodes if node.is_op)

    @property
    def is_for_any_size(self) -> bool:
        """True if no subgraph is compiled per size."""
        return all(not isinstance(unit.compiled, SpecializedSubgraph) or unit.compiled.any_size for unit in self.units)

    @property
    def fusions(self) -> dict[str, SecondLevel]:
        """The fused kernels and refused fusions of each subgraph, if its device shows them. Computed on access. A subgraph
        without its body has none, and neither has one with dynamic sizes."""
        whole = [unit for unit in self.units if is_static(unit.body) and not is_skeleton(unit.body)]
        levels = {unit.name: unit.device.accelerator.second_level(unit.body, unit.config) for unit in whole}
        return {name: level for name, level in levels.items() if level is not None}

    def kernels(self) -> list[Any]:
        """The kernels of devices that show them (the TVM devices do: name, body, schedule, TIR, machine code)."""
        return [kernel for unit in self.units for kernel in unit.kernels()]

    @at_a_device()
    def export(self, path: str | os.PathLike[str], *, bodies: bool = True, key: bytes | None = None) -> None:
        """Write the model as one file that `import_model` reads, here or elsewhere, without compiling again.

        `bodies=False` leaves out the ONNX bodies that the devices do not need; a `key` signs the file."""
        from partita.accelerators.runtime.package.exporting import export_model  # start-up

        export_model(self, check_path("export", path, AcceleratorError), bodies=bodies, key=key)

    def stages(self, times: Profile | Costs | None = None) -> Stages:
        """The model as a chain of models, one for consecutive subgraphs on one device, for engines that move tensors between
        processes or machines. `times` predict how long stages take: costs, or a profile (by default of generated inputs)."""
        from partita.accelerators.runtime.package.stages import stages_of  # start-up

        model = self.wait()
        return stages_of(model, model.profile() if times is None else times, CompiledModel)

    def close(self) -> None:
        """Finish running calls, drop waiting ones, and free threads and buffers. Later calls are errors."""
        with self._lock:
            self._closed = True
            requests, self._requests = self._requests, None
            decoder, self._decoder = self._decoder, None
        if decoder is not None:
            decoder.close()
        if requests is not None:
            requests.close()
        with self._profiling:
            self._executor.close()
            if self._measuring is not None:
                self._measuring.close()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The representation for notebooks."""
        return bundle(self, model_html(self))

    def __reduce__(self) -> Any:
        raise AcceleratorError(
            "a compiled model holds machine code and threads of this process, so it can be neither pickled nor copied",
            where=f"model {self.graph.name!r}",
            remedy='Write it to a file with model.export("net.partita"), which import_model reads; its graph can be pickled',
        )

    def __repr__(self) -> str:
        graph, devices = self.graph, ", ".join(self.properties.devices) or "no device"
        border = f"{', '.join(node.name for node in graph.inputs)} -> {', '.join(graph.output_names)}"
        return f"<CompiledModel {graph.name!r} ({border}): {counted(self.properties.subgraphs, 'subgraph')} on {devices}>"


def _measured(runs: Runs, arrays: Sequence[Any]) -> list[Measurement]:
    """The measured runs of a profile: as many as fit the time, and enough that a single run cannot move the median."""
    measurements: list[Measurement] = []
    start = time.perf_counter()
    while not measurements or time.perf_counter() - start < (SECONDS if len(measurements) >= FEWEST else LONGEST):
        if len(measurements) == CALLS:
            break
        measurements.append(Measurement())
        runs.run(list(arrays), observer=measurements[-1], in_turn=True)
    return measurements


def _one_in_the_other(outer: Observer | None, inner: Observer | None) -> Observer | None:
    """Combines two observers of one call."""
    if outer is None or inner is None:
        return outer or inner
    return lambda step, run: outer(step, lambda: inner(step, run))


def _asked_weakly(method: WeakMethod[Stays]) -> Stays:
    """The method, for an object that must not keep the model alive: a dropped model frees its memory at once."""

    def stays(number: int, array: DeviceArray) -> bool:
        bound = method()
        return bound is not None and bound(number, array)

    return stays


def _constant_ids(graph: Graph) -> frozenset[int]:
    """The identities of all constant arrays, and of their base arrays."""
    ids: set[int] = set()
    for inner in graphs_in(graph):
        for node in inner.nodes:
            if node.value is not None:
                ids |= {id(node.value), id(root(node.value))}
    return frozenset(ids)


def model_html(model: CompiledModel) -> str:
    """The model's properties, its subgraphs, and its graph in the colours of the devices."""
    properties = model.properties
    rows = [
        ("devices", ", ".join(properties.devices)),
        *(("input", name if kind is None else f"{name}: {kind}") for name, kind in properties.inputs),
        *(("output", name if kind is None else f"{name}: {kind}") for name, kind in properties.outputs),
    ]
    calls = [(unit.name, unit.device.label, len(unit.ops)) for unit in model.units]
    svg = notebook_svg(model.graph)
    shown = table((), rows, title=f"{properties.name}, compiled") + table(("subgraph", "device", "ops"), calls, most=20)
    return shown + ("" if svg is None else picture(svg, f"{properties.name}, coloured by device"))
