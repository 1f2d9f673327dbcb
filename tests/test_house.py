"""The house rules that a machine can check: who imports whom, what loads when, what no file may hold."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests import house
from tests.house import ROOT, STOREYS, module_of, place, sources, tree_of

# What `import partita` must leave alone: slow to load, or optional.
LAZY = ("networkx", "rich", "tvm", "onnx", "onnxruntime", "openvino", "torch")

# The modules that alone may import a heavy package.
PLACES = {
    "tvm": ("accelerators/tvm/",),
    "torch": ("graph/readers/torch", "partita/torch_compile/"),
}

FORBIDDEN_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec"}


@cache
def importing(path: Path) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """The statements and calls of a file that may import, those inside functions too."""
    walked = ast.walk(tree_of(path))
    kinds = ast.Import | ast.ImportFrom
    return tuple([node for node in walked if isinstance(node, kinds) or (isinstance(node, ast.Call) and imports_later(node))])


def imports_later(call: ast.Call) -> bool:
    return dotted(call.func) in {"import_module", "importlib.import_module", "lazily"}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that the file imports, with the line."""
    for node in importing(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.ImportFrom):
            package = module_of(path.with_name("__init__.py")).split(".")
            yield node.lineno, ".".join((*package[: len(package) - node.level + 1], node.module or ""))
        elif dotted(node.func) != "lazily":
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value
        else:
            yield from ((node.lineno, home) for home in lazy_homes(node).values())


def lazy_homes(call: ast.Call) -> dict[str, str]:
    """The names that a call of `lazily` takes from other modules, and these modules; none of any other call."""
    homes: dict[str, str] = ast.literal_eval(call.args[1]) if dotted(call.func) == "lazily" else {}
    return {name: home for home, names in homes.items() for name in names.split()}


