"""Kernels put together without TVM's virtual machine: a list of launches over memory that is planned beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from accelerators.errors import CompileError
from accelerators.tvm.bodies.body import Body
from accelerators.tvm.bodies.lifting import Lifted
from accelerators.tvm.code.building import Built
from accelerators.tvm.code.launches import Launch, Memory, Number
from accelerators.tvm.compiled.assembling import Assembled, Assembly, pack_weights
from accelerators.tvm.machine.library import compiling, part, tvm
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.tvm_errors import quiet, refused
from graph.node import Node


@attrs.frozen(slots=True)
class Slot:
    """A value in the device's memory."""

    block: int
    """The number of the piece of memory that it is in."""
    shape: tuple[int, ...]
    dtype: str


@attrs.frozen(slots=True)
class Step:
    """One launch on a GPU."""

    number: int
    """The number of the kernel of TensorIR that it belongs to, in the order in which they run."""
    kernel: str
    arguments: tuple[int | Number, ...]
    """Pieces of memory, or numbers."""
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    shared: int = 0
    """The bytes of memory that a group shares, besides what the source states."""


@attrs.frozen(slots=True, eq=False)
class StepList:
    """A subgraph as launches one after the other."""

    sources: tuple[str, ...]
    """OpenCL C or CUDA of all kernels, each text a program of its own."""
    blocks: tuple[int, ...]
    """The bytes of each piece of memory."""
    inputs: tuple[Slot, ...]
    """Where the inputs go, then the weights."""
    outputs: tuple[Slot, ...]
    """Where the results are."""
    steps: tuple[Step, ...]

    @property
    def source(self) -> str:
        """All of it as one text."""
        return "\n".join(self.sources)


def assemble_steps(lifted: Lifted, bodies: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
    """The partitioned graph as a list of launches. Linear."""
    pack_weights(lifted.weights, bodies)
    with compiling.lock, quiet(), refused("assembly"):
        return _StepAssembly(lifted.graph, bodies, lifted.weights, machine).run()


class _StepAssembly(Assembly):
    """Reads the launches off the function that the virtual machine would run."""

    def link(self) -> StepList:
        codes = {name: built.library for _, built in self.bodies.values() for name in built.lowered.symbols.values()}
        return _Reader(codes).run(self.builder.get()["main"])


@attrs.frozen(slots=True, eq=False)
class _Value:
    """A value before it has memory."""

    number: int
    """Views of one value share it."""
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * tvm().DataType(self.dtype).bits // 8


class _Reader:
    """Follows the bindings of a Relax function."""

    def __init__(self, codes: Mapping[str, Any]) -> None:
        self.codes = codes
        self.values: dict[Any, Any] = {}
        """By variable: a value, or a list of those of a tuple."""
        self.sizes: list[int] = []
        """The bytes of each value."""
        self.calls: list[tuple[str, list[int]]] = []
        """The kernels that run, each with the values that it takes and makes, and the memory that it needs besides."""

    def run(self, function: Any) -> StepList:
        """The launches of the function."""
        for param in function.params:
            self.values[param] = self._new(param.ty)
        inputs = [self.values[param] for param in function.params]
        for block in function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self._value(binding.value)
        outputs = _flat(self._value(function.body.body))
        blocks, sizes = planned(self.sizes, [values for _, values in self.calls], [v.number for v in (*inputs, *outputs)])
        sources = {id(self.codes[symbol]): self.codes[symbol].source for symbol, _ in self.calls}
        steps = [
            Step(i, launch.kernel, _arguments(launch, [blocks[value] for value in values], self._parameters(symbol, values)),
                 launch.groups, launch.local, launch.shared)
            for i, (symbol, values) in enumerate(self.calls)
            for launch in self.codes[symbol].plans[symbol].launches
            if 0 not in launch.groups
        ]
        slots = [[Slot(blocks[value.number], value.shape, value.dtype) for value in values] for values in (inputs, outputs)]
        return StepList(tuple(sources.values()), tuple(sizes), tuple(slots[0]), tuple(slots[1]), tuple(steps))

    def _parameters(self, symbol: str, values: list[int]) -> int:
        return len(values) - len(self.codes[symbol].plans[symbol].scratch)

    def _value(self, expr: Any) -> Any:
        relax = part("relax")
        if isinstance(expr, relax.Tuple):
            return [self._value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if not isinstance(expr, relax.Call):
            return self.values[expr]
        name = str(expr.op.name)
        if name == "relax.call_tir":
            return self._call(expr)
        if name in ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"):
            return attrs.evolve(self._value(expr.args[0]), shape=_shape(expr.ty))
        raise CompileError(f"a list of launches has no {name}")

    def _call(self, expr: Any) -> Any:
        symbol, result = expr.args[0].name_hint, expr.ty_args[0]
        results = [self._new(field) for field in result.fields] if hasattr(result, "fields") else self._new(result)
        taken = [self._value(field) for field in expr.args[1].fields]
        scratch = [self._memory(size) for size in self.codes[symbol].plans[symbol].scratch]
        self.calls.append((symbol, [value.number for value in (*taken, *_flat(results))] + scratch))
        return results

    def _new(self, value_type: Any) -> _Value:
        value = _Value(len(self.sizes), _shape(value_type), str(value_type.dtype))
        self._memory(value.size)
        return value

    def _memory(self, size: int) -> int:
        self.sizes.append(max(1, size))
        return len(self.sizes) - 1


def planned(sizes: list[int], calls: list[list[int]], kept: list[int]) -> tuple[dict[int, int], list[int]]:
    """The piece of memory of each value that is used, and the bytes of each piece. A value takes the smallest piece that is free
    and large enough, but none of twice its size; the kept ones share with nobody."""
    last = {value: i for i, values in enumerate(calls) for value in values}
    blocks, pieces, free, whole = dict[int, int](), list[int](), list[int](), set(kept)

    def take(value: int) -> None:
        fitting = [b for b in free if sizes[value] <= pieces[b] <= 2 * sizes[value]] if value not in whole else []
        if fitting:
            blocks[value] = min(fitting, key=pieces.__getitem__)
            free.remove(blocks[value])
        else:
            blocks[value] = len(pieces)
            pieces.append(sizes[value])

    for value in dict.fromkeys(kept):
        take(value)
    for i, values in enumerate(calls):
        for value in dict.fromkeys(values):
            if value not in blocks:
                take(value)
        free += [blocks[value] for value in dict.fromkeys(values) if last[value] == i and value not in whole]
    return blocks, pieces


def _arguments(launch: Launch, blocks: list[int], parameters: int) -> tuple[int | Number, ...]:
    """The launch's arguments: memory besides the parameters lies behind them."""
    return tuple(
        blocks[argument.number if argument.number >= 0 else parameters + ~argument.number]
        if isinstance(argument, Memory) else argument
        for argument in launch.arguments
    )


def _flat(value: Any) -> list[_Value]:
    return [inner for item in value for inner in _flat(item)] if isinstance(value, list) else [value]


def _shape(value_type: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in value_type.shape)
