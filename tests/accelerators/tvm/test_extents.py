"""Extents, the sizes that are known only when a model is called: polynomials, compared, and views with them."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.shared.loops import larger, smaller
from partita.accelerators.tvm.lower.dynamic_sizes import _refuse_wrong
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, is_multiple, known_least, symbol, value_of
from partita.accelerators.tvm.sizes.floors import same_padding
from partita.accelerators.tvm.sizes.symbols import LARGEST, coarser
from partita.accelerators.tvm.sizes.views import SizedView
from partita.graph.types import TensorType

A, B = symbol("a"), symbol("b")


def polynomials() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.integers(-4, 9), st.sampled_from([A, B]))
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner), max_leaves=6)


def computed(tree: Any, sizes: dict[str, int] | None) -> Any:
    if not isinstance(tree, tuple):
        return value_of(tree, sizes) if sizes is not None else tree
    operator, left, right = tree[0], computed(tree[1], sizes), computed(tree[2], sizes)
    return left + right if operator == "+" else left - right if operator == "-" else left * right


@given(polynomials(), polynomials(), st.integers(1, 50), st.integers(1, 50))
def test_extents_are_polynomials(one: Any, other: Any, a: int, b: int) -> None:
    sizes = {"a": a, "b": b}
    first, second = computed(one, None), computed(other, None)
    assert value_of(first, sizes) == computed(one, sizes)
    assert known_least(first) <= value_of(first, sizes)
    assert (first == second) == (first - second == 0), "equal where the difference is nothing"
    for divisor in (2, 4, 12):
        if is_multiple(first, divisor):
            assert value_of(first, sizes) % divisor == 0
            assert value_of(first // divisor, sizes) == value_of(first, sizes) // divisor
        if is_multiple(first - value_of(first, {"a": 0, "b": 0}), divisor):
            assert value_of(first // divisor, sizes) == value_of(first, sizes) // divisor, "rounded down, as numbers are"


@given(polynomials(), polynomials())
def test_a_product_divided_by_one_factor_is_the_other(first: Any, second: Any) -> None:
    one, other = computed(first, None), computed(second, None)
    if isinstance(other, Extent) and isinstance(one * other, Extent):
        assert (one * other) // other == one
        assert (one * other) % other == 0


@pytest.mark.parametrize(
    "divide", [lambda: (A * A + B) // (A + B), lambda: (3 * A + 3 * B) // (2 * A + 2 * B), lambda: (A * B + 1) // (A + 1)]
)
def test_what_leaves_a_rest_is_not_divided(divide: Callable[[], object]) -> None:
    with pytest.raises(CompileError, match="known only when the model is called"):
        divide()


@given(polynomials(), polynomials(), st.integers(1, 50), st.integers(1, 50))
def test_extents_are_compared_where_the_answer_is_the_same_for_all_sizes(one: Any, other: Any, a: int, b: int) -> None:
    first, second = computed(one, None), computed(other, None)
    values = value_of(first, {"a": a, "b": b}), value_of(second, {"a": a, "b": b})
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        with contextlib.suppress(CompileError):
            assert compare(first, second) == compare(*values)


def test_sizes_that_differ_by_a_number_are_compared() -> None:
    assert A < A + 1 and A + 2 > A and A * B + 3 >= A * B + 3 and not A * 2 + 1 <= A * 2
    assert A >= 1 and A + B > 1 and A + B >= 2 and max(A, A + 1) == A + 1


@pytest.mark.parametrize("asked", [
    lambda: A < 3, lambda: A >= 16, lambda: A // 16, lambda: A % 16,
    lambda: int(A), lambda: A / 2, lambda: range(A), lambda: 5 // A,
])
def test_what_has_to_know_an_extent_is_an_error(asked: Callable[[], object]) -> None:
    with pytest.raises(CompileError, match="is known only when the model is called"):
        asked()


JOINED = ((0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3))
"""Neighbouring dimensions that a reshape makes one."""


@settings(deadline=None)
@given(st.permutations([0, 1, 2, 3]), st.sampled_from(JOINED), st.integers(1, 5), st.integers(1, 5))
def test_views_with_extents_stand_where_those_of_numpy_do(order: list[int], joined: tuple[int, ...], a: int, b: int) -> None:
    """Where a reshape of a transpose is a view for every size, its steps are numpy's."""
    sizes = {"a": a, "b": b}
    shape = (A, 3, B, 4)
    view = SizedView.whole(shape).transpose(order)
    target = (*view.shape[: joined[0]], math.prod(view.shape[d] for d in joined), *view.shape[joined[-1] + 1 :])
    reshaped = view.reshape(target)
    whole = np.arange(a * 3 * b * 4).reshape(a, 3, b, 4)
    wanted = whole.transpose(order).reshape([value_of(size, sizes) for size in target])
    if reshaped is None:
        return
    at = np.zeros((), np.int64)
    for d, (size, step) in enumerate(zip(reshaped.shape, reshaped.steps, strict=True)):
        along = np.arange(value_of(size, sizes)) * value_of(step, sizes)
        at = at + along.reshape([-1 if i == d else 1 for i in range(len(target))])
    np.testing.assert_array_equal(whole.reshape(-1)[at], wanted)


