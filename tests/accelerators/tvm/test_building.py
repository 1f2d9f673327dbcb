"""Machine code: made on several threads, linked into one library, and in memory where nothing links."""

from __future__ import annotations

import importlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import NotSupported
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code import building, codegen, linking
from partita.accelerators.tvm.code.building import Workers
from partita.accelerators.tvm.code.codegen import generate, object_code
from partita.accelerators.tvm.compiled import assembling
from partita.accelerators.tvm.cpu import CpuAccelerator
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.language import Kernel, emit, float32
from partita.accelerators.tvm.lower.lowering import Lowered, lower
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from tests.accelerators.tvm.running import build, check, compiled

pytest.importorskip("tvm")

RNG = np.random.default_rng(5)


def layers(count: int = 6) -> pt.Graph:
    """Products of several sizes, one kernel each."""
    x = pt.variable("x", "float32", (3, 24))
    y = x
    for i in range(count):
        weight = RNG.standard_normal((24 + 8 * i, 32 + 8 * i)).astype("float32") / 10
        y = pt.op("Relu", pt.op("MatMul", y, pt.constant(weight)))
    return pt.Graph([y], inputs=[x])


@pytest.fixture(autouse=True)
def _nothing_is_built() -> None:
    building.forget()


def values() -> list[np.ndarray]:
    return [RNG.standard_normal((3, 24)).astype("float32")]


def test_linked() -> None:
    assert check(layers(), values()).library is not None


@pytest.fixture
def compilers() -> Iterator[None]:
    """Whoever asks for the compiler looks for it anew, now and afterwards."""
    linking.tools.cache_clear()
    yield
    linking.tools.cache_clear()


def test_a_compiler_s_command_may_have_options(compilers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env LC_ALL=C c++ -O1")
    assert check(layers(2), values()).library is not None


def test_a_compiler_that_fails(compilers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.warns(UserWarning, match="cannot link its kernels into a library: OSError: false fails"):
        assert check(layers(4), values()).library is None


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise RuntimeError(f"{path}: failed to map segment")

    monkeypatch.setattr(linking, "load_library", fails)
    with pytest.warns(UserWarning, match="the linked library of its kernels cannot be loaded: .* failed to map segment"):
        assert check(layers(5), values()).library is None


def test_without_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "can_link", lambda triple: False)
    assert check(layers(), values()).library is None


def test_a_linker_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise NotSupported("TVM cannot link its kernels into a library: no crti.o")

    monkeypatch.setattr(assembling, "link", fails)
    with pytest.warns(UserWarning, match="kernels are compiled once more in memory: TVM cannot link .* no crti.o"):
        result = check(layers(), values())
    assert result.library is None


def test_one_thread_or_several_the_code_is_the_same() -> None:
    machine = host_machine(2)
    bodies = {body.key: body for body in (make_body(pt.Graph([n], inputs=[n.inputs[0].node])) for n in _products())}
    lowered = [lower(body, machine).kernels() for body in bodies.values()]
    alone = [object_code(generate(kernels, machine.target)) for kernels in lowered]
    with ThreadPoolExecutor(4) as pool:
        several = [pool.submit(lambda k: object_code(generate(k, machine.target)), k) for k in lowered * 3]
    assert [future.result() for future in several] == alone * 3


def _products() -> list[pt.Node]:
    listed = []
    for i in range(4):
        x = pt.variable("x", "float32", (5, 16 + 8 * i))
        listed.append(pt.op("MatMul", x, pt.constant(np.ones((16 + 8 * i, 40), "float32"))))
    return listed


def test_arguments_are_not_checked_and_what_a_kernel_asserts_is() -> None:
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (1,)), kernel.output("y", float32, (1,))
    kernel.require(x[0] > 0.0, "it is not positive")
    y[0] = x[0]
    result = generate({"k": emit(kernel)}, host_machine(1).target).inspect_source("ll")
    assert "it is not positive" in result
    assert "Mismatched" not in result
    assert "@__tvm_ffi_k(" in result and "main" not in result, "nobody asks for a kernel by another name than its own"


