"""Source of scheduled kernels for a GPU, and the plan of their launches.

TVM's host code would launch them, but it does not support streams, and for OpenCL it needs a runtime that TVM's package lacks. So
it is interpreted instead: each launch is found with its sizes and arguments, with loops unrolled and numbers evaluated. What
depends on sizes passed to the kernel stays a formula."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.code.launch_sizes import ARITHMETIC, CALLS, Formula, Given, is_number, joined
from partita.accelerators.tvm.kernels.language.emit import WRITTEN
from partita.accelerators.tvm.machine.library import function, part, structural_map, tvm

MOST_LAUNCHES = 4096
"""Maximum number of launches of a kernel: queueing more would take longer than computing on another device."""

Size = tuple[int, int, int]
"""Along x, y and z."""


@attrs.frozen(slots=True)
class Memory:
    """A memory argument: the index of a kernel parameter, or ~i for scratch memory i."""

    number: int


@attrs.frozen(slots=True)
class Number:
    """A scalar argument."""

    dtype: str
    value: Formula


@attrs.frozen(slots=True)
class Launch:
    """One launch of a kernel of the source."""

    kernel: str
    """Name of the kernel in the source."""
    arguments: tuple[Memory | Number, ...]
    """Arguments in the order of the source."""
    groups: tuple[Formula, Formula, Formula]
    """Number of work-groups."""
    local: Size
    """Number of work-items of a group."""
    shared: int = 0
    """Bytes of dynamic shared memory of a group, in addition to what the source declares."""


@attrs.frozen(slots=True)
class Plan:
    """Launches of one TensorIR kernel."""

    launches: tuple[Launch, ...]
    """The launches in the order in which they run."""
    scratch: tuple[int, ...]
    """Sizes in bytes of the scratch memory that it needs."""


@attrs.frozen(slots=True, eq=False)
class GpuCode:
    """Kernels as source code."""

    source: str
    """OpenCL C, or CUDA."""
    plans: Mapping[str, Plan]
    """Plan of each kernel, by its name."""


def opencl_code(kernels: Any, target: Any) -> GpuCode:
    """OpenCL C of a module's kernels; CompileError if one cannot be launched from a plain list."""
    on_device, plans = split_launches(kernels, target)
    *_, finish = _passes_for(kernels, target)
    plain = {var: with_plain_choices(with_exact_numbers(kernel)) for var, kernel in on_device.items()}
    exact = {var: _with_exact_products(kernel) for var, kernel in plain.items()}
    code = function("target.build.opencl")(finish()(tvm().IRModule(exact)), target)
    return GpuCode(_with_helper(_C_NAMES.sub(r"\1(", str(code.inspect_source("cl"))), "opencl"), plans)


def cuda_code(kernels: Any, target: Any) -> GpuCode:
    """CUDA source of a module's kernels; CompileError if one cannot be launched from a plain list."""
    on_device, plans = split_launches(kernels, target)
    *_, finish = _passes_for(kernels, target)
    exact = {var: _with_exact_products(kernel) for var, kernel in on_device.items()}
    code = function("target.build.cuda")(finish()(tvm().IRModule(exact)), target)
    return GpuCode(_with_helper(str(code.inspect_source("cuda")), "cuda"), plans)


def split_launches(kernels: Any, target: Any) -> tuple[dict[Any, Any], dict[str, Plan]]:
    """The functions that run on the GPU, and the launch plan of each kernel of the module; CompileError if a plan cannot be
    determined at compile time."""
    tirx = part("tirx")
    pipeline, *_ = _passes_for(kernels, target)
    lowered = pipeline(tirx.transform.BindTarget(target)(kernels))
    kind = str(target.kind.name)
    on_device = {var: f for var, f in lowered.functions.items() if str(f.attrs["target"].kind.name) == kind}
    hosts = [f for var, f in lowered.functions.items() if var not in on_device]
    plans = {str(host.attrs["global_symbol"]).removeprefix(_PREFIX): _Reader().plan(host) for host in hosts}
    if not on_device:
        raise CompileError("its loops are bound to no threads of a GPU")
    return on_device, plans


