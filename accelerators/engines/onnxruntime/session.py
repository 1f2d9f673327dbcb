"""A compiled body: an onnxruntime session."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.engines.onnxruntime.session_options import WRONG, reason
from partita.accelerators.engines.probing import NOTHING, found_nothing
from partita.accelerators.errors import RunError
from partita.accelerators.interface.accelerator import EXECUTED, OPTIMIZED_OUT, CompiledSubgraph, ProfileRow
from partita.accelerators.interface.empty_reductions import Empties
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.readers.onnx.tensors import byte_size, unpacked
from partita.graph.types import ELEMENT_TYPES, PACKED, TensorType, Type, dtype_name, numpy_dtype
from partita.graph.writers.onnx.tensors import packed

Session = Any

BOUND_FROM = 1 << 20
"""Outputs of at least this many bytes are written directly to the caller's arrays; copying smaller ones is as fast."""

_PROPAGATION = "QDQPropagationTransformer"
"""Adds another quantization after each op that moves dequantized values: to uint8 if there is no zero point, whatever the
original type, or to int32, which is invalid."""

_DROPPED = ops("forwarding") | {"Cast"}
"""The ops that another optimizer may have removed before."""


def _wrong_optimizers(graph: Graph) -> list[str]:
    """The optimizers to disable for this graph, since they would change results. Linear."""
    return [*WRONG, _PROPAGATION] if any(_breaks(inner) for inner in graphs_in(graph)) else [*WRONG]


def _breaks(graph: Graph) -> bool:
    """True if dequantized values are moved that the added quantization would not restore."""
    waiting: set[NodeEntry] = set()
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and not _comes_back(node):
            waiting.add(node[0])
        elif waiting.intersection(node.reads):
            if node.op in ops("propagated"):
                return True
            if node.op in _DROPPED:
                waiting.add(node[0])
    return False


