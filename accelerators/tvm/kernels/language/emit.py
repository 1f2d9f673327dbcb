"""Lowers a kernel to TensorIR: each statement is passed to TVM's builder, in the order in which it was written."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, reduce
from typing import Any, Literal

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language import expressions, statements, values
from partita.accelerators.tvm.kernels.language.buffers import Buffer
from partita.accelerators.tvm.kernels.language.kernel import Kernel
from partita.accelerators.tvm.kernels.language.types import (
    ELEMENTS,
    Element,
    Type,
    bfloat16,
    float32,
    index,
    type_of,
    uint16,
    uint32,
)
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.sizes.extent import Extent, Size

WRITTEN = "partita.written"
"""Attribute of a function that was written in this language: its loops only have to be lowered."""

THOROUGH = "partita.thorough"
"""Attribute of such a function that LLVM compiles at its highest level on every processor."""

LARGE = "partita.large"
"""Attribute of such a function with more than MANY expressions: their number. LLVM compiles it at its lowest level."""

STACK = {"scope": "local", "annotations": {"disable_lower_builtin": True}}
"""Options that keep a buffer on the stack instead of TVM's workspace, which LLVM could not keep in registers."""

_PLACES: Mapping[str, Mapping[str, Any]] = {"stack": STACK, "shared": {"scope": "shared"}}
"""TVM's options for a kernel's own buffers that are not in memory, by role."""

_THREADS = {"blocks": "blockIdx.x", "threads": "threadIdx.x"}
"""TVM's names for the loops that a GPU launches."""

_NARROWED = "tirx.partita_narrowed"
"""Our own TVM op: float32 to the bits of the nearest bfloat16, for processors with an instruction for it. TVM vectorizes it like
any other op, and calls `_instructed` to lower it once the number of lanes is known."""

_NARROWED_CODE = """
define <16 x i16> @partita_narrowed_16(<16 x float> %x) alwaysinline {
  %made = fptrunc <16 x float> %x to <16 x bfloat>
  %bits = bitcast <16 x bfloat> %made to <16 x i16>
  ret <16 x i16> %bits
}
"""

MANY = 50_000
"""Number of expressions beyond which LLVM's other levels take more than 5 s, and thrice as long for twice as many; the largest
kernels of models have 5,000 to 30,000. A count decides, not a time, so that equal machines generate equal code."""

MOST = 300_000
"""Maximum number of expressions of a kernel with its loops unrolled: LLVM's lowest level takes about 10 s for as many."""


class TooMuchCode(CompileError):
    """Raised if a kernel for these sizes would have too many expressions to compile."""


Narrowing = Literal["exact", "flushed", "native"]
"""The rounding of float32 to bfloat16: to the nearest; to the nearest with subnormals flushed to zero, as the instruction does;
or by the instruction itself."""

_narrowing: ContextVar[Narrowing] = ContextVar("narrowing", default="exact")


@contextmanager
def narrowing(how: Narrowing) -> Iterator[None]:
    """Sets the rounding to bfloat16 of the kernels that are emitted inside."""
    token = _narrowing.set(how)
    try:
        yield
    finally:
        _narrowing.reset(token)


_sizes_are_given: ContextVar[bool] = ContextVar("sizes are given", default=False)


@contextmanager
def given_sizes(wanted: bool) -> Iterator[None]:
    """Sets whether kernels that are emitted inside take the sizes computed from symbols as arguments too: a GPU kernel would
    compute them in each of its threads."""
    token = _sizes_are_given.set(wanted)
    try:
        yield
    finally:
        _sizes_are_given.reset(token)


