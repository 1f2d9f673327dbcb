"""Runs of subgraphs on `cpu` without Python: the functions of compute.c, and the structures that they read."""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections.abc import Sequence
from ctypes import POINTER, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.exit_barrier import PATIENCE, when_the_door_is_closed
from partita.accelerators.process.forking import Guard
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.runtime.executor import Executor
from partita.accelerators.runtime.steps import RunPlan, RunStep
from partita.accelerators.tvm.run.pool import compile_c, serving
from partita.accelerators.tvm.run.runtime import c_function, include_folders
from partita.accelerators.tvm.run.threads import Turns, replace_turns
from partita.graph.logs import logger
from partita.graph.types import PACKED, Array, TensorType
from partita.onnxruntime_plugin.api import COMPUTE, Api

SOURCE = Path(__file__).with_name("compute.c")

_INFO, _MACHINES, _COMBINATIONS, _INPUTS = 256, 4, 16, 512
"""The constants of compute.c with these names."""

_USE_THREADS = 10
"""The number of the function `use_threads`."""

_WAITER = 256
"""At least the bytes of a Waiter in compute.c."""

_PATIENCE = 50
"""Milliseconds after which a waiting thread looks for signals."""

_TENSOR = 70
"""TVM's number of the type."""


class _TvmValue(ctypes.Structure):
    """TVMFFIAny."""

    _fields_ = (("kind", c_int64), ("value", c_void_p))


class _Combination(ctypes.Structure):
    """Combination in compute.c."""

    _fields_ = (
        ("sizes", POINTER(c_int64)), *((name, c_int64) for name in ("words", "count", "flags")), ("origins", POINTER(c_int64)),
        ("mains", c_void_p * _MACHINES), ("arguments", POINTER(_TvmValue) * _MACHINES),
    )


class _NativeSubgraph(ctypes.Structure):
    """Subgraph in compute.c."""

    _fields_ = (
        ("functions", POINTER(c_void_p)), ("slow", c_void_p),
        *((name, c_int64) for name in ("inputs", "outputs", "machines", "threads", "cores")),
        ("numbers", POINTER(c_int64)), ("alignments", POINTER(c_int64)), ("busy", c_int64 * _MACHINES), ("known", c_int64),
        ("combinations", c_void_p * _COMBINATIONS),
    )


