"""float32 models in bfloat16 and float16: every kind of product on every set of instructions, held against float64."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.layouts.narrowing import listed
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from partita.graph.interpret import interpret
from partita.graph.types import numpy_dtype
from partita.page.collect import collect
from tests.accelerators.tvm.running import compiled, doubled, error, number, schedules
from tests.close import assert_close
from tests.drawn import some

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

DTYPES = {"bf16": "bfloat16", "f16": "float16"}
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""The most that rounding changes a number, against its size."""

SUM = 2.0**-24
"""The same of each addition in float32."""

NARROW = Machine("cpu", "generic", 1, 8, 16)
"""A processor with vectors of 8 numbers and none of the instructions."""

sets = st.sampled_from(["host", "amx-bf16", "vdpbf16ps", "fma", "narrow"])
seeds = st.integers(0, 2**32 - 1)


def planned(graph: pt.Graph, precision: str, instructions: str, **config: Any) -> Any:
    """The model compiled for a set of instructions: the host's own, one that is asked for, or narrower vectors without any."""
    with pytest.MonkeyPatch.context() as patch:
        if instructions == "narrow":
            patch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: attrs.evolve(NARROW, threads=threads))
        named = instructions if instructions in ("amx-bf16", "vdpbf16ps", "fma") else ""
        return compiled(graph, PRECISION=precision, BFLOATS=named, **config)


def held(graph: pt.Graph, x: Any, precision: str, instructions: str) -> list[str]:
    """Run the model, whose one op of interest is a product, and hold each number against exact sums of rounded numbers: off by
    the additions in float32, and by one rounding. Returns the schedules."""
    model = planned(graph, precision, instructions)
    (result,) = model.run([x])
    dtype = numpy_dtype(DTYPES[precision])
    weights = {node.name: node.value for node in graph.nodes if node.value is not None and node.value.ndim > 1}

    def exact(change: Any) -> Any:
        rounded = _with(graph, weights, dtype, change)
        return interpret(doubled(rounded), [change(x.astype(dtype).astype(np.float64))])[0]

    wanted, sizes = exact(lambda array: array), exact(np.abs)
    depth = max(array.size // array.shape[0] for array in weights.values()) + max(a.shape[0] for a in weights.values())
    bound = ROUNDING[precision] * np.abs(wanted) * 1.01 + (depth + 4) * SUM * sizes + 1e-30
    if precision == "f16":
        bound = bound + 2.0**-24
    off = np.abs(result.astype(np.float64) - wanted)
    assert (off <= bound).all(), (off / bound).max()
    return schedules(model)


def _with(graph: pt.Graph, weights: dict[str, Any], dtype: Any, change: Any) -> pt.Graph:
    """The graph with rounded weights, changed."""
    from partita.graph.rewrite import rewrite

    def visit(node: pt.Node, rewriter: Any) -> None:
        value = change(node.value.astype(dtype).astype(np.float32)) if node.name in weights else node.value
        value = change(value) if node.name not in weights and value is not None and value.dtype == np.float32 else value
        rewriter.keep(node, rewriter.rebuilt(node, value=value))

    return rewrite(graph, visit)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[pt.Graph, Any]:
    """A convolution with a bias of every stride, dilation, padding and grouping, on few or many channels."""
    random = np.random.default_rng(draw(seeds))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    each, per = draw(st.sampled_from([1, 2, 3, 5, 16, 20, 40])), draw(st.sampled_from([1, 3, 8, 16, 24]))
    if draw(st.booleans()):
        groups, each, per = groups * 7, 1, 1
    taps, strides, dilations = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (4, 2, 2))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    span = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    size = [max(s - pads[i] - pads[i + 2], 1) + draw(st.integers(0, 9)) for i, s in enumerate(span)]
    x = pt.variable("x", "float32", (draw(st.integers(1, 2)), groups * each, *size))
    w = pt.constant(random.standard_normal((groups * per, each, *taps)).astype("float32"), name="w")
    b = pt.constant(random.standard_normal(groups * per).astype("float32"), name="b")
    geometry: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    y = pt.op("Conv", x, w, b, kernel_shape=taps, **geometry)
    return pt.Graph([y], inputs=[x]), random.standard_normal(x[0].type.shape).astype("float32")


@some
@given(convolutions(), st.sampled_from(list(DTYPES)), sets)
def test_a_convolution_sums_exactly_but_for_float32(case: tuple[pt.Graph, Any], precision: str, instructions: str) -> None:
    held(*case, precision, instructions)


