"""A kernel as readable text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from partita.accelerators.tvm.kernels.language import expressions, statements, values
from partita.accelerators.tvm.kernels.language.buffers import Buffer
from partita.accelerators.tvm.kernels.language.kernel import Kernel
from partita.accelerators.tvm.kernels.language.types import Type
from partita.accelerators.tvm.sizes.extent import Extent

_STRENGTH = {
    "|": 1, "&": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "^": 5, "<<": 6, ">>": 6, "+": 7, "-": 7, "*": 8, "/": 8,
    "//": 8, "%": 8,
}
"""The precedence of operators; those of equal precedence associate from the left."""

_WORDS = {"&": "and", "|": "or"}
"""The spelling of operators on booleans."""

Names = Mapping[values.Variable, str]
"""The names of the values that enclosing `Named` expressions bind."""

_LOOPS = {"serial": "for", "unroll": "unrolled", "vectorized": "lanes", "parallel": "parallel", "threads": "threads"}


_ROLES = {"stack": "on the stack", "memory": "in memory", "shared": "shared"}


def kernel_text(kernel: Kernel) -> str:
    """The text of a kernel."""
    roles = {role: [argument for argument in kernel.arguments if argument.role == role] for role in ("input", "output")}
    given, outputs = (", ".join(map(_declared, roles[role])) for role in ("input", "output"))
    return "\n".join([f"kernel {kernel.name}({given}) -> ({outputs})", *_block(kernel.statements, 1)])


def value_text(value: values.Value) -> str:
    """An expression with the necessary parentheses."""
    return _value(value, 0, {})


def _declared(buffer: Buffer) -> str:
    return f"{buffer.name}: {_tensor(buffer)}"


def _tensor(buffer: Buffer) -> str:
    sizes = ", ".join(str(size) if isinstance(size, (int, Extent)) else value_text(size) for size in buffer.shape)
    return f"{buffer.element}[{sizes}]"


def _block(body: Sequence[statements.Statement], depth: int) -> Iterator[str]:
    before = "  " * depth
    for statement in body:
        if isinstance(statement, statements.Store):
            yield f"{before}{_at(statement.buffer, statement.position, statement.value.type)} = {value_text(statement.value)}"
        elif isinstance(statement, statements.Bind):
            yield f"{before}{statement.variable.name} := {value_text(statement.value)}"
        elif isinstance(statement, statements.Allocate):
            yield f"{before}{statement.buffer.name}: {_tensor(statement.buffer)} {_ROLES[statement.buffer.role]}"
        elif isinstance(statement, statements.Do):
            yield f"{before}{value_text(statement.call)}"
        elif isinstance(statement, statements.Require):
            yield f"{before}require {value_text(statement.condition)}, {statement.message!r}"
        elif isinstance(statement, statements.Loop):
            kind = _LOOPS.get(statement.kind, statement.kind)
            yield f"{before}{kind} {statement.variable.name} < {value_text(statement.count)}:"
            yield from _block(statement.body, depth + 1)
        elif isinstance(statement, statements.See):
            yield f"{before}{_declared(statement.buffer)} at {value_text(statement.address)}:"
            yield from _block(statement.body, depth + 1)
        elif isinstance(statement, statements.When):
            yield f"{before}if {value_text(statement.condition)}:"
            yield from _block(statement.yes, depth + 1)
            if statement.no:
                yield f"{before}else:"
                yield from _block(statement.no, depth + 1)


def _at(buffer: Buffer, position: Sequence[values.Value], type: Type, names: Names = MappingProxyType({})) -> str:
    indices = [_value(index, 0, names) for index in position]
    if type.lanes > 1:
        indices[-1] += f" ..{type.lanes}"
    return f"{buffer.name}[{', '.join(indices)}]"


def _value(value: values.Value, strength: int, names: Names) -> str:
    """The text, in parentheses if the value binds less tightly than `strength`."""
    if isinstance(value, values.Binary) and value.operator in _STRENGTH:
        own = _STRENGTH[value.operator]
        sign = _WORDS.get(value.operator, "") if value.type.element.kind == "bool" else ""
        left, right = _value(value.left, own, names), _value(value.right, own + 1, names)
        text = f"{left} {sign or value.operator} {right}"
        return f"({text})" if own < strength else text
    if isinstance(value, values.Constant):
        return str(value.number) if value.type.lanes == 1 else f"all({value.number})"
    if isinstance(value, values.ComputedSize):
        return _value(value.value, strength, names)
    if isinstance(value, values.Variable):
        return names.get(value, value.name)
    if isinstance(value, expressions.Load):
        return _at(value.buffer, value.position, value.type, names)
    if isinstance(value, values.Not):
        return f"not {_value(value.value, 9, names)}"
    if isinstance(value, expressions.Named):
        name = f"{value.variable.name}{len(names) or ''}"
        body = _value(value.body, 0, {**names, value.variable: name})
        text = f"let {name} = {_value(value.value, 0, names)} in {body}"
        return f"({text})" if strength else text
    return f"{_function(value)}({', '.join(_value(part, 0, names) for part in value.parts)})"


def _function(value: values.Value) -> str:
    """The function's name in a call."""
    if isinstance(value, values.Binary):
        return value.operator
    if isinstance(value, values.Spread):
        return "all"
    if isinstance(value, values.Cast):
        return value.type.element.short
    if isinstance(value, values.Bits):
        return f"bits_as_{value.type.element}"
    if isinstance(value, expressions.Choice):
        return "if_inside" if value.guards else "select"
    assert isinstance(value, expressions.Call)
    return value.intrinsic.name
