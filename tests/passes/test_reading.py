"""One reading of a graph's sizes: what it assumes for kernels that are compiled once, and the elements of shape vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, constant, op, variable
from partita.graph.symbols import AnySize, symbol, symbols_of
from partita.graph.types import TensorType
from partita.passes.infer.reading import Reading

from .reading import Given, of, read, zeros

N, M, T = (symbol(name, least=1) for name in "NMT")


def _integers(*values: int) -> Any:
    return constant(np.array(values))


def test_sizes_that_are_broadcast_are_equal_in_one_form() -> None:
    x, row = variable("x", "float32", ("N", 4)), variable("row", "float32", ("M", 4))
    graph = Graph([op("Add", x, row)], [x, row])
    general, form = (Reading(graph, [(N, 4), (M, 4)], one_form=one_form) for one_form in (False, True))
    assert [r.relation for r in general.requirements] == ["broadcasts to"] and not general.meanings
    assert not form.requirements and form.sizes(graph.outputs[0]) == (M, 4) and form.sizes(row[0]) == (M, 4)


def test_a_form_keeps_the_sizes_of_its_inputs_polynomials() -> None:
    """`M` is not solved as a quotient: a call's symbols are solved from the sizes of its inputs."""
    x, row = variable("x", "float32", ("N", 4)), variable("row", "float32", ("M", 4))
    half = op("Slice", x, _integers(0), _integers(2**40), _integers(0), _integers(2))
    graph = Graph([op("Add", half, row)], [x, row])
    form = Reading(graph, [(N, 4), (M, 4)], one_form=True)
    assert not form.meanings and [r.relation for r in form.requirements] == ["broadcasts to"]


def test_a_form_assumes_no_sizes_equal_that_no_symbol_makes_so() -> None:
    x, row = variable("x", "float32", ("N", 4)), variable("row", "float32", ("M", 4))
    graph = Graph([op("Add", x, row)], [x, row])
    form = Reading(graph, [(2 * N, 4), (3 * M, 4)], one_form=True)
    assert not form.meanings and [r.relation for r in form.requirements] == ["broadcasts to"]


def test_elements_read_before_a_size_is_solved_are_given_by_its_solution() -> None:
    x, row = variable("x", "float32", ("N", 4)), variable("row", "float32", ("M", 4))
    before = [op("Shape", one) for one in (x, row)]
    after = [op("Shape", one) for one in (x, row)]
    total = op("Add", x, row, name="total")
    graph = Graph([*before, total, *after], [x, row])
    general, form = (Reading(graph, [(N, 4), (M, 4)], one_form=one_form) for one_form in (False, True))
    assert [list(general.elements(one[0])) for one in (*before, *after)] == [[N, 4], [M, 4]] * 2
    assert [list(form.elements(one[0])) for one in (*before, *after)] == [[M, 4]] * 4


def test_a_reshape_of_a_form_keeps_sizes_where_no_division_tells_them() -> None:
    x, mask = variable("x", "float32", ("N", "T", 8)), variable("mask", "float32", ("M", "T"))
    wanted = op("Concat", op("Shape", mask, end=1), _integers(-1, 2, 4), axis=0)
    graph = Graph([op("Reshape", x, wanted)], [x, mask])
    form = Reading(graph, [(N, T, 8), (M, T)], one_form=True)
    (batch, *others), (same, _) = form.sizes(graph.outputs[0]) or (), form.sizes(mask[0]) or ()
    assert batch == same and others == [T, 2, 4]


def _element(build: Callable[[Any], Any]) -> tuple[AnySize | None, Reading]:
    """The only element of a vector that is computed from a size, and the reading."""
    x = variable("x", "float32", ("N",))
    graph = Graph([op("ConstantOfShape", build(op("Shape", x)))], [x])
    reading = Reading(graph, [(N,)])
    elements = reading.elements(graph.outputs[0].node.inputs[0])
    return None if elements is None else elements[0], reading


@pytest.mark.parametrize(
    ("build", "wanted", "assumed"),
    [
        (lambda s: op("Div", op("Sub", s, _integers(3)), _integers(2)), lambda n: (n - 3) // 2, 1),
        (lambda s: op("Div", op("Sub", op("Mul", s, _integers(4)), _integers(8)), _integers(4)), lambda n: n - 2, 0),
        (lambda s: op("Mod", op("Sub", s, _integers(3)), _integers(4)), lambda n: (n - 3) % 4, 0),
        (lambda s: op("Mod", _integers(-2), s), lambda n: n - 2, 1),
        (lambda s: op("Where", constant(np.array([True])), s, op("Cast", constant(np.array([0.5], np.float32)), to=7)),
         lambda n: n, 0),
    ],
)
def test_elements_of_shape_vectors(build: Callable[[Any], Any], wanted: Callable[[int], int], assumed: int) -> None:
    element, reading = _element(build)
    assert element is not None and not isinstance(element, int) and len(reading.assumptions) >= assumed
    (one,) = symbols_of(element)
    for n in (3, 4, 7, 10):
        assert element.at({one: n}) == wanted(n)


def test_the_type_that_a_body_is_made_for_has_the_sizes_that_are_numbers() -> None:
    x, unknown = variable("x", "float32", ("N", 4)), variable("u", "float16")
    reading = Reading(Graph([op("Relu", x), op("Relu", unknown)], [x, unknown]), [(N, 4), None])
    assert reading.type_read(x[0]) == TensorType("float32", (None, 4))
    assert reading.type_read(unknown[0]) == TensorType("float16", None)
    assert reading.type_read(None) is None


UNDERIVED = [
    ("Squeeze", of(("N", 3)), "the dimensions of 1"),
    ("Slice", of((4,), [0], [3], [0], [0]), "a step of 0"),
    ("GatherND", of((2, 3), (4, "N")), "the number of dimensions that an index has"),
    ("ScatterND", of((2, 3), (4, "N"), ("K",)), "the number of dimensions that an index has"),
    ("Resize", of((1, 2, 4, 4), None, (4,), coordinate_transformation_mode="tf_crop_and_resize"), "the sizes of a region"),
    ("Resize", of(("N", 2, 4, "W"), None, None, [2, 2, 8, 8], keep_aspect_ratio_policy="not_larger"),
     "sizes that keep the proportions"),
    ("MaxUnpool", of((1, 1, 2, 2), zeros(1, 1, 2, 2), [1, 1, 4, 4], kernel_shape=[2, 2]), "a shape that is asked for"),
    ("DequantizeLinear", of((2, 3), (2, 3)), "scales of several dimensions"),
]


@pytest.mark.parametrize(("op", "given", "reason"), UNDERIVED)
def test_why_no_rule_gives_the_sizes(op: str, given: Given, reason: str) -> None:
    reading, node = read(op, given)
    assert list(reading.stated.values()) == [reason] and reading.sizes(node[0]) is None
