"""What the loggers under `partita` say."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import partita as pt
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import alternating
from tests.house import ROOT


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.name}: {record.getMessage()}" for record in caplog.records]


def test_what_is_compiled_and_where(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "partita"):
        pt.compile(alternating(), "reference")
    first, last = lines(caplog)
    assert first.startswith("partita.compile: reference_0 is ready on reference: 4 ops, 0.")
    assert last == "partita.compile: chain: 1 subgraph on reference"


def test_what_moves(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(self, graph, config):
        raise pt.NotSupported("it is Tuesday")

    with device("picky", compile=refuse), caplog.at_level(logging.WARNING, "partita"):
        pt.compile(alternating(), "HETERO:picky,reference")
    reason = "it took the op and could not compile it: it is Tuesday"
    assert lines(caplog) == [f"partita.placement: picky_0 moves from picky to reference: {reason}"]


def test_what_is_cached(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    x = pt.variable("x", "float32", (4,))
    graph = pt.Graph([pt.op("Relu", x, name="relu")], name="small")
    with caplog.at_level(logging.INFO, "partita.cache"):
        for _ in range(2):
            pt.compile(graph, "cpu", {"CACHE_DIR": str(tmp_path / "cache")})
    assert lines(caplog) == [
        "partita.cache: cpu_0: compiled for cpu, because it is the first of its kind; kept",
        "partita.cache: cpu_0: read from the cache of cpu",
    ]


def test_exports_and_imports(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = str(tmp_path / "net.partita")
    model = pt.compile(alternating(), "reference")
    with caplog.at_level(logging.INFO, "partita.package"):
        model.export(path)
        pt.import_model(path)
    assert lines(caplog) == [
        f"partita.package: chain: exported to {path}, 1 subgraph",
        f"partita.package: chain: imported from {path}",
    ]


def test_passes_in_detail(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "partita.passes"):
        pt.apply_pass(alternating(), "FoldConstants")
    assert [line.rpartition(", ")[0] for line in lines(caplog)] == ["partita.passes: FoldConstants: 5 nodes to 5"]


def test_a_program_that_does_not_ask_hears_of_what_moved_alone() -> None:
    code = (
        "import partita as pt\n"
        "class Picky(pt.Accelerator):\n"
        "    name = 'picky'\n"
        "    def supports(self, node, graph): return True\n"
        "    def compile(self, graph, config): raise pt.NotSupported('no')\n"
        "pt.register_accelerator(Picky)\n"
        "pt.compile(pt.Graph([pt.op('Relu', pt.variable('x', 'float32', (1,)))]), 'HETERO:picky,reference')"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    said = [line for line in done.stderr.splitlines() if "Warning: " in line]
    assert len(said) == 1 and len(done.stderr.splitlines()) <= 2
    assert "net: 1 op (relu_0) with 100% of the FLOPs moved to reference: picky could not compile what it took: " in said[0]


def test_verbose_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from partita.cli.main import main

    path = str(tmp_path / "chain.onnx")
    pt.save(alternating(), path)
    assert main(["run", path, "--devices", "reference", "--profile", "0", "-v", "--quiet"]) == 0
    heard = capsys.readouterr().err
    assert "partita.compile: chain: 1 subgraph on reference" in heard and "partita.passes" not in heard
    main(["run", path, "--devices", "reference", "--profile", "0", "-vv", "--quiet"])
    assert "partita.passes: " in capsys.readouterr().err
    main(["run", path, "--devices", "reference", "--profile", "0", "--quiet"])
    assert capsys.readouterr().err == ""
    assert not [handler for handler in logging.getLogger("partita").handlers if not isinstance(handler, logging.NullHandler)]
