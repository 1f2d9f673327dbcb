"""A body as a compiled model with a pool of infer requests, and openvino's errors in one line."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.engines.openvino.index_checks import GivenIndices
from partita.accelerators.engines.openvino.profile import Owners, Times, owners_of_layers, rows_of
from partita.accelerators.engines.probing import NOTHING, found_nothing
from partita.accelerators.errors import CompileError, RunError
from partita.accelerators.interface.accelerator import CompiledSubgraph, ProfileRow
from partita.accelerators.interface.empty_reductions import Empties
from partita.accelerators.process.forking import Guard
from partita.graph.graph import Graph
from partita.graph.types import Array, TensorType, numpy_dtype

BOUND_FROM = 1 << 16
"""Outputs of at least this many bytes are written directly to the caller's arrays; copying smaller ones is as fast."""


class CompiledRequests(CompiledSubgraph):
    """Runs the compiled model; inputs and large outputs are not copied."""

    concurrent = True
    alignment = 64

    def __init__(
        self, engine: Any, compiled: Any, model: EngineModel, graph: Graph, perf_count: bool,
        exported: Callable[[], bytes] | None = None,
    ) -> None:
        self.model = model
        """The ONNX model that was compiled."""
        self._exported = exported or (lambda: compiled.export_model().getvalue())
        """Returns the engine's own compiled form. For an imported model these are the imported bytes: the engine cannot read
        what it exports of one."""
        self._engine = engine
        self._compiled = compiled
        self._perf_count = perf_count
        self._graph = graph
        self._owners: Owners | None = None
        self._times = Times()
        self._guard = Guard()
        self._inputs = _numbers(compiled.inputs, len(graph.inputs))
        self._shapes = [_large_static(port, entry.type) for port, entry in zip(compiled.outputs, graph.outputs, strict=False)]
        self._count = len(graph.outputs)
        self._probes = len(compiled.outputs) - self._count
        if self._probes < 0:
            raise CompileError(f"openvino returns {len(compiled.outputs)} of {self._count} outputs", where="device 'openvino'")
        self._indices = GivenIndices(graph)
        self._empties = Empties(graph, self._probes > 0)
        self._free: deque[_Request] = deque()
        self._last = threading.local()

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """One run on a free request."""
        inputs = self._indices.checked(inputs)
        computed = self._empties.results(inputs)
        if computed is not None:
            return computed
        try:
            request = self._free.pop()
        except IndexError:
            request = _Request(self._engine, self._compiled, self._inputs, self._shapes)
        try:
            results = request.run(inputs, out)
            if self._perf_count:
                self._last.noted = self._noted(request.request.profiling_info)
            sizes = request.extra(self._count, self._probes)
        except RuntimeError as error:
            raise RunError(self.model.in_own_words(reason(error)), where="device 'openvino'") from None
        self._free.append(request)
        return self._empties.computed(inputs, NOTHING) if found_nothing(sizes) else results

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of this thread's last run."""
        noted = getattr(self._last, "noted", None)
        if noted is None:
            return ()
        if self._owners is None:
            self._owners = owners_of_layers(self._compiled, self.model, self._graph)
        infos, times = noted
        return rows_of(infos, times, self._owners, self.model)

    def _noted(self, infos: Sequence[Any]) -> tuple[Sequence[Any], Times]:
        """Updates the times, and returns counters and times. With several streams the counters are those of an unknown stream,
        and the times are not updated."""
        if int(self._compiled.get_property("NUM_STREAMS")) == 1:
            with self._guard.lock:
                self._times = self._times.after(infos)
        return infos, self._times

    def export(self) -> bytes:
        """The engine's own compiled form."""
        return self._exported()


class _Request:
    """One infer request.

    Setting a tensor costs more than running a small model, so a tensor that is set already is not set again."""

    def __init__(self, engine: Any, compiled: Any, inputs: Sequence[int], shapes: Sequence[tuple[Any, Any] | None]) -> None:
        self.request = compiled.create_infer_request()
        """openvino's own request."""
        self._tensor = engine.Tensor
        self._inputs = inputs
        self._given: list[Any] = [None] * len(inputs)
        self._shapes = shapes

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        request, given = self.request, self._given
        for i, number in enumerate(self._inputs):
            value = inputs[number]
            if given[i] is not value:
                request.set_input_tensor(i, self._tensor(_plain(value), shared_memory=True))
                given[i] = value
        bound = self._bind(out)
        request.infer()
        return [
            request.get_output_tensor(i).data.copy() if target is None else target for i, target in enumerate(bound)
        ]

    def extra(self, first: int, count: int) -> list[Array]:
        """The last run's extra outputs: `count` arrays from index `first` on."""
        return [self.request.get_output_tensor(first + i).data.copy() for i in range(count)]

    def _bind(self, out: Sequence[Any] | None) -> list[Array | None]:
        """The array to write each output to, the caller's or a new one; None for small outputs."""
        bound: list[Array | None] = []
        for i, large in enumerate(self._shapes):
            if large is None:
                bound.append(None)
                continue
            target = out[i] if out is not None else None
            if target is None or not _fits(target, *large):
                target = aligned(*large)
            self.request.set_output_tensor(i, self._tensor(_plain(target), shared_memory=True))
            bound.append(target)
        return bound


def _plain(array: Array) -> Array:
    """The array with the 64-bit dtype that openvino accepts: numpy has two equal ones, and onnxruntime returns the other."""
    return array.view(array.dtype.str) if array.dtype.char in "lLqQ" else array


def aligned(shape: tuple[int, ...], dtype: Any, boundary: int = 64) -> Array:
    """A new array whose address is a multiple of `boundary`."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + boundary, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start : start + size].view(dtype).reshape(shape)


def _fits(target: Array, shape: tuple[int, ...], dtype: Any) -> bool:
    flags = target.flags
    return (
        target.shape == shape and target.dtype == dtype and flags.c_contiguous and flags.writeable and not target.ctypes.data % 64
    )


def _numbers(ports: Sequence[Any], count: int) -> list[int]:
    """The number of the body's input for each of the engine's inputs.

    The engine drops unused inputs, and an input that is also an output loses its name. Nameless inputs are the remaining ones
    in order, if there are as many."""
    numbers = [_number(port) for port in ports]
    rest = [number for number in range(count) if number not in numbers]
    if numbers.count(None) not in (0, len(rest)):
        raise CompileError("openvino's inputs cannot be told apart", where="device 'openvino'")
    return [rest.pop(0) if number is None else number for number in numbers]


def _number(port: Any) -> int | None:
    names = (port.get_node().get_friendly_name(), *port.names)
    return next((int(name[1:]) for name in names if name[:1] == "x" and name[1:].isdigit()), None)


def _large_static(port: Any, value_type: Any) -> tuple[Any, Any] | None:
    """Shape and dtype of an output that is large enough to bind."""
    if not isinstance(value_type, TensorType) or port.partial_shape.is_dynamic:
        return None
    dtype = numpy_dtype(value_type.dtype)
    shape = tuple(port.shape)
    return (shape, dtype) if math.prod(shape) * dtype.itemsize >= BOUND_FROM else None


def reason(error: BaseException) -> str:
    """The engine's message without its source locations."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NOISE)]
    return " ".join(telling) or " ".join(lines)


_NOISE = ("Exception from", "Check '", "FrontEnd API failed", "Model wasn't fully converted", "Summary", "To facilitate")
