"""The builder of kernels: `Kernel` provides buffers and blocks, and records statements in the order in which they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.buffers import Buffer, Registers
from partita.accelerators.tvm.kernels.language.expressions import Call, Load, Named, walk
from partita.accelerators.tvm.kernels.language.intrinsics import ADDRESSES_CODE, barrier, prefetch_of
from partita.accelerators.tvm.kernels.language.statements import (
    Allocate,
    Bind,
    Do,
    Loop,
    LoopKind,
    Require,
    See,
    Statement,
    Store,
    When,
)
from partita.accelerators.tvm.kernels.language.types import Element, bfloat16, boolean, index, type_of
from partita.accelerators.tvm.kernels.language.values import (
    Binary,
    Cast,
    ComputedSize,
    Constant,
    Operand,
    Symbol,
    Value,
    Variable,
    as_index,
)
from partita.accelerators.tvm.sizes.extent import Extent

Shape = tuple[int, ...]


def _is_one(count: Operand) -> bool:
    return isinstance(count, int) and count == 1


class Kernel:
    """One function over buffers. Blocks are `with` statements:

    with kernel.loop(8, "i") as i:
        y[i] = x[i] * 2.0"""

    def __init__(self, name: str) -> None:
        self.name = name
        """The kernel's name in its text."""
        self.arguments: list[Buffer] = []
        """Inputs and outputs in the order in which they are passed."""
        self.symbols: dict[Symbol, None] = {}
        """The sizes that it takes besides its buffers, each once."""
        self.polynomials: dict[Extent, Value] = {}
        """The sizes that are computed from symbols, as expressions, each once."""
        self.codes: dict[str, None] = {}
        """The functions in LLVM IR that it calls, each once."""
        self.is_thorough = False
        """True if LLVM compiles it at its highest level on every processor."""
        self.narrows = False
        """True if it rounds a value to bfloat16."""
        self._blocks: list[list[Statement]] = [[]]
        self._known: dict[Buffer | Variable, None] = {}

    @property
    def statements(self) -> list[Statement]:
        """The kernel's statements; an error while a block is open."""
        if len(self._blocks) != 1:
            raise CompileError(f"kernel {self.name} is not written to its end: a block is open")
        return self._blocks[0]

    def __str__(self) -> str:
        from partita.accelerators.tvm.kernels.language.text import kernel_text  # upward: str() is a method

        return kernel_text(self)

    # -- what it works on ----------------------------------------------------------------------------------

    def input(self, name: str, element: Element, shape: tuple[int | Value, ...]) -> Buffer:
        """A buffer that the kernel reads."""
        return self._argument(Buffer(name, element, shape, "input", self._add))

    def output(self, name: str, element: Element, shape: tuple[int | Value, ...]) -> Buffer:
        """A buffer that the kernel writes."""
        return self._argument(Buffer(name, element, shape, "output", self._add))

    def size(self, name: str) -> Value:
        """A dynamic size of the buffers, under this name."""
        variable = Variable(type_of(index), name)
        self._know(variable)
        return variable

    def _argument(self, buffer: Buffer) -> Buffer:
        if len(self._blocks) != 1 or self._blocks[0]:
            raise CompileError(f"buffer {buffer.name} comes after the first statement of kernel {self.name}")
        self.arguments.append(buffer)
        self._check_sizes(buffer)
        self._know(buffer)
        return buffer

    def stack(self, name: str, element: Element, shape: Shape) -> Buffer:
        """A small buffer of the kernel's own, which stays in registers if all indices are static."""
        return self._allocated(Buffer(name, element, shape, "stack", self._add))

    def registers(self, name: str, element: Element, shape: Shape, lanes: int) -> Registers:
        """An array of vectors on the stack."""
        count = lanes
        for size in shape:
            count *= size
        return Registers(self.stack(name, element, (count,)), shape, lanes)

    def memory(self, name: str, element: Element, shape: tuple[int | Value, ...]) -> Buffer:
        """A buffer of the kernel's own, in memory."""
        return self._allocated(Buffer(name, element, shape, "memory", self._add))

    def _allocated(self, buffer: Buffer) -> Buffer:
        self._check_sizes(buffer)
        self._blocks[-1].append(Allocate(buffer))
        self._know(buffer)
        return buffer

    def shared(self, name: str, element: Element, shape: Shape) -> Buffer:
        """A buffer that the threads of a GPU block share; it belongs to the top level of a launch, outside of loops and
        conditions."""
        return self._allocated(Buffer(name, element, shape, "shared", self._add))

    def name_value(self, name: str, value: Operand) -> Value:
        """A name for a value, which is computed once, here."""
        value = value if isinstance(value, Value) else as_index(value)
        self._check(value)
        variable = Variable(value.type, name)
        self._blocks[-1].append(Bind(variable, value))
        self._know(variable)
        return variable

    # -- blocks --------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, count: Operand, name: str, kind: LoopKind = "serial") -> Iterator[Value]:
        """A block for each integer from 0 to `count` - 1; a vectorized or unrolled loop needs a static count."""
        number = as_index(count)
        self._check(number)
        if kind in ("vectorized", "unroll") and not isinstance(count, int):
            raise CompileError(f"loop {name}: how often it is {kind} has to be known, and {count} is not")
        variable = Variable(type_of(index), name)
        with self._block(variable) as body:
            yield variable
        if body and not (isinstance(count, int) and count <= 0):
            self._blocks[-1].append(Loop(variable, number, kind, body))

    def unroll(self, count: int, name: str) -> AbstractContextManager[Value]:
        """A block that is unrolled."""
        return self.loop(count, name, "unroll")

    def lanes(self, count: int, name: str = "l") -> AbstractContextManager[Value]:
        """A block that runs for all lanes of a vector at once."""
        return self.loop(count, name, "vectorized")

    def tasks(self, count: Operand, name: str, parallel: bool | Value) -> AbstractContextManager[Value]:
        """A block for each task; several threads share them if `parallel` holds, which may be decided at run time."""
        if isinstance(parallel, Value):
            return self._tasks_if(parallel, count, name)
        return self.loop(count, name, "parallel" if parallel and not (isinstance(count, int) and count == 1) else "serial")

    @contextmanager
    def launch(self, blocks: tuple[Operand, Operand, Operand], threads: int) -> Iterator[tuple[Value, Value, Value, Value]]:
        """A block of statements for each thread of a grid of GPU blocks; yields the block's x, y and z, and the thread's index in
        the block. The grid is launched along one dimension, x varying fastest, since CUDA allows at most 65,535 blocks along y
        and z. Its size may depend on sizes that the kernel takes."""
        across, down, deep = blocks
        with self.loop(across * down * deep, "block", "blocks") as block, self.loop(threads, "thread", "threads") as thread:
            if _is_one(down) and _is_one(deep):
                yield block, as_index(0), as_index(0), thread
                return
            x = self.name_value("block_x", 0 if _is_one(across) else block % across)
            row = block // across if _is_one(deep) else block // across % down
            y = as_index(0) if _is_one(down) else self.name_value("block_y", row)
            z = as_index(0) if _is_one(deep) else self.name_value("block_z", block // (across * down))
            yield x, y, z, thread

    @contextmanager
    def _tasks_if(self, parallel: Value, count: Operand, name: str) -> Iterator[Value]:
        """A block for each task, emitted twice: for several threads if the condition holds, and for one otherwise."""
        self._check(parallel)
        with self.loop(count, name, "parallel") as task:
            yield task
        shared = self._blocks[-1].pop()
        assert isinstance(shared, Loop)
        self._blocks[-1].append(When(parallel, [shared], [Loop(shared.variable, shared.count, "serial", shared.body)]))

    @contextmanager
    def seen_at(self, name: str, address: Value, element: Element, shape: tuple[int | Value, ...]) -> Iterator[Buffer]:
        """A block that reads a buffer at this address, which is chosen among several at run time. The kernel must not write to
        any of these."""
        buffer = Buffer(name, element, shape, "input", self._add)
        self._check(address)
        self._check_sizes(buffer)
        self.codes[ADDRESSES_CODE] = None
        with self._block(buffer) as body:
            yield buffer
        self._blocks[-1].append(See(buffer, address, body))

    @contextmanager
    def when(self, condition: Value | None) -> Iterator[None]:
        """A block that runs if the condition holds; None always holds."""
        if condition is None:
            yield
            return
        self._check(condition)
        if condition.type is not type_of(boolean):
            raise CompileError(f"{condition} is {condition.type}, and a condition is one truth value")
        with self._block() as body:
            yield
        self._blocks[-1].append(When(condition, body))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """A block that runs if the condition of the `when` before it does not hold."""
        statements = self._blocks[-1]
        before = statements[-1] if statements else None
        if not isinstance(before, When) or before.no:
            raise CompileError("otherwise() stands right after the block of a when()")
        with self._block() as body:
            yield
        before.no.extend(body)

    @contextmanager
    def _block(self, *known: Variable | Buffer) -> Iterator[list[Statement]]:
        """A block inside the current one, at whose end the names and buffers that were made in it go out of scope."""
        outside = len(self._known)
        self._known.update(dict.fromkeys(known))
        self._blocks.append([])
        try:
            yield self._blocks[-1]
        finally:
            self._blocks.pop()
            for _ in range(len(self._known) - outside):
                self._known.popitem()

    # -- single statements ---------------------------------------------------------------------------------

    def prefetch(self, number: Value) -> None:
        """Prefetches the cache line of this element of a buffer."""
        self._add(Do(prefetch_of(number)))

    def barrier(self) -> None:
        """Makes each thread wait for all threads of its block, whose writes to shared buffers are visible afterwards. All threads
        have to get here, so it must not be under a condition on which they differ."""
        self._add(Do(barrier()))

    def do(self, call: Call) -> None:
        """Emits a call for its side effect."""
        self._add(Do(call))

    def require(self, condition: Value, message: str) -> None:
        """Makes the run fail with this message unless the condition holds."""
        self._add(Require(condition, message))

    # -- checks --------------------------------------------------------------------------------------------

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, Store):
            self._check(*statement.position, statement.value)
            if statement.buffer not in self._known:
                raise self._unknown(statement.buffer.name)
            if statement.buffer.role == "input":
                raise CompileError(f"kernel {self.name} writes to {statement.buffer.name}, which is an input")
        elif isinstance(statement, Do):
            self._check(statement.call)
        elif isinstance(statement, Require):
            self._check(statement.condition)
        self._blocks[-1].append(statement)

    def _know(self, what: Buffer | Variable) -> None:
        self._known[what] = None

    def _check(self, *values: Value) -> None:
        """Checks that the names and buffers of these values are in scope, and records the sizes and functions that they use."""
        known = self._known
        used = [value for value in walk(values) if type(value) is not Binary and type(value) is not Constant]
        own = {value.variable for value in used if isinstance(value, Named)}
        for value in used:
            if isinstance(value, Symbol):
                self.symbols[value] = None
            elif isinstance(value, ComputedSize):
                self.polynomials.setdefault(value.extent, value.value)
            elif isinstance(value, Variable) and value not in known and value not in own:
                raise self._unknown(value.name)
            if isinstance(value, Load) and value.buffer not in known:
                raise self._unknown(value.buffer.name)
            if isinstance(value, Call) and value.intrinsic.code:
                self.codes[value.intrinsic.code] = None
            self.narrows |= isinstance(value, Cast) and value.type.element is bfloat16

    def _check_sizes(self, buffer: Buffer) -> None:
        """Records the symbols of a buffer's sizes as sizes that the kernel takes."""
        self._check(*[as_index(size) for size in buffer.shape if isinstance(size, Extent)])

    def _unknown(self, name: str) -> CompileError:
        return CompileError(
            f"kernel {self.name} uses {name} where it is not known",
            remedy="A name, a loop's counter and a buffer are known in the block that makes them, and after they are made",
        )
