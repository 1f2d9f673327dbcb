"""What is compiled for a GPU without one travels as machine code: nothing is compiled where it runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import partita as pt
from accelerators.tvm import cuda
from accelerators.tvm.code import nvcc
from accelerators.tvm.code.cubins import cubins, served
from accelerators.tvm.compiled.travel import _taken_apart
from accelerators.tvm.run.runtime import function
from tests.accelerators.tvm.running import compiled
from tests.accelerators.tvm.test_cuda import small

pytest.importorskip("tvm")

NAME = "tvm_callback_cuda_compile"


@pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")
def test_each_source_in_the_library_has_its_code() -> None:
    if cuda.gpu_arch() is not None:
        pytest.skip("there is a GPU here: TVM compiles for it itself")
    model = compiled(small(), "cuda", ARCH="sm_90")
    code = cubins(model.assembled.executable, "sm_90")
    assert len(code) == len({kernel.source for kernel in model.kernels()}) == 2
    assert all(binary.startswith(b"\x7fELF") for binary in code.values())
    _, travelling, library = _taken_apart(model.export(), "here")
    assert travelling == code
    assert bytes(library[:4]) == b"\x7fELF"
    source = model.kernels()[0].source
    with served(travelling):
        assert function(NAME)(source) in code.values()


@pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")
def test_an_import_where_there_is_no_gpu(tmp_path: Path) -> None:
    if cuda.gpu_arch() is not None:
        pytest.skip("there is a GPU here")
    pt.compile(small(), "cuda", config={"ARCH": "sm_90"}).export(tmp_path / "small.partita")
    with pytest.raises(pt.PartitaError, match="TVM's runtime for GPUs does not load: there is no driver for one"):
        pt.import_model(tmp_path / "small.partita")


def test_the_function_that_was_there_is_there_again() -> None:
    before = function(NAME)
    with served({hashlib.sha256(b"source").hexdigest(): b"code"}):
        assert function(NAME)("source") == b"code"
    assert (function(NAME) is None) == (before is None)
