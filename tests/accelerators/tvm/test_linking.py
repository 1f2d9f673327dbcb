"""What links kernels: a compiler, the package ziglang, ld alone; and what happens where there is nothing."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code import building, codegen, linking
from partita.accelerators.tvm.code.elf import data_object, is_elf
from partita.accelerators.tvm.kernels.language import Intrinsic, Kernel, emit, float32
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from partita.accelerators.tvm.run.pool import pool_object
from partita.cli.main import main
from partita.graph.readers.text import parse

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


NOWHERE = Intrinsic(
    "nowhere", lambda types: types[0], "a value",
    lambda script, dtype, given: script.call_pure_extern(dtype, "partita_nowhere", *given),
)
"""Calls a function that no library defines."""


def kernels(calls: Intrinsic | None = None) -> dict[str, object]:
    """A kernel that copies a value, or calls a function with it."""
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (1,)), kernel.output("y", float32, (1,))
    y[0] = x[0] if calls is None else calls(x[0])
    return {"k": emit(kernel)}


def kernel_object(calls: Intrinsic | None = None) -> bytes:
    """An object file of LLVM's."""
    return codegen.object_code(codegen.generate(kernels(calls), host_machine(1).target))


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_data_is_in_the_library_under_its_name(size: int, tmp_path: Path) -> None:
    kernels, data = kernel_object(), bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    if not is_elf(kernels):
        pytest.skip("object files of this system are not ELF's")
    (tmp_path / "data.o").write_bytes(data_object("held", data, kernels))
    (tmp_path / "kernels.o").write_bytes(kernels)
    linking.share(tmp_path / "both.so", [tmp_path / "data.o", tmp_path / "kernels.o"])
    library = ctypes.CDLL(str(tmp_path / "both.so"))
    assert bytes((ctypes.c_ubyte * size).in_dll(library, "held")) == data
    assert hasattr(library, "__tvm_ffi_k")


def test_other_object_files_than_elf_s_of_64_bits_are_left_to_llvm(only, tmp_path, monkeypatch) -> None:
    for start in (b"\xcf\xfa\xed\xfe", b"\x7fELF\x01\x01", b"\x7fELF\x02\x02"):
        assert not is_elf(start + bytes(100))
    if not linking.can_link():
        pytest.skip("no linker here")
    monkeypatch.setattr(linking, "is_elf", lambda _: False)
    linked_and_right(tmp_path)


def test_ld_alone_links(only, tmp_path) -> None:
    if shutil.which("ld") is None:
        pytest.skip("no ld here")
    only("ld")
    assert linking.tools() is not None and linking.tools().compile == ()
    linked_and_right(tmp_path)


@pytest.mark.parametrize("linker", ["", "g++", "clang++", "ziglang"])
def test_a_program_without_kernels_is_linked(only, tmp_path, monkeypatch, linker: str) -> None:
    """TVM writes C instead of an object file then."""
    if linker == "ziglang":
        pytest.importorskip("ziglang")
        only(packages=True)
    elif linker:
        monkeypatch.setenv("CXX", linker)
    if linking.tools() is None or not linking.tools().compile:
        pytest.skip(f"no {linker or 'compiler'} here")
    graph = pt.Graph([pt.op("Shape", pt.variable("x", "float32", (3, 4)), start=2, end=1)])
    model = pt.compile(graph, "cpu")
    model.export(tmp_path / "net.partita")
    assert pt.import_model(tmp_path / "net.partita")(X[:3, :4])[0].shape == (0,)