def emit(kernel: Kernel, shapes: Sequence[Sequence[Size]] | None = None) -> Any:
    """The kernel as the TensorIR function `main`, in one block without declared accesses: Relax requires a block, and no schedule
    looks into it. `shapes` are other shapes of the arguments, with as many elements."""
    script, maker = part("tirx.script.builder"), part("script.ir_builder").IRBuilder()
    emitter = _Emitter()
    with maker, script.prim_func(s_tir=True):
        script.func_name("main")
        emitter.declare(symbols_of(kernel, shapes))
        given = [None] * len(kernel.arguments) if shapes is None else [tuple(shape) for shape in shapes]
        for role in ("input", "output"):
            for buffer, shape in zip(kernel.arguments, given, strict=True):
                if buffer.role == role:
                    emitter.argument(buffer, shape)
            if role == "input":
                emitter.take()
        script.func_attr({"tirx.noalias": True, WRITTEN: True, **({THOROUGH: True} if kernel.is_thorough else {})})
        with script.sblock("root"), ExitStack() as codes:
            script.reads()
            script.writes()
            emitter.bind_symbols()
            emitter.bind_polynomials(kernel.polynomials)
            emitter.see_as_written()
            is_native = emitter.how == "native" and kernel.narrows
            for code in (*kernel.codes, *[_NARROWED_CODE] * is_native):
                codes.enter_context(script.attr(0, "pragma_import_llvm", code))
            emitter.block(kernel.statements)
    function = maker.get()
    return function.with_attr(LARGE, emitter.expressions) if emitter.expressions > MANY else function


def symbols_of(kernel: Kernel, shapes: Sequence[Sequence[Size]] | None = None) -> tuple[str | Extent, ...]:
    """The sizes that the kernel's function takes after its inputs, in order: names of symbols, and extents."""
    sizes = [size for shape in shapes or () for size in shape if isinstance(size, Extent)]
    used = {symbol.name for symbol in kernel.symbols} | {name for size in sizes for name in size.symbols}
    return (*sorted(used), *(kernel.polynomials if _sizes_are_given.get() else ()))


