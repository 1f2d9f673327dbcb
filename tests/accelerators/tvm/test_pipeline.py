"""The pipelines of the TVM devices: their order, and what the pass manager does for them while a model is compiled."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.cpu import PASSES as CPU
from partita.accelerators.tvm.device import GPU_PASSES as GPU
from partita.accelerators.tvm.device import TvmAccelerator
from partita.accelerators.tvm.prepare.preparing import PREPARE, REPLACE, SETTLE
from partita.passes import PassTrace, watch_passes
from partita.passes.registry import pass_info
from tests.accelerators.tvm.planned import MACHINES

pytest.importorskip("tvm")

PREPARED = [*chain(*PREPARE, *SETTLE), "FoldImplied", "DecomposeUnsupported"]
"""The passes before a device's own, for a graph in which nothing is replaced."""


def small() -> pt.Graph:
    x, w = pt.variable("x", "float32", (1, 3, 8, 8)), np.random.default_rng(0).standard_normal((4, 3, 3, 3), np.float32)
    relu = pt.op("Relu", pt.op("Conv", x, pt.constant(w, name="w"), name="conv"), name="relu")
    return pt.Graph([pt.op("Softmax", relu, axis=1, name="softmax")], name="small")


def test_the_order_of_the_passes() -> None:
    """A layout is chosen before numbers are narrowed, tables are shared as products read them, and fusion is last."""
    assert CPU[0] == GPU[0] == "CheckIndices" and CPU[-1] == GPU[-1] == "FuseKernels"
    for earlier, later in [
        ("FindProducts", "Quantize"), ("TabulateBytes", "Quantize"), ("Quantize", "PackWeights"),
        ("PackWeights", "ReleaseWeights"), ("ReleaseWeights", "FoldScales"), ("FoldScales", "BlockChannels"),
        ("BlockChannels", "NarrowTypes"), ("NarrowTypes", "ShareTables"),
    ]:
        assert CPU.index(earlier) < CPU.index(later)
    assert "FlagIndices" in GPU and "FlagIndices" not in CPU, "a processor's kernel complains by itself"


@pytest.mark.parametrize("name", ["avx2", "sm_80", "opencl"])
def test_a_device_applies_its_tuple(name: str) -> None:
    machine = MACHINES[name]
    device = accelerator(machine.kind)
    assert isinstance(device, TvmAccelerator)
    with watch_passes(verify=True) as trace:
        fused = device.fused(small(), machine, flagged=True)
    assert [record.name for record in trace] == [*PREPARED, *device.passes]
    kernels = [[inner.op for inner in node.subgraph.nodes if inner.is_op] for node in fused.nodes if node.subgraph is not None]
    assert kernels[0][:2] == ["Conv", "Relu"] and kernels[-1] == ["Softmax"]


def test_every_pass_is_known_and_says_what_it_does() -> None:
    for name in {*chain(*PREPARE, *SETTLE), *REPLACE, *CPU, *GPU}:
        assert pass_info(name, "tvm").run.__doc__
    assert set(pt.list_passes("tvm")) - {"InlineParts"} <= {*chain(*PREPARE, *SETTLE), *REPLACE, *CPU, *GPU}
    assert not {"Quantize", "FuseKernels"} & set(pt.list_passes()), "a device's passes are listed apart"


def test_a_pass_outside_its_device_is_one_clear_error() -> None:
    """In a process of its own, where nothing has imported the passes."""
    code = "import partita as pt; pt.apply_pass(pt.Graph([pt.variable('x', 'float32', (2,))]), 'tvm.BlockChannels')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith(
        "pass 'tvm.BlockChannels': the pass needs the option 'machine', which is not given\n"
        "  Only a device of the family 'tvm' runs it, and gives machine.\n"
    )


def test_a_compilation_is_watched(tmp_path: Path) -> None:
    """Queries are not: only what is compiled counts."""
    trace = PassTrace()
    with watch_passes(trace=trace, dump=tmp_path, verify=True):
        pt.compile(small(), "HETERO:cpu,reference", {"cpu": {"CACHE_DIR": tmp_path / "cache"}})
    own = [record for record in trace if record.name in CPU]
    assert [record.name for record in own] == list(CPU)
    assert {record.graph for record in own} == {own[0].graph} and own[-1].nodes_after < own[0].nodes_before
    before, after = (next(tmp_path.glob(f"*-{name}.txt")).read_text() for name in ("FoldScales", "BlockChannels"))
    assert "relu_plain" not in before and "relu_plain = " in after


def test_a_pass_is_switched_off(tmp_path: Path) -> None:
    """The result is the same without what only makes it faster."""
    x, g = np.random.default_rng(1).standard_normal((1, 3, 8, 8), np.float32), small()
    with watch_passes() as trace:
        model = pt.compile(g, "cpu", {"SKIP_PASSES": ["BlockChannels", "FoldScales"], "CACHE_DIR": tmp_path})
    names = [record.name for record in trace]
    assert "BlockChannels" not in names and "FoldScales" not in names and "FuseKernels" in names
    np.testing.assert_allclose(model(x)[0], pt.compile(g, "reference")(x)[0], rtol=1e-5)


def test_skipping_is_part_of_what_a_configuration_means() -> None:
    device = accelerator("cpu")
    config = device.full_config({"SKIP_PASSES": "TabulateBytes, Quantize,Quantize"})
    assert config["SKIP_PASSES"] == ("Quantize", "TabulateBytes") == device.meaning(config)["SKIP_PASSES"]


@pytest.mark.parametrize(("name", "remedy"), [
    ("BlockChanels", "Did you mean 'BlockChannels'?"),
    ("WidenPools", "`partita passes MODEL --device NAME` lists a device's passes"),
    ("FuseKernels", "Leave FuseKernels in: what comes after it relies on it"),
])
def test_what_cannot_be_skipped_is_an_error(name: str, remedy: str) -> None:
    with pytest.raises(pt.BadConfig) as error:
        pt.compile(small(), "cpu", {"SKIP_PASSES": [name]})
    assert error.value.cause == f"SKIP_PASSES cannot be {[name]!r}" and error.value.remedy == remedy


def test_a_query_prepares_the_parts_of_an_op() -> None:
    """Only types are worked out then: no weights are scaled."""
    x, scales = pt.variable("x", "float32", (1, 3, 8, 8)), pt.constant(np.array([1.3, 1.5], np.float32), name="scales")
    g = pt.Graph([pt.op("Resize", x, None, scales, axes=[2, 3], name="resize")])
    with watch_passes() as trace:
        assert pt.query(g, "cpu") == {"resize": "cpu"}
    assert not {record.name for record in trace} & set(PREPARED) - {"InferShape", "EliminateDead"}, "queries are not watched"


def test_a_failing_pass_is_blamed_and_keeps_its_class() -> None:
    x, i = pt.variable("x", "float32", (3, 4)), pt.constant(np.array([7]), name="i")
    g = pt.apply_pass(pt.Graph([pt.op("Gather", x, i, name="rows")]), "InferShape")
    device = accelerator("cpu")
    assert isinstance(device, TvmAccelerator)
    with pytest.raises(CompileError) as error:
        device.fused(g, MACHINES["avx2"])
    assert error.value.where == "pass 'tvm.CheckIndices', node 'rows' (Gather)"
    assert error.value.cause == "index 7 is outside of a dimension of 3"