def with_exact_numbers(kernel: Any) -> Any:
    """The function with constants as bit patterns where TVM's OpenCL C would change them: it prints seven digits, and supports
    infinity and NaN only as float32. Linear."""
    tirx = part("tirx")

    def exact(number: Any) -> Any:
        name, kind = _BITS.get(str(number.ty.dtype), ("", ""))
        if not name:
            return number
        wanted = np.array(number.value, str(number.ty.dtype))
        is_finite = math.isfinite(number.value)
        if np.array(float(f"{number.value:e}"), wanted.dtype) == wanted if is_finite else wanted.dtype == np.float32:
            return number
        return tirx.call_pure_extern(str(number.ty.dtype), name, tirx.const(int(wanted.view(kind)), kind))

    return structural_map(kernel, [(tirx.FloatImm, exact)])


def with_plain_choices(kernel: Any) -> Any:
    """The function with `a ? b : c` for each scalar choice. OpenCL's `select` needs equal types, and C promotes bytes and short
    integers to int. Linear."""
    tirx = part("tirx")

    def plain(choice: Any) -> Any:
        if tvm().DataType(str(choice.ty.dtype)).lanes > 1:
            return choice
        return tirx.if_then_else(choice.condition, choice.true_value, choice.false_value)

    return structural_map(kernel, [(tirx.Select, plain)])


_BITS = {"float16": ("as_half", "int16"), "float32": ("as_float", "int32"), "float64": ("as_double", "int64")}
"""By element type: OpenCL's function that reinterprets bits, and the integer type of these bits."""


_C_NAMES = re.compile(r"\b(a?(?:cos|sin|tan)h?|erf)f\(")
"""Functions that TVM calls by their C names; OpenCL has one name for all element types."""



_SHARED = "tirx.use_dyn_shared_memory"
"""Launch tag of the dynamic shared memory."""

_PREFIX = "__tvm_ffi_"
"""Prefix of the names of host functions."""

_OFFSET, _CONTENT = 8, 15
"""TVM's field numbers in `tvm_struct_get`: the offset of an array, and the content of an argument (its pointer or its number)."""


