"""Kernels for a GPU run in numpy, as they are written: all threads of a block go through the text together, step by step.

Instructions of a warp are computed from the tables of the PTX manual ("Matrix fragments for mma.m16n8k16", "for mma.m16n8k32",
"for mma.m16n8k8", "ldmatrix"). What a GPU would leave to chance is an error: numbers of shared memory that one thread writes and
another reads or writes with no barrier between, that are read while a copy to them is on its way or before anything is written,
and every access outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.tvm.kernels.language import Buffer, Kernel
from partita.accelerators.tvm.kernels.language import expressions as e
from partita.accelerators.tvm.kernels.language import statements as s
from partita.accelerators.tvm.kernels.language import values as v
from partita.accelerators.tvm.sizes.extent import value_of
from partita.graph.types import Array, numpy_dtype

WARP = 32
MANY = -2
"""The reader of a number that several threads have read."""


class Hazard(AssertionError):
    """The kernel's result depends on which thread comes first, or on what happens to stand in memory."""


def run(kernel: Kernel, inputs: Sequence[Array], symbols: Mapping[str, int] | None = None) -> list[Array]:
    """What the kernel makes of these inputs, each under the shape that the kernel has it in; of one for any size the symbols are
    the sizes of this call."""
    given, memory, held = iter(inputs), dict[Buffer, Array](), dict(symbols or {})
    for buffer in kernel.arguments:
        dtype, size = numpy_dtype(buffer.element.name), math.prod([value_of(size, held) for size in buffer.sizes])
        if buffer.role == "input":
            memory[buffer] = np.ascontiguousarray(next(given)).reshape(-1)
            assert memory[buffer].dtype == dtype and memory[buffer].size == size
        else:
            memory[buffer] = np.zeros(size, dtype)
            memory[buffer].view(np.uint8)[:] = 0xFF  # NaN, of all types of floating point.
    loops = _nest(kernel.statements)
    blocks, threads = launched(kernel, held)
    for block in range(blocks):
        known: dict[v.Variable, Any] = {loops[0].variable: np.int64(block), loops[1].variable: np.arange(threads)}
        known |= {v.symbol_of(name): np.int64(size) for name, size in held.items()}
        _Block(dict(memory), known, threads, held).run(loops[1].body)
    return [memory[buffer] for buffer in kernel.arguments if buffer.role == "output"]


def launched(kernel: Kernel, symbols: Mapping[str, int] | None = None) -> tuple[int, int]:
    """The blocks of a kernel, and the threads of each."""
    held = dict(symbols or {})
    host = _Block({}, {v.symbol_of(name): np.int64(size) for name, size in held.items()}, 1, held)
    blocks, threads = (int(host.value(loop.count)) for loop in _nest(kernel.statements))
    return blocks, threads


def without_barriers(kernel: Kernel) -> Kernel:
    """The kernel with its barriers deleted, by which a test shows that their lack is seen."""

    def kept(body: list[s.Statement]) -> None:
        body[:] = [step for step in body if not (isinstance(step, s.Do) and step.call.intrinsic.name == "barrier")]
        for step in body:
            if isinstance(step, s.Loop):
                kept(step.body)
            elif isinstance(step, s.When):
                kept(step.yes)
                kept(step.no)

    kept(kernel.statements)
    return kernel


def _nest(statements: Sequence[s.Statement]) -> list[s.Loop]:
    """The loops of a launch: blocks and threads."""
    loops: list[s.Loop] = []
    while len(loops) < 2:
        (loop,) = statements
        assert isinstance(loop, s.Loop)
        loops.append(loop)
        statements = loop.body
    return loops


class _Shared:
    """Numbers that the threads of a block share, and who touched each since the last barrier."""

    def __init__(self, size: int) -> None:
        self.writer, self.written = np.full(size, -1), np.full(size, -1)
        self.reader, self.read = np.full(size, -1), np.full(size, -1)
        self.is_set, self.is_awaited = np.zeros(size, bool), np.zeros(size, bool)