def test_several_callers_compile_at_once() -> None:
    graphs = [layers(2 + i % 3) for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        listed = list(pool.map(compiled, graphs))
    x = values()
    for graph, one in zip(graphs, listed, strict=True):
        assert np.array_equal(one.run(x)[0], CpuAccelerator().compile(graph, _config()).run(x)[0])


def _config() -> dict[str, object]:
    return CpuAccelerator().full_config({})


def lowered_layers(count: int) -> list[Lowered]:
    """The kernel of each layer."""
    machine = host_machine(1)
    return [lower(make_body(part), machine) for part in single_layers(count)]


def single_layers(count: int) -> list[pt.Graph]:
    """Each layer as a graph of its own."""
    parts = []
    for i in range(count):
        x = pt.variable("x", "float32", (3, 24 + 8 * i))
        weight = RNG.standard_normal((24 + 8 * i, 32 + 8 * i)).astype("float32")
        layer = pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(weight)))], inputs=[x])
        parts.append(pt.apply_pass(layer, "InferShape"))
    return parts


def test_bodies_generated_together_are_one_object_file() -> None:
    machine, layers = host_machine(1), lowered_layers(3)
    first, second, _ = built = building.generated(layers, machine)
    assert first.code is second.code
    assert first.names == {symbol for lowered in layers for symbol in lowered.symbols.values()}
    assert building.object_files(built) == [first.code]


def test_a_kernel_that_two_object_files_hold_is_linked_once() -> None:
    machine, (a, b, c) = host_machine(1), lowered_layers(3)
    in_ab, in_bc = building.generated([a, b], machine), building.generated([b, c], machine)
    files = building.object_files([in_ab[0], in_ab[1], in_bc[1]])
    assert files[0] == in_ab[0].code
    assert len(files) == 2
    assert len(files[1]) < len(in_bc[1].code), "the third kernel is generated again, without the second"


def test_a_model_made_of_what_others_compiled_links() -> None:
    check(layers(6), values())
    check(layers(3), values())
    check(layers(8), values())


def test_of_bodies_generated_together_the_one_that_fails_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    real, bad = building.generate, make_body(single_layers(3)[1])
    machine = host_machine(1)
    bad_names = set(lower(bad, machine).symbols.values())

    def generate_some(kernels: dict[str, object], target: object) -> object:
        if bad_names & kernels.keys():
            raise NotSupported("too hard")
        return real(kernels, target)

    monkeypatch.setattr(building, "generate", generate_some)
    bodies = [make_body(part) for part in single_layers(3)]
    with Workers(machine, lambda body: {}, lambda body: None) as workers:
        futures = [workers.build(body) for body in bodies]
    assert [isinstance(future.exception(), NotSupported) for future in futures] == [False, True, False]


def test_bodies_share_a_kernel_whichever_input_was_created_first() -> None:
    def residual(first: str, second: str) -> str:
        x, y = (pt.variable(name, "float32", (3, 24)) for name in (first, second))
        given = {"x": x, "y": y} if first == "x" else {"x": y, "y": x}
        return make_body(pt.Graph([pt.op("Add", pt.op("Relu", given["x"]), given["y"])], inputs=list(given.values()))).key

    assert residual("x", "y") == residual("y", "x")


def test_a_product_with_a_long_epilogue_takes_the_highest_level() -> None:
    """At LLVM's second level four rows by six vectors kept their sums in memory, for the sake of what Erf is computed with."""
    x, weights = pt.variable("x", "float32", (4, 64)), pt.constant(np.ones((64, 96), np.float32))
    product, machine = pt.op("MatMul", x, weights), Machine("cpu", "znver4", 1, 16, 32)
    levels = []
    for node in (product, pt.op("Relu", product), pt.op("Erf", product)):
        draft = draft_kernel(make_body(pt.apply_pass(pt.Graph([node], [x]), "InferShape")), machine)
        assert draft is not None and draft.kernel is not None
        levels.append(draft.kernel.is_thorough)
    assert levels == [False, False, True]


