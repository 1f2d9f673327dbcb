"""The algebra of sizes against integers: each operation at drawn values, and bounds that hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.graph.symbols import (
    Symbol,
    at,
    covers,
    divided,
    is_at_least,
    joined,
    larger,
    least,
    quotient,
    replaced,
    scaled,
    smaller,
    solved,
    symbol,
    symbols_of,
)

SYMBOLS = [Symbol("a"), Symbol("b"), Symbol("c", least=1)]
values = st.fixed_dictionaries({one: st.integers(one.least, 9) for one in SYMBOLS})
Meaning = Any
"""A function from the symbols' values to the integer that an expression has to be."""


def _combined(pair: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    two = st.tuples(pair, pair)
    return st.one_of(
        two.map(lambda t: (t[0][0] + t[1][0], lambda v: t[0][1](v) + t[1][1](v))),
        two.map(lambda t: (t[0][0] - t[1][0], lambda v: t[0][1](v) - t[1][1](v))),
        two.map(lambda t: (t[0][0] * t[1][0], lambda v: t[0][1](v) * t[1][1](v))),
        two.map(lambda t: (smaller(t[0][0], t[1][0]), lambda v: min(t[0][1](v), t[1][1](v)))),
        two.map(lambda t: (larger(t[0][0], t[1][0]), lambda v: max(t[0][1](v), t[1][1](v)))),
        st.tuples(pair, st.integers(1, 6)).map(lambda t: (quotient(t[0][0], t[1]), lambda v: t[0][1](v) // t[1])),
        st.tuples(pair, st.integers(1, 6)).map(lambda t: (t[0][0] % t[1], lambda v: t[0][1](v) % t[1])),
    )


leaves = st.one_of(
    st.integers(-3, 9).map(lambda n: (n, lambda v: n)),
    st.sampled_from(SYMBOLS).map(lambda one: (symbol(one.name, least=one.least), lambda v: v[one])),
)
expressions = st.recursive(leaves, _combined, max_leaves=6)


@given(expressions, values)
def test_expressions_are_what_integers_give(expression: tuple[Any, Meaning], numbers: Mapping[Symbol, int]) -> None:
    size, meaning = expression
    assert at(size, numbers) == meaning(numbers)
    low = least(size)
    assert low is None or low <= meaning(numbers)


@given(expressions, expressions, values)
def test_comparisons_that_are_decided_hold_for_all_values(a: Any, b: Any, numbers: Mapping[Symbol, int]) -> None:
    decided = is_at_least(a[0], b[0])
    assert decided is None or decided == (a[1](numbers) >= b[1](numbers))


@given(expressions, expressions, values)
def test_replacing_a_symbol_is_evaluating_with_its_meaning(a: Any, b: Any, numbers: Mapping[Symbol, int]) -> None:
    instead = replaced(a[0], {Symbol("a"): b[0]})
    assert at(instead, numbers) == a[1]({**numbers, Symbol("a"): b[1](numbers)})


@given(expressions, expressions, values)
def test_an_exact_quotient_times_its_divisor_is_the_size(a: Any, b: Any, numbers: Mapping[Symbol, int]) -> None:
    exact = divided(a[0] * b[0], b[0])
    if exact is not None:
        assert at(exact, numbers) * b[1](numbers) == a[1](numbers) * b[1](numbers)


def test_any_names_of_symbols_are_divided() -> None:
    few, more, other = symbol("N"), symbol("N*2"), symbol("A")
    assert divided((few + more) * other, few + more) == other


@given(expressions, values)
def test_a_solution_makes_the_difference_zero(a: Any, numbers: Mapping[Symbol, int]) -> None:
    solution = solved(a[0])
    if solution is not None:
        name, meaning = solution
        assert at(replaced(a[0], {name: meaning}), numbers) == 0


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_broadcast_sizes(n: int, m: int, k: int) -> None:
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    both = joined(joined(a, b), joined(c, a))
    assert both == joined(c, joined(b, a)) and covers(both, b) and not covers(joined(a, b), c)
    others = {size for size in (n, m, k) if size != 1}
    if len(others) <= 1:
        expected = others.pop() if others else 1
        assert at(both, {Symbol("a"): n, Symbol("b"): m, Symbol("c"): k}) == expected


def test_what_a_resize_multiplies_is_rounded_as_single_precision_does() -> None:
    assert at(scaled(symbol("a"), 0.7), {Symbol("a"): 10}) == scaled(10, 0.7) == 7
    assert at(scaled(symbol("a"), 1.5), {Symbol("a"): 5}) == 7


def test_a_computed_symbol_is_solved_first() -> None:
    inner = symbol("how many", is_computed=True)
    assert solved(inner - symbol("a long name of an input")) == (Symbol("how many", True), symbol("a long name of an input"))


S = [symbol(f"s{number}", least=1) for number in range(6)]


@pytest.mark.parametrize(
    ("a", "b", "name", "meaning"),
    [
        (S[1], S[0], "s1", S[0]),
        (S[3], S[1] + S[2], "s3", S[1] + S[2]),
        (S[1] + S[3], S[1] + S[2] - 1, "s2", S[3] + 1),  # s3 would be 0 where s2 is 1
        (S[4] * S[5], S[0] * S[5], "s4", S[0]),
        (S[0] * 8, 24, "s0", 3),
        (S[0] * S[1] * 8, S[0] * 8, "s1", 1),
        (S[0] * 2, 3, None, None),
        (S[0] * S[1], S[2] * S[3], None, None),
        (S[0] + 1, 1, None, None),
    ],
)
def test_symbols_that_are_solved_for(a: Any, b: Any, name: str | None, meaning: Any) -> None:
    assert solved(a - b) == (None if name is None else (Symbol(name, least=1), meaning))


def test_bounds_where_symbols_are_1_or_more() -> None:
    assert least(S[0] * S[1] - S[0]) == 0 and least(S[0] - S[1]) is None
    assert least(S[0] * S[1] + 2 * S[2]) == 3 and least(symbol("past") + S[0]) == 1


def test_sizes_print_as_polynomials() -> None:
    assert str(2 * symbol("N") * symbol("T") - 3) == "2*N*T - 3"
    assert str((symbol("N") + 1) // 2) == "(N + 1)//2"


def test_the_largest_of_many_symbols_takes_no_exponential_time() -> None:
    listed = [symbol(f"N{i}") for i in range(70)]
    assert at(reduce(larger, listed), {one: i for i, size in enumerate(listed) for one in symbols_of(size)}) == 69
