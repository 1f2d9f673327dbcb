"""Ops on rows as one launch on a GPU, run in numpy as they are written: races and reads outside of memory are errors there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.rows.gpu_rows import Share
from partita.accelerators.tvm.kernels.rows.row_steps import find_program
from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.interpret import interpret
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.lockstep import Hazard, run, without_barriers
from tests.accelerators.tvm.running import doubled

pytest.importorskip("tvm")

REALS = st.sampled_from(["float32", "float16", "bfloat16"])
EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
SHARES = [Share(2, 1), Share(32, 4), Share(64, 2), Share(128, 1)]


def matches(out: pt.Node, dtype: str, share: Share | None, *inputs: Array) -> None:
    """The kernel's rows are those of numpy in double precision, but for the rounding of the result."""
    graph = pt.apply_pass(pt.Graph([out], opsets={"": 22}), "InferShape")
    with pytest.MonkeyPatch.context() as patch:
        if share is not None:
            patch.setattr(Share, "of", lambda program, gpu: share)
        draft = draft_kernel(make_body(graph), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None and draft.schedule == "gpu_rows"
    given = [*inputs, *make_body(graph).weights]
    with np.errstate(all="ignore"):
        (result,) = run(draft.kernel, given)
    (wanted,) = interpret(doubled(graph), [array.astype("d") for array in inputs])
    step = {"float32": 2e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(result.astype("d").reshape(wanted.shape), wanted, rtol=1.1 * step, atol=step)


def rows_of(dtype: str, rows: int, columns: int) -> tuple[pt.Node, Array]:
    array = np.random.default_rng(0).standard_normal((2, rows, columns)).astype(numpy_dtype(dtype))
    return pt.variable("x", dtype, array.shape), array


@EXAMPLES
@given(REALS, st.sampled_from(SHARES), st.integers(1, 5), st.integers(2, 300))
def test_norms_of_any_share(dtype: str, share: Share, rows: int, columns: int) -> None:
    """With the sum before, and scale and bias."""
    x, array = rows_of(dtype, rows, columns)
    beside = [pt.constant(np.linspace(0.5, 2, columns).astype(numpy_dtype(dtype))) for _ in range(2)]
    matches(pt.op("LayerNormalization", pt.op("Add", x, x), *beside), dtype, share, array)


@EXAMPLES
@given(REALS, st.sampled_from(SHARES), st.integers(1, 5), st.integers(2, 300), st.sampled_from(["Softmax", "LogSoftmax"]))
def test_softmax_of_any_share(dtype: str, share: Share, rows: int, columns: int, kind: str) -> None:
    """Some numbers of a row are masked."""
    x, array = rows_of(dtype, rows, columns)
    array[..., columns // 2 :] = -np.inf if kind == "Softmax" else -60
    matches(pt.op(kind, pt.op("Mul", x, pt.constant(numpy_dtype(dtype).type(0.5)))), dtype, share, array)


@EXAMPLES
@given(REALS, st.sampled_from(SHARES), st.integers(1, 5), st.integers(2, 300))
def test_numbers_of_rows(dtype: str, share: Share, rows: int, columns: int) -> None:
    """A mean of each row, and a pool of each image: the first is read again at every place of the row."""
    x, array = rows_of(dtype, rows, columns)
    matches(pt.op("Sub", x, pt.op("ReduceMean", x, pt.constant(np.array([-1])), keepdims=1)), dtype, share, array)
    matches(pt.op("GlobalAveragePool", x), dtype, share, array)


@EXAMPLES
@given(REALS, st.sampled_from(SHARES), st.integers(1, 3), st.integers(1, 5), st.integers(2, 300))
def test_norms_of_channels(dtype: str, share: Share, images: int, channels: int, columns: int) -> None:
    """Each image reads the scales and biases of its channels again."""
    array = np.random.default_rng(0).standard_normal((images, channels, columns)).astype(numpy_dtype(dtype))
    beside = [pt.constant(np.linspace(0.5, 2, channels).astype(numpy_dtype(dtype))) for _ in range(2)]
    matches(pt.op("InstanceNormalization", pt.variable("x", dtype, array.shape), *beside), dtype, share, array)


def test_rows_without_barriers_are_seen() -> None:
    """A thread reads what others found in their columns."""
    x, array = rows_of("float32", 1, 100)
    graph = pt.apply_pass(pt.Graph([pt.op("Softmax", x)], opsets={"": 22}), "InferShape")
    draft = draft_kernel(make_body(graph), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    with pytest.raises(Hazard, match="another thread"):
        run(without_barriers(draft.kernel), [array])


def test_rows_fill_the_gpu() -> None:
    """Long rows get more threads; short ones share a block once every core has one."""
    gpu = cuda_gpu("sm_80")
    for rows, columns, wanted in ((128, 768, Share(256, 1)), (2048, 49, Share(32, 4)), (12 * 197, 197, Share(64, 2))):
        x = pt.variable("x", "float32", (rows, columns))
        body = make_body(pt.apply_pass(pt.Graph([pt.op("Softmax", x)], opsets={"": 22}), "InferShape"))
        program = find_program(body)
        assert program is not None and Share.of(program, gpu) == wanted
        assert Share.of(program, Gpu(8, 1, 1024)).threads == 1


@pytest.mark.parametrize("name", ["sm_70", "sm_80", "sm_90a"])
def test_rows_have_more_threads_the_longer_they_are_and_blocks_more_rows_the_more_there_are(name: str) -> None:
    gpu = cuda_gpu(name)
    powers = [1 << k for k in range(9)]
    for columns in (1, 127, 128, 129, 256, 257, 512, 513, 5000):
        enough = [threads for threads in powers[5:] if threads * 4 >= columns]
        threads = min(enough, default=256)
        for count in sorted({1, *(gpu.cores * rows + more for rows in (1, 2, 3, 4, 8) for more in (-1, 0, 1))}):
            fitting = [rows for rows in powers if threads * rows <= 128 and count // rows >= gpu.cores]
            program: Any = SimpleNamespace(columns=columns, rows=count)
            assert Share.of(program, gpu) == Share(threads, max(fitting, default=1)), (columns, count)