def dotted(node: ast.expr) -> str:
    """A name with its dots; what it is an attribute of is left out where that is not a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def trees(pattern: str, *folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """The files in whose text the pattern is, parsed."""
    wanted = re.compile(pattern)
    for path in sources(*folders):
        text = path.read_text("utf-8")
        if wanted.search(text):
            yield path, tree_of(path)


def storey_of(module: str) -> str:
    """The folder at the top level that a module lies in."""
    first, _, rest = module.partition(".")
    inside = rest.partition(".")[0]
    return inside if first == "partita" and inside in STOREYS else first


def test_counts_only_fall() -> None:
    """They say how large the product is, and how far what it knows is spread."""
    kept = house.kept()
    rose = [f"{name}: {kept.get(name)} -> {number}" for name, number in house.counted().items() if number > kept.get(name, -1)]
    remedy = "python -m tests.house NAME lists one of them; where the rise has a reason, python -m tests.house --write keeps it"
    assert not rose, "\n".join([*rose, remedy])


def test_a_docstring_names_no_op() -> None:
    """Other words for what a file does neither raise nor lower the counts of files that name an op."""
    tree = ast.parse('"""Conv, in words."""\ndef f():\n    """A Conv ."""\nOPS = "MatMul Gemm".split()')
    assert [house.named_in(list(ast.walk(tree)), op) for op in ("Conv", "MatMul")] == [False, True]


def test_an_import_inside_a_function_gives_its_reason() -> None:
    wrong = [item for item in house.lazy_imports() if item.endswith("no reason")]
    assert not wrong, "\n".join([*wrong, "write `# start-up` or `# optional package` behind it, or import at the top"])


@pytest.mark.parametrize("storey", STOREYS)
def test_imports_run_one_way(storey: str) -> None:
    above = STOREYS[: STOREYS.index(storey)]
    outside = ("tests", "benchmarks", "notebooks")
    wrong = [
        f"{place(path, line)} imports {module}"
        for path in sources(storey)
        for line, module in imports(path)
        if storey_of(module) in (*above, *outside)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("package", "homes"), PLACES.items())
def test_heavy_packages_are_imported_in_one_place(package: str, homes: tuple[str, ...]) -> None:
    wrong = [
        f"{place(path, line)} imports {module}, which only {', '.join(homes)} may"
        for path in sources(*STOREYS)
        if not path.relative_to(ROOT).as_posix().startswith(homes)
        for line, module in imports(path)
        if module.split(".")[0] == package
    ]
    assert not wrong, "\n".join(wrong)


def test_import_partita_loads_nothing_heavy() -> None:
    if not (ROOT / "partita" / "__init__.py").exists():
        pytest.skip("there is no partita package yet")
    code = f"import sys, partita; print(*sorted(set({LAZY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], "import partita loaded these; import them inside the functions that need them"


def loaded_by(code: str, *rooms: str) -> list[str]:
    """The modules of these rooms that a process has after running the code."""
    listing = f"import sys; print(*[name for name in sorted(sys.modules) if name.startswith({rooms!r})])"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_public_names_leaves_what_few_programs_use() -> None:
    """A program that loads a model and compiles it waits for these imports before its first answer."""
    of_partita = [f"partita.{room}" for room in ("page", "insight", "mapping", "measuring")]
    of_accelerators = [f"partita.accelerators.{room}" for room in ("choosing", "precision", "runtime.package")]
    loaded = loaded_by("import partita; partita.compile, partita.load", *of_partita, *of_accelerators)
    assert loaded == [], "name these in the package's `lazily`"


@pytest.mark.parametrize("package", ["partita", "partita.accelerators"])
def test_every_public_name_is_there(package: str) -> None:
    module = import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing_like_it'"):
        module.nothing_like_it


def test_names_imported_when_asked_for_are_those_that_type_checkers_see() -> None:
    """A name that is imported from elsewhere under TYPE_CHECKING would be one thing when checked and another when run."""
    for path, tree in trees("lazily", *STOREYS):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        homes = {name: home for call in calls for name, home in lazy_homes(call).items()}
        if not homes:
            continue
        checked = [node for part in tree.body if isinstance(part, ast.If) for node in part.body]
        seen = {name.name: node.module for node in checked if isinstance(node, ast.ImportFrom) for name in node.names}
        assert homes == seen, path.relative_to(ROOT)
        modules = {one.stem for one in path.parent.iterdir()}
        assert not modules & homes.keys(), "the import of a module of that name would put the module in the name's place"


def test_imports_that_wait_count_as_imports(tmp_path: Path) -> None:
    """What `lazily` imports later runs the same way through the storeys as all else."""
    path = tmp_path / "module.py"
    path.write_text('__getattr__ = lazily(__name__, {"partita.page": "report_page", "partita.accelerators": "tune"})\n', "utf-8")
    assert list(imports(path)) == [(1, "partita.page"), (1, "partita.accelerators")]


def test_asking_for_a_device_loads_no_kernels() -> None:
    """A model that starts at once answers before its kernels are compiled: what compiles them is loaded behind the answer."""
    heavy = [f"partita.accelerators.tvm.{room}" for room in ("kernels", "lower", "layouts")]
    asked = "from partita.accelerators.interface.registry import accelerator; accelerator('cpu').config_keys"
    assert loaded_by(asked, *heavy) == [], "import these inside the methods that need them"


# From the roof to the ground, the rooms (and single files) of a folder: each may import those of later lines, and itself, never
# one beside it. Types may come from anywhere. A line that must look up says why in a comment that begins with "upward:".
ROOMS = {
    "accelerators": """
        onnx_backend
        api
        precision
        compiling
        decoder
        runtime
        building
        tvm
        engines
        placement
        store
        interface
        arrays
        process
        errors
    """,
    "accelerators/tvm": """
        cpu cuda opencl
        device
        passes
        bodies_to_kernels
        tune query
        compiled
        code
        lower
        layouts
        prepare
        kernels
        schedules
        bodies
        machine
        extensions run sizes
    """,
    "accelerators/tvm/kernels": """
        catalogue
        attention chain moves rows window
        contraction
        shared
        language
    """,
}


@pytest.mark.parametrize("folder", ROOMS)
def test_the_rooms_of_a_folder_import_downward(folder: str) -> None:
    rank = {room: i for i, line in enumerate(ROOMS[folder].split("\n")) for room in line.split()}
    home, prefix, wrong = ROOT / folder, f"{module_of(ROOT / folder)}.", []
    inside = {path.stem for path in home.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert inside - {"__init__"} == rank.keys(), "each room has its line, from the roof to the ground"
    for path in sources(folder):
        own = path.relative_to(home).with_suffix("").parts[0]
        for line, module in downward(path):
            room = module.removeprefix(prefix).partition(".")[0] if module.startswith(prefix) else own
            if own in rank and room in rank and room != own and rank[room] <= rank[own]:
                wrong.append(f"{place(path, line)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_contributing_shows_every_room() -> None:
    shown = set(re.findall(r"\w+", (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("```text")[2].partition("```")[0]))
    missing = [f"{folder}/{room}" for folder, rooms in ROOMS.items() for room in rooms.split() if room not in shown]
    assert not missing, "the picture in CONTRIBUTING.md lacks these"


def test_files_that_the_docs_name_are_there() -> None:
    homes = [ROOT, ROOT / "accelerators/tvm", ROOT / "accelerators/tvm/kernels"]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
        for name in re.findall(r"`(\w+/[\w/]+\.py)`", page.read_text("utf-8"))
        if not any((home / name).is_file() for home in homes)
    ]
    assert not missing, "\n".join(missing)


def test_what_kernels_share_is_shared_by_several_rooms() -> None:
    """A file of `kernels/shared` that one kind of kernel alone imports belongs into that kind's room."""
    home = ROOT / "accelerators/tvm/kernels"
    users: dict[str, set[str]] = {module_of(path): set() for path in sources("accelerators/tvm/kernels/shared")}
    for path in sources("accelerators/tvm"):
        inside = home in path.parents
        room = path.relative_to(home).parts[0] if inside else path.relative_to(ROOT / "accelerators/tvm").parts[0]
        for _, module in imports(path):
            users.get(module, set()).add(room)
    lone = {module: next(iter(rooms)) for module, rooms in users.items() if len(rooms) == 1}
    wrong = [f"{module} is imported by {room} alone" for module, room in lone.items() if room != "shared"]
    assert not wrong, "\n".join(wrong)


