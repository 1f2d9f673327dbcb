"""RISC-V with vectors: a target that is a machine's description and rows, its kernels run in an emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import BadConfig, RunError
from partita.accelerators.tvm.code import linking
from partita.accelerators.tvm.machine.machine import named_machine
from tests.accelerators.tvm import arm, riscv
from tests.accelerators.tvm.test_arm import product

pytest.importorskip("tvm")

emulated = pytest.mark.skipif(riscv.why_not() is not None, reason=str(riscv.why_not()))
needs_linker = pytest.mark.skipif(not linking.can_link("riscv64-linux-gnu"), reason="no linker for RISC-V here")

KINDS = "matmul", "product", "attention", "softmax", "layer_norm", "max_pool", "convolution", "recurrent", "bytes, image"

MODELS = (
    "zoo:squeezenet", "zoo:shufflenet", "zoo:resnet50", "zoo:inception_v1", "zoo:inception_v2", "zoo:densenet121",
    "zoo:bvlc_alexnet", "zoo:zfnet512", "mobilenet_v2", "depthwise", "unet",
    *(f"tests/data/torch/{name}.onnx" for name in (
        "bert", "bert.script", "bert_dynamic", "vit", "vit.script", "gpt2",
        "decoders/llama", "decoders/gpt2", "decoders/gemma3",
    )),
)


def test_a_machine_is_planned_by_its_row() -> None:
    narrow, wide, named = (named_machine(name) for name in ("riscv64", "riscv64+zvl256b", "spacemit-x60"))
    assert (narrow.lanes, narrow.registers, narrow.has_fma) == (4, 32, True)
    assert (wide.lanes, wide.registers) == (named.lanes, named.registers) == (8, 32)
    assert [str(used) for used in wide.instructions] == ["plain", "fma"]


@pytest.mark.parametrize("added", ["i8mm", ""])
def test_what_is_no_extension_of_the_architecture_is_an_error(added: str) -> None:
    with pytest.raises(BadConfig, match=rf"ARCH cannot be 'riscv64\+{added}'[\s\S]*\+zvl256b, not '{added}'"):
        pt.compile(product(), "cpu", config={"ARCH": f"riscv64+{added}"})


@needs_linker
def test_its_code_multiplies_vectors_and_does_not_run_here() -> None:
    model = pt.compile(product(), "cpu", config={"ARCH": "riscv64"})
    assert "vfmacc" in model.kernels()[0].assembly
    with pytest.raises(RunError, match=r"compiled for riscv64 \(riscv64-linux-gnu\) and cannot run here"):
        model(np.ones((20, 40), "float32"))


@emulated
@pytest.mark.parametrize("arch", riscv.VECTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_of_each_kind_is_right(kind: str, arch: str, tmp_path: Path) -> None:
    assert not riscv.problems(dict(arm.cases("sample"))[kind], arch, tmp_path)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_right(name: str, tmp_path: Path) -> None:
    assert not riscv.problems(riscv.model(name), "riscv64+zvl256b", tmp_path)