def test_the_linker_behind_a_compiler_links(only, tmp_path, monkeypatch) -> None:
    """By itself it takes a third of the time, and functions of numbers still have the versions that the compiler would bind."""
    tools = linking.tools()
    if tools is None or not tools.compile or "ld" not in Path(tools.link[0]).name:
        pytest.skip("no compiler on Linux that says what links for it")
    linked_and_right(tmp_path)
    (tmp_path / "both.c").write_text("float expf(float); float both(float x) { return expf(x); }")
    command = [tools.compile[0], "-x", "c", "-fPIC", "-c", tmp_path / "both.c", "-o", tmp_path / "both.o"]
    linking.subprocess.run(command, check=True)
    linking.share(tmp_path / "direct.so", [tmp_path / "both.o"])
    monkeypatch.setenv("CXX", tools.compile[0])
    linking.tools.cache_clear()
    assert linking.tools().link[0] == tools.compile[0], "a compiler that is named may stand for more than its linker"
    linking.share(tmp_path / "through.so", [tmp_path / "both.o"])
    bound = [re.findall(rb"GLIBC_[\d.]+|libm[\w.]*", (tmp_path / name).read_bytes()) for name in ("direct.so", "through.so")]
    assert bound[0] and {*bound[0]} <= {*bound[1]}
    linked_and_right(tmp_path)


def test_a_compiler_that_does_not_say_what_links_is_the_linker(only, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(linking, "_output_of", lambda *_: "")
    tools = linking.tools()
    if tools is None or not tools.compile:
        pytest.skip("no compiler here")
    assert tools.link[0] == tools.compile[0] and "-shared" in tools.link
    linked_and_right(tmp_path)


@pytest.mark.parametrize("programs", [None, ("ld",)], ids=["whatever is here", "ld alone"])
def test_a_subgraph_of_views_alone_is_linked(programs: tuple[str, ...] | None, only, tmp_path) -> None:
    """It has no kernels, and TVM would write its program as C, which a linker does not read."""
    if programs is not None:
        if shutil.which("ld") is None:
            pytest.skip("no ld here")
        only(*programs)
    if not linking.can_link():
        pytest.skip("no linker here")
    x = pt.variable("x", "float32", (2, 3))
    model = pt.compile(pt.Graph([pt.op("Reshape", x, pt.constant(np.array([3, 2])))]), "cpu")
    model.export(tmp_path / "view.partita")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = pt.import_model(tmp_path / "view.partita")(array)[0]
    assert result.tolist() == array.reshape(3, 2).tolist()


def test_the_package_ziglang_links(only, tmp_path) -> None:
    pytest.importorskip("ziglang")
    only(packages=True)
    assert linking.tools() is not None and linking.tools().compile
    linked_and_right(tmp_path)


@pytest.mark.parametrize("linker", ["g++", "clang++", "ld", "ld.lld", "ziglang"])
def test_a_function_that_is_nowhere_is_an_error_of_the_link(only, tmp_path, monkeypatch, linker: str) -> None:
    if linker == "ziglang":
        pytest.importorskip("ziglang")
        only(packages=True)
    elif shutil.which(linker) is None:
        pytest.skip(f"no {linker} here")
    elif "++" in linker:
        monkeypatch.setenv("CXX", linker)
    else:
        only(linker)
    assert linker in str(linking.tools())
    (tmp_path / "good.o").write_bytes(kernel_object())
    (tmp_path / "bad.o").write_bytes(kernel_object(NOWHERE))
    linking.share(tmp_path / "good.so", [tmp_path / "good.o"])
    with pytest.raises(CompileError, match=r"its kernels call partita_nowhere, which no library defines\n.*please report it"):
        linking.share(tmp_path / "bad.so", [tmp_path / "bad.o"])


def test_without_a_linker_it_is_an_error_of_the_compilation(only) -> None:
    only()
    target = host_machine(1).target
    building.compile_kernels(kernels(), target)
    with pytest.raises(CompileError, match="its kernels call partita_nowhere, which no library defines"):
        building.compile_kernels(kernels(NOWHERE), target)


def test_a_library_from_elsewhere_that_lacks_a_function_is_not_loaded(only, tmp_path, monkeypatch) -> None:
    """Where the C library is older, say: without this the process ended at the kernel's first call."""
    if not linking.can_link():
        pytest.skip("no linker here")
    monkeypatch.setattr(linking, "check_symbols", lambda _: None)
    (tmp_path / "bad.o").write_bytes(kernel_object(NOWHERE))
    linking.share(tmp_path / "bad.so", [tmp_path / "bad.o"])
    with pytest.raises(pt.PartitaError, match="cannot be loaded: OSError: .*undefined symbol: partita_nowhere"):
        linking.load((tmp_path / "bad.so").read_bytes())


def rounded(rows: int | str) -> pt.Graph:
    """A graph that rounds to bfloat16 inside; neither its input nor its output has that type."""
    x = pt.variable("x", "float32", (rows, 64))
    return pt.apply_pass(pt.Graph([pt.op("Cast", pt.op("Cast", pt.op("Relu", x), to=16), to=1)]), "InferShape")


@pytest.mark.parametrize("rows", [8, "N"])
def test_values_rounded_to_bfloat16_inside_of_a_kernel(rows: int | str) -> None:
    graph, x = rounded(rows), np.random.default_rng(0).standard_normal((8, 64)).astype("float32")
    np.testing.assert_array_equal(pt.compile(graph, "cpu")(x)[0], pt.compile(graph, "reference")(x)[0])


def test_the_function_that_rounds_is_there_on_a_processor_with_the_instruction(tmp_path) -> None:
    if not linking.can_link():
        pytest.skip("no linker here")
    built = building.build(make_body(rounded(8)), Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("vdpbf16ps"),)))
    (tmp_path / "k.o").write_bytes(built.code)
    linking.share(tmp_path / "k.so", [tmp_path / "k.o"])


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


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
def test_compilers_write_aside_where_their_result_is(tmp_path, monkeypatch) -> None:
    """g++ says that it cannot create a file in such a TMPDIR, where a remedy named a compiler to install."""
    monkeypatch.setenv("TMPDIR", "/proc")
    pool_object.cache_clear()
    threads = pool_object("g++", "-DPARTITA_PLAIN_SYMBOLS")
    assert threads is not None
    (tmp_path / "part.o").write_bytes(threads)
    linking.share(tmp_path / "library.so", [tmp_path / "part.o"])


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