def test_how_little_work_is_one_threads_stands_in_one_file() -> None:
    """What `threads_for`, `tasks_for` and `is_shared_out` are asked about is a constant of `machine/parallel_thresholds.py`."""
    source = (ROOT / "accelerators/tvm/machine/parallel_thresholds.py").read_text("utf-8")
    named = set(re.findall(r"^([A-Z_]+) = ", source, re.MULTILINE))
    wrong = []
    words = r"\b(threads_for|tasks_for|is_shared_out|SERIAL|TASKS)\b"
    for path, tree in trees(words, "accelerators/tvm/kernels", "accelerators/tvm/schedules"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and dotted(node.func).endswith((".threads_for", ".tasks_for")):
                wrong += [place(path, node.lineno) for least in node.args[1:] if ast.unparse(least) not in named]
            if isinstance(node, ast.Call) and dotted(node.func) == "is_shared_out":
                wrong += [place(path, node.lineno) for least in node.args[2:] if ast.unparse(least) not in named]
            if isinstance(node, ast.Assign) and {ast.unparse(target) for target in node.targets} & {"SERIAL", "TASKS"}:
                wrong.append(place(path, node.lineno))
    assert not wrong, "\n".join(wrong)


def test_no_two_files_import_each_other() -> None:
    """Not even inside functions, unless one of the two says why."""
    edges = {(module_of(path), module): place(path, line) for path in sources(*STOREYS) for line, module in downward(path)}
    wrong = [f"{line} and {b} import each other" for (a, b), line in edges.items() if a != b and (b, a) in edges]
    assert not wrong, "\n".join(wrong)


def downward(path: Path) -> Iterator[tuple[int, str]]:
    """The files of ours that the file imports, but for those that it wants types of, and those that it says to lie above it."""
    lines, types = path.read_text("utf-8").splitlines(), for_types(path)
    for node in importing(path):
        if not isinstance(node, ast.ImportFrom) or node.lineno in types:
            continue
        above = lines[node.lineno - 2].lstrip().startswith("# upward: ")
        if node.module and not above and "# upward: " not in lines[node.lineno - 1]:
            for name in node.names:
                yield node.lineno, file_of(node.module, name.name)


@cache
def for_types(path: Path) -> frozenset[int]:
    """The lines of what the file does for type checkers alone."""
    text = path.read_text("utf-8")
    choices = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If)] if "TYPE_CHECKING" in text else []
    return frozenset(inner.lineno for node in choices if "TYPE_CHECKING" in ast.unparse(node.test) for inner in node.body)