@some
@given(st.integers(1, 40), st.integers(2, 70), st.integers(1, 70), st.sampled_from(list(DTYPES)), sets, seeds)
def test_a_product_of_matrices(rows: int, depth: int, columns: int, precision: str, instructions: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = pt.variable("x", "float32", (rows, depth))
    w = pt.constant(random.standard_normal((depth, columns)).astype("float32"), name="w")
    b = pt.constant(random.standard_normal(columns).astype("float32"), name="b")
    graph = pt.Graph([pt.op("Gemm", x, w, b)], inputs=[x])
    assert "gemm" in held(graph, random.standard_normal((rows, depth)).astype("float32"), precision, instructions)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("instructions", ["host", "amx-bf16", "vdpbf16ps", "fma", "narrow"])
@pytest.mark.thinned(2)
def test_attention(precision: str, instructions: str) -> None:
    random, keys = np.random.default_rng(2), 37
    q, k, v = (pt.variable(name, "float32", (2, 3, size, 24)) for name, size in zip("qkv", (20, keys, keys), strict=True))
    mask = pt.variable("mask", "float32", (2, 1, 1, keys))
    scores = pt.op("Mul", pt.op("MatMul", q, pt.op("Transpose", k, perm=[0, 1, 3, 2])), number(0.2))
    mixed = pt.op("MatMul", pt.op("Softmax", pt.op("Add", scores, mask)), v)
    graph = pt.Graph([mixed], inputs=[q, k, v, mask])
    arrays = [random.standard_normal(n[0].type.shape).astype("float32") for n in (q, k, v)]
    arrays.append(np.where(random.random((2, 1, 1, keys)) < 0.3, np.finfo(np.float32).min, 0).astype("float32"))
    model = planned(graph, precision, instructions)
    (result,) = model.run(arrays)
    (wanted,) = interpret(doubled(graph), [array.astype(np.float64) for array in arrays])
    assert error(result, wanted) <= 6 * ROUNDING[precision] and "attention" in schedules(model)


def layers() -> pt.Graph:
    """Convolutions and all that stands between them: depthwise, pools, joins, a residual addition, a classifier."""
    random = np.random.default_rng(4)

    def weights(*shape: int) -> pt.Node:
        return pt.constant((random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype("float32"))

    def conv(x: Any, outs: int, ins: int, size: int, **geometry: Any) -> pt.Node:
        bias = pt.constant(random.standard_normal(outs).astype("float32"))
        return pt.op("Conv", x, weights(outs, ins, size, size), bias, kernel_shape=[size, size], **geometry)

    x = pt.variable("x", "float32", (1, 3, 32, 32))
    first = pt.op("Relu", conv(x, 32, 3, 3, strides=[2, 2], pads=[1] * 4))
    deep = pt.op("HardSwish", conv(first, 32, 1, 3, group=32, pads=[1] * 4))
    halved = pt.op("MaxPool", deep, kernel_shape=[2, 2], strides=[2, 2])
    sides = [pt.op("Relu", conv(halved, 32, 32, k, pads=[k // 2] * 4)) for k in (1, 3)]
    joined = pt.op("Concat", *sides, axis=1)
    summed = pt.op("Relu", pt.op("Add", conv(joined, 64, 64, 1), joined))
    mean = pt.op("Flatten", pt.op("GlobalAveragePool", summed))
    dense = pt.op("Gemm", mean, weights(10, 64), pt.constant(np.zeros(10, "float32")), transB=1)
    return pt.apply_pass(pt.Graph([dense], inputs=[x]), "InferShape")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("instructions", ["host", "amx-bf16", "vdpbf16ps", "narrow"])
def test_a_network_stays_narrow_between_its_kernels(precision: str, instructions: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype("float32")
    model = planned(layers(), precision, instructions)
    (result,), (wanted,) = model.run([x]), compiled(layers()).run([x])
    assert result.dtype == np.float32 and error(result, wanted) <= 8 * ROUNDING[precision]
    between = {entry.type.dtype for kernel in model.kernels() for entry in kernel.body.outputs}
    assert between == {DTYPES[precision], "float32"}
    assert [k.schedule for k in model.kernels() if k.body.outputs[0].type.dtype == "float32"] == ["gemm"], "the last alone"


def test_emulated_and_real_instructions_make_the_same_bits() -> None:
    if Used("vdpbf16ps") not in host_machine(1).instructions:
        pytest.skip("this processor has no vdpbf16ps")
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype("float32")
    emulated = attrs.evolve(host_machine(1), instructions=(Used("vdpbf16ps", is_emulated=True),))
    real = compiled(layers(), PRECISION="bf16", BFLOATS="vdpbf16ps", NUM_THREADS=1).run([x])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: emulated)
        other = compiled(layers(), PRECISION="bf16", NUM_THREADS=1).run([x])
    np.testing.assert_array_equal(real[0].view(np.uint32), other[0].view(np.uint32))


def test_weights_are_stored_once_in_the_narrow_type() -> None:
    model = compiled(layers(), PRECISION="bf16")
    wide = sum(weight.nbytes for weight in compiled(layers()).export_weights())
    assert sum(weight.nbytes for weight in model.export_weights()) <= 0.56 * wide


def test_float32_is_the_default_and_fast_is_what_the_processor_does_best() -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype("float32")
    plain, asked = compiled(layers()).run([x]), compiled(layers(), PRECISION="f32").run([x])
    np.testing.assert_array_equal(plain[0], asked[0])
    machines = [Machine("cpu", arch, 1, 16, 32, (Used("vdpbf16ps"),)) for arch in ("znver4", "sapphirerapids")]
    assert list(map(_precision, machines)) == ["bfloat16", "float32"]
    assert _precision(NARROW) == "float32"


def _precision(machine: Machine) -> str:
    from partita.accelerators.interface.registry import accelerator

    cpu: Any = accelerator("cpu")
    return str(cpu.configured(cpu.full_config({"PRECISION": "fast"})).precision(machine))


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("PRECISION", "f8", "PRECISION cannot be 'f8'\n  It can be f32, f16, bf16, fast"),
        ("BFLOATS", "avx", "BFLOATS cannot be 'avx'\n  Give one of amx-bf16, vdpbf16ps, bfmmla, bfdot, fma, or nothing"),
    ],
)
def test_values_that_the_keys_cannot_have(key: str, value: str, text: str) -> None:
    with pytest.raises(pt.BadConfig) as caught:
        pt.compile(layers(), "cpu", {key: value})
    assert text in str(caught.value)


def test_masks_of_very_large_numbers_stay_numbers_in_float16() -> None:
    x, w = pt.variable("x", "float32", (4, 32)), pt.constant(np.eye(32, dtype="float32"))
    mask = pt.op("Mul", pt.op("Sub", number(1.0), pt.variable("keep", "float32", (4, 32))), number(-3.4e38))
    graph = pt.Graph([pt.op("Softmax", pt.op("Add", pt.op("MatMul", x, w), mask))])
    keep = np.zeros((4, 32), "float32")
    keep[1:, :5] = 1
    (result,) = compiled(graph, PRECISION="f16").run([np.ones((4, 32), "float32"), keep])
    assert_close(result.sum(-1), 1, atol=0.01)
    assert result[0].min() > 0 and (result[1:, 5:] == 0).all()


def test_a_table_that_is_also_a_matrix_is_not_turned_in_each_run() -> None:
    """As in a decoder: its rows are gathered, and the last product is by the table, turned."""
    random = np.random.default_rng(8)
    table = pt.constant((random.standard_normal((300, 64)) / 8).astype("float32"), name="table")
    words = pt.variable("words", "int64", (9,))
    hidden = pt.op("Gelu", pt.op("MatMul", pt.op("Gather", table, words), pt.constant(np.eye(64, dtype="float32"))))
    graph = pt.Graph([pt.op("MatMul", hidden, pt.op("Transpose", table, perm=[1, 0]))], inputs=[words])
    model = compiled(graph, PRECISION="bf16")
    assert {"Transpose"} not in [{str(node.op) for node in kernel.body.nodes if node.is_op} for kernel in model.kernels()]
    given = np.arange(9)
    (result,), (wanted,) = model.run([given]), compiled(graph).run([given])
    assert error(result, wanted) <= 8 * ROUNDING["bf16"]


def test_an_attention_that_guards_its_rows_is_one_kernel() -> None:
    q, k, v = (pt.variable(name, "float32", (1, 2, 20, 32)) for name in "qkv")
    weights = pt.op("Softmax", pt.op("MatMul", q, pt.op("Transpose", k, perm=[0, 1, 3, 2])))
    guarded = pt.op("Where", pt.op("IsNaN", weights), number(0.0), weights)
    graph = pt.Graph([pt.op("MatMul", guarded, v)], inputs=[q, k, v])
    assert schedules(compiled(graph, PRECISION="bf16")).count("attention") == 1


def test_the_report_and_the_profile_say_what_is_narrow_and_what_is_not() -> None:
    x, w = pt.variable("x", "float32", (4, 32)), pt.constant(np.eye(32, dtype="float32"))
    total = pt.op("CumSum", pt.op("MatMul", x, w, name="product"), pt.constant(np.int64(1)), name="running")
    graph = pt.Graph([total], inputs=[x])
    config = {"PRECISION": "bf16", "BFLOATS": "fma", "PERF_COUNT": True}
    model = pt.compile(graph, "cpu", config)
    first = "cpu_0: 1 op in bfloat16, products by float32 instructions"
    notes = f"{first}\ncpu_0: in float32, since CumSum would lose precision: running"
    assert notes in str(model.report) and "\n".join(model.report.notes) == notes
    model(np.ones((4, 32), "float32"))
    kinds = {row.layer_type: row.exec_type.rpartition("_")[0] for row in model.profile().rows if row.status == "EXECUTED"}
    assert any("bf16" in kind for kind in kinds.values()) and any("Cast" in layer for layer in kinds), kinds
    plain = pt.compile(graph, "cpu")
    assert plain.report.notes == () and "types" not in str(plain.profile(np.ones((4, 32), "float32")))


def summed() -> pt.Graph:
    """A product, and what stays in float32 after it."""
    x, w = pt.variable("x", "float32", (4, 32)), pt.constant(np.eye(32, dtype="float32"))
    product = pt.op("Relu", pt.op("MatMul", x, w, name="product"), name="positive")
    return pt.Graph([pt.op("CumSum", product, pt.constant(np.int64(1)), name="running")], inputs=[x])


def test_kernels_say_what_they_read_and_store_and_why_in_float32(tmp_path: Any) -> None:
    model = pt.compile(summed(), "cpu", {"PRECISION": "bf16", "BFLOATS": "fma"})
    model.export(tmp_path / "summed.partita")
    for one in (model, pt.import_model(tmp_path / "summed.partita")):
        kernels = {kernel.nodes[-1]: (kernel.types, kernel.why_wide) for kernel in one.kernels()}
        assert kernels["positive"] == ("bfloat16 -> float32", "")
        assert kernels["running"] == ("float32", "CumSum would lose precision")
        profile = one.profile(np.ones((4, 32), "float32"))
        assert "bfloat16 -> float32" in {row.types for row in profile.rows} and "types: bfloat16" in str(profile)


def test_a_product_that_is_not_quantized_among_others_says_why() -> None:
    x, weight = pt.variable("x", "float32", (3, 32)), np.eye(32, dtype="int8")
    scale, point = pt.constant(np.float32(0.1)), pt.constant(np.uint8(3))
    rounded = pt.op("DequantizeLinear", pt.op("QuantizeLinear", x, scale, point), scale, point)
    whole = pt.op("MatMul", rounded, pt.op("DequantizeLinear", pt.constant(weight), scale), name="whole")
    plain = pt.op("MatMul", whole, pt.constant(weight.astype("float32")), name="plain")
    kernels = {name: kernel for kernel in pt.compile(pt.Graph([plain]), "cpu").kernels() for name in kernel.nodes}
    assert kernels["whole"].types == "uint8, int8 -> float32" and kernels["whole"].why_wide == ""
    assert kernels["plain"].types == "float32" and kernels["plain"].why_wide == "nothing that it reads is quantized"


def test_the_page_says_what_each_kernel_reads_and_stores() -> None:
    scene = collect(pt.compile(summed(), "cpu", {"PRECISION": "bf16", "BFLOATS": "fma"}))
    details = {item.name: item.details for item in scene.items if item.kind == "op"}
    assert "its kernel: bfloat16 -> float32" in details["product"] and "its kernel: bfloat16 -> float32" in details["positive"]
    assert "in float32, since CumSum would lose precision" in details["running"]
    assert not any("its kernel" in line for item in collect(pt.compile(summed(), "cpu")).items for line in item.details)


def test_what_fast_took_is_in_the_report_and_travels(tmp_path: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: attrs.evolve(NARROW, threads=threads))
        model = pt.compile(layers(), "cpu", {"PRECISION": "fast", "CACHE_DIR": str(tmp_path)})
        again = pt.compile(layers(), "cpu", {"PRECISION": "fast", "CACHE_DIR": str(tmp_path)})
    said = "cpu_0: PRECISION fast: float32, since this processor multiplies nothing narrower faster"
    assert model.report.notes == (said,) and again.report.notes == (said,)


BOUNDS = {
    "squeezenet": 0.04, "shufflenet": 0.05, "inception_v1": 0.03, "bvlc_alexnet": 0.03, "zfnet512": 0.03, "vgg19": 0.03,
    "densenet121": 0.15, "inception_v2": 0.4, "resnet50": 0.4,
}
"""How far answers in bfloat16 may be from those in float32, as a part of the largest number: deep models of random weights
amplify what each rounding changes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_a_model_of_the_zoo_in_bfloat16(name: str) -> None:
    graph = pt.load(f"zoo:{name}")
    value_type: Any = graph.inputs[0].output_types[0]
    x = np.random.default_rng(3).standard_normal(value_type.shape).astype("float32")
    narrow, wide = (pt.compile(graph, "cpu", {"PRECISION": precision})(x)[0] for precision in ("bf16", "f32"))
    assert 0 < error(narrow, wide) <= BOUNDS[name]


def test_few_names_are_listed_and_the_others_counted() -> None:
    assert listed("abcdefgh") == listed("abcdefghaa") == "a, b, c, d, e, f, g, h"
    assert listed("abcdefghij") == "a, b, c, d, e, f, g, h and 2 more"