def elements(view: SizedView, whole: np.ndarray[Any, Any], sizes: dict[str, int]) -> np.ndarray[Any, Any]:
    """The part of the whole that a view reads."""
    at = np.full([value_of(size, sizes) for size in view.shape], value_of(view.offset, sizes))
    for d, (size, step) in enumerate(zip(view.shape, view.steps, strict=True)):
        along = np.arange(value_of(size, sizes)) * value_of(step, sizes)
        at = at + along.reshape([-1 if i == d else 1 for i in range(view.ndim)])
    return whole.reshape(-1)[at]


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [
        (lambda v: v, lambda x: x),
        (lambda v: v.transpose([2, 0, 1]), lambda x: x.transpose(2, 0, 1)),
        (lambda v: v.part(0, 1, A - 2), lambda x: x[1:-1]),
        (lambda v: v.part(2, A - 1, 1), lambda x: x[:, :, -1:]),
        (lambda v: v.part(1, 2, 1).broadcast((A, 5, A)), lambda x: np.broadcast_to(x[:, 2:3], (7, 5, 7))),
        (lambda v: v.broadcast((2, A, 3, A)), lambda x: np.broadcast_to(x, (2, 7, 3, 7))),
        (lambda v: v.every(1, 2, 2), lambda x: x[:, ::2]),
        (lambda v: v.part(1, 1, 2).every(1, 1, 2), lambda x: x[:, 1:]),
        (lambda v: v.part(0, 1, 1).transpose([1, 0, 2]).broadcast((3, A, A)),
         lambda x: np.broadcast_to(x[1][:, None], (3, 7, 7))),
        (lambda v: v.one(1, 2), lambda x: x[:, 2]),
    ],
)
def test_parts_and_repeats_of_views(taken: Callable[[SizedView], SizedView], wanted: Callable[..., Any]) -> None:
    whole, sizes = np.arange(7 * 3 * 7).reshape(7, 3, 7), {"a": 7}
    np.testing.assert_array_equal(elements(taken(SizedView.whole((A, 3, A))), whole, sizes), wanted(whole))


@pytest.mark.parametrize("shape", [(A, 3), (A, 3, A, 2), (A + 1, 3, A), (3, A, B), (A * A, 2)])
def test_views_that_no_reshape_fits(shape: tuple[Any, ...]) -> None:
    assert SizedView.whole((A, 3, A)).reshape(shape) is None


@pytest.mark.parametrize("shape", [(B, 3, A), (A, 3, 5), (A, 6, A)])
def test_views_that_no_broadcast_fits(shape: tuple[Any, ...]) -> None:
    with pytest.raises(CompileError, match="is not broadcast to"):
        SizedView.whole((A, 3, A)).broadcast(shape)


def test_extents_are_their_text() -> None:
    assert str(A * B * 12 + 1) == "12*a*b+1" and isinstance(A + B, Extent) and isinstance(A - A, int)


