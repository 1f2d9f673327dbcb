"""Counts of the product's code that may only fall: its size, and how far each fact is spread.

    python -m tests.house            print the counts beside those that are kept
    python -m tests.house --write    keep the counts as they are now (house.txt); a commit that raises one says why
    python -m tests.house "op sets"  list what one of them counts"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import onnx.defs

ROOT = Path(__file__).resolve().parent.parent

STOREYS = ("partita", "accelerators", "partition", "passes", "graph")
"""The folders of the product, in the order in which they may import each other."""

FOLDERS = (*STOREYS, "accelerators/tvm", "accelerators/tvm/kernels")
"""The folders whose rooms' arrows are counted: a room is a folder or a file in one of them."""

KEPT = Path(__file__).with_name("house.txt")

MODULE = re.compile(r"partita(\.\w+)+")
"""The name of a module of ours."""

SMALL = 40
"""A file of at most so many lines is small."""


def sources(*folders: str) -> list[Path]:
    """The Python files of these folders; links to other folders are not followed."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of the parsed file."""
    return list(ast.walk(tree_of(path)))


def place(path: Path, line: int) -> str:
    """A line as editors read it."""
    return f"{path.relative_to(ROOT)}:{line}"


def module_of(path: Path) -> str:
    """The name that a file or a folder of the product is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["partita"] * (parts[0] != "partita") + [part for part in parts if part != "__init__"])


def product_files() -> Iterator[str]:
    return (path.relative_to(ROOT).as_posix() for path in sources(*STOREYS))


def product_lines() -> Iterator[str]:
    for path in sources(*STOREYS):
        name = path.relative_to(ROOT).as_posix()
        yield from (f"{name}:{number}" for number, _ in enumerate(path.read_text("utf-8").splitlines(), 1))


def small_files() -> Iterator[str]:
    return (
        path.relative_to(ROOT).as_posix()
        for path in sources(*STOREYS)
        if len(path.read_text("utf-8").splitlines()) <= SMALL
    )


@cache
def op_names() -> frozenset[str]:
    """ONNX's ops, and those of onnxruntime's domain that the product reads."""
    from partita.graph.microsoft import table

    return frozenset({schema.name for schema in onnx.defs.get_all_schemas()} | set(table.MEANINGS))


def strings_in(node: ast.AST) -> Iterator[str]:
    """The strings of an expression; those that `"A B".split()` stands for one by one."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield from inner.value.split() or [inner.value]


def op_sets() -> Iterator[str]:
    """Module-level collections in which at least two of the strings, and half of them, are names of ops. Tables, which have a
    value or a row for each name, are none; nor is that of traits, whose names do not count in queries."""
    from partita.graph.ops.traits import TRAITS

    for path in sorted(set(sources(*STOREYS)) - {ROOT / "graph" / "ops" / "traits.py"}):
        for node in tree_of(path).body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or value is None or isinstance(value, (ast.Dict, ast.DictComp)):
                continue
            if isinstance(value, ast.Tuple) and all(isinstance(row, (ast.Call, ast.Starred)) for row in value.elts):
                continue
            strings = set(strings_in(value)) - TRAITS.keys()
            named = strings & op_names()
            if len(named) >= 2 and 2 * len(named) >= len(strings):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield f"{place(path, node.lineno)} {ast.unparse(targets[0])}"