class _Emitter:
    """Lowers a kernel to TVM's statements; keeps TVM's object for each name and buffer of the kernel."""

    def __init__(self) -> None:
        self.script = part("tirx.script.builder")
        self.words = part("script.tirx")
        self.tirx = part("tirx")
        self.call_name = part("script.ir_builder").IRBuilder.name
        self.known: dict[values.Value | Buffer, Any] = {}
        self.seen: dict[Buffer, tuple[Any, ...]] = {}
        self.given: dict[values.Symbol, Any] = {}
        """The argument for each symbol."""
        self.followed: dict[Extent, Any] = {}
        """The argument for each size computed from symbols, if these are passed too."""
        self.polynomials: dict[Extent, Any] = {}
        """The variable for each size computed from symbols."""
        self.how = _narrowing.get()
        """The rounding to bfloat16."""
        self.expressions = 0
        """Number of expressions so far; unrolled loops count as often as they are unrolled."""
        self.times = 1
        """Number of times that the current statements are unrolled."""
        self.sizes: dict[values.Variable, int] = {}
        """The sizes of named values when TVM inlines them."""
        self.kept: Mapping[values.Value, None] = {}
        """The values that the current statement computes once and reads from memory."""
        self.plans: dict[statements.Store | statements.Bind, Mapping[values.Value, None]] = {}
        """The values that statements of the next vectorized loop read from memory."""
        self.cells: dict[values.Value | statements.Store, Any] = {}
        """The memory that is allocated for these values."""
        self.lane: Any = 0
        """The variable of the current vectorized loop."""

    # -- statements ----------------------------------------------------------------------------------------

    def declare(self, names: Iterable[str | Extent]) -> None:
        """Declares the sizes that the function takes, for use in the shapes of its other arguments."""
        for i, name in enumerate(names):
            if isinstance(name, Extent):
                self.followed[name] = self.tirx.Var(f"size{i}", "int64")
            else:
                self.given[values.symbol_of(name)] = self.tirx.Var(name, "int64")

    def take(self) -> None:
        """Adds those sizes as arguments."""
        for symbol, variable in self.given.items():
            self.script.arg(symbol.name, variable)
        for variable in self.followed.values():
            self.script.arg(variable.name, variable)

    def bind_symbols(self) -> None:
        """Converts the symbols to indices, which have fewer bits."""
        for symbol, given in self.given.items():
            if _sizes_are_given.get():
                self.known[symbol] = given.astype("int32")
                continue
            variable = self.words.let.as_var(rhs_dtype=type_of(index).element.name)
            self.call_name(f"{symbol.name}_", variable)
            self.script.Bind(given.astype("int32"), var=variable)
            self.known[symbol] = variable

    def bind_polynomials(self, polynomials: Mapping[Extent, values.Value]) -> None:
        """Computes the sizes that depend on symbols. Each is read from memory, since TVM would inline a let-bound one."""
        for i, (extent, written) in enumerate(polynomials.items()):
            if extent in self.followed:
                self.polynomials[extent] = self.followed[extent].astype("int32")
                continue
            cell = self.words.alloc_buffer((1,), type_of(index).element.name, **STACK)
            self.call_name(f"size{i}_kept", cell)
            self.script.buffer_store(cell, self.value(written), (0,))
            variable = self.words.let.as_var(rhs_dtype=type_of(index).element.name)
            self.call_name(f"size{i}", variable)
            self.script.Bind(cell[0], var=variable)
            self.polynomials[extent] = variable

    def argument(self, buffer: Buffer, given: tuple[Size, ...] | None = None) -> None:
        """Adds an argument of the function, in the shape `given` if there is one."""
        shape = tuple([self._outside(size) if isinstance(size, (int, Extent)) else self._size(size) for size in buffer.shape])
        outside = shape if given is None else tuple([self._outside(size) for size in given])
        self.known[buffer] = self.script.arg(buffer.name, self.script.buffer(outside, buffer.element.name))
        if (given is not None and given != buffer.shape) or any(isinstance(size, Extent) for size in buffer.shape):
            self.seen[buffer] = shape

    def see_as_written(self) -> None:
        """Declares the arguments in the shapes for which the kernel was written."""
        for buffer, written in self.seen.items():
            shape = self._inside(buffer) if any(isinstance(size, Extent) for size in buffer.shape) else written
            data = self.known[buffer].data
            seen = self.tirx.decl_buffer(shape, buffer.element.name, f"{buffer.name}_", data=data)
            # The builder's own function opens a nested frame per buffer, and about 300 frames are too deep.
            self.script.add_to_parent(self.tirx.DeclBuffer(seen, data=data))
            self.known[buffer] = seen

    def _outside(self, size: Size) -> Any:
        """A size in terms of the function's arguments."""
        if isinstance(size, int):
            return size
        terms = [reduce(operator.mul, [self.given[values.symbol_of(name)] for name in names], self.tirx.const(count, "int64"))
                 for names, count in size.terms.items()]
        return reduce(operator.add, terms)

    def _inside(self, buffer: Buffer) -> tuple[Any, ...]:
        """The sizes of a buffer as indices of the kernel."""
        return tuple([size if isinstance(size, int) else self.value(values.as_index(size)) for size in buffer.shape])

    def _size(self, size: values.Value) -> Any:
        """A size that is a value of the kernel; TVM infers it from the shapes of the passed arguments."""
        for value in (part_ for part_ in _variables(size) if part_ not in self.known):
            self.known[value] = self.tirx.Var(value.name, value.type.element.name)
        return self.value(size)

    def block(self, body: Sequence[statements.Statement]) -> None:
        """Emits the statements in order."""
        for statement in body:
            _STATEMENTS[type(statement)](self, statement)

    def store(self, statement: statements.Store) -> None:
        value = statement.value
        written = self.rooted(statement)
        if statement in self.cells:  # TVM vectorizes a single bfloat16, and then forgets that its bits are stored.
            written = self._as_bfloat16(self.before(statement, type_of(uint16), self._as_bits(written, 1)), 1)
        self.script.buffer_store(self.known[statement.buffer], written, self.index(statement.position, value.type.lanes))

    def bind(self, statement: statements.Bind) -> None:
        value = self.rooted(statement)
        value = self.tirx.const(value) if isinstance(value, (int, float)) else value
        kind = statement.variable.type
        if kind.element is bfloat16:  # TVM stores the bits of such a variable, and forgets its type.
            value = self._as_bits(value, kind.lanes)
        variable = self.words.let.as_var(rhs_dtype=value.ty)
        self.call_name(statement.variable.name, variable)
        self.script.Bind(value, var=variable)
        self.known[statement.variable] = self._as_bfloat16(variable, kind.lanes) if kind.element is bfloat16 else variable

    def allocate(self, statement: statements.Allocate) -> None:
        buffer = statement.buffer
        options: Mapping[str, Any] = _PLACES.get(buffer.role, {})
        # TVM may hoist the allocation above the variables of sizes computed from symbols.
        named, self.polynomials = self.polynomials, {}
        memory = self.words.alloc_buffer(self._inside(buffer), buffer.element.name, **options)
        self.polynomials = named
        self.call_name(buffer.name, memory)
        self.known[buffer] = memory

    def do(self, statement: statements.Do) -> None:
        self.script.evaluate(self.value(statement.call))

    def require(self, statement: statements.Require) -> None:
        with self.script.Assert(self.value(statement.condition), statement.message):
            return

    def loop(self, statement: statements.Loop) -> None:
        count, tag = self.value(statement.count), _THREADS.get(statement.kind)
        outside, lane = self.times, self.lane
        if statement.kind == "unroll":
            self.times *= int(count)
        if statement.kind == "vectorized":
            self.make_room(statement)
        with self.words.thread_binding(count, thread=tag) if tag else getattr(self.words, statement.kind)(count) as variable:
            self.call_name(statement.variable.name, variable)
            self.known[statement.variable] = variable
            if statement.kind == "vectorized":
                self.lane = variable
            self.block(statement.body)
        self.times, self.lane = outside, lane
        if statement.kind == "vectorized":
            self.cells = {}

    def see(self, statement: statements.See) -> None:
        """Reads a buffer at an address. TVM assumes that an unknown pointer is aligned to vectors unless told otherwise."""
        buffer, kind = statement.buffer, tvm_pointer(statement.buffer.element)
        pointer = self.tirx.Var(f"{buffer.name}_pointer", kind)
        self.script.Bind(self.tirx.call_extern(kind, "partita_pointer", self.value(statement.address)), var=pointer)
        seen = self.tirx.decl_buffer(self._inside(buffer), buffer.element.name, buffer.name, data=pointer)
        self.script.add_to_parent(self.tirx.DeclBuffer(seen, data=pointer))
        self.known[buffer] = seen
        with self.script.attr(pointer, "storage_alignment", buffer.element.bits // 8):
            self.block(statement.body)

    def when(self, statement: statements.When) -> None:
        condition = self.value(statement.condition)
        if isinstance(condition, bool):
            self.block(statement.yes if condition else statement.no)
            return
        with self.script.If(condition):
            with self.script.Then():
                self.block(statement.yes)
            if statement.no:
                with self.script.Else():
                    self.block(statement.no)

    # -- expressions ---------------------------------------------------------------------------------------

    def value(self, value: values.Value) -> Any:
        """The expression in TVM; a constant index stays a Python int, to which TVM gives the fitting type."""
        self.expressions += self.times
        if self.expressions > MOST:
            raise TooMuchCode(f"its kernel has more than {MOST:,} expressions, for which a compiler would take long")
        if value not in self.kept:
            return _VALUES[type(value)](self, value)
        if value not in self.known:
            self.known[value] = self.before(value, value.type, _VALUES[type(value)](self, value))
        return self.known[value]

    def rooted(self, statement: statements.Store | statements.Bind) -> Any:
        """The statement's value. Large parts that are read several times are computed once and read from memory, which compilers
        keep in registers. TVM would inline a let-bound value, into 2^k copies for k nested ones; if a statement binds it, TVM
        also simplifies the whole by the rules of real numbers."""
        planned = self.plans.pop(statement, None)
        self.kept = self.plan(statement) if planned is None else planned
        written = self.value(statement.value)
        for value in self.kept:
            self.known.pop(value, None)
        self.kept = {}
        return written

    def plan(self, statement: statements.Store | statements.Bind) -> Mapping[values.Value, None]:
        """The parts of the statement's value that are read from memory."""
        kept = expressions.kept_in(statement.value, self.sizes)
        if isinstance(statement, statements.Bind):
            self.sizes[statement.variable] = kept.size
        return kept.values

    def make_room(self, loop: statements.Loop) -> None:
        """Allocates, outside of a vectorized loop, the memory that its statements need: TVM treats allocations inside a loop as
        local to one iteration. Statements that read the same value share its memory."""
        for inner in loop.body:
            if isinstance(inner, (statements.Store, statements.Bind)):
                self.plans[inner] = self.plan(inner)
                for value in (value for value in self.plans[inner] if value not in self.cells):
                    self.cells[value] = self.cell(value.type, int(self.value(loop.count)))
            if isinstance(inner, statements.Store) and inner.value.type is type_of(bfloat16):
                if loop.variable not in dict.fromkeys(expressions.walk([inner.value])):
                    self.cells[inner] = self.cell(type_of(uint16), int(self.value(loop.count)))

    def cell(self, kind: Type, count: int) -> Any:
        """Allocates memory for `count` values."""
        cell = self.words.alloc_buffer((count * kind.lanes,), kind.element.name, **STACK)
        self.call_name("kept", cell)
        return cell

    def before(self, key: values.Value | statements.Store, kind: Type, value: Any) -> Any:
        """Stores the value to memory ahead of the current statement, and returns the load."""
        cell = self.cells[key] if key in self.cells else self.cell(kind, 1)
        position = self.lane if kind.lanes == 1 else self.words.ramp(0, 1, kind.lanes)
        self.script.buffer_store(cell, value, (position,))
        return cell[position]

    def constant(self, value: values.Constant) -> Any:
        if value.type.element.kind == "index":
            return value.number
        number = self.tirx.const(value.number, value.type.element.name)
        return number if value.type.lanes == 1 else self.words.Broadcast(number, value.type.lanes)

    def variable(self, value: values.Variable) -> Any:
        return self.known[value]

    def computed_size(self, value: values.ComputedSize) -> Any:
        named = self.polynomials.get(value.extent)
        return self.value(value.value) if named is None else named

    def binary(self, value: values.Binary) -> Any:
        operator, left, right = value.operator, value.left, value.right
        # TVM simplifies x - x and 0 * x to 0, even if x is NaN or infinite, and (x + y) - x to y, which rounds differently.
        if value.type.element.kind == "float" and operator == "-" and _unseen(left) is left:
            operator, right = "+", right * values.Constant(value.type, -1.0)
        elif value.type.element.kind == "float" and operator in ("*", "/"):
            left, right = _unseen(left), _unseen(right)
        return _OPERATORS[operator](self.tirx, self.value(left), self.value(right))

    def negation(self, value: values.Not) -> Any:
        return self.tirx.Not(self.value(value.value))

    def cast(self, value: values.Cast) -> Any:
        given = self.value(value.value)
        wanted = tvm_type(value.type)
        if value.value.type.element is bfloat16:
            given = self._widened(given, value.type.lanes)
        if value.type.element is bfloat16:
            return self._narrowed(given, value.type.lanes)
        return self.tirx.const(given, wanted) if isinstance(given, int) else given.astype(wanted)

    def _widened(self, given: Any, lanes: int) -> Any:
        """A bfloat16 as float32, by shifting its bits: TVM's own pass loses casts inside let-bound values."""
        tirx = self.tirx
        halves = self._as_bits(given, lanes).astype(tvm_type(type_of(uint32, lanes)))
        return tirx.reinterpret(tvm_type(type_of(float32, lanes)), halves << self._bits(16, lanes))

    def _narrowed(self, given: Any, lanes: int) -> Any:
        """A value as the nearest bfloat16, ties to even; TVM's own cast turns some NaN into zero."""
        given = given.astype(tvm_type(type_of(float32, lanes)))
        if self.how == "native":
            _register()
            bits = self.tirx.call_intrin(tvm_type(type_of(uint16, lanes)), _NARROWED, given)
        else:
            bits = narrowed_bits(given, lanes, self.how == "flushed")
        return self._as_bfloat16(bits, lanes)

    def _bits(self, pattern: int, lanes: int) -> Any:
        return _pattern(pattern, lanes)

    def bits(self, value: values.Bits) -> Any:
        return self.tirx.reinterpret(tvm_type(value.type), self.value(value.value))

    def spread(self, value: values.Spread) -> Any:
        given, lanes = self.value(value.value), value.type.lanes
        if value.type.element is bfloat16:
            return self._as_bfloat16(self.words.Broadcast(self._as_bits(given, 1), lanes), lanes)
        return self.words.Broadcast(given, lanes)

    def _as_bits(self, given: Any, lanes: int) -> Any:
        """The bits of a bfloat16."""
        return self.tirx.reinterpret(tvm_type(type_of(uint16, lanes)), given)

    def _as_bfloat16(self, bits: Any, lanes: int) -> Any:
        """The bfloat16 of these bits."""
        return self.tirx.reinterpret(tvm_type(type_of(bfloat16, lanes)), bits)

    def choice(self, value: expressions.Choice) -> Any:
        choose = self.words.if_then_else if value.guards else self.words.Select
        return choose(self.value(value.condition), self.value(value.yes), self.value(value.no))

    def load(self, value: expressions.Load) -> Any:
        return self.known[value.buffer][self.index(value.position, value.type.lanes)]

    def call(self, value: expressions.Call) -> Any:
        given = [self.value(argument) for argument in value.arguments]
        return value.intrinsic.emit(self.words, tvm_type(value.type), given)

    def named(self, value: expressions.Named) -> Any:
        given = self.value(value.value)
        if value.variable in self.kept:
            self.known[value.variable] = self.before(value.variable, value.variable.type, given)
            return self.value(value.body)
        variable = self.tirx.Var(value.variable.name, tvm_type(value.variable.type))
        self.known[value.variable] = variable
        return self.tirx.Let(variable, given, self.value(value.body))

    def index(self, position: Sequence[values.Value], lanes: int) -> tuple[Any, ...]:
        """The indices; the last one is a ramp over the lanes of a vector."""
        indices = [self.value(index) for index in position]
        if lanes > 1:
            indices[-1] = self.words.ramp(indices[-1], 1, lanes)
        return tuple(indices)


def narrowed_bits(given: Any, lanes: int, flushes: bool) -> Any:
    """The bits of the nearest bfloat16, by integer arithmetic."""
    tirx, words = part("tirx"), part("script.tirx")
    wide, narrow = tvm_type(type_of(uint32, lanes)), tvm_type(type_of(uint16, lanes))
    bits = tirx.Var("bits", wide)
    high = bits >> _pattern(16, lanes)
    size = bits & _pattern(0x7FFFFFFF, lanes)
    nearest = (bits + (high & _pattern(1, lanes)) + _pattern(0x7FFF, lanes)) >> _pattern(16, lanes)
    chosen = words.Select(size <= _pattern(0x7F800000, lanes), nearest, high | _pattern(0x40, lanes))
    if flushes:
        chosen = words.Select(size < _pattern(0x00800000, lanes), high & _pattern(0x8000, lanes), chosen)
    return tirx.Let(bits, tirx.reinterpret(wide, given), chosen.astype(narrow))


def _unseen(value: values.Value) -> values.Value:
    """The value; a zero becomes the bits of -0.0 times -1, which TVM does not recognize as zero."""
    number = value.value if isinstance(value, values.Spread) else value
    if not isinstance(number, values.Constant) or number.number != 0:
        return value
    bits = ELEMENTS[f"uint{value.type.element.bits}"]
    return -1.0 * values.Constant(type_of(bits, value.type.lanes), 1 << bits.bits - 1).bits_as(value.type.element)


def _pattern(pattern: int, lanes: int) -> Any:
    number = part("tirx").const(pattern, "uint32")
    return number if lanes == 1 else part("script.tirx").Broadcast(number, lanes)


def _instructed(call: Any) -> Any:
    """Lowers the op: the instruction for a vector of its width, portable code for other widths."""
    given, kind = call.args[0], str(call.ty.dtype)
    if kind == "uint16x16":
        return part("tirx").call_pure_extern(kind, "partita_narrowed_16", given)
    return narrowed_bits(given, int(kind.partition("x")[2] or 1), flushes=True)


@cache
def _register() -> None:
    """Registers the op with TVM."""
    ops = importlib.import_module("tvm.ir._ffi_api")
    ops.RegisterOp(_NARROWED, "float32 as the bits of the nearest bfloat16")
    for name, value in (("TVectorizable", True), ("TCallEffectKind", 1)):
        ops.RegisterOpAttr(_NARROWED, name, value, 10)
    part("tirx.op").register_intrin_lowering(_NARROWED, "llvm", f=_instructed)


def tvm_type(type: Type) -> str:
    """The type's name in TVM."""
    return type.element.name if type.lanes == 1 else f"{type.element.name}x{type.lanes}"


def tvm_pointer(element: Element) -> Any:
    """The type of a pointer to such elements."""
    types = importlib.import_module("tvm.ir")
    return types.PointerType(types.PrimType(element.name), "global")


def _variables(value: values.Value) -> list[values.Variable]:
    return [part_ for part_ in expressions.walk([value]) if isinstance(part_, values.Variable)]


_STATEMENTS: Mapping[type[statements.Statement], Callable[[Any, Any], None]] = {
    statements.Store: _Emitter.store,
    statements.Bind: _Emitter.bind,
    statements.Allocate: _Emitter.allocate,
    statements.Do: _Emitter.do,
    statements.Require: _Emitter.require,
    statements.Loop: _Emitter.loop,
    statements.See: _Emitter.see,
    statements.When: _Emitter.when,
}

_VALUES: Mapping[type[values.Value], Callable[[Any, Any], Any]] = {
    values.Constant: _Emitter.constant,
    values.Variable: _Emitter.variable,
    values.Symbol: _Emitter.variable,
    values.ComputedSize: _Emitter.computed_size,
    values.Binary: _Emitter.binary,
    values.Not: _Emitter.negation,
    values.Cast: _Emitter.cast,
    values.Bits: _Emitter.bits,
    values.Spread: _Emitter.spread,
    expressions.Choice: _Emitter.choice,
    expressions.Load: _Emitter.load,
    expressions.Call: _Emitter.call,
    expressions.Named: _Emitter.named,
}


def _plain(join: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda tirx, a, b: join(a, b)


def _are_known(a: Any, b: Any) -> bool:
    """True if both are constant indices."""
    return isinstance(a, int) and isinstance(b, int)


_OPERATORS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "+": _plain(operator.add), "-": _plain(operator.sub), "*": _plain(operator.mul), "/": _plain(operator.truediv),
    "//": _plain(operator.floordiv), "%": _plain(operator.mod), "<<": _plain(operator.lshift), ">>": _plain(operator.rshift),
    "<": _plain(operator.lt), "<=": _plain(operator.le), ">": _plain(operator.gt), ">=": _plain(operator.ge),
    "^": _plain(operator.xor),
    "==": lambda tirx, a, b: a == b if _are_known(a, b) else tirx.EQ(a, b),
    "!=": lambda tirx, a, b: a != b if _are_known(a, b) else tirx.NE(a, b),
    "&": lambda tirx, a, b: tirx.And(a, b) if "bool" in str(a.ty.dtype) else a & b,
    "|": lambda tirx, a, b: tirx.Or(a, b) if "bool" in str(a.ty.dtype) else a | b,
    "min": lambda tirx, a, b: min(a, b) if _are_known(a, b) else tirx.min(a, b),
    "max": lambda tirx, a, b: max(a, b) if _are_known(a, b) else tirx.max(a, b),
}
