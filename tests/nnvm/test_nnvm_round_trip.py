"""SaveJSON, then LoadJSON: the same graph."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from partita.graph import Graph
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.text import print_graph
from partita.graph.writers.nnvm import to_nnvm_json
from tests.graphs.printed import graphs
from tests.text.same import difference

CHECKS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@CHECKS
@given(graphs())
def test_a_graph_comes_back_as_it_was(graph: Graph) -> None:
    text = to_nnvm_json(graph)
    back = from_nnvm_json(text)
    assert difference(graph, back) is None
    assert print_graph(back) == print_graph(graph)
    assert json.loads(to_nnvm_json(back)) == json.loads(text)
