"""A compiled subgraph: TVM's virtual machine with numpy arrays as inputs and outputs, and its kernels for inspection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import is_laid_out
from partita.accelerators.arrays.sharing import held_once, is_fixed
from partita.accelerators.errors import ClaimError, NotSupported, RunError
from partita.accelerators.interface.accelerator import EXECUTED, CompiledSubgraph, ProfileRow
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import Built
from partita.accelerators.tvm.code.codegen import ALIGNMENT
from partita.accelerators.tvm.code.nvcc import ptx
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.lower.lowering import own_draft
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import first_line
from partita.accelerators.tvm.run.pool import serving
from partita.accelerators.tvm.run.runtime import VirtualMachine, kept_memory, runtime, view
from partita.accelerators.tvm.run.threads import run_on
from partita.graph.graph import Graph
from partita.graph.types import Array, numpy_dtype


@attrs.frozen(slots=True, eq=False)
class Origin:
    """Sources of a kernel."""

    body: Body
    """Body of its second-level call, without the weights."""
    built: Built
    """Lowered loops and machine code of the body."""
    symbol: str
    """Name of the kernel among those of the body."""


@attrs.frozen(slots=True, eq=False)
class Kernel:
    """A kernel that runs, and the ops that it computes."""

    name: str
    """Name of the second-level call."""
    symbol: str
    """Name of the kernel; calls of equal structure share it."""
    nodes: tuple[str, ...]
    """Names of the ops that it computes."""
    schedule: str
    """Name of our kernel, or of the rule, that made its loops."""
    types: str
    """Element types that it reads and stores, as "bfloat16 -> float32"; a single type if all are the same."""
    why_wide: str
    """The reason why it computes in float32 although a narrower type was requested; else empty."""
    machine: Machine
    """The machine that it was compiled for."""
    _origin: Callable[[], Origin]

    @property
    def body(self) -> Graph:
        """The ops that it computes as a graph; `str(body)` is the text form."""
        return self._origin().body.graph

    @property
    def text(self) -> str:
        """The loops in our kernel language; for a kernel that TVM scheduled, TVM's text."""
        draft = own_draft(self._origin().body, self.machine)
        return self.tir if draft is None or draft.kernel is None else str(draft.kernel)

    @property
    def tir(self) -> str:
        """The scheduled loops as TVM's text."""
        origin = self._origin()
        return str(origin.built.lowered.kernels()[origin.symbol].script())

    @property
    def source(self) -> str:
        """The code that TVM generated: assembly for a processor, CUDA or OpenCL source for a GPU."""
        library = self._origin().built.library
        return str(library.source if self.machine.is_gpu else library.inspect_source("asm"))

    @property
    def assembly(self) -> str:
        """Assembly, or PTX; for OpenCL the source, because each driver has its own assembly."""
        return self.source if self.machine.kind != "cuda" else ptx(self.source, self.machine.arch)


@attrs.frozen(slots=True)
class RunsOn:
    """The machine that a subgraph was compiled for, and the device that runs it."""

    machine: Machine
    """The machine that its kernels were made for."""
    device_id: int
    """Index of the GPU, if there are several."""
    records: bool = False
    """True if the launches of a run are recorded once, on devices that can do that."""


@attrs.frozen(slots=True)
class Launch:
    """Serializable description of one launch of a kernel."""

    call: str
    """Name of the second-level call that it belongs to."""
    symbol: str
    """Name of the kernel."""
    runs: str
    """Name of the kernel that TVM runs for it: the first of several identical ones."""
    schedule: str
    """Name of our kernel, or of the rule, that made its loops."""
    nodes: tuple[str, ...]
    """Names of the ops that it computes."""
    layer_type: str
    """Types of these ops, as a profile shows them."""
    types: str = ""
    """Element types that it reads and stores; empty in a package of an earlier version."""
    why_wide: str = ""
    """The reason why it computes in float32 although a narrower type was requested."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Launch:
        """The launch of a package's row; TypeError or ValueError if the row is malformed."""
        call, symbol, runs, schedule, nodes, layer, *words = row
        return cls(call, symbol, runs, schedule, tuple(nodes), layer, *map(str, words))