def _comes_back(node: Node) -> bool:
    """True if quantizing with the same inputs, and no attribute, restores the dequantized values."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    dtype = data_type.dtype if isinstance(data_type, TensorType) else None
    return dtype == "uint8" or (dtype != "int32" and len(node.inputs) > 2 and node.inputs[2] is not None)


def session_of(engine: Any, model: EngineModel, graph: Graph, options: Any, providers: Sequence[Any] | None) -> Session:
    """A session that shares the large weights with the graph. The options name the providers if there are none here."""
    how = {"providers": providers, "disabled_optimizers": _wrong_optimizers(graph), "enable_fallback": providers is not None}
    shared = {name: array for name, array in model.weights.items() if not _is_narrow(array.dtype)}
    if len(shared) < len(model.weights):
        return engine.InferenceSession(model.complete(), options, **how)
    if shared:
        arrays = [np.ascontiguousarray(array) for array in shared.values()]
        values = [engine.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        options.add_external_initializers(list(shared), values)
    return engine.InferenceSession(model.proto.SerializeToString(), options, **how)


class CompiledSession(CompiledSubgraph):
    """Runs the session like a direct caller of onnxruntime; arrays are not copied."""

    concurrent = True
    alignment = 16

    def __init__(self, model: EngineModel, graph: Graph, make: Callable[[str | None], Session], perf_count: bool) -> None:
        self.model = model
        """The model, whose weights the session reads."""
        self._make = make
        self._profile = _Profile(model, make) if perf_count else None
        self._session = None if perf_count else make(None)
        self._inputs = model.inputs
        self._outputs = [*model.outputs, *model.probes]
        self._count = len(model.outputs)
        of_probes: list[Type | None] = [TensorType("int64")] * len(model.probes)
        self._types = [node[0].type for node in graph.inputs], [entry.type for entry in graph.outputs] + of_probes
        self._empties = Empties(graph, bool(model.probes))
        self._narrow = any(_is_narrow(getattr(value_type, "dtype", None)) for side in self._types for value_type in side)
        renewed_in_children(self)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run once. The engine's own output arrays belong to the caller, except large ones that fit `out`."""
        results = self._empties.results(inputs)
        if results is not None:
            return results
        try:
            if self._profile is not None:
                again = partial(self._run, inputs=inputs, out=None)
                results = self._profile.run(partial(self._run, inputs=inputs, out=out), again)
            else:
                results = self._run(self._session, inputs, out)
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            raise RunError(self.model.in_own_words(reason(error)), where="device 'onnxruntime'") from None
        if not self.model.probes:
            return results
        if found_nothing(results[self._count :]):
            return self._empties.computed(inputs, NOTHING)
        return results[: self._count]

    def _run(self, session: Session, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
        if self._narrow:
            return self._run_narrow(session, inputs)
        if out is not None and any(_takes(target) for target in out):
            return self._run_bound(session, inputs, out)
        return session.run(self._outputs, dict(zip(self._inputs, inputs)))  # type: ignore[no-any-return]

    def _run_bound(self, session: Session, inputs: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
        binding = session.io_binding()
        for name, value in zip(self._inputs, inputs):
            if not isinstance(value, np.ndarray) or value.dtype == object:
                return session.run(self._outputs, dict(zip(self._inputs, inputs)))  # type: ignore[no-any-return]
            binding.bind_cpu_input(name, value)
        out = [*out, *[None] * len(self.model.probes)]
        for name, target in zip(self._outputs, out, strict=True):
            if _takes(target):
                binding.bind_output(name, "cpu", 0, target.dtype, target.shape, target.ctypes.data)
            else:
                binding.bind_output(name)
        session.run_with_iobinding(binding)
        if all(map(_takes, out)):
            return list(out)
        return [
            target if _takes(target) else value.numpy() for target, value in zip(out, binding.get_outputs(), strict=True)
        ]

    def _run_narrow(self, session: Session, inputs: Sequence[Any]) -> Sequence[Any]:
        """Runs with element types that are not numpy's own."""
        given = {name: _to_engine(value) for name, value in zip(self._inputs, inputs)}
        values = session.run_with_ort_values(self._outputs, given)
        return [_from_engine(value, value_type) for value, value_type in zip(values, self._types[1], strict=True)]

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of the last run; reading them begins a new profile."""
        return () if self._profile is None else self._profile.rows()

    def export(self) -> bytes:
        """The ONNX model as bytes, including its weights."""
        return self.model.complete()

    def renew(self) -> None:
        """Keeps the session alive in a forked process, which lacks its threads: its destructor would wait for them."""
        _of_parents.append(self._session if self._profile is None else self._profile.session)


_of_parents: list[Session] = []
"""The sessions that existed when this process was forked."""


def _takes(target: Any) -> bool:
    return (
        target is not None
        and target.nbytes >= BOUND_FROM
        and target.flags.c_contiguous
        and target.flags.writeable
        and target.dtype != object
    )


class _Profile:
    """Sessions that write profiles. onnxruntime writes a profile only when it ends, so each reading needs a new session. It
    is created when the rows are read, outside of any measurement, and runs once on the same inputs to warm up."""

    def __init__(self, model: EngineModel, make: Callable[[str | None], Session]) -> None:
        self._model = model
        self._make = make
        self._folder = tempfile.TemporaryDirectory(prefix="partita-profile-")
        self._guard = Guard()
        self._rows: Sequence[ProfileRow] = ()
        self._again: Callable[[Session], Any] | None = None
        self.session = self._fresh()
        """The session of the next run."""

    def _fresh(self) -> Session:
        return self._make(str(Path(self._folder.name) / "run"))

    def run(self, action: Callable[[Session], Any], again: Callable[[Session], Any]) -> Any:
        """Runs one at a time, so that the last run is well defined. `again` is the same run, for a new session."""
        with self._guard.lock:
            result = action(self.session)
            self._again = again
            return result

    def rows(self) -> Sequence[ProfileRow]:
        """The rows of the last run."""
        with self._guard.lock:
            if self._again is not None:
                path = Path(self.session.end_profiling())
                self._rows = _rows_of_last_run(path.read_text("utf-8"), self._model)
                path.unlink()
                self.session = self._fresh()
                self._again(self.session)
                self._again = None
            return self._rows


_KERNEL = "_kernel_time"


def _rows_of_last_run(text: str, model: EngineModel) -> Sequence[ProfileRow]:
    """A row for each kernel of the last run in this profile, then one for each node without a kernel of its name."""
    events = json.loads(text)
    runs = [event for event in events if event.get("name") == "model_run"]
    if not runs:
        return ()
    start = runs[-1]["ts"]
    end = start + runs[-1]["dur"]
    rows, seen = [], set()
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL) and start <= event["ts"] <= end:
            kernel = name.removesuffix(_KERNEL)
            node = model.node_of(kernel)
            details = event.get("args", {})
            time = float(event["dur"])
            title = kernel if node is None else node.name
            provider = details.get("provider", "onnxruntime")
            rows.append(ProfileRow(title, details.get("op_name", ""), EXECUTED, time, time, provider))
            seen.add(node)
    gone = [node for node in model.nodes if node not in seen]
    return (*rows, *(ProfileRow(node.name, node.op or "", OPTIMIZED_OUT, 0.0, 0.0, "") for node in gone))


_NATIVE = frozenset("?bhilqBHILQefdgFDGO")


def _is_narrow(dtype: Any) -> bool:
    """True for an element type that is not numpy's own: numpy has it only through ml_dtypes."""
    if dtype is None:
        return False
    numpy_kind = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    return numpy_kind.kind != "U" and (numpy_kind.char not in _NATIVE or numpy_kind.kind == "V")


def _to_engine(value: np.ndarray[Any, Any]) -> Any:
    """Converts the array to onnxruntime's own value."""
    from onnxruntime import OrtValue

    if not _is_narrow(value.dtype):
        return OrtValue.ortvalue_from_numpy(_contiguous(value))
    name = dtype_name(value.dtype)
    if name in PACKED:
        ort_value = OrtValue.ortvalue_from_shape_and_type(list(value.shape), ELEMENT_TYPES[name].number)
        data = packed(value, name)
        ctypes.memmove(ort_value.data_ptr(), data.ctypes.data, data.nbytes)
        return ort_value
    held = _contiguous(value).view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(held, ELEMENT_TYPES[name].number)


def _contiguous(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(value).reshape(value.shape)


def _from_engine(value: Any, value_type: Any) -> Any:
    """Converts onnxruntime's value to an array; `value_type` is its type."""
    if not isinstance(value_type, TensorType) or not _is_narrow(value_type.dtype):
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape))
    data = np.empty(byte_size(value_type.dtype, size), np.uint8)
    ctypes.memmove(data.ctypes.data, value.data_ptr(), data.nbytes)
    if value_type.dtype in PACKED:
        return unpacked(data, PACKED[value_type.dtype], size).view(numpy_dtype(value_type.dtype)).reshape(shape)
    return data.view(numpy_dtype(value_type.dtype)).reshape(shape)