@cache
def file_of(module: str, name: str) -> str:
    """The module of ours that an import of a name from a module loads last."""
    file = ROOT.joinpath(*module.split("."), name)
    inside = file.with_suffix(".py").exists() or (file / "__init__.py").exists()
    return f"{module}.{name}" if inside else module


def test_an_engine_has_the_same_bounds_in_every_extra() -> None:
    """Below them it is known to compute wrongly, or to end the process."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    for engine in ("onnxruntime", "openvino"):
        lines = "\n".join(config["options.extras_require"].values()).splitlines()
        bounds = {line.split(maxsplit=1)[1] for line in lines if line.split()[:1] == [engine]}
        assert len(bounds) == 1, f"setup.cfg asks for {engine} in several ways: {sorted(bounds)}"


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    listed = config["options"]["packages"].split()
    present = [module_of(path) for path in sources(*STOREYS) if path.name == "__init__.py"]
    assert listed == sorted(present), "setup.cfg lists the packages in alphabetical order, each folder that holds an __init__.py"


def test_every_module_lies_in_a_package() -> None:
    orphans = {
        path.parent.relative_to(ROOT).as_posix()
        for path in sources(*STOREYS)
        if not (path.parent / "__init__.py").exists()
    }
    assert not orphans, "these folders hold modules and lack an __init__.py; without it they are not installed"


def test_nothing_is_pickled_or_evaluated() -> None:
    wrong = [
        place(path, line)
        for path in sources(*STOREYS)
        for line, module in imports(path)
        if module.split(".")[0] in FORBIDDEN_MODULES
    ]
    for path, tree in trees(rf"\b({'|'.join(FORBIDDEN_CALLS)})\b|\.(load|save)\b", *STOREYS):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = dotted(node.func)
            unpickles = called.endswith((".load", ".save")) and any(
                option.arg == "allow_pickle" and not (isinstance(option.value, ast.Constant) and option.value.value is False)
                for option in node.keywords
            )
            if called in FORBIDDEN_CALLS or unpickles:
                wrong.append(f"{place(path, node.lineno)} calls {called}")
    assert not wrong, "\n".join(wrong)


def test_no_file_speaks_to_a_formatter() -> None:
    """None is run over the code, so that a marker for one says nothing."""
    marker = re.compile(r"#\s*fmt:")
    wrong = [
        place(path, number)
        for path in tracked()
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def tracked() -> list[Path]:
    """The files under version control; all text files outside hidden folders where there is no git."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not any(p.startswith(".") for p in path.parts)]


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    homes = [rb"/(?:home|Users)/[a-z][\w.-]*/", rb"/root/", rb"/work/", rb"[A-Z]:\\Users\\"]
    if len(ROOT.parts) > 2:
        homes.append(re.escape(str(ROOT).encode()) + rb"(?=[/\s\"'])")
    pattern = re.compile(rb"(?<![\w.$}])(?:" + rb"|".join(homes) + rb")")
    wrong = []
    for path in tracked():
        if path == Path(__file__).resolve():
            continue
        wrong += [
            f"{place(path, number)}: {line.strip()[:120]!r}"
            for number, line in enumerate(path.read_bytes().split(b"\n"), 1)
            if pattern.search(line)
        ]
    assert not wrong, "\n".join(wrong)
