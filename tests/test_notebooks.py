"""The notebooks run from the first cell to the last, show what they show, and keep it small."""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))

LARGEST = 260_000
"""Bytes of a notebook with its outputs."""

NEEDS = {
    "4_hetero": ("onnxruntime",),
    "5_experiment": ("onnxruntime", "openvino", "matplotlib"),
    "6_explain_a_session": ("onnxruntime",),
}
"""What a notebook needs beside Partita."""

SLOW = {"5_experiment"}
"""The notebooks that compile dozens of models."""


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def run(source: str, where: str, names: dict[str, object]) -> object:
    """Run a cell; what its last line is worth."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)  # noqa: S102  the test's purpose
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307


ENGINES = {"onnxruntime", "openvino", "torch"}
"""Devices and modules that an extra brings."""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_extra_brings_all_that_a_notebook_needs(notebook: Path) -> None:
    """`pip install 'partita[notebook]'` is enough: for what a notebook imports, and for the devices that it names."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).resolve().parent.parent / "setup.cfg")
    listed = setup["options"]["install_requires"] + setup["options.extras_require"]["notebook"]
    installed = {line.split()[0] for line in listed.splitlines() if line.strip() and not line.strip().startswith("#")}
    needed, named = set[str](), set[str]()
    for cell in cells(notebook):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.Import):
                needed |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                needed.add(str(node.module).split(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"[a-z]+", node.value))
    needed |= named & ENGINES
    assert needed - set(sys.stdlib_module_names) - {"partita"} <= installed


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ()) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_every_cell_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(notebook.stem, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells(notebook):
        value: Any = run("".join(cell["source"]), f"{notebook.name}, {cell['id']}", names)
        kept = [set(output["data"]) for output in cell["outputs"] if output["output_type"] == "execute_result"]
        shown = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {"text/plain": repr(value)}
        assert kept in ([], [set(shown)]), "run python -m tests.refresh_notebooks, which keeps what the notebooks show"
        assert (value is None) == (kept == [])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_whole_and_small(notebook: Path) -> None:
    assert notebook.stat().st_size < LARGEST
    counts = [cell["execution_count"] for cell in cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run python -m tests.refresh_notebooks"
    kinds = {output["output_type"] for cell in cells(notebook) for output in cell["outputs"]}
    assert kinds <= {"execute_result", "display_data", "stream"}, "a cell failed"


def test_the_experiment_has_one_point_for_one_partition() -> None:
    """The plans of the notebook's models, without compiling one: no two points stand for the same partition."""
    notebook = next(path for path in NOTEBOOKS if path.stem == "5_experiment")
    pytest.importorskip("matplotlib")
    sources = ["".join(cell["source"]) for cell in cells(notebook)]
    names: dict[str, Any] = {"__name__": "__main__"}
    run(sources[0].replace('("squeezenet", "shufflenet", "inception_v1")', '("squeezenet",)'), "imports", names)
    run(sources[1].partition("results = {}")[0], "functions", names)
    ways = names["partitions"](names["graphs"]["squeezenet"])
    assert sum(map(len, ways.values())) == len(names["SELECTORS"]) * len(names["SIZES"]) > len(ways)
    assert "pt.bench(" in sources[1] and "time.perf_counter" not in "".join(sources)
