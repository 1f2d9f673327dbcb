"""Changes of the product's code, one thing of one expression each."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("graph", "passes", "partition", "accelerators", "partita")

NEEDS = {
    "partita/torch_compile/": "torch",
    "graph/readers/torch": "torch",
    "partita/mapping/on_ray.py": "ray",
    "partita/mapping/many.py": "ray",
    "partita/cli/map.py": "pyarrow",
}
"""Files and folders whose tests need a package."""

WITHOUT_EFFECT = ("slots", "eq", "repr", "maxsize", "strict")
"""Keywords without effect on a result: how attrs makes classes whose instances nobody compares or prints, the size of a cache,
the assertion of `zip(strict=True)`."""

LARGE = 100
"""From here on an integer is doubled: one more of it changes nothing that matters."""

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}

COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}


@attrs.frozen(slots=True)
class Mutant:
    """One change of one file."""

    path: str
    """The file, relative to the checkout."""
    line: int
    """The first line that changes."""
    before: str
    """The source segment."""
    after: str
    """Its replacement."""
    start: int
    """Its offset in the file, in characters."""

    def apply(self, text: str) -> str:
        """The changed file."""
        return text[: self.start] + self.after + text[self.start + len(self.before) :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All changes that are tried in a file."""
    text = path.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    name = path.relative_to(ROOT).as_posix()
    for node in _nodes(ast.parse(text)):
        changed = _changed(node)
        if changed is None or not isinstance(node, ast.expr) or node.end_lineno != node.lineno:
            continue
        line = lines[node.lineno - 1].encode()
        first, last = (len(line[:offset].decode()) for offset in (node.col_offset, node.end_col_offset or 0))
        start = starts[node.lineno - 1]
        yield Mutant(name, node.lineno, text[start + first : start + last], f"({ast.unparse(changed)})", start + first)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is inside of it, without what has no effect on a result: types, assertions, and some keywords."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        return
    yield node
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for inner in child if isinstance(child, list) else [child]:
            if isinstance(inner, ast.keyword) and inner.arg in WITHOUT_EFFECT:
                continue
            if isinstance(inner, ast.AST):
                yield from _nodes(inner)


def _changed(node: ast.AST) -> ast.expr | None:
    """The expression with one thing changed; None for what is left alone."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            return ast.Compare(node.left, [COMPARED[type(operator)]()], node.comparators)
        case ast.BoolOp(op=ast.And()):
            return ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            return ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.BinOp() if type(node.op) in COMPUTED and not _is_text(node):
            return ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            return ast.Constant(not node.value)
        case ast.Constant(value=int()):
            return ast.Constant(node.value * 2 if node.value >= LARGE else node.value + 1)
        case ast.IfExp():
            return node.orelse
    return None


def _is_text(node: ast.BinOp) -> bool:
    texts = (inner for inner in ast.walk(node) if isinstance(inner, (ast.Constant, ast.JoinedStr)))
    return any(not isinstance(getattr(text, "value", ""), (int, float)) for text in texts)


def every_mutant(under: Iterable[str]) -> list[Mutant]:
    """All changes of the files in these folders that tests here can notice."""
    left_out = [name for name, package in NEEDS.items() if not importlib.util.find_spec(package)]
    paths = [path for folder in under for path in sorted((ROOT / folder).rglob("*.py"))]
    kept = [path for path in paths if not path.relative_to(ROOT).as_posix().startswith(tuple(left_out))]
    return [mutant for path in kept for mutant in mutants_of(path)]