NO_ROOM = "No space left on device"


@pytest.mark.parametrize("error", [OSError(28, NO_ROOM), OSError(f"ld: final link failed: {NO_ROOM}")])
def test_a_full_folder_of_temporary_files_asks_for_no_compiler(
    error: OSError, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(linking, "share", full)
    with pytest.warns(UserWarning, match=f"there is no room to link its kernels: .*{NO_ROOM}") as caught:
        model = pt.compile(NET, "cpu", {"CACHE_DIR": tmp_path})
    assert np.allclose(model(X)[0], Y, rtol=1e-4)
    for warning in caught:
        assert "set TMPDIR to another folder" in str(warning.message) and "C++ compiler" not in str(warning.message)


def test_a_compiler_that_fails_names_no_linker() -> None:
    assert linking._output_of("false") == "" and linking._output_of("echo", "ld") == "ld"


def test_the_linker_behind_a_compiler_is_called_where_both_of_its_files_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker, functions, own = tmp_path / "ld", tmp_path / "libm.so.6", tmp_path / "libgcc.a"
    for name in (linker, functions, own):
        name.write_text("")
        name.chmod(0o755)
    said = {"prog-name=ld": linker, "file-name=libm.so.6": functions, "libgcc-file-name": own}
    monkeypatch.setattr(linking, "_output_of", lambda *command: str(said[command[-1].removeprefix("-print-")]))
    tools = linking._linker_of(("cc", "-O2"))
    assert tools == linking.Tools(
        (str(linker), "-shared", "--as-needed"), (str(functions), str(own)), ("cc", "-O2", "-DPARTITA_PLAIN_SYMBOLS")
    )
    for missing in (linker, functions):
        missing.unlink()
        assert linking._linker_of(("cc", "-O2")) is None
        missing.write_text("")
        missing.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "data", "expected"), [("weights", b"12345", 2170052484), ("a", bytes(range(64)), 2272623202)]
)
def test_an_object_file_of_data_is_the_one_that_linkers_take(name: str, data: bytes, expected: int) -> None:
    """Its header, sections, strings and symbol are those of a file that was linked."""
    like = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, 64, 7, 64, 0, 0, 64, 1, 0)
    written = data_object(name, data, like)
    assert is_elf(written) and zlib.crc32(written) == expected

