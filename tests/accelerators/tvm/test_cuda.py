"""The device `cuda` where there may be no GPU: what it compiles is looked at, not run."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorUnavailable, BadConfig, CompileError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm import cuda
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code import nvcc
from partita.accelerators.tvm.compiled.cuda_launched import CompiledCuda
from partita.accelerators.tvm.device import TvmAccelerator
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.passes.registry import LAYOUT_NOTES
from tests.accelerators.tvm.running import check, compiled, schedules
from tests.close import assert_close

pytest.importorskip("tvm")
needs_gpu = pytest.mark.skipif(cuda.gpu_arch() is None, reason="no GPU here")
needs_compiler = pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")


def small() -> pt.Graph:
    x = pt.variable("x", "float32", (1, 8, 16, 16))
    w = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype("float32")
    return pt.Graph([pt.op("Softmax", pt.op("Relu", pt.op("Conv", x, pt.constant(w), pads=[1, 1, 1, 1])))], inputs=[x])


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptx_with_the_kernels_names(arch: str) -> None:
    kernels = compiled(small(), "cuda", ARCH=arch).kernels()
    assert [k.schedule for k in kernels] == ["gpu_convolution", "gpu_rows"]
    for kernel in kernels:
        text = kernel.assembly
        assert f".target {arch}" in text
        assert re.search(rf"\.entry {kernel.symbol}\w*", text)


@needs_compiler
def test_a_precision_of_two_bytes() -> None:
    """Products of a float32 model on tensor cores, and softmax in the same numbers."""
    x = pt.variable("x", "float32", (1, 16, 8, 8))
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("float32")
    y = pt.op("Relu", pt.op("Conv", x, pt.constant(w), pads=[1, 1, 1, 1], name="conv"))
    graph = pt.Graph([pt.op("Softmax", pt.op("MatMul", y, pt.constant(np.ones((8, 24), "float32"))), name="softmax")])
    device = accelerator("cuda")
    assert isinstance(device, TvmAccelerator)
    config = device.full_config({"ARCH": "sm_80", "PRECISION": "bf16", "ISOLATE": False})
    machine, device = device.machine(config), device.configured(config)
    notes = device.fused(graph, machine).attrs[LAYOUT_NOTES]
    assert notes == ("4 ops in bfloat16, products by mma.sync",)
    calls = [node.subgraph for node in device.fused(graph, machine).nodes if node.subgraph is not None]
    drafts = [draft_kernel(make_body(call), machine) for call in calls]
    named = [draft.schedule for draft in drafts if draft is not None]
    assert named[-3:] == ["gpu_convolution_on_tensor_cores", "gpu_gemm_on_tensor_cores", "gpu_rows"]


@needs_compiler
@pytest.mark.parametrize(("arch", "precision", "meant"), [
    ("sm_80", "fast", "bfloat16"), ("sm_75", "fast", "float32"), ("sm_75", "f16", "float16"), ("sm_80", "f32", "float32"),
    ("sm_80", "tf32", "tf32"), ("sm_75", "tf32", "float32"),
])
def test_the_type_that_a_precision_stands_for(arch: str, precision: str, meant: str) -> None:
    """TF32 is stored as float32."""
    device = accelerator("cuda")
    config = device.full_config({"ARCH": arch, "PRECISION": precision})
    stored = "float32" if meant == "tf32" else meant
    assert device.configured(config).precision(device.machine(config)) == stored  # type: ignore[attr-defined]
    assert device.meaning(config)["PRECISION"] == meant  # type: ignore[attr-defined]


@needs_compiler
def test_tf32_is_told() -> None:
    config = (device := accelerator("cuda")).full_config({"ARCH": "sm_80", "PRECISION": "tf32"})
    assert isinstance(device, TvmAccelerator)
    notes = device.configured(config).fused(small(), device.machine(config)).attrs[LAYOUT_NOTES]
    assert notes == ("products of float32 in TF32 by mma.sync",)


def test_tf32_elsewhere_is_a_clear_error() -> None:
    with pytest.raises(BadConfig, match="PRECISION cannot be 'tf32'"):
        pt.compile(small(), "cpu", {"PRECISION": "tf32"})


@needs_compiler
def test_running_without_a_gpu_is_a_clear_error() -> None:
    if cuda.gpu_arch() is not None:
        pytest.skip("there is a GPU here")
    with pytest.raises(AcceleratorUnavailable, match="there is no GPU 0 here: it was compiled for sm_80 and cannot run"):
        compiled(small(), "cuda").run([np.zeros((1, 8, 16, 16), "float32")])


@needs_compiler
def test_an_export_holds_machine_code_and_no_source(tmp_path: Path) -> None:
    """Nothing is compiled where it runs, which is where a GPU is."""
    model = compiled(small(), "cuda", ARCH="sm_90")
    assert isinstance(model, CompiledCuda)
    code, data = model.all_binaries(), model.export()
    assert len(code) == len({kernel.source for kernel in model.kernels()}) == 2
    assert all(binary.startswith(b"\x7fELF") and binary in data for binary in code.values()) and b"__global__" not in data
    pt.compile(small(), "cuda", config={"ARCH": "sm_90"}).export(tmp_path / "small.partita")
    if cuda.gpu_arch() is None:
        with pytest.raises(pt.PartitaError, match="there is no GPU 0 here: it was compiled for sm_90 and cannot run"):
            pt.import_model(tmp_path / "small.partita")


@needs_gpu
@needs_compiler
def test_it_runs() -> None:
    check(small(), [np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype("float32")], 1e-4, device="cuda")


@needs_gpu
@needs_compiler
def test_arrays_on_the_gpu_and_runs_that_are_recorded() -> None:
    data = np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype("float32")
    model, (wanted,) = pt.compile(small(), "cuda"), pt.compile(small(), "reference")(data)
    given, target = pt.to_device(data, "cuda"), pt.to_device(np.zeros_like(data), "cuda")
    for _ in range(3):
        assert_close(model(data)[0], wanted, atol=1e-6, rtol=1e-4)
        model(given, out=target)
    for _ in range(3):
        model(given, out=target)
    assert_close(target.numpy(), wanted, atol=1e-6, rtol=1e-4)


@needs_gpu
@needs_compiler
def test_tensors_of_torch_on_the_gpu() -> None:
    """Read and written where they are, behind what torch still computes."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    data = np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype("float32")
    model, (wanted,) = pt.compile(small(), "cuda"), pt.compile(small(), "reference")(data)
    given, target = torch.from_numpy(data).cuda() * 2 / 2, torch.zeros(data.shape, device="cuda")
    for _ in range(3):
        model(given, out=target)
    assert_close(target.cpu().numpy(), wanted, atol=1e-6, rtol=1e-4)
    shown = torch.from_dlpack(pt.to_device(data, "cuda"))
    assert shown.is_cuda and torch.equal(shown.cpu(), torch.from_numpy(data))


