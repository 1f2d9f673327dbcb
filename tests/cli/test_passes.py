"""The verb `passes`: a row for each pass, dumps, and passes left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita.accelerators.tvm.cpu import PASSES as CPU
from partita.passes import DEFAULT
from tests.cli.conftest import Command


def test_the_passes_of_optimize(partita: Command, model: str) -> None:
    result = partita(f"passes {model} --json --without MergeCommon").json
    assert [row["name"] for row in result["passes"]] == [name for name in DEFAULT if name != "MergeCommon"]
    assert {row["verify_seconds"] for row in result["passes"]} == {0.0}
    done = partita(f"passes {model} --without Merge")
    assert (done.status, done.out) == (1, "") and "there is no pass 'Merge' to leave out" in done.err


def test_the_passes_of_a_device(partita: Command, model: str) -> None:
    pytest.importorskip("tvm")
    done = partita(f"passes {model} --device cpu --dump dumps --verify")
    assert done.status == 0
    rows = [line.split("│")[1:-1] for line in done.out.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows][-len(CPU) :] == list(CPU)
    assert rows[-1][2].strip().isdigit() and rows[-len(CPU)][2].strip() == "=", "FuseKernels changes it, CheckIndices does not"
    files = sorted(path.name for path in Path("dumps").iterdir())
    assert files[0] == "00-input.txt" and files[-1] == f"{len(rows)}-FuseKernels.txt" and len(files) == len(rows) + 1
    fused = Path("dumps", files[-1]).read_text()
    assert "conv1" in Path("dumps", "00-input.txt").read_text() and "call " in fused
    assert "wrote dumps" in done.err


def test_one_pass_is_left_out(partita: Command, model: str) -> None:
    pytest.importorskip("tvm")
    names = [row["name"] for row in partita(f"passes {model} --device cpu --without BlockChannels --json").json["passes"]]
    assert names[-len(CPU) + 1 :] == [name for name in CPU if name != "BlockChannels"]
    done = partita(f"passes {model} --device cpu --without FuseKernels")
    assert done.status == 1 and "Leave FuseKernels in: what comes after it relies on it" in done.err


def test_passes_are_left_out_by_either_option(partita: Command, model: str) -> None:
    pytest.importorskip("tvm")
    left = "--config SKIP_PASSES=FoldScales --without BlockChannels"
    names = [row["name"] for row in partita(f"passes {model} --device cpu {left} --json").json["passes"]]
    assert names[-len(CPU) + 2 :] == [name for name in CPU if name not in ("BlockChannels", "FoldScales")]
    done = partita(f"passes {model} --config PRECISION=bf16")
    assert done.status == 2 and "--config goes with --device" in done.err


def test_sizes_that_are_not_fixed(partita: Command, dynamic: str) -> None:
    """The passes are those of the form for any size."""
    pytest.importorskip("tvm")
    rows = {row["name"]: row for row in partita(f"passes {dynamic} --device cpu --json").json["passes"]}
    assert rows["BlockChannels"]["changed"]


def test_other_devices_have_none(partita: Command, model: str) -> None:
    done = partita(f"passes {model} --device reference --without Quantize")
    assert (done.status, done.err.splitlines()[1:]) == (1, [
        "error: device 'reference' has no passes of its own",
        "  cpu, cuda and opencl have some; for another, leave --device out.",
    ])
    assert partita(f"passes {model} --device HETERO:cpu,reference").status == 2
