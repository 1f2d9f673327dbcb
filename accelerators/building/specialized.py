"""Subgraphs with dynamic sizes on devices that need static ones: compiled once for any size, or for each size on first use.

A size that differs with every call would be compiled with every call. Therefore, once KEPT sizes are compiled, and if
compiling takes long, a further size is served by a stand-in for any size, until that has cost as much time as
compiling would: for any sequence of sizes, the time is at most twice that of the better choice for each.
A size of 0 is computed in numpy if the subgraph is compiled once for any size.
The stand-in also serves a size that does not compile, with a warning. In a model that starts at once it serves every
size until that is compiled, in the background, one at a time. Sizes called meanwhile are not queued, so that
nothing piles up however many there are."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.layout import array_ids, owned
from partita.accelerators.arrays.on_device import ON_DEVICE
from partita.accelerators.building.replicas import SideBySide
from partita.accelerators.interface.accelerator import AnySize, CompiledSubgraph, ProfileRow
from partita.accelerators.interface.compile_now import run_laid_out
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.graph.errors import DeclaredMismatch, PartitaError
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.types import TensorType, numpy_dtype
from partita.passes.infer import infer, without_declared
from partita.passes.infer.contract import Contract
from partita.passes.infer.dim_symbols import symbols_in
from partita.passes.infer.reading import Reading
from partita.passes.infer.shape_operands import INDEXED
from partita.passes.infer.traced_sizes import REMEDY

KEPT = 8
"""Maximum number of compiled sizes; the least recently used one is dropped."""

LONG = 0.1
"""Seconds: if compiling is faster than this, every size is compiled."""

COUNTED = 4096
"""Maximum number of sizes whose time on the stand-in is recorded."""

Shapes = tuple[tuple[int, ...], ...]
"""The sizes of all inputs."""


class SpecializedSubgraph(CompiledSubgraph):
    """Takes host arrays of any size, and passes them to the subgraph compiled for that size."""

    concurrent = True

    def __init__(
        self,
        graph: Graph,
        compile_static: Callable[[Graph], CompiledSubgraph],
        stand_in: Callable[[Graph], CompiledSubgraph | None] = lambda graph: None,
        behind: bool = False,
        any_size: AnySize | str | None = None,
    ) -> None:
        self.graph = graph
        """The body with its dynamic sizes."""
        self._contract = Contract(graph)
        self._compile = compile_static
        self._stand_in = _StandIn(graph, stand_in)
        self._behind = behind
        """True if sizes are compiled in the background, while the stand-in serves their calls."""
        self.any_size = any_size if isinstance(any_size, AnySize) else None
        """The subgraph compiled for all sizes, which is tried first."""
        self.notes = _notes(any_size)
        self._any_size = None if self.any_size is None else SideBySide(self.any_size.compiled)
        self._guard = Guard()
        self._kept: OrderedDict[Shapes, _Kept] = OrderedDict()
        self._at_work = False
        """True while a size is being compiled in the background."""
        self._rows = threading.local()
        renewed_in_children(self)

    @property
    def sizes(self) -> tuple[Shapes, ...]:
        """The sizes that are compiled now, least recently used first."""
        with self._guard.lock:
            return tuple(shapes for shapes, kept in self._kept.items() if kept.compiled is not None)

    def kernels(self) -> Sequence[Any]:
        """The kernels for any size, then those of each size that is compiled now, least recently used first."""
        for_any = [] if self.any_size is None else self.any_size.compiled.kernels()
        with self._guard.lock:
            subgraphs = [kept.compiled for kept in self._kept.values() if kept.compiled is not None]
        return [*for_any, *(kernel for compiled in subgraphs for kernel in compiled.kernels())]

    @property
    def stood_in(self) -> int:
        """Number of calls that the stand-in served."""
        return self._stand_in.calls

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run the subgraph of this size. Concurrent threads compile a new size only once."""
        shapes = tuple([tuple(getattr(value, "shape", ())) for value in inputs])
        if shapes not in self._contract.fitting:
            self._contract.check(shapes)
        given = None if self.any_size is None else self.any_size.given(shapes, inputs)
        if self._any_size is not None and given is not None:
            with self._any_size.lent() as compiled:
                results = run_laid_out(compiled, given, out)
                self._rows.last = compiled.profile_rows()
            return results
        if self.any_size is not None and self.any_size.is_empty(shapes):
            with contextlib.suppress(PartitaError):  # else the subgraph compiled for this size reports the error
                return self._nothing(shapes, inputs, out)
        kept = self._find(shapes)
        if kept is not None:
            try:
                compiled = kept.ready(self.graph, self._compile)
            except Exception as error:
                if isinstance(error, DeclaredMismatch) or not self._handed_over(kept):
                    raise
                return self._run_instead(shapes, error, inputs, out)
            self._trim()
            return self._run(kept, compiled, inputs, out)
        results, self._rows.last = self._stand_in.run(shapes, inputs, out)
        return results

    def native(self, inputs: Sequence[Any]) -> tuple[CompiledSubgraph, Sequence[Any]] | None:
        """The kernels for any size, if they take these sizes, or those that are compiled for them."""
        shapes = tuple([value.shape for value in inputs])
        given = None if self.any_size is None else self.any_size.given(shapes, inputs)
        if self.any_size is not None and given is not None:
            return self.any_size.compiled.native(given)
        kept = self._kept.get(shapes)
        return None if kept is None or kept.compiled is None else kept.compiled.native(inputs)

    def _nothing(self, shapes: Shapes, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
        """The results for a size of 0, most of which are empty: nothing is compiled for them. Indices are checked all the same,
        since none is valid for an empty axis."""
        self._rows.last = ()
        at_host = None if out is None else [None if wanted is ON_DEVICE else wanted for wanted in out]
        constants = {id(node.value) for node in self.graph.nodes if node.value is not None}
        reading = Reading(self.graph, shapes)
        known = {}
        for entry in (entry for node in self.graph.nodes if node.is_op and node.op not in INDEXED for entry in node.outputs):
            sizes = reading.sizes(entry)
            numbers = [] if sizes is None else [size for size in sizes if isinstance(size, int)]
            if 0 in numbers and sizes is not None and len(numbers) == len(sizes) and isinstance(entry.type, TensorType):
                known[entry] = np.empty(numbers, numpy_dtype(entry.type.dtype))
        return owned(interpret(self.graph, inputs, known), array_ids(inputs) | constants, at_host)

    def let_go(self) -> None:
        """Frees the memory of the subgraph for any size and of those of all sizes."""
        if self._any_size is not None:
            self._any_size.let_go()
        with self._guard.lock:
            subgraphs = [kept.compiled for kept in self._kept.values() if kept.compiled is not None]
        for compiled in subgraphs:
            compiled.let_go()

    def _handed_over(self, kept: _Kept) -> bool:
        """Removes a size that does not compile, so that it takes no room from others.

        Returns True if the stand-in serves it from now on."""
        with self._guard.lock:
            if self._kept.get(kept.shapes) is kept:
                del self._kept[kept.shapes]
        return self._stand_in.takes_over(kept.shapes)

    def _run_instead(
        self, shapes: Shapes, error: Exception, inputs: Sequence[Any], out: Sequence[Any] | None
    ) -> Sequence[Any]:
        try:
            results, self._rows.last = self._stand_in.run(shapes, inputs, out)
        except PartitaError as failure:
            raise failure from error
        sizes = ", ".join(str(list(shape)) for shape in shapes)
        warnings.warn(f"subgraph {self.graph.name!r} does not compile for {sizes} and runs otherwise: {error}", stacklevel=2)
        return results

    def _run(
        self, kept: _Kept, compiled: CompiledSubgraph, inputs: Sequence[Any], out: Sequence[Any] | None
    ) -> Sequence[Any]:
        there = compiled.memory == "host"
        read = inputs if there else [compiled.upload(value) for value in inputs]
        with kept.guard.lock:
            results = run_laid_out(compiled, read, out if there else None)
            self._rows.last = compiled.profile_rows()
        return results if there else [compiled.download(value) for value in results]

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of this thread's last run."""
        return tuple(getattr(self._rows, "last", ()))

    def _find(self, shapes: Shapes) -> _Kept | None:
        """The subgraph of this size; None if the stand-in serves it."""
        with self._guard.lock:
            kept = self._kept.get(shapes)
            if kept is not None:
                self._kept.move_to_end(shapes)
            times = [kept.seconds for kept in self._kept.values() if kept.compiled is not None]
        if kept is None:
            if self._stand_in.took_over(shapes):
                return None
            if len(times) >= KEPT and self._stand_in.serves(shapes, sum(times) / len(times)):
                return None
        if self._behind and (kept is None or not kept.is_ready) and self._stand_in.is_there():
            self._begin(shapes)
            return None
        if kept is None:
            with self._guard.lock:
                kept = self._kept.setdefault(shapes, _Kept(shapes))
        return kept

    def _begin(self, shapes: Shapes) -> None:
        """Compiles this size in the background, unless another is being compiled there."""
        with self._guard.lock:
            if self._at_work:
                return
            self._at_work = True
            kept = self._kept.setdefault(shapes, _Kept(shapes))

        def work() -> None:
            with at_a_device():
                with contextlib.suppress(Exception):  # the error is kept for the next call of this size
                    kept.ready(self.graph, self._compile)
                self._at_work = False
                self._trim()

        try:
            threading.Thread(target=work, name="partita-size", daemon=True).start()
        except RuntimeError:  # the interpreter is ending, or the system's thread limit is reached
            self._at_work = False

    def renew(self) -> None:
        """Resets the flag in a forked process, which has no compiling thread."""
        self._at_work = False

    def _trim(self) -> None:
        """Drops the least recently used sizes, but none that is being compiled."""
        if len(self._kept) > KEPT:
            with self._guard.lock:
                ready = [shapes for shapes, kept in self._kept.items() if kept.is_ready]
                dropped = [self._kept.pop(shapes).compiled for shapes in ready[:-KEPT]]
            for compiled in dropped:
                if compiled is not None:
                    compiled.let_go()


def _notes(any_size: AnySize | str | None) -> Sequence[str]:
    """Notes for the report on how sizes are compiled."""
    if any_size is None:
        return ()
    return (any_size,) if isinstance(any_size, str) else ("compiled once for any size", *any_size.notes, *any_size.compiled.notes)


class _Kept:
    """One size, compiled on first use."""

    def __init__(self, shapes: Shapes) -> None:
        self.guard = Guard()
        self.seconds = 0.0
        """Compile time in seconds."""
        self.shapes = shapes
        """The size."""
        self.compiled: CompiledSubgraph | None = None
        """The subgraph compiled for the size."""
        self._error: Exception | None = None

    @property
    def is_ready(self) -> bool:
        """True if it is compiled, or known not to compile."""
        return self.compiled is not None or self._error is not None

    def ready(self, graph: Graph, compile_static: Callable[[Graph], CompiledSubgraph]) -> CompiledSubgraph:
        with self.guard.lock:
            if self._error is not None:
                raise self._error
            if self.compiled is None:
                start = time.perf_counter()
                given = dict(zip((node.name for node in graph.inputs), self.shapes, strict=True))
                try:
                    compiled = compile_static(_of_sizes(graph, given))
                except Exception as error:
                    self._error = error
                    raise
                self.seconds = time.perf_counter() - start
                self.compiled = compiled
            return self.compiled


def _of_sizes(graph: Graph, given: Mapping[str, Sequence[int]]) -> Graph:
    """The graph with types inferred from these sizes of its inputs.

    A declared integer size has to agree with inference. A symbol of an intermediate value is a file's guess for a size that
    depends on values: where it disagrees, the inferred size replaces it."""
    try:
        return infer(graph, given)
    except DeclaredMismatch as error:
        outputs = {entry.node for entry in graph.outputs}
        inside = [node for node in graph.nodes if node.is_op and node not in outputs]
        guessed = frozenset(node.name for node in inside if any(any(symbols_in(known)) for known in node.output_types))
        with contextlib.suppress(DeclaredMismatch):
            if guessed:
                return infer(without_declared(graph, guessed), given)
        raise DeclaredMismatch(error.cause, where=error.where, remedy=REMEDY) from error


class _StandIn:
    """A subgraph that runs any size without compiling, and the time that it took for each size."""

    def __init__(self, graph: Graph, make: Callable[[Graph], CompiledSubgraph | None]) -> None:
        self.calls = 0
        """Number of calls that it served."""
        self._graph = graph
        self._make = make
        self._compiled: CompiledSubgraph | None = None
        self._asked = False
        self._guard, self._one_at_a_time = Guard(), Guard()
        self._spent: OrderedDict[Shapes, float] = OrderedDict()
        self._only: OrderedDict[Shapes, None] = OrderedDict()
        """The sizes that do not compile."""

    def serves(self, shapes: Shapes, compiling: float) -> bool:
        """True if it should serve these sizes, given the compile time in seconds."""
        if compiling < LONG:
            return False
        with self._guard.lock:
            if not self._there() or self._spent.get(shapes, 0.0) < compiling:
                return self._compiled is not None
            del self._spent[shapes]
            return False

    def takes_over(self, shapes: Shapes) -> bool:
        """Records sizes that do not compile; True if there is a stand-in to serve them."""
        with self._guard.lock:
            if self._there():
                self._only[shapes] = None
                if len(self._only) > COUNTED:
                    self._only.popitem(last=False)
            return self._compiled is not None

    def took_over(self, shapes: Shapes) -> bool:
        """True if these sizes are known not to compile."""
        return shapes in self._only

    def is_there(self) -> bool:
        """True if some device runs the whole graph at any size."""
        with self._guard.lock:
            return self._there()

    def _there(self) -> bool:
        if not self._asked:
            self._compiled, self._asked = self._make(self._graph), True
        return self._compiled is not None

    def run(
        self, shapes: Shapes, inputs: Sequence[Any], out: Sequence[Any] | None
    ) -> tuple[Sequence[Any], Sequence[ProfileRow]]:
        """The outputs and profile rows of a run."""
        assert self._compiled is not None
        start = time.perf_counter()
        at_host = None if out is None else [None if wanted is ON_DEVICE else wanted for wanted in out]
        with contextlib.nullcontext() if self._compiled.concurrent else self._one_at_a_time.lock:
            results, rows = run_laid_out(self._compiled, inputs, at_host), self._compiled.profile_rows()
        seconds = time.perf_counter() - start
        with self._guard.lock:
            self.calls += 1
            self._spent[shapes] = self._spent.pop(shapes, 0.0) + seconds
            if len(self._spent) > COUNTED:
                self._spent.popitem(last=False)
        return results, rows


def is_static(graph: Graph) -> bool:
    """True if all inputs that are tensors have static shapes."""
    return all(not isinstance(node[0].type, TensorType) or node[0].type.is_static for node in graph.inputs)