@needs_compiler
@pytest.mark.parametrize(
    ("rule", "node"),
    [
        ("Matmul", pt.op("MatMul", pt.variable("x", "float32", (64, 128)), pt.variable("y", "float32", (128, 64)))),
        ("Reduction", pt.op("ReduceSum", pt.variable("x", "float32", (64, 128)), pt.constant(np.array([0])))),
        ("Transpose", pt.op("Transpose", pt.variable("x", "float32", (64, 128)))),
        ("Fallback", pt.op("Atan", pt.variable("x", "float32", (64, 128)))),
    ],
    ids=lambda value: value if isinstance(value, str) else value.op,
)
@pytest.mark.thinned(2)
def test_schedules_by_what_a_kernel_does(rule: str, node: pt.Node) -> None:
    assert schedules(compiled(pt.Graph([node]), "cuda", ARCH="sm_90")) == [f"dlight.{rule}"]


@needs_compiler
@pytest.mark.parametrize("devices", ["cuda", "HETERO:cuda,cpu"])
def test_a_wrong_architecture(devices: str) -> None:
    with pytest.raises(BadConfig, match="'hopper' is not a GPU architecture"):
        pt.compile(small(), devices, config={"cuda": {"ARCH": "hopper"}})


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "compiler", lambda: None)
    with pytest.raises(AcceleratorUnavailable, match="neither nvcc nor NVRTC is found"):
        cuda.CudaAccelerator()


@needs_compiler
def test_an_architecture_that_the_compiler_does_not_know() -> None:
    said = "refuses the generated code: .*\n.*Is sm_999 an architecture that this (nvcc|NVRTC) knows"
    with pytest.raises(CompileError, match=said):
        nvcc.ptx("", "sm_999")


def test_nvrtc_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    assert not nvcc._has_nvrtc()


@needs_compiler
def test_query_answers_for_the_gpu() -> None:
    assert all(answer is True for answer in accelerator("cuda").query(small()).values())