def is_docstring(node: ast.AST) -> bool:
    """True for a string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def files_naming(op: str) -> Callable[[], Iterator[str]]:
    """The files with a string that is, or lists, the name of an op; docstrings do not count."""

    def listed() -> Iterator[str]:
        for path in sources(*STOREYS):
            if op in path.read_text("utf-8") and named_in(nodes_of(path), op):
                yield path.relative_to(ROOT).as_posix()

    return listed


def named_in(nodes: Sequence[ast.AST], op: str) -> bool:
    """True if a string of the code is, or lists, the name of an op."""
    told = {id(node.value) for node in nodes if is_docstring(node)}  # type: ignore[attr-defined]
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in told]
    return any(isinstance(text, str) and op in text and op in text.split() for text in strings)


@cache
def imports_of(path: Path, for_types: bool = True) -> tuple[str, ...]:
    """The modules that `imported` lists."""
    return tuple(imported(path, for_types))


def imported(path: Path, for_types: bool) -> Iterator[str]:
    """The modules that a file imports, at once or later, with the names that may be modules themselves; those that it names in a
    string too, as `lazily` and `import_module` take them; those for types alone if that is wanted."""
    conditions = [node for node in nodes_of(path) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = set() if for_types else {id(one) for node in conditions for one in ast.walk(node)}
    for node in nodes_of(path):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module_of(path.with_name("__init__.py")).split(".")
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            yield node.value


def arrows_in(folder: str, for_types: bool = True) -> Callable[[], Iterator[str]]:
    """The pairs of rooms of a folder of which one imports the other, for types alone if that is wanted, at once or later."""

    def listed() -> Iterator[str]:
        prefix = f"{module_of(ROOT / folder)}."
        skipped = {"__init__", *(STOREYS if folder == "partita" else ())}
        home = ROOT / folder
        rooms = {path.stem for path in home.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - skipped
        pairs = set()
        for path in sources(folder):
            room = path.relative_to(ROOT / folder).with_suffix("").parts[0]
            for module in imports_of(path, for_types):
                other = module.removeprefix(prefix).partition(".")[0] if module.startswith(prefix) else room
                if other != room and other in rooms and room in rooms:
                    pairs.add(f"{room} -> {other}")
        yield from sorted(pairs)

    return listed


def circles_in(folder: str) -> Callable[[], Iterator[str]]:
    """The rooms of a folder that import themselves by way of others, at once or later."""

    def listed() -> Iterator[str]:
        arrows = [arrow.split(" -> ") for arrow in arrows_in(folder, for_types=False)()]
        reached = {room: {other for one, other in arrows if one == room} for room, _ in arrows}
        for _ in reached:
            for others in reached.values():
                others.update(*(reached.get(other, ()) for other in list(others)))
        yield from (room for room, others in sorted(reached.items()) if room in others)

    return listed


LAZY = re.compile(r"  # (start-up|optional package|upward)\b")
"""The reason of an import inside a function, behind it. `start-up`: most processes that load the file do without the other one.
`upward`: the other one lies above."""


def lazy_imports() -> Iterator[str]:
    """Imports of our own modules inside functions, each with its reason."""
    for path in sources(*STOREYS):
        functions = [node for node in nodes_of(path) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        inside = {id(inner): inner for function in functions for inner in ast.walk(function)}
        lines = path.read_text("utf-8").splitlines()
        for node in inside.values():
            if isinstance(node, (ast.Import, ast.ImportFrom)) and any(name.startswith("partita") for name in modules_in(node)):
                reason = LAZY.search(lines[node.lineno - 1])
                yield f"{place(path, node.lineno)} {reason[1] if reason else 'no reason'}"


def lazy_imports_upward() -> Iterator[str]:
    """Those of a module that lies above."""
    return (item for item in lazy_imports() if item.endswith("upward"))


def modules_in(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that a statement imports, or imports names from."""
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


def duplicate_classes() -> Iterator[str]:
    """Classes whose name, without a leading underscore, an earlier one has already."""
    homes: Counter[str] = Counter()
    for path in sources(*STOREYS):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")] += 1
                if homes[node.name.lstrip("_")] > 1:
                    yield f"{place(path, node.lineno)} {node.name}"


ASKING = re.compile(r"(What|How|Where|Which|Whether|Who|Whose|When|Is|Are|Does|Do|May|Has|Have|Can)\b")


def asking_docstrings() -> Iterator[str]:
    """Docstrings, those of fields and constants too, that begin with What, How, Where or Which, or with a question."""
    for path in sources(*STOREYS):
        for node in nodes_of(path):
            for one in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
                if is_docstring(one):
                    first = re.split(r"(?<=[.?])\s", one.value.value.strip(), maxsplit=1)[0]
                    if re.match(r"(What|How|Where|Which)\b", first) or (first.endswith("?") and ASKING.match(first)):
                        yield f"{place(path, one.lineno)} {first[:80]}"