@pytest.mark.parametrize(("arch", "hidden", "level"), [("znver4", (), 2), ("haswell", (), None), ("znver4", ("avx512f",), None)])
def test_kernels_of_our_own_are_optimized_less_where_registers_are_many(
    arch: str, hidden: tuple[str, ...], level: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level that LLVM is asked for: for a kernel of our own language, for one of them that asks for the highest, and for a
    loop of TVM's."""
    asked, function = list[Any](), codegen.function

    def spied(name: str) -> Any:
        real = function(name)
        return real if name != "target.build.llvm" else lambda module, target: asked.append(target) or real(module, target)

    monkeypatch.setattr(codegen, "function", spied)
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (1,)), kernel.output("y", float32, (1,))
    y[0] = x[0]
    machine = Machine("cpu", arch, 1, 16, 32, (), hidden)
    generate({"k": emit(kernel)}, machine.target)
    kernel.is_thorough = True
    generate({"k": emit(kernel)}, machine.target)
    value = pt.variable("x", "float32", (20, 24))
    build(make_body(pt.Graph([pt.op("ReduceLogSum", value)], [value])), machine)
    assert [target.attrs.get("opt-level") for target in asked] == [level, None, None]


def test_large_kernels_are_compiled_at_the_lowest_level_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The bound lies between the product and the others, which are compiled as ever; the note is read from the cache too."""
    x = pt.variable("x", "float32", (13, 37))
    weight = pt.constant(RNG.standard_normal((37, 29)).astype("float32"))
    y = pt.op("Tanh", pt.op("MatMul", x, weight, name="product"), name="tanh")
    graph = pt.Graph([pt.op("ReduceLogSumExp", y, name="sums")], inputs=[x])
    given, config = RNG.standard_normal((13, 37)).astype("float32"), {"CACHE_DIR": str(tmp_path)}
    usual = pt.compile(graph, "cpu", {"CACHE_DIR": ""})
    levels, at_level = dict[str, int | None](), codegen._at_level

    def spied(target: Any, kernels: Any) -> Any:
        chosen = at_level(target, kernels)
        levels.update(dict.fromkeys([name.partition("_")[0] for name in kernels], chosen.attrs.get("opt-level")))
        return chosen

    building.forget()
    monkeypatch.setattr(building, "_built", OrderedDict())
    monkeypatch.setattr(codegen, "_at_level", spied)
    monkeypatch.setattr(importlib.import_module("partita.accelerators.tvm.kernels.language.emit"), "MANY", 800)
    models = [pt.compile(graph, "cpu", config) for _ in range(2)]
    assert levels["matmul"] == 0
    assert len(levels) > 1 and all(level != 0 for name, level in levels.items() if name != "matmul")
    assert usual.report.notes == ()
    for model in models:
        (note,) = model.report.notes
        assert re.fullmatch(r"cpu_0: kernel 'matmul_0' is compiled at LLVM's lowest level: for its [\d,]+ expressions .*", note)
        np.testing.assert_allclose(model(given)[0], pt.compile(graph, "reference")(given)[0], rtol=1e-5)
        np.testing.assert_allclose(model(given)[0], usual(given)[0], rtol=1e-5)


def test_machine_code_of_earlier_models_does_not_stay_without_end(kernels_kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that compiles ever other models grew by the code of each; a model of more kernels than are kept still links."""
    assert kernels_kept <= 256
    monkeypatch.setattr(building, "CACHED", 3)
    for count in (2, 6):
        check(layers(count), [RNG.standard_normal((3, 24)).astype("float32")])
    assert len(building._built) <= 3


@pytest.mark.parametrize(
    ("waiting", "threads", "shares", "taken"),
    [
        ("1", 1, True, [1]), ("111", 1, True, [2, 1]), ("1111", 1, True, [2, 1, 1]), ("1" * 20, 1, True, [8, 6, 3, 2, 1]),
        ("1" * 20, 4, True, [3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]), ("1" * 5, 1, False, [1, 1, 1, 1, 1]),
        ("11011111", 1, True, [2, 1, 3, 1, 1]), ("0011", 1, True, [1, 1, 1, 1]), ("1" * 18, 1, True, [8, 5, 3, 1, 1]),
    ],
)
def test_threads_take_a_share_of_what_waits(
    waiting: str, threads: int, shares: bool, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kernels that go with others (1) several are generated together, fewer towards the end; others are generated alone."""
    monkeypatch.setattr(building, "usable_cores", lambda: threads)
    monkeypatch.setattr(building, "_goes_with_others", lambda job: job == "1")
    workers = Workers(host_machine(1), lambda body: {}, lambda body: None)
    workers._shares = shares
    workers._waiting.extend(waiting)  # type: ignore[arg-type]
    batches = []
    while workers._waiting:
        batches.append(len(workers._taken()))
    assert batches == taken
    assert workers._taken() == []
