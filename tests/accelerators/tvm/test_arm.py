"""Processors by name, most of all Arm's: what is planned and compiled for them here, and, in an emulator, what it computes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import BadConfig, CompileError, NotSupported, RunError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.runtime.package.container import PackageError
from partita.accelerators.tvm import device as device_module
from partita.accelerators.tvm.code import linking
from partita.accelerators.tvm.code.codegen import generate, object_code
from partita.accelerators.tvm.cpu import CpuAccelerator
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import (
    Instruction,
    instruction_for_bytes,
    instruction_for_rows,
    instruction_for_stored,
    instruction_named,
)
from partita.accelerators.tvm.kernels.language import Kernel, Value, element_named, emit, float32, int8, int32, usmmla
from partita.accelerators.tvm.machine.library import function
from partita.accelerators.tvm.machine.machine import Machine, hidden_features, host_machine, named_machine, with_instruction
from partita.accelerators.tvm.machine.processor import KNOWN_FEATURES, PROCESSORS, UNUSED, is_here, processor
from partita.cli.main import main
from tests.accelerators.tvm import arm
from tests.accelerators.tvm.kernels.test_instructions import BFLOAT16, wild
from tests.accelerators.tvm.kernels.test_quantized_products import LAYERS

pytest.importorskip("tvm")

emulated = pytest.mark.skipif(arm.why_not() is not None, reason=str(arm.why_not()))
needs_linker = pytest.mark.skipif(not linking.can_link("aarch64-linux-gnu"), reason="no linker for Arm here")
elsewhere = pytest.mark.skipif(is_here("aarch64-linux-gnu"), reason="this is an Arm")


def product() -> pt.Graph:
    weight = pt.constant(np.random.default_rng(0).standard_normal((40, 48)).astype("float32"))
    x = pt.variable("x", "float32", (20, 40))
    return pt.Graph([pt.op("Relu", pt.op("MatMul", x, weight), name="y")], name="net")


def assembly(arch: str, **config: object) -> str:
    """The machine code of products of four element types."""
    integers = pt.op("MatMulInteger", pt.variable("i", "uint8", (20, 40)), pt.constant(np.ones((40, 48), "int8")))
    floats = [pt.op("MatMul", pt.variable(kind, kind, (20, 40)), pt.constant(np.ones((40, 48), dtype))) for kind, dtype in FLOATS]
    model = pt.compile(pt.Graph([integers, *floats]), "cpu", config={"ARCH": arch, **config})
    return "".join(kernel.assembly for kernel in model.kernels())


def instructions(code: str) -> set[str]:
    return {*re.findall(r"^\t(\w+)", code, re.MULTILINE)}


FLOATS = ("float32", np.float32), ("float16", np.float16), ("bfloat16", BFLOAT16)


# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_has_the_extensions_that_llvm_knows(name: str) -> None:
    target = function("target.Target")({"kind": "llvm", "mtriple": PROCESSORS[name].triple, "mcpu": name})
    promised = {str(extension) for extension in function("target.llvm_get_cpu_features")(target)} & KNOWN_FEATURES
    assert PROCESSORS[name].features <= promised
    assert {*hidden_features(name)} == promised - PROCESSORS[name].features
    assert {*hidden_features(name)} <= UNUSED | {"aes", "pclmul"}, "what LLVM may use is not kept from it"


def test_a_machine_is_planned_by_its_row() -> None:
    v1, n1, a72 = (named_machine(name) for name in ("neoverse-v1", "neoverse-n1", "cortex-a72"))
    assert (v1.lanes, v1.registers, v1.threads, v1.near) == (4, 32, 64, 65536) and v1.has_fma
    assert [[str(used) for used in machine.instructions] for machine in (v1, n1, a72)] == [
        ["usmmla", "bfmmla", "fmlal"], ["sdot", "fma"], ["plain", "fma"],
    ]
    server = named_machine("skylake-avx512", 8)
    assert (server.lanes, server.registers, server.threads) == (16, 32, 8)
    added = named_machine("aarch64+i8mm+bf16")
    assert [str(used) for used in added.instructions] == ["usmmla", "bfmmla"] and str(added.target.attrs["mcpu"]) == "generic"
    assert with_instruction(n1, "usdot").instruction("int8").is_emulated
    assert n1.identity()["triple"] == "aarch64-linux-gnu" and "triple" not in host_machine(1).identity()


def test_a_processor_that_nobody_knows_is_an_error() -> None:
    for wrong, says in (("cortex-b9", "neoverse-v1"), ("aarch64+avx2", r"\+dotprod")):
        with pytest.raises(BadConfig, match=rf"ARCH cannot be '{re.escape(wrong)}'[\s\S]*{says}"):
            pt.compile(product(), "cpu", config={"ARCH": wrong})


# -- elsewhere ---------------------------------------------------------------------------------------------


@needs_linker
@elsewhere
def test_what_is_compiled_for_another_processor_is_exported_and_does_not_run_here(tmp_path: Path) -> None:
    model, x = pt.compile(product(), "cpu", config={"ARCH": "neoverse-v1"}), np.ones((20, 40), "float32")
    with pytest.raises(RunError, match=r"compiled for neoverse-v1 \(aarch64-linux-gnu\) and cannot run here\n.*m\.export"):
        model(x)
    model.export(tmp_path / "net.partita")
    with pytest.raises(PackageError, match=r"compiled for neoverse-v1 \(aarch64-linux-gnu\), and the processor here is"):
        pt.import_model(tmp_path / "net.partita")
    again = pt.import_model(tmp_path / "net.partita", recompile=True)
    np.testing.assert_allclose(again(x)[0], pt.compile(product(), "reference")(x)[0], rtol=1e-5)
    with pytest.raises(NotSupported, match="cannot be measured here"):
        accelerator("cpu").tune(product(), accelerator("cpu").full_config({"ARCH": "neoverse-v1"}), 0.0, lambda _: None)


@needs_linker
@elsewhere
def test_what_is_compiled_for_any_size_elsewhere_is_refused_when_it_is_imported(tmp_path: Path) -> None:
    x = pt.variable("x", "float32", ("n", 40))
    graph = pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(np.ones((40, 48), "float32"))))])
    pt.compile(graph, "cpu", config={"ARCH": "neoverse-v1"}).export(tmp_path / "net.partita")
    with pytest.raises(PackageError, match=r"compiled for neoverse-v1 \(aarch64-linux-gnu\), and the processor here is"):
        pt.import_model(tmp_path / "net.partita")
    again = pt.import_model(tmp_path / "net.partita", recompile=True)
    assert again(np.ones((3, 40), "float32"))[0].tolist() == [[40.0] * 48] * 3


def test_code_with_instructions_that_the_processor_here_lacks_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerator("cpu")
    config = device.full_config({})
    made = {arch: device.identity({**config, "ARCH": arch}) for arch in ("neoverse-v1", "neoverse-n1", "cortex-a72")}
    monkeypatch.setattr(device_module, "is_here", lambda triple: True)
    monkeypatch.setattr(CpuAccelerator, "machine", lambda self, config: named_machine("neoverse-n1"))
    says = "it was compiled for neoverse-v1, and the processor here (neoverse-n1) lacks bf16, fp16fml, i8mm"
    assert [device.misfit(identity, config) for identity in made.values()] == [says, None, None]


@needs_linker
def test_the_command_line_names_the_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pt.save(product(), tmp_path / "net.onnx")
    out = tmp_path / "net.partita"
    command = ["compile", str(tmp_path / "net.onnx"), "--devices", "cpu", "--arch", "cortex-a72", "-o", str(out), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(out)
    code = out.read_bytes()
    assert any(code[at + 18 : at + 20] == b"\xb7\0" for at in (match.start() for match in re.finditer(b"\x7fELF", code)))


def test_a_missing_linker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "tools", lambda triple="": None)
    monkeypatch.setattr(linking, "is_here", lambda triple: not triple)
    remedy = r"no linker here for aarch64-linux-gnu[\s\S]*Install gcc-aarch64-linux-gnu.*ziglang"
    with pytest.warns(UserWarning, match="no linker here"), pytest.raises(CompileError, match=remedy):
        pt.compile(product(), "cpu", config={"ARCH": "cortex-a72"})


# -- instructions ------------------------------------------------------------------------------------------


@needs_linker
def test_kernels_have_the_instructions_of_their_processor() -> None:
    own = {"usmmla", "usdot", "sdot", "bfmmla", "bfdot", "fmlal"}
    for arch, names in (("neoverse-v1", {"usmmla", "bfmmla", "fmlal"}), ("neoverse-n1", {"sdot"}), ("cortex-a72", set())):
        code = assembly(arch)
        assert re.search(r"\bfmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[", code), arch
        assert own & instructions(code) == names, arch
        assert "fmlal" not in names or re.search(r"\bfmlal\s+v\d+\.4s, v\d+\.4h, v\d+\.h\[0\]", code)
    assert {"bfdot", "usdot"} <= instructions(assembly("neoverse-v1", BFLOATS="bfdot", INTEGERS="usdot"))


Step = Callable[..., Value]


def step_kernel(step: Step, arrays: list[Any], sums: Any) -> Kernel:
    """Adds to each row of sums what a step makes of the rows of two matrices."""
    kernel = Kernel("k")
    types = [element_named(array.dtype.name) for array in arrays]
    left, right = (kernel.input(name, kind, array.shape) for name, kind, array in zip("ab", types, arrays, strict=True))
    kind = float32 if sums.dtype == np.float32 else int32
    start, y = kernel.input("start", kind, sums.shape), kernel.output("y", kind, sums.shape)
    with kernel.loop(len(sums), "row") as row:
        y[row, 0] = step(start.vector(4, row, 0), *(side.vector(side.shape[1], row, 0) for side in (left, right)))
    return kernel


def on(machine: Machine, kernel: Kernel, arrays: list[Any], tmp_path: Path, arch: str = "") -> Any:
    result = np.zeros_like(arrays[-1])
    library = generate({"k": emit(kernel)}, machine.target)
    if machine.is_here:
        import tvm

        tensors = [tvm.runtime.tensor(array) for array in (*arrays, result)]
        library["k"](*tensors)
        return tensors[-1].numpy()
    done = arm.run_kernel(object_code(library), "k", arch or machine.arch, [*arrays, result], tmp_path)
    assert done.returncode == 0, done
    return result


@emulated
def test_products_of_bytes_are_exact_on_arm(tmp_path: Path) -> None:
    random, v1 = np.random.default_rng(3), named_machine("neoverse-v1")
    left, right = random.integers(0, 256, (64, 16), np.uint8), random.integers(-128, 128, (64, 16), np.int8)
    start = random.integers(-999, 999, (64, 4), np.int32)
    a, b = left.astype(np.int32), right.astype(np.int32)
    dots = start + (a.reshape(-1, 4, 4) * b.reshape(-1, 4, 4)).sum(-1, dtype=np.int32)
    pairs = start + np.einsum("nik,njk->nij", a.reshape(-1, 2, 8), b.reshape(-1, 2, 8)).reshape(-1, 4)
    assert np.array_equal(on(v1, step_kernel(usmmla, [left, right], start), [left, right, start], tmp_path), pairs)
    for arch, name in (("neoverse-v1", "usdot"), ("neoverse-n1", "sdot")):
        machine = with_instruction(named_machine(arch), name)
        kernel = Kernel("k")
        words, columns = kernel.input("a", int32, (64, 4)), kernel.input("b", int8, (1024,))
        begin, y = kernel.input("start", int32, (64, 4)), kernel.output("y", int32, (64, 4))
        with kernel.loop(64, "row") as row:
            acc = kernel.registers("acc", int32, (1,), 4)
            acc[0] = begin.vector(4, row, 0)
            instruction_for_bytes(machine).step(kernel, acc, 0, words.vector(4, row, 0), columns, row * 16)
            y[row, 0] = acc[0]
        assert np.array_equal(on(machine, kernel, [left.view(np.int32), right.reshape(-1), start], tmp_path), dots), name


@emulated
@pytest.mark.parametrize("name", ["bfdot", "bfmmla"])
def test_products_of_bfloat16_on_arm_have_the_bits_of_the_emulation(name: str, tmp_path: Path) -> None:
    random, v1 = np.random.default_rng(4), named_machine("neoverse-v1")
    left, right = (wild(random, 2000, 4, 2).astype(BFLOAT16).view(np.int32)[..., 0].copy() for _ in range(2))
    start = wild(random, 2000, 4)
    planned = with_instruction(host_machine(1), name)
    real, portable = instruction_named(name), instruction_named(name, True).add
    if name == "bfmmla":
        several = instruction_for_rows("bfloat16", 4, planned)
        assert several is not None
        portable = several.add
    there = on(v1, step_kernel(real.add, [left, right], start), [left, right, start], tmp_path)
    here = on(host_machine(1), step_kernel(portable, [left, right], start), [left, right, start], tmp_path)
    np.testing.assert_array_equal(there.view(np.uint32), here.view(np.uint32))


@emulated
def test_products_of_float16_on_arm_have_the_bits_of_the_emulation(tmp_path: Path) -> None:
    random, v1 = np.random.default_rng(5), named_machine("neoverse-v1")
    exponents = [random.integers(-20, 12, (2000, count)) for count in (1, 4)]
    left, right = (np.ldexp(random.standard_normal(powers.shape), powers).astype("float16") for powers in exponents)
    assert ((left != 0) & (abs(left) < 2.0**-14)).any(), "some are subnormal"
    given = [left, right, wild(random, 2000, 4)]
    emulated = instruction_for_stored("float16", with_instruction(host_machine(1), "fmlal"))

    def kernel(instruction: Instruction) -> Kernel:
        return step_kernel(lambda total, one, four: instruction.add(total, one.spread(4), four), given[:2], given[2])

    both = (v1, instruction_named("fmlal")), (host_machine(1), emulated)
    there, here = (on(machine, kernel(one), given, tmp_path) for machine, one in both)
    np.testing.assert_array_equal(there.view(np.uint32), here.view(np.uint32))


@emulated
def test_code_for_a_newer_processor_ends_by_an_illegal_instruction(tmp_path: Path) -> None:
    bits, sums = np.zeros((1, 4), np.int32), np.zeros((1, 4), np.float32)
    one = step_kernel(instruction_named("bfdot").add, [bits, bits], sums)
    code = object_code(generate({"k": emit(one)}, named_machine("neoverse-v1").target))
    assert arm.run_kernel(code, "k", "neoverse-v1", [bits, bits, sums, sums], tmp_path).returncode == 0
    assert arm.run_kernel(code, "k", "neoverse-n1", [bits, bits, sums, sums], tmp_path).returncode == -signal.SIGILL


@pytest.mark.skipif(not arm.PYTHON.exists(), reason="no arm64 Python here: `make check-arm` makes one")
def test_a_graph_for_every_kernel_is_right_on_arm(tmp_path: Path) -> None:
    arm.make(tmp_path, "neoverse-v1", ["sample"])
    command = [arm.PYTHON, "-m", "tests.accelerators.tvm.arm", "check", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_instructions_for_two_rows_make_the_bits_of_those_for_one() -> None:
    """Emulated where the processor has none of them: each by the kernel that is planned for it."""
    x, layer = np.random.default_rng(8).standard_normal((20, 40)).astype("float32"), LAYERS["squares"]
    device = accelerator("cpu")
    cases = (product(), "BFLOATS", ("bfdot", "bfmmla"), x), (layer.graph(), "INTEGERS", ("usdot", "usmmla"), layer.given())
    for graph, key, names, given in cases:
        results = [
            device.compile(device.transform(graph), device.full_config({key: name, "PRECISION": "bf16"})).run([given])[0]
            for name in names
        ]
        assert np.array_equal(*results), key


def test_a_generic_processor_has_what_is_added() -> None:
    assert processor("aarch64+i8mm").features == {"neon", "i8mm"}
