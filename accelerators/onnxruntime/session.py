"""A compiled body: an onnxruntime session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.engines.probing import NOTHING, found_nothing
from partita.accelerators.errors import RunError
from partita.accelerators.interface.accelerator import CompiledSubgraph, ProfileRow
from partita.accelerators.interface.empties import Empties
from partita.accelerators.onnxruntime.narrow import from_engine, is_narrow, to_engine
from partita.accelerators.onnxruntime.optimizers import wrong_optimizers
from partita.accelerators.onnxruntime.profile import rows_of_last_run
from partita.accelerators.onnxruntime.reasons import reason
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.graph.graph import Graph
from partita.graph.types import TensorType, Type

Session = Any

BOUND_FROM = 1 << 20
"""Outputs of at least this many bytes are written directly to the caller's arrays; copying smaller ones is as fast."""


def session_of(engine: Any, model: EngineModel, graph: Graph, options: Any, providers: Sequence[Any]) -> Session:
    """A session that shares the large weights with the graph."""
    how = {"providers": list(providers), "disabled_optimizers": wrong_optimizers(graph)}
    shared = {name: array for name, array in model.weights.items() if not is_narrow(array.dtype)}
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
        self._narrow = any(is_narrow(getattr(value_type, "dtype", None)) for side in self._types for value_type in side)
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
        given = {name: to_engine(value) for name, value in zip(self._inputs, inputs)}
        values = session.run_with_ort_values(self._outputs, given)
        return [from_engine(value, value_type) for value, value_type in zip(values, self._types[1], strict=True)]

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
                self._rows = rows_of_last_run(path.read_text("utf-8"), self._model)
                path.unlink()
                self.session = self._fresh()
                self._again(self.session)
                self._again = None
            return self._rows
