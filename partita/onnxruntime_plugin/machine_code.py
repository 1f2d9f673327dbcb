"""Runs of subgraphs on `cpu` without Python: the functions of compute.c, and the structures that they read."""

from __future__ import annotations

import ctypes
import os
import tempfile
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
from partita.graph.logs import logger
from partita.graph.readers.onnx.tensors import BITS
from partita.graph.types import Array, TensorType
from partita.onnxruntime_plugin.api import COMPUTE, Api

SOURCE = Path(__file__).with_name("compute.c")

_INFO, _MACHINES, _COMBINATIONS, _INPUTS = 256, 4, 16, 512
"""The constants of compute.c with these names."""

_USE_THREADS = 10
"""The number of the function `use_threads`."""

_FOREVER = 1 << 31
"""Seconds."""

_TENSOR = 70
"""TVM's number of the type."""


class _TvmValue(ctypes.Structure):
    """TVMFFIAny."""

    _fields_ = (("kind", c_int64), ("value", c_void_p))


class _Combination(ctypes.Structure):
    """Combination in compute.c."""

    _fields_ = (("sizes", POINTER(c_int64)), ("words", c_int64), ("arguments", POINTER(_TvmValue) * _MACHINES))


class _NativeSubgraph(ctypes.Structure):
    """Subgraph in compute.c."""

    _fields_ = (
        ("functions", POINTER(c_void_p)), ("slow", c_void_p),
        *((name, c_int64) for name in ("inputs", "arguments", "outputs", "flags", "machines", "threads", "cores")),
        ("numbers", POINTER(c_int64)), ("alignments", POINTER(c_int64)), ("origins", POINTER(c_int64)),
        ("mains", c_void_p * _MACHINES), ("busy", c_int64 * _MACHINES), ("known", c_int64),
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
        self._mains: list[tuple[Any, list[Any]]] = []
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
        if not self._mains:
            self._begin(compiled, operands)
        words = [word for array in arrays for word in (array.ndim, *array.shape)]
        sizes = (c_int64 * len(words))(*words)
        combination = _Combination(sizes=sizes, words=len(words))
        for i, (_, weights) in enumerate(self._mains):
            tensors = [*map(_tensor, operands), *weights]
            arguments = (_TvmValue * len(tensors))(*[_TvmValue(_TENSOR, tensor.__chandle__()) for tensor in tensors])
            combination.arguments[i] = arguments
            self._kept += [tensors, arguments]
        self._kept += [sizes, combination]
        self._library.add(ctypes.byref(self._subgraph), ctypes.byref(combination))

    def _begin(self, compiled: Any, operands: Sequence[Array]) -> None:
        """Makes the virtual machines."""
        from partita.accelerators.tvm.run.pool import serving

        self._functions[_USE_THREADS] = serving.setter()  # of the library with the kernels, which is loaded by now
        subgraph, threads, cores = self._subgraph, compiled.runs_on.machine.threads, self._library.cores
        subgraph.threads, subgraph.cores = threads, min(max(threads, 1), cores)
        subgraph.machines = max(1, min(_MACHINES, cores // subgraph.cores))
        mains = [compiled.main() for _ in range(subgraph.machines)]
        subgraph.mains[: subgraph.machines] = [main.__chandle__() for main, _ in mains]
        subgraph.arguments = len(operands) + len(mains[0][1])
        alignments = [max(array.itemsize, compiled.alignment) for array in operands[: subgraph.inputs]]
        subgraph.alignments = (c_int64 * len(alignments))(*alignments)
        subgraph.flags = len(compiled.assembled.checks)
        origins = compiled.assembled.outputs
        ordered = [*(origins[i] for i in self._outputs), *origins[len(origins) - subgraph.flags :]]
        subgraph.origins = (c_int64 * len(ordered))(*ordered)
        self._mains = mains


def machine_code(
    api: Api, model: CompiledModel, memory: Any, inputs: Sequence[int], outputs: Sequence[int]
) -> MachineCode | None:
    """The runs of this model that need no Python; None if all do. `memory` is the structure that onnxruntime holds."""
    plan, values = _plan(model), [*(node[0] for node in model.graph.inputs), *model.graph.outputs]
    plain = all(isinstance(value.type, TensorType) and value.type.dtype not in BITS for value in values)
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
    from partita.accelerators.tvm.compiled.subgraph import as_tensor

    return as_tensor(array)


def _addresses(api: Api) -> list[int]:
    """The functions that compute.c calls, without the last, which the kernels' library brings."""
    from partita.accelerators.tvm.run.runtime import c_function

    ort = api.fast
    functions = [ort.input, ort.output, ort.data, ort.shape, ort.rank, ort.sizes, ort.release_shape, api.ReleaseStatus]
    return [*map(_address, functions), c_function("TVMFFIFunctionCall"), c_function("TVMFFIObjectDecRef")]


def _address(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0


class _NativeFunctions:
    """The functions of compute.c, and their turns with forks and the end of the interpreter."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self.compute = _address(library.partita_compute)
        """The address of the function that onnxruntime calls."""
        self.add = library.partita_add
        """Lets calls of a subgraph's further sizes run there."""
        self.cores = usable_cores()
        """The number of cores for all runs together; one that wanted more would wait for ever."""
        library.partita_cores(c_int64(self.cores))
        pause, resume, forked = library.partita_pause, library.partita_resume, library.partita_forked
        os.register_at_fork(before=lambda: pause(c_int64(_FOREVER)), after_in_parent=resume, after_in_child=forked)
        when_the_door_is_closed(lambda: library.partita_end(c_int64(int(PATIENCE))))


_guard = Guard()

prebuilt: Path | None = None
"""The library of a package that has it."""


def library() -> _NativeFunctions | None:
    """compute.c in this process; None if no compiler builds it here."""
    with _guard.lock:
        return _loaded()


@cache
def _loaded() -> _NativeFunctions | None:
    from partita.accelerators.tvm.code.linking import tools

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
    from partita.accelerators.tvm.run.pool import compile_c
    from partita.accelerators.tvm.run.runtime import include_folders

    return compile_c(SOURCE, path, *compiler, "-shared", *(f"-I{folder}" for folder in include_folders()))
