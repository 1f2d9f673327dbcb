"""Random accelerators: what they refuse, how their transform rewrites a graph, and what their property gives back are drawn by
chance. They know what really became of each node, and compute nonsense where they are given an op that they had refused."""

from __future__ import annotations

import random
import threading

import numpy as np

import partita as pt
from partita.accelerators import Accelerator, CompiledSubgraph
from partita.graph.interpret import evaluate_node
from partita.graph.rewrite import rewrite

SHAPE = (4,)
UNARY = ("Relu", "Tanh", "Neg", "Abs", "Sigmoid", "HardSwish", "Identity")
BINARY = ("Add", "Mul", "Max")
MERGED = "AddRelu"


def random_graph(draw: random.Random) -> pt.Graph:
    """A graph of up to 16 ops, read near where they are made, some of it in calls that a property has made."""
    x = pt.variable("x", "float32", SHAPE)
    values = [x]
    for i in range(draw.randint(2, 16)):
        kind = draw.choice(UNARY * 2 + BINARY)
        count = 2 if kind in BINARY else 1
        values.append(pt.op(kind, *(draw.choice(values[-4:]) for _ in range(count)), name=f"n{i}"))
    outputs = draw.sample(values[1:], min(len(values) - 1, draw.randint(1, 2))) + [values[-1]]
    g = pt.Graph(list(dict.fromkeys(outputs)), inputs=[x], name="random")
    g = pt.apply_pass(g, ["EliminateDead", "InferShape"])
    if draw.random() < 0.4:
        mine = pt.PatternProperty(pt.ContainOpSelector(set(draw.sample(UNARY + BINARY, 5))), "mine")
        mine.inline = draw.random() < 0.7
        g = pt.apply_pass(g, "PartitionGraph", subgraph_property=mine, min_subgraph_size=2)
    return g


class Own(pt.SubgraphProperty):
    """Gives back what it was drawn to, and remembers that."""

    name = "own"

    def __init__(self, draw: random.Random) -> None:
        self.min_subgraph_size = draw.choice((1, 1, 2, 3))
        self.max_subgraphs = draw.choice((None, None, None, 1, 2))
        self.odd = draw.choice((None, None, 2, 3))
        self.left = draw.choice((None, None, "Tanh", "Mul"))
        self.reviewed: set[str] = set()
        self.uncreated: set[str] = set()

    def review_subgraph(self, subgraph, index):
        names = [node.name for node in subgraph.nodes if node.is_op]
        if self.odd is None or len(names) % self.odd:
            return True
        self.reviewed.update(names)
        return False

    def create_subgraph_node(self, subgraph, index):
        if self.left is None or all(node.op != self.left for node in subgraph.nodes):
            return super().create_subgraph_node(subgraph, index)
        self.uncreated.update(node.name for node in subgraph.nodes if node.is_op)
        return None