class _Reader:
    """Interprets the host code of one kernel, statement by statement."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        """Values of variables: expressions, or integers for loop counters."""
        self._memory: dict[Any, int] = {}
        """Index of scratch memory by the variable or buffer that names it."""
        self._scratch: list[int] = []
        self._launches: list[Launch] = []

    def plan(self, host: Any) -> Plan:
        """The launches of the host code."""
        self._statement(host.body)
        return Plan(tuple(self._launches), tuple(self._scratch))

    def _statement(self, statement: Any) -> None:
        kind = type(statement).__name__
        follow: Callable[[Any], None] | None = getattr(self, f"_{kind.lower()}", None)
        if follow is None:
            raise CompileError(f"its host code holds a {kind} between its launches")
        follow(statement)

    def _seqstmt(self, statement: Any) -> None:
        for inner in statement.seq:
            self._statement(inner)

    def _attrstmt(self, statement: Any) -> None:
        self._statement(statement.body)

    def _assertstmt(self, statement: Any) -> None:
        """Ignored: assertions check the arguments, which are those that the kernel was compiled for."""

    def _bind(self, statement: Any) -> None:
        self._values[statement.var] = statement.value

    def _declbuffer(self, statement: Any) -> None:
        self._values[statement.buffer] = statement.data

    def _allocbuffer(self, statement: Any) -> None:
        buffer = statement.buffer
        count = math.prod(self._whole(size) for size in buffer.shape)
        self._memory[buffer] = self._memory[buffer.data] = ~len(self._scratch)
        self._scratch.append(max(1, count) * -(-tvm().DataType(str(buffer.dtype)).bits // 8))

    def _for(self, statement: Any) -> None:
        start, extent = self._whole(statement.min), self._whole(statement.extent)
        for i in range(start, start + extent):
            self._values[statement.loop_var] = i
            self._statement(statement.body)

    def _ifthenelse(self, statement: Any) -> None:
        chosen = statement.then_case if self._whole(statement.condition) else statement.else_case
        if chosen is not None:
            self._statement(chosen)

    def _return(self, statement: Any) -> None:
        """The end of the host code."""

    def _evaluate(self, statement: Any) -> None:
        call = statement.value
        name = str(getattr(getattr(call, "op", None), "name", ""))
        if name == "tirx.call_ffi_kernel":
            self._launches.append(self._launch(call))
        elif name == "tirx.tvm_call_packed" and str(getattr(call.args[0], "value", "")) == "__tvm_set_device":
            pass
        elif name and name not in ("tirx.ret", "tirx.tvm_struct_set"):
            raise CompileError(f"its host code calls {name.removeprefix('tirx.')}")
        if len(self._launches) > MOST_LAUNCHES:
            raise CompileError(f"it takes more than {MOST_LAUNCHES} launches")

    def _launch(self, call: Any) -> Launch:
        """The launch with the kernel's name, its arguments, and the size for each tag."""
        tags = [str(tag) for tag in call.attrs.launch_params]
        split = len(call.args) - len(tags)
        sizes = {tag: self._number(size) for tag, size in zip(tags, call.args[split:], strict=True)}
        shared = _known(sizes.pop(_SHARED, 0))
        other = next((tag for tag in sizes if not tag.startswith(("blockIdx.", "threadIdx."))), None)
        if other is not None:
            raise CompileError(f"it is launched with {other}, which a plain list of launches does not have")
        groups = tuple(sizes.get(f"blockIdx.{axis}", 1) for axis in "xyz")
        local = tuple(_known(sizes.get(f"threadIdx.{axis}", 1)) for axis in "xyz")
        arguments = tuple(self._argument(argument) for argument in call.args[1:split])
        return Launch(str(call.args[0].value), arguments, groups, local, shared)  # type: ignore[arg-type]

    def _argument(self, argument: Any) -> Memory | Number:
        if str(getattr(getattr(argument, "op", None), "name", "")) == "tirx.buffer_data":
            return Memory(self._origin(argument.args[0]))
        if argument in self._memory:
            return Memory(self._memory[argument])
        return Number(str(argument.ty.dtype), self._number(argument))

    def _origin(self, named: Any) -> int:
        """Index of the parameter or scratch memory that a buffer or variable names. A parameter's pointer is read from the packed
        arguments: tvm_struct_get(args, i, 15)."""
        if named in self._memory:
            return self._memory[named]
        expression: Any = self._values.get(named)
        if str(getattr(getattr(expression, "op", None), "name", "")) == "tirx.buffer_data":
            return self._origin(expression.args[0])
        parameters, variables = list[int](), list[Any]()

        def called(node: Any) -> None:
            if node.op.name == "tirx.tvm_struct_get" and int(node.args[2]) == _CONTENT and "int" not in str(node.ty):
                parameters.append(int(node.args[1]))

        walk = [(tvm().ir.Call, called), (part("tirx").Var, variables.append)]
        importlib.import_module("tvm_ffi").structural_walk(expression, walk, order="post")
        for variable in variables if not parameters else ():
            if variable in self._values or variable in self._memory:
                return self._origin(variable)
        if not parameters:
            raise CompileError(f"the memory of its buffer {named} cannot be found")
        return parameters[0]

    def _whole(self, expression: Any) -> int:
        return _known(self._number(expression))

    def _number(self, expression: Any) -> Formula:
        """Value of an expression under the current variables, or its formula."""
        kind = type(expression).__name__
        if kind in ("int", "float", "bool"):
            return expression  # type: ignore[no-any-return]
        if kind in ("IntImm", "FloatImm"):
            return expression.value  # type: ignore[no-any-return]
        if kind == "Var" and expression in self._values:
            return self._number(self._values[expression])
        if kind == "Cast":
            value = self._number(expression.value)
            return int(value) if isinstance(value, float) and "float" not in str(expression.ty.dtype) else value
        if kind in ("Select", "IfThenElse"):
            return self._number(expression.true_value if self._whole(expression.condition) else expression.false_value)
        if kind == "Not":
            return not self._whole(expression.a)
        if kind in ARITHMETIC:
            return joined(kind, self._number(expression.a), self._number(expression.b))
        name = str(getattr(getattr(expression, "op", None), "name", ""))
        if name == "tirx.isnullptr":
            return True  # Arrays are contiguous, without strides,
        if name == "tirx.tvm_struct_get" and int(expression.args[2]) == _OFFSET:
            return 0  # and begin at offset 0.
        if name == "tirx.tvm_struct_get" and int(expression.args[2]) == _CONTENT:
            return Given(int(expression.args[1]))
        if name in CALLS and is_number(*(numbers := [*map(self._number, expression.args)])):
            return CALLS[name](*numbers)  # type: ignore[no-any-return]
        raise CompileError(f"a number of its launch is not known ({kind} {name}): {expression}")


