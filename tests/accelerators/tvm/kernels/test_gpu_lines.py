"""ArgMax, Hardmax and CumSum on a GPU, run in numpy as written: races and accesses outside of memory are errors there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.rows.gpu_lines import LineShare
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.interpret import interpret
from partita.graph.types import Array
from tests.accelerators.tvm.lockstep import Hazard, run, without_barriers
from tests.close import assert_close

pytest.importorskip("tvm")

EXAMPLES = settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
SHARES = [None, LineShare(1, 1), LineShare(1, 8), LineShare(4, 2), LineShare(8, 1), LineShare(16, 4)]
SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 70), st.sampled_from([1, 3]))
DTYPES = st.sampled_from(["float32", "int64"])


def drafted(node: pt.Node, share: LineShare | None) -> tuple[pt.Graph, Draft]:
    """The kernel of the op with this share of its lines; None: the one that the GPU gets."""
    graph = pt.apply_pass(pt.Graph([node]), "InferShape")
    with pytest.MonkeyPatch.context() as patch:
        if share is not None:
            patch.setattr(LineShare, "of", lambda sizes, gpu: share)
        draft = draft_kernel(make_body(graph), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    return graph, draft


def matches(node: pt.Node, share: LineShare | None, array: Array, schedule: str) -> None:
    """The kernel computes what numpy does."""
    graph, draft = drafted(node, share)
    assert draft.schedule == schedule and draft.kernel is not None
    with np.errstate(all="ignore"):
        (result,) = run(draft.kernel, [array])
    (wanted,) = interpret(graph, [array])
    assert_close(result.reshape(wanted.shape), wanted)


def few(shape: tuple[int, ...], dtype: str) -> Array:
    """Few different numbers, so that many are equal; among floats some that are none."""
    random = np.random.default_rng(sum(shape))
    array = random.integers(0, 4, shape).astype(dtype)
    if dtype == "float32":
        array[random.random(shape) < 0.02] = np.nan
    return array


@EXAMPLES
@given(st.sampled_from(["ArgMax", "ArgMin"]), DTYPES, st.sampled_from(SHARES), SHAPES, st.integers(0, 1))
def test_positions_of_any_share(op: str, dtype: str, share: LineShare | None, shape: tuple[int, ...], last: int) -> None:
    x = pt.variable("x", dtype, shape)
    matches(pt.op(op, x, axis=1, keepdims=0, select_last_index=last), share, few(shape, dtype), "gpu_positions")


@EXAMPLES
@given(st.sampled_from(SHARES), st.integers(1, 3), st.integers(1, 70))
def test_hardmax_of_any_share(share: LineShare | None, rows: int, columns: int) -> None:
    array = np.nan_to_num(few((rows, columns), "float32"))
    matches(pt.op("Hardmax", pt.variable("x", "float32", (rows, columns))), share, array, "gpu_positions")


@EXAMPLES
@given(DTYPES, st.sampled_from(SHARES), SHAPES, st.integers(0, 1), st.integers(0, 1))
def test_running_sums_of_any_share(
    dtype: str, share: LineShare | None, shape: tuple[int, ...], exclusive: int, reverse: int
) -> None:
    """Either way, with each number's own part and without."""
    array = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    node = pt.op("CumSum", pt.variable("x", dtype, shape), pt.constant(np.array(1)), exclusive=exclusive, reverse=reverse)
    matches(node, share, array, "gpu_running_sums")


@pytest.mark.parametrize("op", ["ArgMax", "Hardmax", "CumSum"])
def test_lines_without_barriers_are_seen(op: str) -> None:
    x = pt.variable("x", "float32", (1, 100))
    node = pt.op(op, x, pt.constant(np.array(1))) if op == "CumSum" else pt.op(op, x, axis=1)
    _, draft = drafted(node, None)
    assert draft.kernel is not None
    with pytest.raises(Hazard, match="another thread"):
        run(without_barriers(draft.kernel), [np.zeros((1, 100), "float32")])


def test_lines_fill_the_gpu() -> None:
    """A long line has many threads; short ones share a block; neighbouring lines are read side by side."""
    gpu = Gpu(64, 1024, 49152)
    shares = {
        (1, 50257, 1): LineShare(256, 1), (4096, 16, 1): LineShare(4, 32), (1, 1000, 7): LineShare(64, 4),
        (8, 512, 4096): LineShare(1, 128), (3, 1, 1): LineShare(1, 1),
    }
    assert {sizes: LineShare.of(sizes, gpu) for sizes in shares} == shares
    assert all(LineShare.of(sizes, Gpu(8, 1, 1024)).block == 1 for sizes in shares)