def test_the_smaller_and_the_larger_of_two_counts_are_told_apart_where_sizes_permit() -> None:
    """A symbol is at least 1; two counts that are never apart the wrong way need no comparison while the kernel runs."""
    more = A + 1
    for one, other in ((3, 5), (5, 5), (A, more), (1, A), (A, A), (2, more)):
        assert smaller(one, other) == smaller(other, one) == one
        assert larger(one, other) == larger(other, one) == other
    for one, other in ((A, B), (A, 2), (A * 2, B + 1)):
        assert str(smaller(one, other)).startswith("min") and str(larger(one, other)).startswith("max")


def test_remainders_that_are_known() -> None:
    assert [(4 * A + 3) % 4, (4 * A + 6 * B) % 2, (A * B + A) % A, (A * B) % B, (4 * A) % (2 * A)] == [3, 0, 0, 0, 0]
    for dividend, divisor in ((A, 2), (4 * A + B, 4), (A, B), (A * B + 1, A), (5, A)):
        with pytest.raises(CompileError):
            dividend % divisor


@pytest.mark.parametrize(("scale", "more", "is_refused"), [(2.0, A, False), (1.1, 3, True)])
def test_ops_that_tvm_computes_wrongly_for_sizes_of_such_relations_are_refused(scale: float, more: Any, is_refused: bool) -> None:
    """Tried with numbers in place of the symbols: 97 times 1.1 is not a whole number."""
    x = pt.variable("x", type=TensorType("float32", (1, 1, A, 8)))
    factors = pt.constant(np.array([1, 1, scale, 1], np.float32))
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = pt.op("Resize", x, None, factors, **attributes).evolve(output_types=(TensorType("float32", (1, 1, A + more, 8)),))
    with pytest.raises(CompileError, match="ratio of the sizes") if is_refused else contextlib.nullcontext():
        _refuse_wrong(pt.Graph([node], [x]))


@pytest.mark.parametrize(("span", "step"), [(3, 2), (5, 3), (2, 2), (7, 4), (1, 3)])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_depends_on_a_size_is_that_of_each_size(span: int, step: int, auto_pad: str) -> None:
    """A numpy number is not an int, and so is taken as a dynamic size."""
    for size in range(1, 12):
        dynamic = same_padding(np.int64(size), span, step, auto_pad, lambda number, divisor: number // divisor)
        assert tuple(map(int, dynamic)) == same_padding(size, span, step, auto_pad)


def test_grains_are_the_smallest_with_which_a_size_is_divided() -> None:
    height = symbol("h")
    for count, divisor, grain in itertools.product((1, 2, 3, 4, 6, 12), (2, 3, 4, 6, 8, 32), (1, 2, 5)):
        if count % divisor == 0:
            continue
        with pytest.raises(Indivisible) as asked:
            assert (height * count + 5) % divisor
        grains = {} if grain == 1 else {"h": grain}
        least = next(times for times in range(1, 99) if len({(size * times * count + 5) % divisor for size in range(9)}) == 1)
        assert coarser(grains, asked.value, frozenset({"h", "w"})) == {"h": grain * least}
        assert coarser({**grains, "w": 7}, asked.value, frozenset({"h", "w"})) == {"h": grain * least, "w": 7}
        assert coarser(grains, asked.value, frozenset({"w"})) is None, "no size of an image"


def test_grains_of_several_sizes_and_those_that_are_none() -> None:
    height, width = symbol("h"), symbol("w")
    images = frozenset({"h", "w"})

    def grains(size: Any, divisor: int, **known: int) -> Any:
        return coarser(known, Indivisible(size, divisor, "it has to be"), images)

    assert grains(height * 3 + width * 4, 8) == {"h": 8, "w": 2}
    assert grains(height * 3 + width * 4, 4, w=5) == {"h": 4, "w": 5}
    assert grains(height * width, 2) is None, "a product"
    assert grains(height * 4 + 1, 2) is None, "no other grain would help"
    assert grains(height, LARGEST) == {"h": LARGEST} and grains(height, LARGEST + 1) is None
    assert grains(height, 2, h=LARGEST // 2) == {"h": LARGEST} and grains(height, 2, h=LARGEST) is None
