"""What links kernels: a compiler, the package ziglang, ld alone; and what happens where there is nothing."""

from __future__ import annotations

import ctypes
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from accelerators.tvm.code import building, codegen, linking
from accelerators.tvm.code.data_object import data_object, takes_data
from accelerators.tvm.kernels.language import Kernel, emit, float32
from accelerators.tvm.machine.machine import host_machine
from graph.text import parse
from partita.cli.main import main

pytest.importorskip("tvm")

NET = parse("graph net(x: float32[64, 300]) -> (y) { a = Relu(x)\n y = Exp(a) }")
X = np.random.default_rng(0).standard_normal((64, 300)).astype("float32")
Y = np.exp(np.maximum(X, 0))


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Lets only these programs and packages be found: by whoever links from now on, and no longer after the test."""
    def programs(*names: str, packages: bool = False) -> None:
        for name in names:
            (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
        if not packages:
            monkeypatch.setattr(linking, "has_ziglang", lambda: False)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    (tmp_path / "bin").mkdir()
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    linking.tools.cache_clear()
    building.forget()
    yield programs
    linking.tools.cache_clear()
    building.forget()


def linked_and_right(tmp_path: Path) -> None:
    model = pt.compile(NET, "cpu")
    assert np.allclose(model(X)[0], Y, rtol=1e-6)
    model.export(tmp_path / "net.partita")
    assert np.allclose(pt.import_model(tmp_path / "net.partita")(X)[0], Y, rtol=1e-6)


def kernel_object() -> bytes:
    """An object file of LLVM's."""
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (1,)), kernel.output("y", float32, (1,))
    y[0] = x[0]
    return codegen.object_code(codegen.generate({"k": emit(kernel)}, host_machine(1).target))


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_data_is_in_the_library_under_its_name(size: int, tmp_path: Path) -> None:
    kernels, data = kernel_object(), bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    if not takes_data(kernels):
        pytest.skip("object files of this system are not ELF's")
    (tmp_path / "data.o").write_bytes(data_object("held", data, kernels))
    (tmp_path / "kernels.o").write_bytes(kernels)
    linking.share(tmp_path / "both.so", [tmp_path / "data.o", tmp_path / "kernels.o"])
    library = ctypes.CDLL(str(tmp_path / "both.so"))
    assert bytes((ctypes.c_ubyte * size).in_dll(library, "held")) == data
    assert hasattr(library, "__tvm_ffi_k")


def test_other_object_files_than_elf_s_of_64_bits_are_left_to_llvm(only, tmp_path, monkeypatch) -> None:
    for start in (b"\xcf\xfa\xed\xfe", b"\x7fELF\x01\x01", b"\x7fELF\x02\x02"):
        assert not takes_data(start + bytes(100))
    if not linking.can_link():
        pytest.skip("no linker here")
    monkeypatch.setattr(linking, "takes_data", lambda _: False)
    linked_and_right(tmp_path)


def test_ld_alone_links(only, tmp_path) -> None:
    if shutil.which("ld") is None:
        pytest.skip("no ld here")
    only("ld")
    assert linking.tools() is not None and linking.tools().compile == ()
    linked_and_right(tmp_path)


def test_the_package_ziglang_links(only, tmp_path) -> None:
    pytest.importorskip("ziglang")
    only(packages=True)
    assert linking.tools() is not None and linking.tools().compile
    linked_and_right(tmp_path)


def test_a_compiler_that_is_named_and_not_there_is_none(only, monkeypatch) -> None:
    only()
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert linking.tools() is None


def test_without_anything_a_model_runs_and_is_said_to_stay_here(only, tmp_path) -> None:
    only()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        models = [pt.compile(NET, "cpu", name=name) for name in ("one", "two")]
    assert {str(each.message).partition(":")[0] for each in caught} == {"nothing that 'cpu' compiles is cached"}
    assert len({str(each.message) for each in caught}) == 1, "the same words, which Python shows once"
    assert all(np.allclose(model(X)[0], Y, rtol=1e-6) for model in models)
    with pytest.raises(pt.PartitaError, match=r"(?s)there is no linker here.*Install a C\+\+ compiler.*partita\[linker\]"):
        models[0].export(tmp_path / "net.partita")
    assert not (tmp_path / "net.partita").exists()


def test_a_model_for_a_file_is_not_compiled(only, tmp_path, monkeypatch, capsys) -> None:
    only()
    pt.save(NET, tmp_path / "net.onnx")
    monkeypatch.setattr(building, "generated", lambda *_: pytest.fail("it compiles"))
    assert main(["compile", str(tmp_path / "net.onnx"), "--devices", "HETERO:cpu,reference", "-o", str(tmp_path / "net.partita")])
    assert "what 'cpu' compiles cannot be written into a file: there is no linker here" in capsys.readouterr().err


def test_a_device_that_gets_nothing_need_not_export(only, tmp_path) -> None:
    only()
    pt.save(NET, tmp_path / "net.onnx")
    command = ["compile", str(tmp_path / "net.onnx"), "--devices", "HETERO:reference,cpu", "-o", str(tmp_path / "net.partita")]
    assert main(command) == 0


def test_the_list_of_devices_says_so(only, capsys) -> None:
    only()
    assert main(["devices", "--json"]) == 0
    (cpu,) = [device for device in json.loads(capsys.readouterr().out)["devices"] if device["name"] == "cpu"]
    assert cpu["detail"].endswith("; no linker here: what it compiles is neither cached nor exported")


def test_a_model_that_starts_at_once_compiles_in_this_process(only) -> None:
    only()
    with pytest.warns(UserWarning, match="nothing that 'cpu' compiles is cached"):
        model = pt.compile(NET, "cpu", {"HETERO": {"START": "now", "START_WITH": "reference"}}).wait(300)
    assert model.properties.devices == ("cpu",) and np.allclose(model(X)[0], Y, rtol=1e-6)
