"""Launches of any size: the sizes that a function states, and what each call makes of them."""

from __future__ import annotations

import pytest

from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.launch_list import Inside, OpenSlot, OpenStep, OpenSteps, Part, Slot, Step, planned, stated
from partita.accelerators.tvm.sizes.extent import symbol

N, M = symbol("n"), symbol("m")


def test_sizes_as_a_function_states_them() -> None:
    tir = pytest.importorskip("tvm.tirx")
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    whole = tir.IntImm("int64", 12)
    listed = [whole, n, n + whole, n - m, m - n, n * m, tir.Cast("int64", tir.Var("k", "int32")), (n + m) * (n - whole)]
    assert [stated(size) for size in listed] == [12, N, N + 12, N - M, M - N, N * M, symbol("k"), (N + M) * (N - 12)]


def launches(*shapes: tuple[object, ...]) -> OpenSteps:
    inputs = tuple([OpenSlot(i, shape, "float32") for i, shape in enumerate(shapes)])
    return OpenSteps((), (4 * N,), (), inputs, (), ())


@pytest.mark.parametrize(
    ("shapes", "call", "sizes"),
    [
        (((N, 3),), ((5, 3),), {"n": 5}),
        (((2 * N, M),), ((6, 7),), {"n": 3, "m": 7}),
        (((N, 4), (M, N)), ((1, 4), (9, 1)), {"n": 1, "m": 9}),
        (((2 * N,), (N,)), ((8,), (4,)), {"n": 4}),
        (((N + M, N), (M,)), ((12, 5), (7,)), {"n": 5, "m": 7}),
        (((N * M, M),), ((12, 3),), {"m": 3}),
        (((N * N, 2),), ((9, 2),), {}),
        (((N,), (4,)), ((0,),), {"n": 0}),
        ((), (), {}),
    ],
)
def test_symbols_have_the_values_of_the_first_input_that_says_them(shapes, call, sizes) -> None:
    assert launches(*shapes).sizes_of(call) == sizes


def test_launches_of_a_call() -> None:
    """Value 1 is between two launches, 2 the result, 3 and 4 parts of it, and the second launch has nothing to do for one."""
    steps = OpenSteps(
        ("first", "second"), (4 * N, 8 * N, 4 * N + 16, 8, 4), ((0, 1), (1, 2)), (OpenSlot(0, (N, 1), "float32"),),
        (OpenSlot(2, (N + 4,), "float32"),),
        (
            OpenStep(0, "k0", (0, 1, Number("int32", N)), (N, 1, 1), (32, 1, 1)),
            OpenStep(1, "k1", (1, 3, 4, Number("int32", 7)), (1, N - 1, 2), (8, 4, 1), 64),
        ),
        (Inside(3, 2, 16), Inside(4, 2, 24)),
    )
    listed = steps.at({"n": 5})
    assert (steps.source, listed.source, steps.is_open) == ("first\nsecond", "first\nsecond", True)
    assert listed.inputs == (Slot(0, (5, 1), "float32"),) and listed.outputs == (Slot(1, (9,), "float32"),)
    assert listed.blocks == (20, 36, 40) and listed.parts == (Part(1, 16, 8), Part(1, 24, 4))
    assert listed.steps == (
        Step(0, "k0", (0, 2, Number("int32", 5)), (5, 1, 1), (32, 1, 1)),
        Step(1, "k1", (2, 3, 4, Number("int32", 7)), (1, 4, 2), (8, 4, 1), 64),
    )
    assert [step.kernel for step in steps.at({"n": 1}).steps] == ["k0"]
    assert steps.at({"n": 0}).blocks == (1, 16, 1), "no piece is of no bytes"
    assert steps.at({"n": 5}, elsewhere=[0]).blocks == (1, 36, 40)


@pytest.mark.parametrize(
    ("sizes", "calls", "kept", "blocks", "pieces"),
    [
        ([], [], [], {}, []),
        ([8, 8, 8, 8], [(0, 1), (1, 2), (2, 3)], [0, 3], {0: 0, 3: 1, 1: 2, 2: 3}, [8, 8, 8, 8]),
        ([8, 8, 8, 8, 8], [(0, 1), (1, 2), (2, 3), (3, 4)], [0, 4], {0: 0, 4: 1, 1: 2, 2: 3, 3: 2}, [8, 8, 8, 8]),
        ([1, 8, 1, 4, 1], [(0, 1), (1, 2), (2, 3), (3, 4)], [0, 4], {0: 0, 4: 1, 1: 2, 2: 3, 3: 2}, [1, 1, 8, 1]),
        ([1, 9, 1, 4, 1], [(0, 1), (1, 2), (2, 3), (3, 4)], [0, 4], {0: 0, 4: 1, 1: 2, 2: 3, 3: 4}, [1, 1, 9, 1, 4]),
        ([1, 8, 1, 9, 1], [(0, 1), (1, 2), (2, 3), (3, 4)], [0, 4], {0: 0, 4: 1, 1: 2, 2: 3, 3: 4}, [1, 1, 8, 1, 9]),
        (
            [1, 8, 6, 1, 5, 1], [(0, 1, 2), (1, 2, 3), (3, 4), (4, 5)], [0, 5], {0: 0, 5: 1, 1: 2, 2: 3, 3: 4, 4: 3},
            [1, 1, 8, 6, 1],
        ),
        ([8, 8], [(0, 1), (0, 1)], [0, 1, 0], {0: 0, 1: 1}, [8, 8]),
        ([8, 8, 8], [(0, 2)], [0], {0: 0, 2: 1}, [8, 8]),
    ],
)
def test_values_take_the_smallest_piece_that_is_free(sizes, calls, kept, blocks, pieces) -> None:
    assert planned(sizes, calls, kept) == (blocks, pieces)
