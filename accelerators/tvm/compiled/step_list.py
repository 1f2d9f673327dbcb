"""Kernels assembled without TVM's virtual machine: a list of launches with statically planned memory. With dynamic sizes, the
memory is planned at run time for each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.bodies.lifting import Lifted
from partita.accelerators.tvm.code.building import Built
from partita.accelerators.tvm.code.launch_sizes import Formula, with_arguments
from partita.accelerators.tvm.code.launches import Launch, Memory, Number
from partita.accelerators.tvm.compiled.assembling import Assembled, Assembly, pack_weights
from partita.accelerators.tvm.compiled.launch_list import Joint, OpenSlot, OpenStep, OpenSteps, StepList, joined, order_of, stated
from partita.accelerators.tvm.machine.library import compiling, part, tvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import quiet, refused
from partita.accelerators.tvm.sizes.extent import Size
from partita.graph.node import Node


def assemble_steps(lifted: Lifted, bodies: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
    """The partitioned graph as a list of launches. Linear."""
    pack_weights(lifted.weights, bodies)
    with compiling.lock, quiet(), refused("assembly"):
        return StepAssembly(lifted.graph, bodies, lifted.weights, machine).run()


class StepAssembly(Assembly):
    """Makes launches from the function that the virtual machine would run."""

    def link(self) -> StepList | OpenSteps:
        """The launches; concatenations without a launch are removed from `steps`."""
        codes = {name: built.library for _, built in self.bodies.values() for name in built.lowered.symbols.values()}
        reader = _Reader(codes, self._orders(), self.machine.gpu.alignment)
        steps = reader.run(self.builder.get()["main"])
        self.steps = [step for call, step in enumerate(self.steps) if call not in reader.dropped]
        return steps

    def _orders(self) -> dict[str, tuple[int, ...]]:
        """Input order of each concatenation kernel whose inputs are contiguous in its result, by kernel."""
        orders: dict[str, tuple[int, ...]] = {}
        for body, built in self.bodies.values():
            symbols, order = [*built.lowered.symbols.values()], order_of(body)
            if order is not None and len(symbols) == 1:
                orders[symbols[0]] = order
        return orders


@attrs.frozen(slots=True, eq=False)
class _Value:
    """A value before its memory is planned."""

    number: int
    """Number of the value; views of one value share it."""
    shape: tuple[Size, ...]
    dtype: str

    @property
    def size(self) -> Size:
        """Size in bytes."""
        bits: Size = tvm().DataType(self.dtype).bits
        return reduce(mul, self.shape, bits) // 8


@attrs.frozen(slots=True)
class _Stated:
    """A kernel argument that is a size."""

    size: Size


@attrs.frozen(slots=True)
class _Call:
    """One run of a TensorIR kernel."""

    symbol: str
    """Name of the kernel."""
    arguments: tuple[int | _Stated, ...]
    """Inputs and results by their numbers, and sizes."""
    scratch: tuple[int, ...]
    """Scratch memory, as numbers of values."""

    @property
    def values(self) -> tuple[int, ...]:
        """All values that it reads or writes."""
        return (*[argument for argument in self.arguments if isinstance(argument, int)], *self.scratch)

    def given(self, launch: Launch) -> tuple[int | Number, ...]:
        """Arguments of one of its launches."""
        return tuple([
            self._memory(argument.number) if isinstance(argument, Memory)
            else attrs.evolve(argument, value=with_arguments(argument.value, self._sizes))
            for argument in launch.arguments
        ])

    def groups(self, launch: Launch) -> tuple[Formula, Formula, Formula]:
        """Number of work-groups of one of its launches."""
        x, y, z = (with_arguments(count, self._sizes) for count in launch.groups)
        return x, y, z

    @property
    def _sizes(self) -> list[Any]:
        return [argument.size if isinstance(argument, _Stated) else None for argument in self.arguments]

    def _memory(self, number: int) -> int:
        value = self.arguments[number] if number >= 0 else self.scratch[~number]
        assert isinstance(value, int)
        return value


class _Reader:
    """Interprets the bindings of a Relax function."""

    def __init__(self, codes: Mapping[str, Any], orders: Mapping[str, Sequence[int]], alignment: int) -> None:
        """`orders` has the input order of each concatenation kernel; parts of values are aligned to `alignment` bytes."""
        self.codes, self.orders, self.alignment = codes, orders, alignment
        self.values: dict[Any, Any] = {}
        """Value of each variable, or a list of values for a tuple."""
        self.sizes: list[Size] = []
        """Size of each value in bytes."""
        self.calls: list[_Call] = []
        """Kernel runs in order."""
        self.joints: dict[int, Joint] = {}
        """Concatenations among the calls, by index of the call."""
        self.dropped: set[int] = set()
        """Indices of the calls that need no launch, because their inputs are written directly into the result."""

    def run(self, function: Any) -> StepList | OpenSteps:
        """The launches of the function."""
        for param in function.params:
            self.values[param] = self._new(param.ty)
        inputs = [self.values[param] for param in function.params]
        for block in function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self._value(binding.value)
        outputs = _flat(self._value(function.body.body))
        fixed = {value.number for value in (*inputs, *outputs)}
        self.dropped, inside = joined(self.joints, self.sizes, fixed, self.alignment)
        self.calls = [call for number, call in enumerate(self.calls) if number not in self.dropped]
        sources = {id(self.codes[call.symbol]): self.codes[call.symbol].source for call in self.calls}
        steps = [
            OpenStep(i, launch.kernel, call.given(launch), call.groups(launch), launch.local, launch.shared)
            for i, call in enumerate(self.calls)
            for launch in self.codes[call.symbol].plans[call.symbol].launches
        ]
        slots = [tuple([OpenSlot(v.number, v.shape, v.dtype) for v in values]) for values in (inputs, outputs)]
        whole = {part.value: part.whole for part in inside}
        calls = tuple([tuple([whole.get(value, value) for value in call.values]) for call in self.calls])
        listed = OpenSteps(tuple(sources.values()), tuple(self.sizes), calls, slots[0], slots[1], tuple(steps), inside)
        return listed if listed.is_open else listed.at({})

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
        taken = [self._taken(field) for field in expr.args[1].fields]
        scratch = [self._memory(size) for size in self.codes[symbol].plans[symbol].scratch]
        arguments = tuple([value.number if isinstance(value, _Value) else _Stated(value) for value in (*taken, *_flat(results))])
        if symbol in self.orders:
            values = [value.number for value in taken if isinstance(value, _Value)]
            self.joints[len(self.calls)] = Joint(tuple([values[i] for i in self.orders[symbol]]), _flat(results)[0].number)
        self.calls.append(_Call(symbol, arguments, tuple(scratch)))
        return results

    def _taken(self, field: Any) -> Any:
        """An argument of a kernel: a value, or a size."""
        return self._value(field) if isinstance(getattr(field, "ty", None), part("relax").TensorType) else stated(field)

    def _new(self, value_type: Any) -> _Value:
        value = _Value(len(self.sizes), _shape(value_type), str(value_type.dtype))
        self._memory(value.size)
        return value

    def _memory(self, size: Size) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1


def _flat(value: Any) -> list[_Value]:
    return [inner for item in value for inner in _flat(item)] if isinstance(value, list) else [value]


def _shape(value_type: Any) -> tuple[Size, ...]:
    return tuple(map(stated, value_type.shape))