def _known(number: Formula) -> int:
    """The number; CompileError if it depends on sizes."""
    if not is_number(number):
        raise CompileError("how often it is launched, or with how many threads, follows from sizes that are not known yet")
    return int(number)  # type: ignore[arg-type]


_EXACT_PRODUCT = "partita_exact_product"
"""Name of the helper function."""

_GUARD = _EXACT_PRODUCT.upper()
"""Macro that guards the helper function."""

_HELPERS = {
    "cuda": f"static __device__ __forceinline__ float {_EXACT_PRODUCT}(float a, float b) {{ return __fmul_rn(a, b); }}\n",
    "opencl": f"float {_EXACT_PRODUCT}(float a, float b) {{\n#pragma OPENCL FP_CONTRACT OFF\n  return a * b;\n}}\n",
}
"""Helper function that computes such a product, by kind of device."""


def _with_exact_products(kernel: Any) -> Any:
    """The function with a call of the helper for each product that is rounded before an addition. Compilers would contract both
    into one fused multiply-add, which rounds once and changes ties. Linear."""
    tirx = part("tirx")
    fence = function("target.llvm_lookup_intrinsic_id")("llvm.arithmetic.fence")

    def exact(call: Any) -> Any:
        if getattr(call.op, "name", "") != "tirx.call_llvm_pure_intrin" or int(call.args[0]) != fence:
            return call
        number = call.args[1]
        return tirx.call_pure_extern("float32", _EXACT_PRODUCT, number.a, number.b) if isinstance(number, tirx.Mul) else number

    return structural_map(kernel, [(part("ir").Call, exact)])


def _with_helper(source: str, kind: str) -> str:
    """The source, preceded by the helper function if it is called. Sources of several kernels may be concatenated; the first
    definition then serves all."""
    if f"{_EXACT_PRODUCT}(" not in source:
        return source
    return f"#ifndef {_GUARD}\n#define {_GUARD}\n{_HELPERS[kind]}#endif\n{source}"


def _are_written(kernels: Any) -> bool:
    """True if all kernels of the module are written in our kernel language."""
    return all(kernel.attrs and WRITTEN in kernel.attrs for kernel in kernels.functions.values())


def _passes_for(kernels: Any, target: Any) -> Any:
    """The passes over the module, those that finish host code, and those that finish code for the GPU."""
    tirx = part("tirx")
    return _own_passes() if _are_written(kernels) else tirx.get_default_tir_pipeline(target)


@cache
def _own_passes() -> tuple[Any, Any, Any]:
    tirx, scheduled = part("tirx").transform, part("s_tir").transform
    sequence = tvm().transform.Sequential
    passes = [
        scheduled.LowerOpaqueBlock(),
        tirx.FlattenBuffer(),
        tirx.BF16ComputeLegalize(),
        tirx.NarrowDataType(32),
        tirx.VectorizeLoop(True),
        tirx.UnrollLoop(),
        tirx.StmtSimplify(),
        tirx.VerifyMemory(),
        tirx.AnnotateEntryFunc(),
        tirx.SplitHostDevice(),
        tirx.MakePackedAPI(),
        tirx.BF16StorageLegalize(),
    ]
    host, device = sequence([tirx.LowerTVMBuiltin(), tirx.LowerIntrin()]), sequence([tirx.LowerIntrin()])
    return sequence(passes), lambda: host, lambda: device
