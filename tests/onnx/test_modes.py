"""Files that users ask for get the mode that the umask gives; `tempfile` would let nobody else read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import partita as pt

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")

Writer = Callable[[pt.Graph, Path], object]


def small() -> pt.Graph:
    x = pt.variable("x", "float32", (2, 2))
    w = pt.constant(np.arange(4, dtype=np.float32).reshape(2, 2), name="w")
    return pt.Graph([pt.op("MatMul", x, w, name="product")], name="small")


def compiled(graph: pt.Graph) -> pt.CompiledModel:
    return pt.compile(graph, "reference")


WRITERS: dict[str, Writer] = {
    "save": lambda graph, folder: pt.save(graph, folder / "m.onnx"),
    "save with data beside": lambda graph, folder: pt.save(graph, folder / "m.onnx", external=True),
    "export": lambda graph, folder: compiled(graph).export(folder / "m.partita"),
    "report page": lambda graph, folder: pt.report_page(compiled(graph), folder / "m.html"),
    "trace": lambda graph, folder: compiled(graph).profile().to_chrome_trace(folder / "m.json"),
    "dumps of passes": lambda graph, folder: pt.apply_pass(graph, ["FoldConstants"], dump=folder),
    "dot": lambda graph, folder: pt.compile(graph, "HETERO:reference", {"HETERO_DUMP_GRAPH_DOT": folder}),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077], ids=oct)
def test_written_files_get_the_mode_of_the_umask(name: str, umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        WRITERS[name](small(), tmp_path)
    finally:
        os.umask(before)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {oct(0o666 & ~umask)}
