"""An exported model runs where TVM's libraries are and its compiler and its package are not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm import cuda
from partita.accelerators.tvm.code import nvcc
from tests.accelerators.package.models import in_new_process
from tests.graphs.networks import dynamic_net, inputs_of, small_net

ALONE = """
import importlib.abc, os

class NoTvm(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "tvm":
            raise ModuleNotFoundError(f"there is no {name} on this machine")

sys.meta_path.insert(0, NoTvm())
os.environ["TVM_LIBRARY_PATH"] = args[0]
"""

RUN = """
model = pt.import_model(args[1])
np.save(args[3], model(np.load(args[2]))[0])
assert "tvm" not in sys.modules
"""

REFUSALS = """
from partita.accelerators.interface.registry import accelerator
answer = set(accelerator("cpu").query(pt.load(args[1])).values())
try:
    pt.compile(pt.load(args[1]), "cpu")
except pt.PartitaError as error:
    answer.add(str(error))
try:
    accelerator("cuda")
except pt.PartitaError as error:
    answer.add(str(error))
try:
    pt.import_model(args[2])
except pt.PartitaError as error:
    answer.add(str(error))
print("\\n".join(answer))
"""


@pytest.fixture
def libraries(tmp_path):
    """A folder that holds TVM's runtime libraries alone."""
    result = importlib.util.find_spec("tvm")
    if result is None or not sys.platform.startswith("linux"):
        pytest.skip("TVM is not installed")
    folder = tmp_path / "libraries"
    folder.mkdir()
    for path in (Path(result.submodule_search_locations[0]) / "lib").glob("libtvm_runtime*"):
        (folder / path.name).symlink_to(path)
    return folder


def test_a_cpu_export_runs(libraries, tmp_path):
    model = pt.compile(small_net(), "cpu")
    model.export(tmp_path / "net.partita", bodies=False)
    x = inputs_of(model.graph)
    np.save(tmp_path / "x.npy", x)
    in_new_process(ALONE + RUN, libraries, tmp_path / "net.partita", tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(x)[0])


def test_what_needs_the_compiler_says_so(libraries, tmp_path):
    pt.save(small_net(), tmp_path / "net.onnx")
    pt.compile(dynamic_net(), "cpu").export(tmp_path / "any.partita")
    result = in_new_process(ALONE + REFUSALS, libraries, tmp_path / "net.onnx", tmp_path / "any.partita").stdout
    assert "its sizes vary, so that it is prepared here, and" in result and "  Export it with fixed sizes" in result
    assert "TVM's compiler is not installed here, only its runtime: pip install apache-tvm" in result
    assert "True" not in result.splitlines()


@pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")
def test_a_cuda_export_made_without_a_gpu(libraries, tmp_path):
    """It is imported where only the runtime is; it runs if there is a GPU, else its refusal names what is missing."""
    model = pt.compile(small_net(), "cuda", config={} if cuda.gpu_arch() else {"ARCH": "sm_90"})
    model.export(tmp_path / "net.partita", bodies=False)
    x = inputs_of(model.graph)
    np.save(tmp_path / "x.npy", x)
    wanted = pt.compile(small_net(), "reference")(x)[0]
    no_compiler = 'os.environ["PATH"] = ""\nfrom partita.accelerators.tvm.code import nvcc\nnvcc.compiler = lambda: None\n'
    without_nvcc = ALONE + no_compiler
    given = (libraries, tmp_path / "net.partita", tmp_path / "x.npy", tmp_path / "y.npy")
    if cuda.gpu_arch() is not None:
        in_new_process(without_nvcc + RUN, *given)
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-4)
        return
    attempt = "try:\n    pt.import_model(args[1])\nexcept pt.PartitaError as error:\n    print(error)\n"
    result = in_new_process(without_nvcc + attempt, *given).stdout
    assert "device 'cuda' cannot be used here: there is no GPU here, and nothing to compile for one" in result