def rewrites_outside(*folders: str) -> Callable[[], Iterator[str]]:
    """Functions that take a graph first and return a graph, perhaps beside other things, and are not passes. The private ones of
    a file with a pass are parts of that pass, and so is what lies in `passes/` and `partition/`; `graph/` has no passes."""

    def listed() -> Iterator[str]:
        for path in sources(*folders):
            functions = [node for node in tree_of(path).body if isinstance(node, ast.FunctionDef)]
            passes = [one for one in functions if any("register_pass" in ast.unparse(name) for name in one.decorator_list)]
            for one in functions:
                first = [ast.unparse(argument.annotation) for argument in one.args.args[:1] if argument.annotation is not None]
                returned = "" if one.returns is None else ast.unparse(one.returns)
                is_rewrite = first == ["Graph"] and re.match(r"(Graph|tuple\[Graph)\b", returned) is not None
                name = f"{path.relative_to(ROOT).as_posix()}:{one.name}"
                if is_rewrite and one not in passes and not (passes and one.name.startswith("_")) and name not in NO_REWRITES:
                    yield f"{place(path, one.lineno)} {one.name}"

    return listed


def rewrites_elsewhere() -> Iterator[str]:
    """The same of the engines, HETERO and the front door."""
    return (item for item in rewrites_outside("partita", "accelerators")() if not item.startswith("accelerators/tvm/"))


NO_REWRITES = {
    "accelerators/tvm/bodies/body.py:_plain": "one kernel's body under plain names: the key of what is compiled",
    "accelerators/tvm/bodies/lifting.py:_without_large": "one kernel's body with variables for its large constants",
    "accelerators/tvm/lower/dynamic_sizes.py:_retyped": "one kernel's body with other types",
    "accelerators/tvm/lower/dynamic_sizes.py:_with_symbols": "one kernel's body as TVM's importer wants its types",
    "accelerators/tvm/prepare/expanding.py:_marked": "one op's body, before DecomposeUnsupported inlines it",
}
"""Views and helpers from graph to graph that rewrite no model, each with the reason."""

COUNTS: dict[str, Callable[[], Iterator[str]]] = {
    "product files": product_files,
    "product lines": product_lines,
    "small files": small_files,
    "op sets": op_sets,
    **{f"files that name {op}": files_naming(op) for op in ("MatMul", "Conv", "Gather", "Resize", "Mish")},
    **{f"arrows in {folder}": arrows_in(folder) for folder in FOLDERS},
    **{f"rooms in circles in {folder}": circles_in(folder) for folder in STOREYS},
    "lazy imports": lazy_imports,
    "lazy imports upward": lazy_imports_upward,
    "duplicate class names": duplicate_classes,
    "asking docstrings": asking_docstrings,
    "rewrites outside the manager": rewrites_outside("accelerators/tvm"),
    "rewrites outside the manager elsewhere": rewrites_elsewhere,
}
"""The counts by name, each with the function that lists its items."""


def counted() -> dict[str, int]:
    """The counts as they are."""
    from partita.graph.gc_pause import collector_paused

    with collector_paused():
        return {name: sum(1 for _ in listed()) for name, listed in COUNTS.items()}


def kept() -> dict[str, int]:
    """The counts that are kept."""
    rows = [line.rpartition(" ") for line in KEPT.read_text("utf-8").splitlines()]
    return {name.strip(): int(number) for name, _, number in rows}


def main(asked: list[str]) -> None:
    """Print the table, or what one row counts; with --write keep it."""
    if asked and asked[0] != "--write":
        if asked[0] not in COUNTS:
            sys.exit(f"nothing is counted as {asked[0]!r}; the counts: {', '.join(COUNTS)}")
        print(*COUNTS[asked[0]](), sep="\n")
        return
    counts, before = counted(), kept()
    if asked:
        KEPT.write_text("".join(f"{name:<40} {number:>7}\n" for name, number in counts.items()), "utf-8")
    for name, number in counts.items():
        print(f"{name:<40} {before.get(name, number):>7} -> {number:>7}")


if __name__ == "__main__":
    main(sys.argv[1:])