class _Block:
    """One block of threads."""

    def __init__(
        self, memory: dict[Buffer, Array], known: dict[v.Variable, Any], threads: int, symbols: Mapping[str, int]
    ) -> None:
        self.memory, self.known, self.threads, self.symbols = memory, known, threads, symbols
        self.number = np.arange(threads)
        self.mask = np.ones(threads, bool)
        self.shared: dict[Buffer, _Shared] = {}
        self.epoch = 0
        self.open_copies: list[Any] = []
        self.groups: list[list[Any]] = []

    # -- statements ------------------------------------------------------------------------------------------

    def run(self, body: Sequence[s.Statement]) -> None:
        for statement in body:
            getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    def _store(self, statement: s.Store) -> None:
        value = self.value(statement.value)
        dtype = self.memory[statement.buffer].dtype
        at = self.places(statement.buffer, statement.position, statement.value.type.lanes)
        self.write(statement.buffer, at, value.astype(dtype))

    def _bind(self, statement: s.Bind) -> None:
        self.known[statement.variable] = self.value(statement.value)

    def _allocate(self, statement: s.Allocate) -> None:
        buffer = statement.buffer
        size, dtype = math.prod(buffer.sizes), numpy_dtype(buffer.element.name)
        if buffer.role == "shared":
            self.memory[buffer], self.shared[buffer] = np.zeros(size, dtype), _Shared(size)
        else:
            self.memory[buffer] = np.zeros((self.threads, size), dtype)

    def _loop(self, statement: s.Loop) -> None:
        count = np.unique(self.value(statement.count))
        assert len(count) == 1
        for i in range(int(count[0])):
            self.known[statement.variable] = np.int64(i)
            self.run(statement.body)

    def _when(self, statement: s.When) -> None:
        before, holds = self.mask, np.broadcast_to(self.value(statement.condition), (self.threads,))
        for mask, body in ((before & holds, statement.yes), (before & ~holds, statement.no)):
            self.mask = mask
            if mask.any():
                self.run(body)
        self.mask = before

    def _do(self, statement: s.Do) -> None:
        name, _, number = statement.call.intrinsic.name.rpartition("_")
        whole = statement.call.intrinsic.name
        if whole in ("load_matrices", "load_turned_matrices", "barrier") or name == "multiply":
            assert self.mask.all(), f"{whole} with some of the threads"
        if whole == "barrier":
            self.epoch += 1
        elif whole == "close_copies":
            self.groups.append(self.open_copies)
            self.open_copies = []
        elif name == "wait_for_copies_but":
            self.wait(int(number))
        elif name == "copy":
            self.copy(int(number), *statement.call.arguments)
        elif name == "multiply":
            self.multiply(number, *statement.call.arguments)
        else:
            self.load_matrices(whole == "load_turned_matrices", *statement.call.arguments)

    # -- memory ----------------------------------------------------------------------------------------------

    def places(self, buffer: Buffer, position: Sequence[v.Value], lanes: int = 1) -> Array:
        """Where each thread's numbers stand in a buffer: threads x lanes."""
        first: Any = 0
        for index, size in zip(position, buffer.sizes, strict=True):
            first = first * value_of(size, self.symbols) + self.value(index)
        return np.broadcast_to(first, (self.threads,))[:, None] + np.arange(lanes)

    def address(self, load: v.Value) -> tuple[Buffer, Array]:
        assert isinstance(load, e.Load)
        return load.buffer, self.places(load.buffer, load.position)[:, 0]

    def read(self, buffer: Buffer, at: Array, who: Array | None = None) -> Array:
        """The numbers at places; `who` reads: threads of this number, or each thread its own line."""
        memory, mask = self.memory[buffer], self.mask
        rows = at if who is not None else at[mask]
        if rows.size and (rows.min() < 0 or rows.max() >= memory.shape[-1]):
            raise Hazard(f"{buffer.name} is read outside")
        if buffer in self.shared:
            noted = self.shared[buffer]
            reader = np.broadcast_to(self.number[mask][:, None] if who is None else who, rows.shape)
            if not noted.is_set[rows].all() or noted.is_awaited[rows].any():
                raise Hazard(f"{buffer.name} is read before it is written")
            if ((noted.written[rows] == self.epoch) & (noted.writer[rows] != reader)).any():
                raise Hazard(f"{buffer.name} is read where another thread writes")
            others = (noted.read[rows] == self.epoch) & (noted.reader[rows] != reader)
            noted.reader[rows] = np.where(others | (who is not None), MANY, reader)
            counts = np.bincount(rows.ravel(), minlength=memory.size)[rows]
            noted.reader[rows[counts > 1]] = MANY
            noted.read[rows] = self.epoch
        safe = at if who is not None else np.where(mask[:, None], at, 0)
        return memory[self.number[:, None], safe] if memory.ndim == 2 else memory[safe]

    def write(self, buffer: Buffer, at: Array, value: Array) -> None:
        memory, rows = self.memory[buffer], at[self.mask]
        if rows.size and (rows.min() < 0 or rows.max() >= memory.shape[-1]):
            raise Hazard(f"{buffer.name} is written outside")
        value = value[:, None] if value.ndim == 1 else value
        value = np.broadcast_to(value, at.shape)[self.mask]
        if memory.ndim == 2:
            memory[self.number[self.mask][:, None], rows] = value
            return
        if buffer in self.shared:
            self.note_writes(buffer, rows, self.number[self.mask])
            self.shared[buffer].is_set[rows] = True
        memory[rows] = value

    def note_writes(self, buffer: Buffer, rows: Array, who: Array) -> None:
        noted, writer = self.shared[buffer], np.broadcast_to(who[:, None], rows.shape)
        if len(np.unique(rows)) < rows.size:
            raise Hazard(f"{buffer.name} is written by two threads")
        for touched, toucher in ((noted.written, noted.writer), (noted.read, noted.reader)):
            if ((touched[rows] == self.epoch) & (toucher[rows] != writer)).any() or noted.is_awaited[rows].any():
                raise Hazard(f"{buffer.name} is written where another thread reads or writes")
        noted.writer[rows], noted.written[rows] = writer, self.epoch

    # -- instructions of a warp ------------------------------------------------------------------------------

    def copy(self, count: int, into: v.Value, given: v.Value, taken: v.Value) -> None:
        """cp.async: so many bytes are read, zeros fill up the rest; when it is done nobody knows before he waits."""
        (target, at), (source, first) = self.address(into), self.address(given)
        size = self.memory[target].itemsize
        read, count = np.broadcast_to(self.value(taken), (self.threads,)) // size, count // size
        assert set(np.unique(read[self.mask])) <= {0, count}
        assert not (at[self.mask] % count).any() and not (first[self.mask & (read > 0)] % count).any(), "not aligned"
        rows, lanes = at[:, None] + np.arange(count), first[:, None] + np.arange(count)
        outside = self.mask & (read > 0) & ((lanes.min(1) < 0) | (lanes.max(1) >= self.memory[source].size))
        if outside.any():
            raise Hazard(f"{source.name} is read outside")
        bits = self.memory[source].view(self.memory[target].dtype)[np.where((read > 0)[:, None] & self.mask[:, None], lanes, 0)]
        rows, bits = rows[self.mask], np.where((read > 0)[:, None], bits, 0)[self.mask]
        if rows.size and rows.max() >= self.memory[target].size:
            raise Hazard(f"{target.name} is written outside")
        self.note_writes(target, rows, self.number[self.mask])
        self.shared[target].is_awaited[rows] = True
        self.open_copies.append((target, rows, bits, self.number[self.mask]))

    def wait(self, but: int) -> None:
        while len(self.groups) > but:
            for target, rows, bits, who in self.groups.pop(0):
                noted = self.shared[target]
                noted.is_awaited[rows], noted.is_set[rows] = False, True
                noted.writer[rows], noted.written[rows] = who[:, None], self.epoch
                self.memory[target][rows] = bits

    def load_matrices(self, is_turned: bool, into: v.Value, row: v.Value) -> None:
        """ldmatrix.x4: the threads 8 i to 8 i + 7 of a warp hold the addresses of the rows of matrix i."""
        (parts, first), (source, at) = self.address(into), self.address(row)
        count = 16 // self.memory[source].itemsize
        assert not (at % count).any(), "not aligned"
        numbers = self.read(source, at[:, None] + np.arange(count), self.number[:, None]).reshape(-1, 4, 8, count)
        halves = np.ascontiguousarray(numbers).view(np.uint16)
        halves = halves.swapaxes(2, 3) if is_turned else halves
        # "Each thread gets a fragment of a row: thread 0 the first two elements of row 0, and so on."
        words = np.ascontiguousarray(halves.reshape(-1, 4, 32, 2)).view(np.uint32)[..., 0]
        self.memory[parts][self.number[:, None], first[:, None] + np.arange(4)] = words.swapaxes(1, 2).reshape(-1, 4)

    def multiply(self, kind: str, sums: v.Value, left: v.Value, right: v.Value) -> None:
        """mma.m16n8k16, m16n8k32 for bytes, and m16n8k8 for TF32, by the tables of the manual: groupID = laneid >> 2,
        threadID_in_group = laneid % 4."""
        (held, c), (lefts, a), (rights, b) = map(self.address, (sums, left, right))
        fragments = {}
        for name, buffer, first, words in (("a", lefts, a, 4), ("b", rights, b, 2)):
            numbers = self.memory[buffer][self.number[:, None], first[:, None] + np.arange(words)]
            own = kind if kind not in _BYTES else _BYTES[kind][name == "b"]
            fragments[name] = _numbers(own, np.ascontiguousarray(numbers)).reshape(self.threads // WARP, WARP, -1)
        group, thread = np.arange(WARP) >> 2, np.arange(WARP) % 4
        product = _of_tf32 if kind == "tf32" else _of_bytes if kind in _BYTES else _of_halves
        products = product(fragments["a"], fragments["b"], group, thread)
        for i in range(4):
            row = group if i < 2 else group + 8
            added = products[:, row, thread * 2 + (i & 1)].reshape(-1)
            self.memory[held][self.number, c + i] += added

    # -- expressions -----------------------------------------------------------------------------------------

    def value(self, value: v.Value) -> Any:
        """The value for each thread: one number for all, or threads, or threads x lanes."""
        if isinstance(value, v.Constant):
            return numpy_dtype(value.type.element.name).type(value.number)
        if isinstance(value, v.Variable):
            return self.known[value]
        if isinstance(value, v.ComputedSize):
            return np.int64(value_of(value.extent, self.symbols))
        if isinstance(value, e.Load):
            numbers = self.read(value.buffer, self.places(value.buffer, value.position, value.type.lanes))
            return numbers if value.type.lanes > 1 else numbers[:, 0]
        if isinstance(value, v.Binary):
            return _OPERATORS[value.operator](self.value(value.left), self.value(value.right))
        if isinstance(value, e.Choice):
            return self.choice(value)
        if isinstance(value, e.Named):
            self.known[value.variable] = self.value(value.value)
            return self.value(value.body)
        inner = [self.value(part) for part in value.parts]
        if isinstance(value, v.Cast):
            return inner[0].astype(numpy_dtype(value.type.element.name))
        if isinstance(value, v.Bits):
            bits = np.ascontiguousarray(inner[0]).view(numpy_dtype(value.type.element.name))
            return bits[..., 0] if value.value.type.lanes > 1 and value.type.lanes == 1 else bits
        if isinstance(value, v.Spread):
            return np.asarray(inner[0])[..., None]
        if isinstance(value, v.Not):
            return ~inner[0]
        assert isinstance(value, e.Call)
        if value.intrinsic.name in _NEIGHBOURS:
            assert self.mask.all(), f"{value.intrinsic.name} with some of the threads"
            return np.broadcast_to(inner[0], (self.threads,))[self.number ^ _NEIGHBOURS[value.intrinsic.name]]
        return _FUNCTIONS[value.intrinsic.name](*inner)

    def choice(self, value: e.Choice) -> Any:
        if value.condition.type.lanes > 1:
            assert not value.guards, "lanes are computed together"
            return np.where(*[self.value(part) for part in (value.condition, value.yes, value.no)])
        condition = np.broadcast_to(self.value(value.condition), (self.threads,))
        before, sides = self.mask, []
        for part, mask in ((value.yes, condition), (value.no, ~condition)):
            self.mask = before & mask if value.guards else before
            sides.append(self.value(part))
        self.mask = before
        wide = value.type.lanes > 1
        return np.where(condition[:, None] if wide else condition, *sides)


def _numbers(kind: str, words: Array) -> Array:
    """What stands in the words of a fragment. Of TF32 the last 13 bits are not looked at."""
    if kind == "tf32":
        return (words & np.uint32(0xFFFFE000)).view("float32")
    if kind in ("u8", "s8"):
        return words.view({"u8": "uint8", "s8": "int8"}[kind]).astype("int32")
    return words.view(numpy_dtype({"f16": "float16", "bf16": "bfloat16"}[kind])).astype("float32")


_BYTES: Mapping[str, tuple[str, str]] = {left + right: (left, right) for left in ("u8", "s8") for right in ("u8", "s8")}
"""The types of the left and of the right matrix in products of bytes."""


def _of_halves(a: Array, b: Array, group: Array, thread: Array) -> Array:
    """The product of the matrices whose fragments the threads hold: mma.m16n8k16."""
    left, right = np.full((len(a), 16, 16), np.nan, "float32"), np.full((len(a), 16, 8), np.nan, "float32")
    for i in range(8):
        row = group if i < 2 or 4 <= i < 6 else group + 8
        column = thread * 2 + (i & 1) + (0 if i < 4 else 8)
        left[:, row, column] = a[:, :, i]
    for i in range(4):
        row = thread * 2 + (i & 1) + (0 if i < 2 else 8)
        right[:, row, group] = b[:, :, i]
    return left @ right


def _of_bytes(a: Array, b: Array, group: Array, thread: Array) -> Array:
    """The same of mma.m16n8k32 for bytes; a place of which the tables say nothing would be far from all sums."""
    nowhere = 1 << 20
    left, right = np.full((len(a), 16, 32), nowhere, "int32"), np.full((len(a), 32, 8), nowhere, "int32")
    for i in range(16):
        row = group if i < 4 or 8 <= i < 12 else group + 8
        left[:, row, thread * 4 + (i & 3) + (0 if i < 8 else 16)] = a[:, :, i]
    for i in range(8):
        right[:, thread * 4 + (i & 3) + (0 if i < 4 else 16), group] = b[:, :, i]
    return left @ right


def _of_tf32(a: Array, b: Array, group: Array, thread: Array) -> Array:
    """The same of mma.m16n8k8 for TF32."""
    left, right = np.full((len(a), 16, 8), np.nan, "float32"), np.full((len(a), 8, 8), np.nan, "float32")
    for i in range(4):
        left[:, group if i in (0, 2) else group + 8, thread if i < 2 else thread + 4] = a[:, :, i]
    for i in range(2):
        right[:, thread + 4 * i, group] = b[:, :, i]
    return left @ right


def _rounded_to_tf32(bits: Array) -> Array:
    """cvt.rna: to the nearest, those between two away from zero."""
    numbers = np.ascontiguousarray(bits).view("float32").astype("d")
    fractions, exponents = np.frexp(numbers)
    scaled = np.ldexp(fractions, 11)
    rounded = np.ldexp(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled), exponents - 11)
    return np.where(np.isfinite(numbers), rounded, numbers).astype("float32").view(np.uint32)


def _packed(dtype: str) -> Callable[[Array, Array], Array]:
    """cvt.rn of two numbers: the first in the low bytes."""

    def pack(low: Array, high: Array) -> Array:
        halves = [x.astype(numpy_dtype(dtype)).view(np.uint16).astype(np.uint32) for x in (low, high)]
        return halves[0] | halves[1] << np.uint32(16)

    return pack


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "floor": np.floor, "nearest": np.rint, "power": np.power,
    "power_of_two": np.exp2,
    "pack_f16": _packed("float16"), "pack_bf16": _packed("bfloat16"),
    "round_to_tf32": _rounded_to_tf32, "exactly": np.asarray,
}

_NEIGHBOURS: Mapping[str, int] = {"from_1_beside": 1, "from_2_beside": 2}
"""shfl.sync.bfly: the thread's number gets these bits turned round."""

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.mod, "<<": np.left_shift,
    ">>": np.right_shift, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal, "^": np.bitwise_xor, "&": np.bitwise_and, "|": np.bitwise_or, "min": np.minimum, "max": np.maximum,
}
