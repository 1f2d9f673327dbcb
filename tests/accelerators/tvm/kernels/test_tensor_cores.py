"""Kernels for the tensor cores of GPUs: run in numpy as they are written, by the tables of the PTX manual, and assembled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.attention import gpu
from partita.accelerators.tvm.kernels.attention.gpu_tensor import TensorCut, tensor_cuts
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.convolution import gpu_conv
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    BlockTile,
    TensorTile,
    Work,
    ranking,
    round_to_tf32,
    tensor_tiles,
)
from partita.accelerators.tvm.kernels.language import Kernel, uint16, uint32
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.language.warp_intrinsics import COPIES, WAITS, close_copies, load_matrices
from partita.accelerators.tvm.kernels.shared.element_access import Shape
from partita.accelerators.tvm.machine.gpu import cuda_gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.interpret import interpret
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.lockstep import Hazard, launched, run, without_barriers
from tests.accelerators.tvm.running import compiled, doubled

pytest.importorskip("tvm")

SMALL = [
    tile for size in (2, 4) for tile in tensor_tiles(cuda_gpu("sm_80"), size)
    if tile.rows * tile.columns <= 64 * 32 and tile.threads <= 128
]
STEADY = [tile for tile in SMALL if tile.slice_threads % tile.columns == 0]
EXAMPLES = settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
HALVES = st.sampled_from(["float16", "bfloat16"])
TYPES = {2: ("float16", "bfloat16"), 4: ("float32",)}
"""The element types by their bytes."""

sizes_of_numbers = pytest.mark.parametrize("size", TYPES)
STEPS = {"bfloat16": (2.0**-8, 2e-4), "float16": (2.0**-11, 2e-4), "float32": (2.0**-20, 1e-6)}
"""How much a result is off by its rounding, and otherwise."""


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Of float32 those that TF32 has too."""
    if dtype == "float32":
        return numbers(*shape, dtype="float16", seed=seed).astype("float32")
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(numpy_dtype(dtype))


def matches(out: pt.Node, schedule: str, *inputs: Array, off: float = 0.0) -> None:
    """The kernel of a body computes in numpy what the ops do in double precision, but for the rounding of the result and a
    difference that any number may have."""
    body = make_body(pt.apply_pass(pt.Graph([out], opsets={"": 22}), "InferShape"))
    draft = draft_kernel(body, gpu_machine("sm_80", takes_tf32=True))
    assert draft is not None and draft.kernel is not None and draft.schedule == schedule
    held = [*inputs, *body.weights]
    laid_out = [draft.packs[i](array) if i in draft.packs else array for i, array in enumerate(held)]
    with np.errstate(all="ignore"):
        (result,) = run(draft.kernel, laid_out)
    (wanted,) = interpret(doubled(pt.Graph([out], opsets={"": 22})), [array.astype("d") for array in inputs])
    step, else_off = STEPS[result.dtype.name]
    np.testing.assert_allclose(result.astype("d").reshape(wanted.shape), wanted, rtol=1.1 * step, atol=max(off, else_off))


def any_cut(size: int, tiles: Sequence[TensorTile], data: st.DataObject) -> tuple[str, TensorTile]:
    """An element type of this size, and one of its tiles."""
    return data.draw(st.sampled_from(TYPES[size])), data.draw(st.sampled_from([tile for tile in tiles if tile.bytes == size]))


