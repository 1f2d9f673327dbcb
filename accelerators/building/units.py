"""One subgraph of a compiled model: its call in the graph, and the compiled form of its body."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import HOST, array_layout
from partita.accelerators.arrays.on_device import DeviceArray, at_home
from partita.accelerators.building.specialized import SpecializedSubgraph, is_static
from partita.accelerators.errors import (
    MEND,
    AcceleratorError,
    BadConfig,
    ClaimError,
    CompileError,
    DeviceMistake,
    RunError,
    asking,
    is_own_mistake,
)
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.compile_now import compile_now, run_laid_out
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.isolation import in_its_place
from partita.accelerators.interface.registry import accelerator as accelerator_named
from partita.accelerators.process.exit_barrier import door
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.store.cached_compiling import check_folder, compile_cached
from partita.accelerators.store.capsules.keeping import keep_failure
from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.rewrite import with_sizes_of
from partita.graph.types import TensorType, numpy_dtype
from partita.passes.infer import infer
from partita.passes.infer.traced_sizes import REMEDY

Kept = Callable[[Graph], CompiledSubgraph | None]
"""Returns kernels for any size that were compiled before, for a prepared graph."""


def nothing_kept(graph: Graph) -> None:
    """Returns None: no kernels were compiled before."""


@attrs.define(slots=True, eq=False)
class Unit:
    """A compiled subgraph."""

    name: str
    """The name of its call."""
    device: Device
    """The device that runs it."""
    body: Graph
    """The graph that it computes."""
    compiled: CompiledSubgraph
    """The body, compiled by the device."""
    seconds: float
    """Compile time in seconds."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """The configuration of its compilation."""
    recompiled: bool = False
    """True if it was imported, and compiled again because its compiled form did not fit."""
    identity: Mapping[str, str] | None = None
    """The dependencies of its code, if it came from a file; None: it was compiled here."""
    measuring: threading.RLock = attrs.field(factory=threading.RLock)
    """Held from a measured run until its rows are read."""
    capsules: Path | None = None
    """The folder for a capsule of its first failure at run time."""
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Held during runs, unless several threads may run it at once."""
    check: OutputCheck = attrs.field(init=False)
    """The check of its device's outputs."""

    def __attrs_post_init__(self) -> None:
        self.check = OutputCheck(self.body)
        renewed_in_children(self)

    def renew(self) -> None:
        """Resets the locks in a forked process, which lacks the threads that held them."""
        self.measuring, self.lock = threading.RLock(), threading.Lock()

    @property
    def memory(self) -> str:
        """The memory of its values."""
        return self.compiled.memory

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of its op nodes."""
        return tuple(node.name for node in self.body.nodes if node.is_op)

    @property
    def keeps_arrays(self) -> bool:
        """True if outputs may be left in its device's memory."""
        return self.device.accelerator.keeps_arrays

    def put(self, array: Any) -> DeviceArray:
        """A copy of the host array in its device's memory."""
        return self.device.accelerator.configured(self.config).to_device(array)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
        """The body's outputs; errors of the device name the subgraph."""
        door.enter()
        try:
            if self.compiled.concurrent:
                outputs = run_laid_out(self.compiled, inputs, out)
            else:
                with self.lock:
                    outputs = run_laid_out(self.compiled, inputs, out)
        except Exception as error:
            raise self.kept(self.failure(error), inputs) from error
        finally:
            door.leave()
        return self.looked_at(outputs, inputs)

    def looked_at(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs that the device returned, checked against the body."""
        if self.compiled.memory == HOST and self.check.fits(outputs):
            return outputs
        try:
            return self.checked(outputs, inputs)
        except RunError as error:
            self.kept(error, inputs)
            raise

    def checked(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """The fully checked outputs."""
        if self.compiled.memory != HOST:
            return self.check.counted(outputs, self.title)
        return self.check.checked(outputs, inputs, self.title)

    def kept(self, failure: RunError, inputs: Sequence[Any]) -> RunError:
        """The same error, after writing a capsule if requested."""
        folder, self.capsules = self.capsules, None
        if folder is not None:
            given = at_home(inputs) if self.memory == HOST else [self.compiled.download(value) for value in inputs]
            keep_failure(folder, self.name, self.body, self.device, self.config, failure.cause, given)
        return failure

    @property
    def title(self) -> str:
        """The subgraph and its device, for messages."""
        return f"subgraph {self.name!r} on {self.device.label!r}"

    def kernels(self) -> Sequence[Any]:
        """The kernels that the device shows."""
        with asking(self.title):
            return self.compiled.kernels()

    def failure(self, error: Exception) -> RunError:
        """The error with the name of the subgraph."""
        if isinstance(error, PartitaError):
            inner = f", {error.where}" if error.where else ""
            return RunError(error.cause, where=self.title + inner, remedy=error.remedy)
        return RunError(error_in_words(error), where=self.title)


def compile_unit(
    name: str,
    device: Device,
    body: Graph,
    config: Mapping[str, Any],
    stand_ins: Sequence[tuple[Device, Mapping[str, Any]]] = (),
    behind: bool = False,
    model: str = "",
    kept: Kept = nothing_kept,
    checked: bool = False,
) -> Unit:
    """Compiles the body on the device; any error except BadConfig becomes a CompileError. A declared type in the body that
    differs from the inferred one is such an error too: kernels have the sizes that an op computes,
    whatever a file declares. `checked`: the types are known to be right.

    With dynamic sizes, if the device compiles each size, calls may go to the first of the `stand_ins` that runs the whole
    body at any size, or else to `reference`; with `behind`, they go there whenever their size is not compiled yet,
    which happens in the background. `model` is the name of the model, for the entry in the cache. `kept` returns the
    kernels for any size, if a package holds them."""
    start = time.perf_counter()
    try:
        if not checked:
            infer(body, strict=False, check_declared=True)
        compiled = _compiled(device, body, config, stand_ins, behind, model, kept)
    except BadConfig:
        raise
    except Exception as error:
        mine = error if isinstance(error, PartitaError) else PartitaError(error_in_words(error))
        inner = f", {mine.where}" if mine.where else ""
        where = f"subgraph {name!r} on {device.label!r}{inner}"
        if isinstance(error, DeviceMistake) or is_own_mistake(error, type(device.accelerator)):
            raise DeviceMistake(mine.cause, where=where, remedy=MEND) from error
        raise CompileError(mine.cause, where=where, remedy=mine.remedy) from error
    return Unit(name, device, body, compiled, time.perf_counter() - start, config)


def measured_units(units: Mapping[str, Unit], again: Callable[[Unit, Mapping[str, Any]], Unit]) -> dict[str, Unit]:
    """The same subgraphs for measuring, so that the model itself stays fast. They share the compiled code if the device can
    measure it; else `again` compiles the unit with this configuration."""
    measured: dict[int, Unit] = {}
    for unit in units.values():
        if id(unit.compiled) not in measured:
            values = {**unit.config, "PERF_COUNT": True}
            with asking(unit.title):
                same = unit.compiled.measured()
            measured[id(unit.compiled)] = (
                again(unit, values) if same is None else Unit(unit.name, unit.device, unit.body, same, unit.seconds, values)
            )
    return {name: attrs.evolve(measured[id(unit.compiled)], name=name) for name, unit in units.items()}


def _compiled(
    device: Device, body: Graph, config: Mapping[str, Any], stand_ins: Sequence[tuple[Device, Mapping[str, Any]]],
    behind: bool, model: str, kept: Kept,
) -> CompiledSubgraph:
    accelerator = in_its_place(device.accelerator, config)

    def compile_static(graph: Graph) -> CompiledSubgraph:
        return compile_cached(accelerator, graph, config, lambda: compile_now(accelerator, graph, config), model)

    def compile_unless_kept(graph: Graph) -> CompiledSubgraph:
        compiled = kept(graph)
        return compile_static(graph) if compiled is None else compiled

    def compile_sized(graph: Graph) -> CompiledSubgraph:
        _check_supported(accelerator.configured(config), graph, "for these sizes")
        return compile_static(graph)

    def stand_in(graph: Graph) -> CompiledSubgraph | None:
        reference = accelerator_named("reference")
        perf_count = {"PERF_COUNT": config.get("PERF_COUNT", False)}
        choices = [(in_its_place(other.accelerator, values), {**values, **perf_count}) for other, values in stand_ins]
        for other, values in [*choices, (reference, reference.full_config(perf_count))]:
            with contextlib.suppress(PartitaError):
                if other.dynamic_shapes and all(answer is True for answer in other.configured(values).query(graph).values()):
                    return compile_now(other, graph, values)
        return None

    if accelerator.dynamic_shapes or is_static(body):
        return compile_static(body)
    check_folder(accelerator, body, config)
    _check_supported(accelerator.configured(config), body, "in this part of the graph")
    any_size = accelerator.any_size(body, config, compile_unless_kept)
    return SpecializedSubgraph(body, compile_sized, stand_in, behind, any_size)


def _check_supported(accelerator: Accelerator, body: Graph, where: str) -> None:
    """Queries the device again about the ops of this part, if sizes depend on values: answers may differ from the whole graph.

    An op with a symbolic size is queried again once the size is known, because some rules are about sizes."""
    for name, answer in accelerator.query(body).items():
        if answer is not True:
            raise AcceleratorError(f"{where} {name!r} is not what it runs: {answer}")


class OutputCheck:
    """The check of one body's outputs: `fits` is the fast check for valid ones, `checked` the full one."""

    def __init__(self, body: Graph) -> None:
        self._body = body
        self._layouts = [_layout(entry) for entry in body.outputs]
        """The dtype of each output, and its shape if that is static, or its type if only some sizes are."""

    def fits(self, returned: Any) -> bool:
        """True if they are arrays of the dtypes and sizes that the body declares."""
        if type(returned) not in (list, tuple) or len(returned) != len(self._layouts):
            return False
        for value, (dtype, shape, partly) in zip(returned, self._layouts):
            if dtype is None:
                continue
            if type(value) is not np.ndarray and not isinstance(value, DeviceArray):
                return False
            if value.dtype != dtype or (shape is not None and value.shape != shape):
                return False
            if partly is not None and not _agrees(value, partly):
                return False
        return True

    def counted(self, returned: Any, where: str) -> Sequence[Any]:
        """The outputs, if their number is right. Nothing else can be checked of values in a device's own memory."""
        if isinstance(returned, (str, bytes)) or not isinstance(returned, Sequence):
            raise RunError(f"it returned {type(returned).__name__}, not a list of outputs", where=where)
        if len(returned) != len(self._layouts):
            raise RunError(f"it returned {len(returned)} values for {len(self._layouts)} outputs", where=where)
        return returned

    def checked(self, returned: Any, inputs: Sequence[Any], where: str) -> list[Any]:
        """The outputs as plain arrays; RunError for an output that is not an array, or whose dtype or sizes differ from those
        that follow from these inputs or that the model declares."""
        values = [_plain(value, entry, where) for value, entry in zip(self.counted(returned, where), self._body.outputs)]
        if not self.fits(values):
            self._check_sizes(values, inputs, where)
        return values

    def _check_sizes(self, values: Sequence[Any], inputs: Sequence[Any], where: str) -> None:
        for value, entry in zip(values, infer(with_sizes_of(self._body, inputs), strict=False).outputs):
            layout = array_layout(entry.type)
            if layout is not None and value.shape != layout[1]:
                cause = f"it returned sizes {list(value.shape)} for output {entry.name!r}, which is {entry.type}"
                raise RunError(cause, where=where)
        for value, entry in zip(values, self._body.outputs):
            if isinstance(entry.type, TensorType) and not _agrees(value, entry.type):
                cause = f"the value {entry.name!r} is declared {entry.type}, but these inputs give sizes {list(value.shape)}"
                raise ClaimError(cause, where=where, remedy=REMEDY)


def _layout(entry: NodeEntry) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None, TensorType | None]:
    kind = entry.type
    if not isinstance(kind, TensorType):
        return None, None, None
    sizes = (array_layout(kind) or (None, None))[1]
    return numpy_dtype(kind.dtype), sizes, kind if sizes is None and kind.shape is not None else None


def _agrees(value: Any, kind: TensorType) -> bool:
    """True if the array matches the static sizes."""
    if kind.shape is None:
        return True
    differing = [size for size, actual in zip(kind.shape, value.shape) if isinstance(size, int) and size != actual]
    return len(kind.shape) == value.ndim and not differing


def _plain(value: Any, entry: NodeEntry, where: str) -> Any:
    if not isinstance(entry.type, TensorType):
        return value
    stated = f"for output {entry.name!r}, which is {entry.type}"
    if not isinstance(value, (np.ndarray, np.generic, DeviceArray)):
        raise RunError(f"it returned {type(value).__name__} {stated}", where=where)
    array: Any = value if isinstance(value, DeviceArray) else np.asarray(value)
    wanted = numpy_dtype(entry.type.dtype)
    if wanted.hasobject and array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype != wanted:
        order = "" if array.dtype.isnative else " in foreign byte order"
        raise RunError(f"it returned {array.dtype.name}{order} {stated}", where=where)
    return array