class MachineCode:
    """The runs of one fused subgraph that need no Python. A run with new sizes is Python's; after it `learn` takes them over."""

    def __init__(
        self, functions: _NativeFunctions, api: Api, model: CompiledModel, plan: RunPlan, memory: Any, inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        self._library, self._model, self._plan = functions, model, plan
        self._step: Any = plan.steps[0]
        self._outputs = [self._step.makes.index(plan.outputs[i]) for i in outputs]
        self._guard = Guard()
        self._tried: set[tuple[tuple[int, ...], ...]] = set()
        self._functions = (c_void_p * (_USE_THREADS + 1))(*_addresses(api))
        numbers = [inputs[slot] for slot in self._step.reads]
        self._subgraph = _NativeSubgraph(
            functions=self._functions, slow=memory[COMPUTE["compute"]], inputs=len(numbers), outputs=len(outputs),
            numbers=(c_int64 * len(numbers))(*numbers),
        )
        self._mains: dict[Any, list[tuple[Any, list[Any]]]] = {}
        """The main functions of the virtual machines, each with its weights, by what was compiled."""
        self._kept: list[Any] = []
        """Everything that the structures refer to."""
        memory[COMPUTE["compute"]] = functions.compute
        memory[_INFO // 8] = ctypes.addressof(self._subgraph)

    def learn(self, arrays: Sequence[Array]) -> None:
        """From now on inputs of these sizes, with which the model has just run, need no Python."""
        shapes = tuple([array.shape for array in arrays])
        if _plan(self._model) is not self._plan:
            self._subgraph.known = 0  # the model was compiled again
        elif shapes not in self._tried and len(self._tried) < _COMBINATIONS:
            with self._guard.lock:
                if shapes not in self._tried:
                    self._tried.add(shapes)
                    self._add([arrays[slot] for slot in self._step.reads])

    def _add(self, arrays: Sequence[Array]) -> None:
        native = self._step.unit.compiled.native(arrays)
        if native is None or not all(array.size for array in arrays):
            return
        compiled, operands = native
        if any(isinstance(origin, np.ndarray) for origin in compiled.assembled.outputs):
            return
        if compiled not in self._mains:
            self._begin(compiled, arrays)
        words = [word for array in arrays for word in (array.ndim, *array.shape)]
        mains, origins, flags = self._mains[compiled], compiled.assembled.outputs, len(compiled.assembled.checks)
        ordered = [*(origins[i] for i in self._outputs), *origins[len(origins) - flags :]]
        combination = _Combination(
            sizes=(c_int64 * len(words))(*words), words=len(words), count=len(operands) + len(mains[0][1]), flags=flags,
            origins=(c_int64 * len(ordered))(*ordered),
        )
        for i, (main, weights) in enumerate(mains):
            tensors = [*map(_tensor, operands), *weights]
            arguments = (_TvmValue * len(tensors))(*[_TvmValue(_TENSOR, tensor.__chandle__()) for tensor in tensors])
            combination.mains[i], combination.arguments[i] = main.__chandle__(), arguments
            self._kept += [tensors, arguments]
        self._kept.append(combination)
        self._library.add(ctypes.byref(self._subgraph), ctypes.byref(combination))

    def _begin(self, compiled: Any, arrays: Sequence[Array]) -> None:
        """Makes the virtual machines for what was compiled."""
        self._functions[_USE_THREADS] = serving.setter()  # of the library with the kernels, which is loaded by now
        subgraph, threads, cores = self._subgraph, compiled.runs_on.machine.threads, self._library.cores
        if not self._mains:
            subgraph.threads, subgraph.cores = threads, min(max(threads, 1), cores)
            subgraph.machines = max(1, min(_MACHINES, cores // subgraph.cores))
            subgraph.alignments = (c_int64 * len(arrays))(*[max(array.itemsize, compiled.alignment) for array in arrays])
        self._mains[compiled] = [compiled.main() for _ in range(subgraph.machines)]


def machine_code(
    api: Api, model: CompiledModel, memory: Any, inputs: Sequence[int], outputs: Sequence[int]
) -> MachineCode | None:
    """The runs of this model that need no Python; None if all do. `memory` is the structure that onnxruntime holds."""
    plan, values = _plan(model), [*(node[0] for node in model.graph.inputs), *model.graph.outputs]
    plain = all(isinstance(value.type, TensorType) and value.type.dtype not in PACKED for value in values)
    watched = model.measured or model.recorded is not None
    if plan is None or not plain or watched or len(plan.steps[0].reads) > _INPUTS:
        return None
    functions = library()
    return None if functions is None else MachineCode(functions, api, model, plan, memory, inputs, outputs)


def _plan(model: CompiledModel) -> RunPlan | None:
    """The model's plan, if it is to run one subgraph that reads inputs and makes all outputs, and that may have machine code."""
    if type(model) is not CompiledModel or not isinstance(model.runs, Executor):  # others replace their executable meanwhile
        return None
    plan = model.runs.plan
    step = plan.steps[0] if len(plan.steps) == 1 else None
    if not isinstance(step, RunStep) or type(step.unit.compiled).native is CompiledSubgraph.native:
        return None
    return plan if max(step.reads, default=0) < plan.n_inputs and {*plan.outputs} <= {*step.makes} else None


def _tensor(array: Array) -> Any:
    from partita.accelerators.tvm.compiled.subgraph import as_tensor  # start-up

    return as_tensor(array)


def _addresses(api: Api) -> list[int]:
    """The functions that compute.c calls, without the last, which the kernels' library brings."""
    ort = api.fast
    functions = [ort.input, ort.output, ort.data, ort.shape, ort.rank, ort.sizes, ort.release_shape, api.ReleaseStatus]
    return [*map(_address, functions), c_function("TVMFFIFunctionCall"), c_function("TVMFFIObjectDecRef")]


def _address(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0


class SharedTurns(Turns):
    """The turns of compute.c, whose runs and Python's share the cores."""

    def __init__(self, library: ctypes.CDLL, cores: int) -> None:
        super().__init__(cores)
        self._library = library
        quick = ctypes.PyDLL(None, handle=library._handle)  # keeps the interpreter's lock
        self._try, self._give, self._wait = quick.partita_take, quick.partita_give, library.partita_take
        for take in (self._try, self._wait):
            take.argtypes = (c_void_p, c_int64, c_int64)
        self._give.argtypes = (c_void_p,)
        self._mine = _Waiter()
        library.partita_cores(c_int64(cores))

    def take(self, threads: int) -> None:
        mine, wanted = self._mine.address, min(max(threads, 1), self.cores)
        if not self._try(mine, wanted, 0):
            while not self._wait(mine, wanted, _PATIENCE):
                pass

    def give(self) -> None:
        self._give(self._mine.address)

    def pause(self) -> None:
        self.give()
        self._library.partita_pause()

    def resume(self) -> None:
        self._library.partita_resume()

    def forked(self) -> SharedTurns:
        self._library.partita_forked()
        return self


class _Waiter(threading.local):
    """The Waiter of each thread."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_WAITER)
        self.address = ctypes.addressof(self._memory)


class _NativeFunctions:
    """The functions of compute.c, and their turns with Python's runs, forks and the end of the interpreter."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self.compute = _address(library.partita_compute)
        """The address of the function that onnxruntime calls."""
        self.add = library.partita_add
        """Lets calls of a subgraph's further sizes run there."""
        self.cores = usable_cores()
        """The number of cores for all runs together; one that wanted more would wait for ever."""
        replace_turns(SharedTurns(library, self.cores))
        when_the_door_is_closed(lambda: library.partita_end(c_int64(int(1000 * PATIENCE))))


_guard = Guard()

prebuilt: Path | None = None
"""The library of a package that has it."""


def library() -> _NativeFunctions | None:
    """compute.c in this process; None if no compiler builds it here."""
    with _guard.lock:
        return _loaded()


@cache
def _loaded() -> _NativeFunctions | None:
    from partita.accelerators.tvm.code.linking import tools  # start-up

    if prebuilt is not None:
        return _NativeFunctions(str(prebuilt))
    programs = tools()
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder, "compute.so")
        if programs is not None and programs.compile and build(path, *programs.compile):
            return _NativeFunctions(str(path))
    logger("onnxruntime").info("no C compiler here: every run of a subgraph takes the interpreter's lock")
    return None


def build(path: Path, *compiler: str) -> bool:
    """Compile compute.c to this library; False if the compiler cannot."""
    return compile_c(SOURCE, path, *compiler, "-shared", *(f"-I{folder}" for folder in include_folders()))
