"""Script text as TensorIR: what TVM's own parser makes of it, in a small part of the time.

TVM's parser compiles and runs each operation of each expression by itself, because any Python may stand there. The templates
write few kinds of statements; here each is read from Python's syntax tree and handed to the same builder."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from accelerators.errors import CompileError
from accelerators.tvm.library import part

Names = dict[str, Any]


def read_function(params: Sequence[tuple[str, tuple[int, ...], str]], body: str, functions: Mapping[str, Any]) -> Any:
    """The TensorIR function `main` of these buffers (name, shape, element type), in one block that declares nothing."""
    script, maker = part("tirx.script.builder"), part("script.ir_builder").IRBuilder()
    statements = ast.parse(body).body
    with maker, script.prim_func(s_tir=True):
        script.func_name("main")
        names: Names = {"T": part("script.tirx"), **functions}
        for name, shape, dtype in params:
            names[name] = script.arg(name, script.buffer(shape, dtype))
        script.func_attr({"tirx.noalias": True})
        with script.sblock("root"):
            script.reads()
            script.writes()
            _Reader(script).block(statements, names)
    return maker.get()


class _Reader:
    """Statements are emitted to the builder as they are met; expressions are computed."""

    def __init__(self, script: Any) -> None:
        self.script = script
        self.name = part("script.ir_builder").IRBuilder.name
        self.is_buffer = part("tirx").is_buffer_var
        self.statements: dict[type[ast.stmt], Callable[[Any, Names], None]] = {
            ast.For: self._for, ast.Assign: self._assign, ast.AnnAssign: self._declare, ast.If: self._if, ast.Expr: self._do,
            ast.While: self._while, ast.Assert: self._assert,
        }  # fmt: skip
        self.expressions: dict[type[ast.expr], Callable[[Any, Names], Any]] = {
            ast.Constant: lambda node, names: node.value,
            ast.Name: self._name,
            ast.BinOp: self._binary,
            ast.Subscript: lambda node, names: self.value(node.value, names)[self.value(node.slice, names)],
            ast.Call: self._call,
            ast.Attribute: lambda node, names: getattr(self.value(node.value, names), node.attr),
            ast.Tuple: lambda node, names: tuple([self.value(item, names) for item in node.elts]),
            ast.List: lambda node, names: [self.value(item, names) for item in node.elts],
            ast.Dict: lambda node, names: {self.value(k, names): self.value(v, names) for k, v in zip(node.keys, node.values)},
            ast.Compare: self._compare,
            ast.BoolOp: self._joined,
            ast.UnaryOp: self._unary,
        }

    # -- statements --------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], names: Names) -> None:
        """The statements in order; what they name is known among them alone."""
        inner = dict(names)
        for statement in statements:
            read = self.statements.get(type(statement))
            if read is None:
                raise _unreadable(statement)
            read(statement, inner)

    def _for(self, node: ast.For, names: Names) -> None:
        assert isinstance(node.target, ast.Name)
        with self.value(node.iter, names) as variable:
            self.name(node.target.id, variable)
            self.block(node.body, {**names, node.target.id: variable})

    def _while(self, node: ast.While, names: Names) -> None:
        with self.script.While(self.value(node.test, names)):
            self.block(node.body, names)

    def _assert(self, node: ast.Assert, names: Names) -> None:
        assert node.msg is not None
        with self.script.Assert(self.value(node.test, names), self.value(node.msg, names)):
            return

    def _if(self, node: ast.If, names: Names) -> None:
        test = self.value(node.test, names)
        if isinstance(test, bool):
            self.block(node.body if test else node.orelse, names)
            return
        with self.script.If(test):
            with self.script.Then():
                self.block(node.body, names)
            if node.orelse:
                with self.script.Else():
                    self.block(node.orelse, names)

    def _assign(self, node: ast.Assign, names: Names) -> None:
        """A number is stored; a buffer gets its name."""
        target, value = node.targets[0], self.value(node.value, names)
        if isinstance(target, ast.Subscript):
            self.script.buffer_store(self.value(target.value, names), value, self.value(target.slice, names))
        elif isinstance(target, ast.Name) and self.is_buffer(value):
            self.name(target.id, value)
            names[target.id] = value
        else:
            raise _unreadable(node)

    def _declare(self, node: ast.AnnAssign, names: Names) -> None:
        """`name: T.int32 = value` and `name: T.let = value` name a value, once.

        TVM's parser makes a variable of the first, which TVM's arithmetic cannot see through, and whose place it asks the system
        for: such kernels take longer to compile."""
        assert isinstance(node.target, ast.Name) and node.value is not None
        value = self.value(node.value, names)
        value = part("tirx").const(value) if isinstance(value, (int, float)) else value
        made = names[node.target.id] = self.script.let.as_var(rhs_dtype=value.ty)
        self.name(node.target.id, made)
        self.script.Bind(value, var=made)

    def _do(self, node: ast.Expr, names: Names) -> None:
        made = self.value(node.value, names)
        if made is not None:
            self.script.evaluate(made)

    # -- expressions -------------------------------------------------------------------------------------

    def value(self, node: ast.expr, names: Names) -> Any:
        """What the expression makes: a number, or TensorIR."""
        compute = self.expressions.get(type(node))
        if compute is None:
            raise _unreadable(node)
        return compute(node, names)

    def _name(self, node: ast.Name, names: Names) -> Any:
        if node.id not in names:
            raise CompileError(f"a template's text reads {node.id!r}, which is nothing there")
        return names[node.id]

    def _binary(self, node: ast.BinOp, names: Names) -> Any:
        return _BINARY[type(node.op)](self.value(node.left, names), self.value(node.right, names))

    def _call(self, node: ast.Call, names: Names) -> Any:
        given = [self.value(item, names) for item in node.args]
        return self.value(node.func, names)(*given, **{str(k.arg): self.value(k.value, names) for k in node.keywords})

    def _compare(self, node: ast.Compare, names: Names) -> Any:
        values = [self.value(item, names) for item in (node.left, *node.comparators)]
        made = [_operated(type(op), a, b) for op, a, b in zip(node.ops, values, values[1:])]
        return self._all(ast.And, made)

    def _joined(self, node: ast.BoolOp, names: Names) -> Any:
        return self._all(type(node.op), [self.value(item, names) for item in node.values])

    def _all(self, op: type[ast.AST], values: Sequence[Any]) -> Any:
        made = values[0]
        for value in values[1:]:
            made = _operated(op, made, value)
        return made

    def _unary(self, node: ast.UnaryOp, names: Names) -> Any:
        return _operated(type(node.op), self.value(node.operand, names))


def _operated(op: type[ast.AST], *values: Any) -> Any:
    """A comparison or a logical operation: of numbers, or as TVM's script means it."""
    for place, value in enumerate(values):
        kind = getattr(type(value), "_dispatch_type", None)
        if kind is not None:
            found = _script_operator(kind, op.__name__, place)
            if found is not None:
                return found(*values)
    return _PLAIN[op](*values)


@cache
def _script_operator(kind: Any, op: str, place: int) -> Any:
    core = part("script.parser._core")
    return core.dispatch.get_op(operand_type=kind, op_node_type=getattr(core.doc, op), operand_index=place, default=None)


def _unreadable(node: ast.AST) -> CompileError:
    return CompileError(f"a template's text holds what cannot be read: {ast.unparse(node)}")


_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_PLAIN: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.And: lambda a, b: a and b, ast.Or: lambda a, b: a or b, ast.Not: operator.not_,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
