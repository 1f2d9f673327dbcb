"""A graph is plain data: it is copied, deeply or not, and pickled and read back, as it is."""

from __future__ import annotations

import copy
import importlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings

import partita
from partita.graph import Graph, GraphError, Node, PartitaError, constant, op, variable
from partita.partition import ContainOpSelector, PatternProperty, SubgraphProperty
from partita.passes import apply_pass
from tests.graphs.drawn import graphs
from tests.graphs.topologies import SHAPE, chain

pickle = importlib.import_module("pickle")  # the project pickles nothing itself


def through_bytes(value):
    return pickle.loads(pickle.dumps(value))


WAYS = (copy.deepcopy, through_bytes)


def of(*ops: str) -> SubgraphProperty:
    return PatternProperty(ContainOpSelector(set(ops)), "p")


@pytest.mark.parametrize("way", [*WAYS, copy.copy])
@settings(max_examples=12, deadline=None)
@given(g=graphs())
def test_random_graphs(way, g: Graph) -> None:
    result = way(g)
    assert str(result) == str(g)
    assert [node.affinity for node in result.nodes] == [node.affinity for node in g.nodes]
    assert [node.place for node in result.nodes] == [node.place for node in g.nodes]
    assert [[m.name for m in node.after] for node in result.nodes] == [[m.name for m in node.after] for node in g.nodes]
    apply_pass(result, "InferType")  # which verifies it


@pytest.mark.parametrize("way", WAYS)
def test_the_copy_has_nodes_of_its_own(way) -> None:
    g = chain("Relu", "Neg")
    result = way(g)
    result["relu0"].affinity = "gpu"
    assert g["relu0"].affinity is None
    assert result["neg1"].inputs[0].node is result["relu0"]


def test_a_shallow_copy_shares_the_nodes_and_has_attributes_of_its_own() -> None:
    g = chain("Relu").evolve(attrs={"mine": [1]})
    result = copy.copy(g)
    result.attrs["other"] = 2
    assert result.nodes is g.nodes
    assert g.attrs == {"mine": [1]}
    node = copy.copy(g["relu0"])
    assert node is not g["relu0"] and node.inputs == g["relu0"].inputs


@pytest.mark.parametrize("way", WAYS)
def test_what_two_graphs_share_stays_shared(way) -> None:
    array = np.ones(3, np.float32)
    x, k, same = variable("x", "float32", (3,)), constant(array, "k"), constant(array, "same")
    a = op("Add", x, k, name="a")
    one, two = Graph([op("Mul", a, same, name="b")]), Graph([op("Neg", a, name="c")])
    first, second = way([one, two])
    assert first["a"] is second["a"]
    assert first["k"].value is first["same"].value
    assert first["a"] is not a


@pytest.mark.parametrize("way", WAYS)
def test_types_reports_and_calls_come_along(way) -> None:
    plain = chain("Relu", "Neg", "Exp").evolve(metadata={"author": "me"})
    g = apply_pass(plain, ["InferType", "InferShape", "PartitionGraph"], subgraph_property=of("Relu", "Neg"))
    g.attrs["mine"] = {"a": (1, 2)}
    result = way(g)
    assert str(result) == str(g)
    assert (result.attrs["mine"], result.metadata) == ({"a": (1, 2)}, {"author": "me"})
    assert result.attrs["shape"]["exp2"] == SHAPE
    assert result.attrs["shape"].is_of(result)
    assert str(result.attrs["partition_report"]) == str(g.attrs["partition_report"])
    assert str(apply_pass(result, "InlineSubgraphs")) == str(apply_pass(g, "InlineSubgraphs"))


def test_a_long_chain_needs_no_recursion() -> None:
    value: Node = variable("x", "float32", SHAPE)
    for i in range(20_000):
        value = op("Relu", value, name=f"n{i}")
    g = Graph([value])
    for way in WAYS:
        result = way(g)
        assert len(result) == 20_001
        assert result.outputs[0].name == "n19999"


def test_a_node_alone_is_copied_with_what_it_depends_on() -> None:
    g = chain(*["Relu"] * 5_000)
    result = copy.deepcopy(g.outputs[0])
    assert (result.name, result.node is g.outputs[0].node) == ("relu4999", False)


def test_what_cannot_be_pickled_says_which_attribute_and_why() -> None:
    class Local(SubgraphProperty):
        """Its class is inside a function."""

    message = r"graph 'net': the attribute 'subgraph_property' cannot be pickled: <function .*<lambda> at .* is not a function"
    selector = ContainOpSelector(lambda node: True)
    with pytest.raises(GraphError, match=message) as raised:
        pickle.dumps(chain("Relu").evolve(attrs={"subgraph_property": PatternProperty(selector)}))
    assert "Leave it out: g.evolve(attrs={" in str(raised.value)
    with pytest.raises(GraphError, match=r"cannot be pickled: <class '.*Local'> is not a function or class that can be imported"):
        pickle.dumps(chain("Relu").evolve(attrs={"subgraph_property": Local()}))
    with pytest.raises(GraphError, match=r"'stream' cannot be pickled: generator: cannot pickle 'generator' object"):
        pickle.dumps(chain("Relu").evolve(attrs={"stream": (i for i in range(3))}))
    assert through_bytes(chain("Relu").evolve(attrs={"f": np.add, "g": len, "h": dict.fromkeys, "k": {1, "a"}})).attrs["g"] is len


def test_a_compiled_model_says_what_to_do_instead() -> None:
    model = partita.compile(chain("Relu"), "reference")
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PartitaError, match="model 'net': a compiled model holds machine code") as raised:
            way(model)
        assert 'Write it to a file with model.export("net.partita")' in str(raised.value)
    assert str(through_bytes(model.graph)) == str(model.graph)


def test_nodes_made_after_reading_come_later_in_another_process(tmp_path) -> None:
    path = tmp_path / "g.bytes"
    path.write_bytes(pickle.dumps(chain("Relu", "Neg")))
    code = (
        "import importlib, sys, pathlib, graph\n"
        "g = importlib.import_module('pickle').loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "new = graph.op('Abs', g['relu0'], name='abs')\n"
        "print([node.name for node in graph.Graph([g['neg1'], new]).nodes])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['x', 'relu0', 'neg1', 'abs']"
