"""What is required of sizes: dropped where it always holds, an error where it never does, and otherwise kept."""

from __future__ import annotations

import pytest

import partita as pt
from partita.graph.symbols import AnySize, joined, symbol
from partita.passes.infer.reading import Reading, Requirement

N, M, B = symbol("N"), symbol("M"), symbol("B")
BOTH = joined(N, M)
Asked = tuple[AnySize, str, AnySize]

ALWAYS: list[Asked] = [
    (3, "==", 3), (N, "==", N), (N - N, "==", 0), (4, ">=", 3), (3, ">=", 3), (N, ">=", 0), (N + 1, ">=", N), (N, ">=", -1),
    (1, "broadcasts to", 3), (3, "broadcasts to", 1), (3, "broadcasts to", 3), (N, "broadcasts to", 1), (1, "broadcasts to", N),
    (BOTH, "broadcasts to", N), (M, "broadcasts to", BOTH), (1, "1 or ==", 3), (3, "1 or ==", 3), (1, "1 or ==", N),
    (N, "1 or ==", N),
]
NEVER: list[Asked] = [
    (3, "==", 4), (N + 1, "==", 0), (N, "==", N + 1), (N + 1, "==", N), (2, ">=", 3), (N, ">=", N + 1), (-1, ">=", N),
    (2, "broadcasts to", 3), (0, "broadcasts to", 2), (N + 2, "broadcasts to", N + 3), (N + 3, "broadcasts to", N + 2),
    (2, "1 or ==", 3), (3, "1 or ==", 1), (N + 2, "1 or ==", N + 3), (N + 3, "1 or ==", N + 2),
]
SOME: list[tuple[Asked, str]] = [
    ((N, "==", 3), "N == 3"), ((N, "==", M), "N == M"), ((N, ">=", 1), "N >= 1"), ((3, ">=", N), "3 >= N"),
    ((N, ">=", M), "N >= M"),
    ((N, "broadcasts to", 3), "N broadcasts to 3"), ((N, "broadcasts to", M), "N broadcasts to M"),
    ((N, "broadcasts to", N + 1), "N broadcasts to N + 1"), ((N + 1, "broadcasts to", N + 2), "N + 1 broadcasts to N + 2"),
    ((N + 2, "broadcasts to", N + 1), "N + 2 broadcasts to N + 1"),
    ((BOTH, "broadcasts to", B), "broadcast(M, N) broadcasts to B"),
    ((N, "1 or ==", 3), "N 1 or == 3"), ((N + 1, "1 or ==", N + 2), "N + 1 1 or == N + 2"), ((N + 2, "1 or ==", 5), "N + 2 == 5"),
    ((2, "1 or ==", N), "2 == N"), ((0, "1 or ==", N), "0 1 or == N"),
]


def kept(*asked: Asked) -> list[str]:
    """What is left of these requirements."""
    reading = Reading(pt.Graph([pt.variable("x", "float32", (2,))]), [(2,)])
    for left, relation, right in asked:
        reading.demand(Requirement(left, relation, right, "two sizes", "node 'y' (Op)"))  # type: ignore[arg-type]
    return [f"{one.left} {one.relation} {one.right}" for one in reading.requirements]


@pytest.mark.parametrize("asked", ALWAYS, ids=str)
def test_what_always_holds_is_dropped(asked: Asked) -> None:
    assert kept(asked) == []


@pytest.mark.parametrize("asked", NEVER, ids=str)
def test_what_never_holds_is_an_error(asked: Asked) -> None:
    with pytest.raises(pt.PartitaError) as refused:
        kept(asked)
    between = "is less than" if asked[1] == ">=" else "and"
    assert refused.value.cause == f"two sizes do not go together: {asked[0]} {between} {asked[2]}"
    assert refused.value.where == "node 'y' (Op)"


@pytest.mark.parametrize(("asked", "left"), SOME, ids=str)
def test_what_holds_for_some_sizes_is_kept(asked: Asked, left: str) -> None:
    assert kept(asked) == kept(asked, asked) == [left]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ([(N, "==", 3), (N, ">=", 2), (N + 1, "==", 4)], ["N == 3"]),
        ([(N, "==", 3), (M, "==", N + 1), (M, ">=", 5)], None),
        ([(M, "==", N + 1), (N, "==", 3), (M, "==", 4)], ["M == N + 1", "N == 3"]),
        ([(M, "==", N + 1), (M, "==", 4)], ["M == N + 1", "N + 1 == 4"]),
        ([(M, "==", N), (M, "broadcasts to", N)], ["M == N"]),
        ([(N, "broadcasts to", 3), (N, ">=", 2)], ["N broadcasts to 3", "N >= 2"]),
        ([(N, ">=", 2), (N, "1 or ==", 4)], ["N >= 2", "N 1 or == 4"]),
    ],
)
def test_sizes_that_are_known_to_be_equal_are_one_from_then_on(asked: list[Asked], left: list[str] | None) -> None:
    if left is None:
        with pytest.raises(pt.PartitaError, match="two sizes do not go together: 4 is less than 5"):
            kept(*asked)
    else:
        assert kept(*asked) == left


def test_sizes_and_elements_of_values_are_those_that_are_known_by_then() -> None:
    x, y = pt.variable("x", "float32", ("N", "M")), pt.variable("y", "float32", ("K", 5))
    sizes = pt.op("Shape", x)
    product = pt.op("MatMul", x, pt.op("Expand", y, pt.constant([3, 5])))
    reading = Reading(pt.Graph([sizes, product]), [(N, M), (symbol("K"), 5)])
    assert (reading.sizes(x[0]), reading.sizes(product[0])) == ((N, 3), (N, 5))
    elements = reading.elements(sizes[0])
    assert elements is not None and elements.tolist() == [N, 3]
    assert (reading.sizes(None), reading.elements(None), reading.array(None)) == (None, None, None)


@pytest.mark.parametrize(
    ("relation", "left", "right", "is_broken"),
    [
        ("==", 3, 3, False), ("==", 3, 4, True), (">=", 4, 3, False), (">=", 3, 3, False), (">=", 2, 3, True),
        ("broadcasts to", 1, 3, False), ("broadcasts to", 3, 1, False), ("broadcasts to", 2, 3, True), ("1 or ==", 1, 3, False),
        ("1 or ==", 3, 1, True), ("1 or ==", 3, 3, False),
    ],
)
def test_a_requirement_of_one_call(relation: str, left: int, right: int, is_broken: bool) -> None:
    one = Requirement(N, relation, M + 1, "two sizes", "node 'y' (Op)")  # type: ignore[arg-type]
    values = {next(iter(size.terms))[0]: number for size, number in ((N, left), (M, right - 1))}
    assert one.is_broken(values) == is_broken
    words = f"{left} is less than {right}" if relation == ">=" else f"{left} and {right}"
    assert one.error(values).cause == f"two sizes do not go together: {words}"