class CompiledTvm(CompiledSubgraph):
    """A subgraph as an executable of TVM's virtual machine; one run at a time."""

    alignment = ALIGNMENT
    concurrent = True

    def __init__(
        self,
        assembled: Assembled,
        launches: Sequence[Launch],
        origins: Sequence[Origin] | Callable[[], CompiledTvm],
        runs_on: RunsOn,
        perf_count: bool,
    ) -> None:
        own = [array if is_fixed(array) else held_once(array) for array in assembled.weights]
        self._assembled = attrs.evolve(assembled, weights=tuple(own))
        self.launches = tuple(launches)
        """The kernels in the order in which they run."""
        self.library: bytes | None = assembled.library
        """The shared library that it was read from."""
        self._origins = origins
        self.runs_on = runs_on
        """The machine that it was compiled for, and the device that runs it."""
        self._threads = runs_on.machine.threads
        self._perf_count = perf_count
        self._lock = threading.Lock()
        self._rows: list[ProfileRow] = []
        self._main: Callable[..., Any] | None = None
        self._machine: Any = None
        self._weights: list[Any] = []
        renewed_in_children(self)

    @property
    def assembled(self) -> Assembled:
        """The executable and its weights."""
        return self._assembled

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The outputs, in memory that TVM allocated and that belongs to the caller from then on."""
        with self._lock:
            if self._main is None:
                self._start()
            assert self._main is not None
            given, main = [as_argument(array) for array in inputs], self._main
            try:
                results = run_on(self._threads, lambda: main(*given, *self._weights))
            except Exception as error:
                raise RunError(f"TVM failed while running: {first_line(error)}") from error
        return self._checked([self._output(origin, results, inputs) for origin in self._assembled.outputs])

    def let_go(self) -> None:
        """Free the memory that earlier calls left in TVM's pool, which all models share."""
        kept_memory.free()

    def _checked(self, outputs: list[Any]) -> list[Any]:
        """The outputs without the flags; ClaimError if a flag reports an error."""
        checks = self._assembled.checks
        count = len(outputs) - len(checks)
        for number, complaint in zip(outputs[count:], checks, strict=True):
            if number.any():
                raise ClaimError(complaint)
        return outputs[:count]

    def renew(self) -> None:
        """Start anew in a forked process, where no thread would finish a run that was in progress."""
        self._lock, self._main = threading.Lock(), None

    def _start(self) -> None:
        self._check_here()
        self._machine = VirtualMachine(_runnable(self._assembled.executable))
        if self._perf_count:
            self._machine.watch(self._instrument())
        self._assembled = attrs.evolve(self._assembled, weights=tuple(map(held_once, self._assembled.weights)))
        self._weights = [as_tensor(array) for array in self._assembled.weights]
        self._main = self._machine["main"]

    def _check_here(self) -> None:
        """NotSupported if the code is for another machine."""
        machine = self.runs_on.machine
        if not machine.is_here:
            cause = f"it was compiled for {machine.arch} ({machine.triple}) and cannot run here"
            raise NotSupported(cause, remedy="Export it (m.export) and import it there, or compile it without ARCH")

    def _output(self, origin: int | Array, results: Any, inputs: Sequence[Any]) -> Array:
        if isinstance(origin, np.ndarray):
            return origin.copy()
        if origin < 0:
            return np.array(inputs[~origin], order="C")
        return as_array(_item()(results, origin))

    def kernels(self) -> list[Kernel]:
        """The kernels in the order in which they run, for inspection.

        If the subgraph was not compiled in this process, only its machine code and a description of each launch are here. The
        subgraph is compiled once more when a kernel's code is first requested, which is an error if its body was left out."""
        machine = self.runs_on.machine
        return [
            Kernel(
                launch.call, launch.symbol, launch.nodes, launch.schedule, launch.types, launch.why_wide, machine,
                partial(self._origin, i),
            )
            for i, launch in enumerate(self.launches)
        ]

    def _origin(self, number: int) -> Origin:
        """Sources of the kernel of this launch."""
        if callable(self._origins):
            again = self._origins()
            if [launch.symbol for launch in again.launches] != [launch.symbol for launch in self.launches]:
                cause = "the code of its kernels cannot be shown: compiling it here gives other kernels"
                raise NotSupported(cause, remedy="Compile the model again")
            self._origins = [again._origin(i) for i in range(len(again.launches))]
        return self._origins[number]

    def another(self) -> CompiledTvm:
        """The same machine code on a virtual machine of its own."""
        return self._again(self._perf_count)

    def native(self, inputs: Sequence[Any]) -> tuple[CompiledTvm, Sequence[Any]] | None:
        """This one, if its kernels run on our own threads and nothing measures them."""
        is_ours = self.library is not None and (serving.is_here or not self.launches)
        is_native = is_ours and not self.runs_on.machine.is_gpu and not self._perf_count
        return (self, inputs) if is_native else None

    def main(self) -> tuple[Any, list[Any]]:
        """The function of a virtual machine of its own, and the weights, which it takes after the inputs."""
        another = self.another()
        another._start()
        return another._main, another._weights

    def measured(self) -> CompiledTvm:
        """The same machine code on a virtual machine of its own that measures each launch."""
        return self._again(True)

    def _again(self, perf_count: bool) -> CompiledTvm:
        again = CompiledTvm(self._assembled, self.launches, self._origins, self.runs_on, perf_count)
        again.library = self.library
        return again

    def check_code(self) -> None:
        """Raise compiler errors now and not at the first run. For a processor the machine code already exists."""

    def profile_rows(self) -> Sequence[ProfileRow]:
        """A row for each kernel of the last run."""
        return tuple(self._rows)

    def _instrument(self) -> Callable[..., int]:
        """A function that TVM calls before and after each call; it makes rows for the kernels."""
        launches = self.launches
        state = {"next": 0, "real": 0, "cpu": 0}

        def watch(_: Any, symbol: str, before: bool, *rest: Any) -> int:
            if before:
                state["real"], state["cpu"] = time.perf_counter_ns(), time.thread_time_ns()
                return 0
            real, cpu = time.perf_counter_ns() - state["real"], time.thread_time_ns() - state["cpu"]
            position = state["next"] % len(launches) if launches else 0
            if launches and symbol == launches[position].runs:
                if position == 0:
                    self._rows = []
                self._rows.append(self._row(position, real, cpu))
                state["next"] = position + 1
            return 0

        return watch

    def _row(self, position: int, real: int, cpu: int) -> ProfileRow:
        launch = self.launches[position]
        return ProfileRow(launch.nodes[0], launch.layer_type, EXECUTED, real / 1e3, cpu / 1e3, launch.runs, launch.types)

    def export(self) -> bytes:
        """The code without the weights."""
        from partita.accelerators.tvm.compiled.serialization import export  # upward: the interface has export as a method

        return export(self)

    def export_weights(self) -> Sequence[Array]:
        """The weights in the kernels' layouts, then the constant outputs."""
        return (*self._assembled.weights, *(o for o in self._assembled.outputs if isinstance(o, np.ndarray)))

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        """Change the names of nodes in profiles."""
        renamed = [attrs.evolve(launch, nodes=tuple(names.get(n, n) for n in launch.nodes)) for launch in self.launches]
        self.launches = tuple(renamed)


