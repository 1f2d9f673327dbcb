"""Kernels for tensor cores that are written once for any size: run in numpy at sizes of all kinds, and assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from benchmarks.models.any_size import Sizes, bert
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.attention import gpu
from partita.accelerators.tvm.kernels.attention.gpu_tensor import TensorCut
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.accelerators.tvm.sizes.sizing import sized
from partita.graph.interpret import interpret
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_tensor_cores import SMALL, STEPS, numbers
from tests.accelerators.tvm.lockstep import run
from tests.accelerators.tvm.running import doubled

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

EXAMPLES = settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
REALS = st.sampled_from(["float16", "bfloat16", "float32"])


def agrees(out: pt.Node, schedule: str, sizes: Mapping[str, int], inputs: Sequence[Array], off: float = 0.0) -> None:
    """The kernel of a body for any size computes in numpy, at these sizes, what the ops do in double precision."""
    graph = pt.Graph([out], opsets={"": 22})
    body = make_body(sized(pt.apply_pass(graph, "InferShape")).graph)
    draft = draft_kernel(body, gpu_machine("sm_80", takes_tf32=True))
    assert draft is not None and draft.kernel is not None and draft.schedule == schedule
    held = [*inputs, *body.weights]
    laid_out = [draft.packs[i](array) if i in draft.packs else array for i, array in enumerate(held)]
    with np.errstate(all="ignore"):
        (result,) = run(draft.kernel, laid_out, sizes)
    (wanted,) = interpret(doubled(graph), [array.astype("d") for array in inputs])
    step, else_off = STEPS[result.dtype.name]
    np.testing.assert_allclose(result.astype("d").reshape(wanted.shape), wanted, rtol=1.1 * step, atol=max(off, else_off))


@EXAMPLES
@given(REALS, st.integers(1, 70), st.sampled_from([3, 16, 34, 72]), st.integers(2, 20), st.data())
def test_products_of_any_number_of_rows(dtype: str, rows: int, depth: int, columns: int, data: st.DataObject) -> None:
    """Any cut; the right matrix is a constant."""
    cut: TensorTile = data.draw(st.sampled_from([tile for tile in SMALL if tile.bytes == numpy_dtype(dtype).itemsize]))
    out = pt.op("Relu", pt.op("MatMul", pt.variable("x", dtype, ("N", depth)), pt.constant(numbers(depth, columns, dtype=dtype))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: cut)
        agrees(out, "gpu_gemm_on_tensor_cores", {"s0": rows}, [numbers(rows, depth, dtype=dtype, seed=2)])


@EXAMPLES
@given(REALS, st.integers(1, 2), st.integers(1, 40), st.integers(1, 90), st.integers(1, 40), st.booleans(), st.data())
def test_products_of_two_values_of_any_size(
    dtype: str, batch: int, rows: int, depth: int, columns: int, is_turned: bool, data: st.DataObject
) -> None:
    """Any cut; depths of less than one step, and of less than those that are on their way; a left matrix that is turned."""
    cut: TensorTile = data.draw(st.sampled_from([tile for tile in SMALL if tile.bytes == numpy_dtype(dtype).itemsize]))
    shape = (batch, depth, rows) if is_turned else (batch, rows, depth)
    left = pt.variable("x", dtype, ("N", "D", "R") if is_turned else ("N", "R", "D"))
    right = pt.variable("y", dtype, ("N", "D", "C"))
    out = pt.op("MatMul", pt.op("Transpose", left, perm=[0, 2, 1]) if is_turned else left, right)
    sizes = {"s0": batch, "s1": depth if is_turned else rows, "s2": rows if is_turned else depth, "s3": columns}
    inputs = [numbers(*shape, dtype=dtype, seed=2), numbers(batch, depth, columns, dtype=dtype, seed=3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: cut)
        agrees(pt.op("Relu", out), "gpu_product_on_tensor_cores", sizes, inputs)


MASKS = "none", "causal", "keys"


@EXAMPLES
@given(
    st.sampled_from(["float16", "bfloat16"]), st.integers(1, 2), st.integers(1, 40), st.integers(1, 90), st.sampled_from(MASKS),
    st.sampled_from([16, 24, 38]), st.sampled_from([TensorCut(1, 16), TensorCut(2, 32), TensorCut(1, 64)]),
)
def test_attention_of_any_length(
    dtype: str, batch: int, rows: int, keys: int, masked: str, depth: int, cut: TensorCut
) -> None:
    """Two heads; rows that are neighbours in memory and such that are not, more keys than a tile has and fewer."""
    kind = numpy_dtype(dtype).type
    arrays = [numbers(batch, length, 2, depth, dtype=dtype, seed=i) * kind(2) for i, length in enumerate((rows, keys, keys))]
    query, key, value = (
        pt.op("Transpose", pt.variable(name, dtype, ("N", length, 2, depth)), perm=perm)
        for name, length, perm in (("q", "R", [0, 2, 1, 3]), ("k", "K", [0, 2, 3, 1]), ("v", "K", [0, 2, 1, 3]))
    )
    scores = pt.op("Mul", pt.op("MatMul", query, key), pt.constant(kind(0.5)))
    if masked == "causal":
        arrays.append(np.where(np.arange(keys) > np.arange(rows)[:, None], kind(-np.inf), kind(0))[None, None])
        scores = pt.op("Add", scores, pt.variable("m", dtype, (1, 1, "R", "K")))
    elif masked == "keys":
        arrays.append(np.broadcast_to(np.where(np.arange(keys) < keys - 3, kind(0), kind(-9)), (1, 1, 1, keys)).copy())
        scores = pt.op("Add", scores, pt.variable("m", dtype, (1, 1, 1, "K")))
    sizes = {"s0": batch, "s1": rows, "s2": keys}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "tensor_cuts", lambda *sizes: iter([cut]))
        off = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
        agrees(pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value), "gpu_attention_on_tensor_cores", sizes, arrays, off)


LAYERS = Sizes(width=128, heads=2, layers=1, hidden=256, words=50, longest=64)


@needs_nvcc
@pytest.mark.parametrize("precision", ["f16", *[pytest.param(other, marks=pytest.mark.slow) for other in ("bf16", "tf32")]])
@pytest.mark.slow
def test_a_transformer_is_compiled_once(precision: str, tmp_path: Path) -> None:
    model = pt.compile(bert(LAYERS), "cuda", config={"CACHE_DIR": "", "ARCH": "sm_80", "PRECISION": precision})
    assert "compiled once for any size" in " ".join(model.report.notes)
    kernels = {kernel.schedule: kernel for kernel in model.kernels()}
    wanted = {"gpu_gemm_on_tensor_cores"} | ({"gpu_attention_on_tensor_cores"} if precision != "tf32" else {"gpu_attention"})
    assert wanted <= set(kernels)
    for schedule in sorted(wanted):
        for arch in ("sm_80", "sm_90", "sm_100"):
            check_nothing_is_spilled(kernels[schedule].assembly, arch, tmp_path)