@sizes_of_numbers
@EXAMPLES
@given(st.data(), st.integers(1, 35), st.sampled_from([3, 16, 34, 60, 72]), st.integers(2, 20))
def test_products_of_any_cut(size: int, data: st.DataObject, rows: int, depth: int, columns: int) -> None:
    """Odd sizes, with a bias and an activation behind; depths that are copied by 16, 8 and 4 bytes, and number by number."""
    dtype, tile = any_cut(size, SMALL, data)
    x = pt.variable("x", dtype, (rows, depth))
    product = pt.op("MatMul", x, pt.constant(numbers(depth, columns, dtype=dtype)))
    out = pt.op("Relu", pt.op("Add", product, pt.constant(numbers(columns, dtype=dtype, seed=1))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        matches(out, "gpu_gemm_on_tensor_cores", numbers(rows, depth, dtype=dtype, seed=2))


@sizes_of_numbers
@EXAMPLES
@given(st.data())
def test_convolutions_of_any_cut(size: int, data: st.DataObject) -> None:
    """Odd sizes, strides, pads, groups, one and two dimensions; the depth by taps and by channels; pixels that are copied, and
    those that are read one by one."""
    dtype, tile = any_cut(size, STEADY, data)
    draw, rank = data.draw, data.draw(st.integers(1, 2))
    groups, inner, outs, batch = (draw(st.sampled_from(few)) for few in ([1, 2], [1, 3, 16, 32], [2, 17], [1, 2]))
    sizes, tap = [draw(st.sampled_from([4, 6, 7])) for _ in range(rank)], draw(st.sampled_from([1, 3]))
    stride, pad = draw(st.integers(1, 2)), draw(st.integers(0, 1)) if tap > 1 else 0
    image = pt.variable("x", dtype, (batch, groups * inner, *sizes))
    weight = pt.constant(numbers(groups * outs, inner, *[tap] * rank, dtype=dtype))
    bias = pt.constant(numbers(groups * outs, dtype=dtype, seed=1))
    out = pt.op("Relu", pt.op("Conv", image, weight, bias, strides=[stride] * rank, pads=[pad] * 2 * rank, group=groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_conv, "best_tile", lambda image, machine, size: tile)
        matches(out, "gpu_convolution_on_tensor_cores", numbers(batch, groups * inner, *sizes, dtype=dtype, seed=2))


MASKS = "none", "causal", "keys", "all keys"


@EXAMPLES
@given(HALVES, st.sampled_from([1, 2, 4]), st.sampled_from([16, 32, 64]), st.sampled_from(MASKS), st.data())
@pytest.mark.slow
def test_attention_of_any_cut(dtype: str, warps: int, step: int, masked: str, data: st.DataObject) -> None:
    """Lengths that leave rests, from one tile of keys to several; depths that are copied by 16 bytes, by less, and number by
    number; keys and values whichever way they lie; masked keys, and rows with no key at all."""
    draw = data.draw
    rows, keys = draw(st.integers(1, 70)), draw(st.integers(16, 140))
    depth, columns = (draw(st.sampled_from([16, 17, 24, 32, 38, 64])) for _ in range(2))
    layouts = [draw(st.sampled_from([(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)])) for _ in range(3)]
    cut = TensorCut(warps, step)
    check_attention(dtype, cut, (rows, keys, depth, columns), masked, layouts)


@pytest.mark.parametrize("depth", [80, 96, 128])
@pytest.mark.thinned(2)
def test_attention_of_large_heads(depth: int) -> None:
    """The cut that is taken for them."""
    cut = next(tensor_cuts(cuda_gpu("sm_80"), 2, 33, 50, depth, depth))
    check_attention("bfloat16", cut, (33, 50, depth, depth), "causal", [(0, 2, 1, 3)] * 3)


def check_attention(
    dtype: str, cut: TensorCut, sizes: tuple[int, int, int, int], masked: str, layouts: Sequence[tuple[int, ...]]
) -> None:
    """Two sequences of two heads; `layouts` say how queries, keys and values lie in memory."""
    rows, keys, depth, columns = sizes
    kind = numpy_dtype(dtype).type
    arrays, matrices = laid_out([(rows, depth), (keys, depth), (keys, columns)], layouts, dtype)
    query, key, value = matrices
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = pt.op("Mul", scores, pt.constant(kind(0.5)))
    if masked == "causal":
        arrays.append(np.where(np.arange(keys) > np.arange(rows)[:, None], kind(-np.inf), kind(0))[None, None])
        scores = pt.op("Add", scores, pt.variable("m", dtype, arrays[-1].shape))
    elif masked != "none":
        arrays.append(np.broadcast_to(np.arange(keys) >= (keys if masked == "all keys" else keys - 3), (1, 1, 1, keys)).copy())
        scores = pt.op("Where", pt.variable("m", "bool", arrays[-1].shape), scores, pt.constant(kind(-np.inf)))
    weights = pt.op("Softmax", scores, axis=-1)
    if masked == "all keys":
        weights = pt.op("Where", pt.op("IsNaN", weights), pt.constant(kind(0)), weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "tensor_cuts", lambda *sizes: iter([cut]))
        off = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
        matches(pt.op("MatMul", weights, value), "gpu_attention_on_tensor_cores", *arrays, off=off)


def laid_out(shapes: Sequence[Shape], layouts: Sequence[tuple[int, ...]], dtype: str) -> tuple[list[Array], list[pt.Node]]:
    """Matrices of two sequences of two heads, whose dimensions stand in memory in this order: numbers, and the values."""
    arrays, matrices = list[Array](), list[pt.Node]()
    for i, (shape, order) in enumerate(zip(shapes, layouts, strict=True)):
        arrays.append(numbers(*[(2, 2, *shape)[d] for d in order], dtype=dtype, seed=i) * numpy_dtype(dtype).type(2))
        variable = pt.variable("qkv"[i], dtype, arrays[-1].shape)
        matrices.append(pt.op("Transpose", variable, perm=[int(d) for d in np.argsort(order)]))
    return arrays, matrices


@sizes_of_numbers
@EXAMPLES
@given(st.data())
def test_products_of_two_values_of_any_cut(size: int, data: st.DataObject) -> None:
    """Both matrices whichever way they lie, with a scaling, an activation and another order of the result."""
    dtype, tile = any_cut(size, SMALL, data)
    draw = data.draw
    rows, depth, columns = draw(st.integers(1, 35)), draw(st.sampled_from([3, 16, 34, 60, 72])), draw(st.integers(2, 20))
    layouts = [draw(st.sampled_from([(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)])) for _ in range(2)]
    arrays, (left, right) = laid_out([(rows, depth), (depth, columns)], layouts, dtype)
    out = pt.op("Relu", pt.op("MatMul", pt.op("Mul", left, pt.constant(numpy_dtype(dtype).type(0.5))), right))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        matches(pt.op("Transpose", out, perm=[0, 2, 1, 3]), "gpu_product_on_tensor_cores", *arrays)


def product(dtype: str, rows: int = 128, depth: int = 768, columns: int = 768) -> pt.Node:
    """A product of BERT's."""
    weight = pt.constant(np.ones((depth, columns), numpy_dtype(dtype)))
    return pt.op("Gelu", pt.op("MatMul", pt.variable("x", dtype, (rows, depth)), weight))


def test_which_gpus_have_tensor_cores() -> None:
    for arch, dtype, schedule in (
        ("sm_80", "float16", "gpu_gemm_on_tensor_cores"), ("sm_75", "float16", "gpu_gemm"), ("sm_90a", "float32", "gpu_gemm"),
    ):
        draft = draft_kernel(make_body(pt.apply_pass(pt.Graph([product(dtype)]), "InferShape")), gpu_machine(arch))
        assert draft is not None and draft.schedule == schedule


@pytest.mark.parametrize(("arch", "schedule"), [("sm_80", "gpu_gemm_on_tensor_cores"), ("sm_75", "gpu_gemm")])
def test_float32_is_rounded_where_that_is_allowed_and_helps(arch: str, schedule: str) -> None:
    body = make_body(pt.apply_pass(pt.Graph([product("float32")]), "InferShape"))
    draft = draft_kernel(body, gpu_machine(arch, takes_tf32=True))
    assert draft is not None and draft.schedule == schedule


@pytest.mark.parametrize("low", [2.0**-11, 0.75 * 2.0**-10, 0.25 * 2.0**-10])
@pytest.mark.parametrize("is_constant", [True, False])
def test_both_matrices_are_rounded_to_the_nearest(low: float, is_constant: bool) -> None:
    """Numbers between two that TF32 has; without rounding the instruction would drop what is behind the tenth bit. Of constants
    that is done beforehand."""
    x, y = np.full((16, 8), 1 + low, "float32"), np.full((8, 16), -1 - low, "float32")
    right = pt.constant(y) if is_constant else pt.variable("y", "float32", y.shape)
    body = make_body(pt.apply_pass(pt.Graph([pt.op("MatMul", pt.variable("x", "float32", x.shape), right)]), "InferShape"))
    draft = draft_kernel(body, gpu_machine("sm_80", takes_tf32=True))
    assert draft is not None and draft.kernel is not None
    (result,) = run(draft.kernel, [x, draft.packs[1](y) if is_constant else y])
    rounded = 1 + np.floor(low * 2**10 + 0.5) * 2.0**-10
    np.testing.assert_array_equal(result, np.full(16 * 16, -8 * rounded**2, "float32"))


def test_constants_that_are_no_numbers_stay() -> None:
    given = np.array([np.inf, -np.inf, np.nan, 3.4028235e38, 0.0, -1.0], "float32")
    np.testing.assert_array_equal(round_to_tf32(given.copy()), [np.inf, -np.inf, np.nan, np.inf, 0, -1])


WORKS = [
    *[Work(128, *sizes) for sizes in ((768, 768), (3072, 768), (768, 3072), (2304, 768))],
    Work(512, 49, 4608), Work(512, 49, 2048), Work(2048, 49, 512), Work(64, 3136, 576), Work(128, 784, 512),
]
"""Products of BERT, GPT-2 and ResNet-50."""


@sizes_of_numbers
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_products_with_few_outputs_fill_the_gpu(size: int, work: Work) -> None:
    gpu, work = cuda_gpu("sm_80"), attrs.evolve(work, bytes=size)
    cuts = list(tensor_tiles(gpu, size))
    tile = min(cuts, key=ranking(cuts, [work], gpu))
    assert work.blocks(tile.rows, tile.columns) >= 100 and tile.threads >= 64 and tile.shared <= gpu.shared


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_single_row_has_threads_by_themselves(dtype: str) -> None:
    """The last product of ResNet-50: tensor cores would use a sixteenth of their sums, on 63 blocks."""
    body = make_body(pt.apply_pass(pt.Graph([product(dtype, 1, 2048, 1000)]), "InferShape"))
    draft = draft_kernel(body, gpu_machine("sm_80", takes_tf32=True))
    assert draft is not None and draft.kernel is not None and draft.schedule == "gpu_gemm"
    assert launched(draft.kernel)[0] >= 100


@EXAMPLES
@given(st.sampled_from(["float16", "bfloat16", "float32"]), st.integers(1, 7), st.sampled_from([3, 34, 64]), st.integers(2, 70))
def test_few_rows_of_threads_by_themselves(dtype: str, rows: int, depth: int, columns: int) -> None:
    x = pt.variable("x", dtype, (rows, depth))
    out = pt.op("Relu", pt.op("MatMul", x, pt.constant(numbers(depth, columns, dtype=dtype))))
    cut = BlockTile(1, 8, 1, 4, 8, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: next(tile for tile in candidates if tile == cut))
        matches(out, "gpu_gemm", numbers(rows, depth, dtype=dtype, seed=2))


def moved(is_awaited: bool, is_guarded: bool) -> None:
    """A warp copies 256 numbers to shared memory, and reads them as matrices."""
    kernel = Kernel("moved")
    x, y = kernel.input("x", uint16, (256,)), kernel.output("y", uint32, (128,))
    with kernel.launch((1, 1, 1), 32) as (_, _, _, thread):
        memory, parts = kernel.shared("memory", uint16, (256,)), kernel.stack("parts", uint32, (4,))
        kernel.do(COPIES[16](memory[thread * 8], x[thread * 8], as_index(16)))
        kernel.do(close_copies())
        if is_awaited:
            kernel.do(WAITS[0]())
        if is_guarded:
            kernel.barrier()
        kernel.do(load_matrices(parts[0], memory[(31 - thread) * 8]))
        y[thread * 4] = parts.vector(4, 0)
    numbers = np.arange(256, dtype="uint16")
    (result,) = run(kernel, [numbers])
    wanted = numbers.reshape(32, 8)[::-1].reshape(4, 32, 2)[..., 0].T.astype("uint32") * 65537 + 65536
    np.testing.assert_array_equal(result.reshape(32, 4), wanted)


def test_what_is_left_to_chance_is_seen() -> None:
    moved(is_awaited=True, is_guarded=True)
    with pytest.raises(Hazard, match="memory is read before it is written"):
        moved(is_awaited=False, is_guarded=True)
    with pytest.raises(Hazard, match="memory is read where another thread writes"):
        moved(is_awaited=True, is_guarded=False)


INSTRUCTIONS = {
    "bfloat16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "float32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}


@needs_nvcc
@pytest.mark.parametrize("dtype", INSTRUCTIONS)
@pytest.mark.thinned(2)
def test_it_is_assembled_and_nothing_is_spilled(dtype: str, tmp_path: Path) -> None:
    """PTX for sm_80 becomes machine code for later GPUs too."""
    (kernel,) = compiled(pt.Graph([product(dtype)]), "cuda", ARCH="sm_80", PRECISION="tf32").kernels()
    ptx = kernel.assembly
    assert ptx.count(INSTRUCTIONS[dtype]) >= 4 and ("cvt.rna.tf32.f32" in ptx) == (dtype == "float32")
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in ptx and "cp.async.cg.shared.global" in ptx
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(ptx, arch, tmp_path)


def layer(dtype: str, heads: int, length: int, depth: int) -> pt.Graph:
    """An attention with a mask, as exporters write it: heads stand side by side in memory."""
    given = [pt.variable(name, dtype, (1, length, heads, depth)) for name in "qkv"]
    query, key, value = (pt.op("Transpose", x, perm=[0, 2, 1, 3]) for x in given)
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = pt.op("Mul", scores, pt.constant(numpy_dtype(dtype).type(0.125)))
    masked = pt.op("Add", scaled, pt.variable("m", dtype, (1, 1, length, length)))
    out = pt.op("Transpose", pt.op("MatMul", pt.op("Softmax", masked, axis=-1), value), perm=[0, 2, 1, 3])
    return pt.apply_pass(pt.Graph([out], opsets={"": 22}), "InferShape")


def test_attention_without_barriers_is_seen() -> None:
    """Two warps read the keys that both of them copy."""
    graph = layer("float16", 2, 40, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "tensor_cuts", lambda *sizes: iter([TensorCut(2, 16)]))
        draft = draft_kernel(make_body(graph), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    arrays = [numbers(1, 40, 2, 32, dtype="float16") for _ in "qkv"] + [numbers(1, 1, 40, 40, dtype="float16")]
    run(draft.kernel, arrays)
    with pytest.raises(Hazard, match="another thread"):
        run(without_barriers(draft.kernel), arrays)


SIZES = [
    ("bfloat16", 12, 128, 64),
    *[pytest.param(dtype, heads, length, depth, marks=pytest.mark.slow) for dtype, heads, length, depth in (
        ("float16", 32, 1024, 128), ("bfloat16", 8, 150, 80), ("float16", 64, 512, 96), ("bfloat16", 4, 4096, 32),
        ("bfloat16", 4, 256, 192),
    )],
]


@needs_nvcc
@pytest.mark.parametrize(("dtype", "heads", "length", "depth"), SIZES)
def test_attention_is_one_launch_and_nothing_is_spilled(
    dtype: str, heads: int, length: int, depth: int, tmp_path: Path
) -> None:
    """A model that is stored so needs no casts."""
    (kernel,) = compiled(layer(dtype, heads, length, depth), "cuda", ARCH="sm_80").kernels()
    assert kernel.schedule == "gpu_attention_on_tensor_cores"
    assert "mma.sync.aligned.m16n8k16" in kernel.assembly and "ex2.approx" in kernel.assembly
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)


def test_attention_fills_the_gpu() -> None:
    """A long sequence, a short one, and heads that are too deep for a warp's registers."""
    gpu = cuda_gpu("sm_80")
    assert next(tensor_cuts(gpu, 12, 1024, 1024, 64, 64)) == TensorCut(4, 64)
    assert next(tensor_cuts(gpu, 12, 128, 128, 64, 64)) == TensorCut(1, 64)
    assert next(tensor_cuts(gpu, 12, 128, 20, 128, 128)).keys == 32
    assert next(tensor_cuts(gpu, 12, 128, 128, 512, 512), None) is None


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("rows", [1, 128, 4096])
def test_nothing_is_spilled_whatever_the_cut(arch: str, rows: int, tmp_path: Path) -> None:
    """Compiled for the GPU itself, from the smallest tiles to the largest."""
    (kernel,) = compiled(pt.Graph([product("float16", rows)]), "cuda", ARCH=arch).kernels()
    check_nothing_is_spilled(kernel.assembly, arch, tmp_path)
