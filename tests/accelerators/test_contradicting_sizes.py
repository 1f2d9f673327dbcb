"""Calls whose sizes contradict something inside of a model: one error, whichever way the model runs, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.building.specialized import SpecializedSubgraph

OPERANDS = "the sizes of the operands do not go together: 6 and 3"


def rows(name: str = "net") -> pt.Graph:
    """x + a constant of three rows."""
    x = pt.variable("x", "float32", ("N", 4))
    return pt.Graph([pt.op("Add", pt.op("Relu", x), pt.constant(np.ones((3, 4), np.float32)), name="sum")], name=name)


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def compiled(device: str, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: pt.compile(rows(), device, **options)


def imported(folder: Path) -> Any:
    path = folder / "net.partita"
    pt.compile(rows(), "cpu").export(path)
    return pt.import_model(path)


def imported_without_bodies(folder: Path) -> Any:
    path = folder / "net.partita"
    pt.compile(rows(), "HETERO:cpu,reference").export(path, bodies=False)
    return pt.import_model(path)


WAYS: dict[str, Callable[[Path], Any]] = {
    "cpu": compiled("cpu"),
    "cpu, size by size": compiled("cpu", config={"cpu": {"ANY_SIZE": False}}),
    "reference": compiled("reference"),
    "several": compiled("HETERO:cpu,reference", pin={"sum": "reference"}),
    "each": compiled("MULTI:cpu,reference"),
    "at once": compiled("cpu", config={"HETERO": {"START": "now", "START_WITH": "reference"}}),
    "imported": imported,
    "imported without bodies": imported_without_bodies,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_error_whichever_way_a_model_runs(way: str, tmp_path: Path) -> None:
    with WAYS[way](tmp_path) as model:
        for _ in range(2):
            for count in (3, 1):
                given = numbers(count, 4)
                np.testing.assert_array_equal(model(given)[0], given + np.ones((3, 4), np.float32))
            for call in (model, lambda array: model.start(array).result(), model.profile):
                with pytest.raises(pt.InputError, match="x is \\[6, 4\\]") as caught:
                    call(numbers(6, 4))
                assert caught.value.cause == OPERANDS and "node 'sum' (Add)" in str(caught.value)


def test_a_text_longer_than_its_table_of_positions() -> None:
    """The commonest of such calls: more tokens than there are positions."""
    tokens = pt.variable("tokens", "int64", ("N", "T"))
    table, words = numbers(16, 8), numbers(30, 8)
    begin, zero = (pt.constant(np.array(value, np.int64)) for value in ([0], [0]))
    positions = pt.op("Slice", pt.constant(np.arange(16)), begin, pt.op("Shape", tokens, start=1, end=2), zero)
    graph = pt.Graph([pt.op("Add", pt.op("Gather", pt.constant(words), tokens), pt.op("Gather", pt.constant(table), positions))])
    model = pt.compile(graph, "cpu")
    for length in (5, 16, 1):
        given = np.full((2, length), 7)
        np.testing.assert_array_equal(model(given)[0], words[given] + table[:length])
    for length in (17, 20, 40):
        with pytest.raises(pt.InputError, match=f"the sizes of the operands do not go together: {length} and 16"):
            model(np.full((2, length), 7))


def test_nothing_is_compiled_for_sizes_that_contradict_something() -> None:
    model = pt.compile(rows(), "cpu", config={"cpu": {"ANY_SIZE": False}})
    for count in (2, 6, 0):
        with pytest.raises(pt.InputError, match="the sizes of the operands"):
            model(numbers(count, 4))
    (unit,) = model.units
    assert isinstance(unit.compiled, SpecializedSubgraph) and unit.compiled.sizes == ()


def test_sizes_that_values_decide_are_held_where_they_come_up() -> None:
    """The number of elements that are not zero is known once the op has run: the subgraph behind it refuses its size."""
    x = pt.variable("x", "float32", (4,))
    places = pt.op("Cast", pt.op("NonZero", x), to=1)
    graph = pt.Graph([pt.op("Add", pt.op("Relu", places), pt.constant(np.ones((1, 3), np.float32)), name="sum")])
    model = pt.compile(graph, "HETERO:cpu,reference")
    assert {unit.device.label for unit in model.units} == {"cpu", "reference"}
    np.testing.assert_array_equal(model(np.array([1, 0, 1, 1], np.float32))[0], [[1, 3, 4]])
    np.testing.assert_array_equal(model(np.array([0, 0, 0, 1], np.float32))[0], [[4, 4, 4]])
    for given in ([1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]):
        with pytest.raises(pt.PartitaError, match="the sizes of the operands do not go together"):
            model(np.array(given, np.float32))


@pytest.mark.parametrize(
    ("build", "fits", "beyond"),
    [
        (lambda x: pt.op("ScatterND", x, pt.constant(np.array([[0, 3], [4, -4]])), pt.constant(numbers(2))), (5, 4), (4, 4)),
        (lambda x: pt.op("GatherND", x, pt.constant(np.array([[-5, 1]]))), (5, 4), (4, 4)),
        (lambda x: pt.op("GatherElements", x, pt.constant(np.array([[4, 0, -5, 1]]))), (5, 4), (4, 4)),
        (lambda x: pt.op("Gather", x, pt.constant(np.array([4]))), (5, 4), (2, 4)),
    ],
)
def test_constant_indices_are_held_against_the_dimension_that_they_count(build: Any, fits: Any, beyond: Any) -> None:
    graph = pt.Graph([build(pt.variable("x", "float32", ("N", 4)))])
    model, oracle = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    np.testing.assert_array_equal(model(numbers(*fits))[0], oracle(numbers(*fits))[0])
    for device in (model, oracle):
        with pytest.raises(pt.InputError, match="a dimension and the indices into it do not go together"):
            device(numbers(*beyond))


@pytest.mark.parametrize("device", ["cpu", "HETERO:cpu,reference"])
def test_static_sizes_that_contradict_each_other_are_no_answer(device: str) -> None:
    """A slice of six positions that is to have seven, and a bound that is not a single number."""
    x = pt.variable("x", "float32", (2, 7, 8))
    first = pt.op("Slice", pt.constant(np.arange(6)), *[pt.constant(np.array([value])) for value in (0, 7, 0)])
    table = pt.op("Gather", pt.constant(numbers(6, 8)), first)
    bounds = pt.op("Clip", pt.op("Relu", pt.variable("y", "float32", (3,))), pt.constant(numbers(2)))
    for node, given in ((pt.op("Add", x, table), numbers(2, 7, 8)), (bounds, numbers(3))):
        with pytest.raises(pt.PartitaError):
            pt.compile(pt.Graph([node]), device)(given)


def test_an_index_of_a_known_dimension_is_refused_before_any_call() -> None:
    x = pt.variable("x", "float32", ("N", 4))
    graph = pt.Graph([pt.op("ScatterND", x, pt.constant(np.array([[0, -5]])), pt.constant(numbers(1)))])
    with pytest.raises(pt.NotSupported, match="index -5 is outside of a dimension of 4"):
        pt.compile(graph, "cpu")