class RandomAccelerator(Accelerator):
    """Refuses some ops; its transform renames, splits, merges and removes nodes."""

    name = "that"

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        ops = (*UNARY, *BINARY, "HardSigmoid", MERGED)
        self.refused = frozenset(draw.sample(ops, draw.randint(0, 4)))
        self.renames, self.splits, self.removes = (draw.random() < 0.4 for _ in range(3))
        self.merges = draw.choice(("", "", "listed", "silent", "called"))
        self.own = Own(draw)
        self.origins: dict[str, set[str]] = {}
        """For each node that the latest transform made, by name, the original nodes that it truly stands for."""
        self.removed: set[str] = set()
        self.one_at_a_time = threading.Lock()

    @property
    def hides(self) -> bool:
        """Does it change nodes so that nothing tells what they have become? Then it may be taken to refuse them."""
        return self.merges == "silent" or self.splits or (self.renames and self.removes)

    def subgraph_property(self) -> Own:
        return self.own

    def supports(self, node, graph):
        if node.is_call and self.merges == "called" and node.name.startswith("merged_"):
            return MERGED not in self.refused or f"that has no {MERGED}"
        return not (node.is_call or node.op in self.refused) or f"that has no {node.op}"

    def transform(self, graph):
        with self.one_at_a_time:
            return self._transformed(graph)

    def _transformed(self, graph):
        graph = pt.apply_pass(graph, "InlineSubgraphs") if self.renames or self.splits else graph
        self.origins = {node.name: {node.name} for node in graph.nodes if node.is_op}
        self.removed = set()
        for wanted, step in (
            (self.removes, self._without_identities),
            (self.splits, self._split),
            (self.merges in ("listed", "silent"), self._merged),
            (self.merges == "called", self._called),
            (self.renames, self._renamed),
        ):
            graph = step(graph) if wanted else graph
        return graph

    def _without_identities(self, graph):
        def visit(node, rewriter):
            if node.op == "Identity":
                self.removed |= self.origins.pop(node.name)
                rewriter.replace(node[0], rewriter.value(node.inputs[0]))
            else:
                rewriter.keep(node)

        return rewrite(graph, visit)

    def _split(self, graph):
        def visit(node, rewriter):
            if node.op != "HardSwish":
                rewriter.keep(node)
                return
            x, origin = rewriter.value(node.inputs[0]), self.origins.pop(node.name)
            half = pt.op("HardSigmoid", x, alpha=1 / 6, beta=0.5, name=f"{node.name}_half")
            self.origins |= {f"{node.name}_half": origin, f"{node.name}_product": origin}
            rewriter.replace(node[0], pt.op("Mul", x, half, name=f"{node.name}_product")[0])

        return rewrite(graph, visit)

    def _merged(self, graph):
        """Each Add that only a Relu reads becomes one op with it; "silent": without saying so."""
        index, outputs = graph.index, {entry.node for entry in graph.outputs}

        def swallowed(node):
            readers = index.consumers[index.number[node]]
            return node.op == "Add" and node not in outputs and [index.nodes[i].op for i in readers] == ["Relu"]

        def visit(node, rewriter):
            if node.op == "Relu" and swallowed(node.inputs[0].node):
                first = node.inputs[0].node
                origin = self.origins.pop(first.name) | self.origins[node.name]
                self.origins[node.name] = origin
                result = pt.op(MERGED, *map(rewriter.value, first.inputs), domain="acc", name=node.name)
                says = {"partita.fused": "\n".join(sorted(origin))} if self.merges == "listed" else {}
                rewriter.replace(node[0], result.evolve(metadata=says)[0])
            elif not swallowed(node):
                rewriter.keep(node)

        return rewrite(graph, visit)

    def _called(self, graph):
        merged = pt.PatternProperty(pt.Pattern("Add", "Relu"), "merged")
        result = pt.apply_pass(graph.evolve(attrs={}), "PartitionGraph", subgraph_property=merged)
        for node in result.nodes:
            if node.is_call and node.name.startswith("merged_"):
                inner = [n.name for n in node.subgraph.nodes if n.is_op]
                self.origins[node.name] = set().union(*(self.origins.pop(name) for name in inner))
        return result

    def _renamed(self, graph):
        def visit(node, rewriter):
            if not node.is_op or node.is_call:
                rewriter.keep(node)
                return
            self.origins[f"{node.name}_n"] = self.origins.pop(node.name)
            rewriter.keep(node, rewriter.rebuilt(node, name=f"{node.name}_n", output_names=(f"{node.name}_v",)))

        return rewrite(graph, visit)

    def compile(self, graph, config):
        return Nonsense(self, graph)


class Nonsense(CompiledSubgraph):
    """Computes what it supports, and minus one for all else: what it is wrongly given shows in the numbers."""

    def __init__(self, device: RandomAccelerator, graph: pt.Graph) -> None:
        self.device = device
        self.graph = graph

    def run(self, inputs, out=None):
        return self._run(self.graph, inputs)

    def _run(self, graph, inputs):
        values = dict(zip((node[0] for node in graph.inputs), inputs, strict=True))
        for node in graph.nodes:
            if not node.is_op:
                continue
            read = [values[entry] for entry in node.inputs]
            if self.device.supports(node, graph) is not True:
                listed = [np.full(SHAPE, -1, np.float32) for _ in node.outputs]
            elif node.is_call:
                listed = self._plain(node.subgraph, read)
            elif node.op == MERGED:
                listed = [np.maximum(read[0] + read[1], 0)]
            else:
                listed = evaluate_node(node, read, graph.opsets)
            values.update(zip(node.outputs, listed, strict=True))
        return [values[entry] for entry in graph.outputs]

    @staticmethod
    def _plain(body, inputs):
        values = dict(zip((node[0] for node in body.inputs), inputs, strict=True))
        for node in body.nodes:
            if node.is_op:
                result = evaluate_node(node, [values[entry] for entry in node.inputs], body.opsets)
                values.update(zip(node.outputs, result, strict=True))
        return [values[entry] for entry in body.outputs]
