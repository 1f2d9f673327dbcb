"""Bodies of plain calls, built when they are read: the same for every reader, and as the pass saw the graph."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import pytest

import partita as pt
from partita.graph import Graph
from partita.graph.graph import DEFERRED
from partita.partition.partition_graph import partition_graph


def net() -> Graph:
    """Two ops for one device between two for none."""
    x = pt.variable("x", "float32", (2,))
    host = pt.op("Softsign", x, name="host")
    first = pt.op("Relu", host, name="first")
    second = pt.op("Relu", first, name="second")
    first.affinity = second.affinity = "cpu"
    return Graph([pt.op("Softsign", second, name="last")])


def body_of(g: Graph) -> Graph:
    """The body of the only call."""
    (body,) = [node.subgraph for node in g.nodes if node.subgraph is not None]
    return body


def is_built(body: Graph) -> bool:
    """True if a part has been read."""
    return body._build is None


def test_a_body_is_built_by_the_first_reader() -> None:
    body = body_of(partition_graph(net()))
    assert (body.name, body.opset, is_built(body)) == ("cpu_0", 21, False)
    nodes = body.nodes
    assert is_built(body)
    assert nodes is body.nodes
    assert [node.name for node in nodes] == ["host", "first", "second"]
    assert [entry.node for entry in body.outputs] == [nodes[-1]]


@pytest.mark.parametrize("part", DEFERRED)
def test_each_part_builds_all(part: str) -> None:
    body = body_of(partition_graph(net()))
    assert len(getattr(body, part)) in (1, 3)
    assert is_built(body)


def test_affinities_are_those_that_the_pass_saw() -> None:
    g = net()
    body = body_of(partition_graph(g))
    for node in g.nodes:
        node.affinity = "later"
    assert [(node.name, node.affinity) for node in body.nodes] == [("host", None), ("first", "cpu"), ("second", "cpu")]


def test_threads_read_the_same_nodes() -> None:
    body = body_of(partition_graph(net()))
    together = threading.Barrier(8)
    read = []

    def reader() -> None:
        together.wait()
        read.append(body.nodes)

    threads = [threading.Thread(target=reader) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 8
    assert all(nodes is body.nodes for nodes in read)


def pickled(g: Graph) -> Graph:
    """The graph, written and read by pickle."""
    return pickle.loads(pickle.dumps(g))  # noqa: S301


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_copies_have_the_body(again: Callable[[Graph], Graph]) -> None:
    body = body_of(partition_graph(net()))
    assert str(again(body)) == str(body_of(partition_graph(net())))


def test_a_graph_has_no_other_attributes() -> None:
    body = body_of(partition_graph(net()))
    assert not hasattr(body, "node")
    assert not is_built(body)
