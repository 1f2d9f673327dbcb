"""parse(print(g)) is g, whatever g holds."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from partita.graph import Graph
from partita.graph.build import constant, op
from partita.graph.readers.text import parse
from partita.graph.text import print_graph
from tests.graphs.printed import graphs
from tests.text.same import difference

CHECKS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@CHECKS
@given(graphs())
def test_a_graph_comes_back_as_it_was(graph: Graph) -> None:
    text = print_graph(graph)
    back = parse(text)
    assert difference(graph, back) is None
    assert print_graph(back) == text


@CHECKS
@given(graphs())
def test_arrays_written_in_full_need_nothing_else(graph: Graph) -> None:
    text = print_graph(graph, big=None)
    back = parse(text, constants={})
    assert difference(graph, back) is None
    assert print_graph(back, big=None) == text


@CHECKS
@given(graphs())
def test_arrays_by_reference_are_found_in_a_graph(graph: Graph) -> None:
    assert difference(graph, parse(print_graph(graph, big=-1), constants=graph)) is None


def test_the_sign_of_a_complex_nan_stays() -> None:
    bits = np.array([0, 0xFFC00000, 0x7FC00000, 0xFFC00001], "uint32")
    graph = Graph([op("Identity", constant(bits.view("complex64"), name="k"), name="a")])
    back = parse(print_graph(graph, big=None))
    assert back["k"].value.tobytes() == bits.tobytes()