def _runnable(executable: Any) -> Any:
    """The executable in the form that the virtual machine takes.

    TVM's own way to load it is avoided, because it would need a compiler again, for an empty source file."""
    return executable.mod if hasattr(executable, "jit") else executable


@cache
def _item() -> Callable[[Any, int], Any]:
    """Function that returns a tensor of a TVM array; TVM's own indexing takes twice as long."""
    return runtime().get_global_func("ffi.ArrayGetItem")  # type: ignore[no-any-return]


def as_argument(array: Any) -> Any:
    """The argument for a function of TVM's: the array itself if TVM can read it, which is fastest."""
    if type(array) is np.ndarray and array.itemsize >= ALIGNMENT and array.flags.carray:
        return array
    return as_tensor(array)


def as_tensor(array: Any) -> Any:
    """The array as a TVM tensor, without a copy if it is contiguous, writable and aligned."""
    given = np.asarray(array)
    if not (given.flags.writeable and is_laid_out(given, ALIGNMENT)):
        given = np.array(given, order="C")
    if given.dtype.kind != "V":
        return runtime().from_dlpack(given)
    return view(runtime().from_dlpack(given.view(np.uint16)), given.shape, given.dtype.name)


def as_array(tensor: Any) -> Array:
    """TVM's tensor as a numpy array; the memory lives as long as the array."""
    try:
        array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError):  # numpy has no bfloat16 of its own
        return as_array(view(tensor, tensor.shape, "uint16")).view(numpy_dtype(str(tensor.dtype)))
    return array if array.flags.writeable else array.copy()
