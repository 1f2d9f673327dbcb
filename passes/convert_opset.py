"""ConvertOpset: the same graph in the ops of another version of ONNX's own domain."""

from __future__ import annotations

from typing import Any

import attrs

from graph.errors import PassError
from graph.graph import Graph
from graph.node import Node
from graph.rewrite import Rewriter, rewrite
from passes.constants import Namer
from passes.infer import infer
from passes.opaque import OPAQUE_DOMAIN, hide
from passes.registry import REQUESTS, register_pass

SHOWN = 1 << 16
"""Constants of at most this many bytes are shown to the converter: some of its steps read them."""


@register_pass("ConvertOpset", keeps=REQUESTS)
def convert_opset(g: Graph, *, opset: int) -> Graph:
    """ONNX's version converter, graph by graph: it drops functions and leaves bodies as they are, so that each body is
    converted by itself. Node names, inputs and outputs stay; what has no conversion is an error that names the op."""
    if g.opsets.get("", 1) == opset:
        return g
    _check(g, opset)
    return _Conversion(opset, Namer(g)).run(infer(g, strict=False))


def _check(g: Graph, opset: int) -> None:
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not 1 <= opset <= newest:
        raise PassError(f"there is no opset {opset!r}", remedy=f"The onnx package here knows 1 to {newest}")
    if any(node.after for node in g.nodes):
        raise PassError(
            "the graph has control dependencies, which ONNX cannot express",
            remedy="Convert before they are added",
        )


@attrs.frozen(slots=True)
class _Conversion:
    """One run over a graph and the graphs inside it."""

    opset: int
    """The version wanted."""
    namer: Namer
    """Names for the nodes that the converter adds."""
    done: dict[int, Graph] = attrs.Factory(dict)
    """The bodies converted so far: one that several calls share stays one."""

    def run(self, g: Graph) -> Graph:
        """The graph converted."""
        if id(g) not in self.done:
            self.done[id(g)] = self._convert(g)
        return self.done[id(g)]

    def _convert(self, g: Graph) -> Graph:
        from graph.readers.onnx import load_onnx
        from graph.writers.onnx import to_model

        hidden: list[Node] = []
        shown = hide(g, _holds_graph, hidden)
        model = to_model(shown, elide_constants_above=SHOWN)
        made = load_onnx(_converted(model, self.opset, g))
        return self._restored(g, made, hidden)

    def _restored(self, old: Graph, new: Graph, hidden: list[Node]) -> Graph:
        """The converter's graph with the old arrays, the hidden nodes and what ONNX cannot say of a node."""
        before = {node.name: node for node in old.nodes}

        def visit(node: Node, rewriter: Rewriter) -> None:
            made = rewriter.rebuilt(node)
            origin = before.get(node.name)
            if origin is None:
                made = made.evolve(name=self.namer(node.name)) if node.is_op else made
            elif origin.value is not None:
                made = origin
            elif made.domain == OPAQUE_DOMAIN:
                made = self._shown(made, hidden[made.attrs["key"]])
            else:
                made = made.evolve(affinity=origin.affinity, metadata=origin.metadata)
            rewriter.keep(node, made)

        made = rewrite(new, visit)
        opsets = {**old.opsets, "": self.opset}
        return self._same_border(
            old, made.evolve(opsets=opsets, name=old.name, attrs=old.attrs, metadata=old.metadata)
        )

    def _shown(self, made: Node, node: Node) -> Node:
        """A hidden node again, its bodies converted."""
        if node.op == "Scan":
            _check_scan(node, self.opset)
        count = len(node.inputs)
        attributes = {k: self.run(v) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        captures = tuple(entry for entry in made.inputs[count:] if entry is not None)
        return node.evolve(
            inputs=made.inputs[:count],
            captures=captures,
            attrs=attributes,
            subgraph=None if node.subgraph is None else self.run(node.subgraph),
            output_types=made.output_types,
            place=made.place,
        )

    def _same_border(self, old: Graph, new: Graph) -> Graph:
        """The converted graph, if its inputs and outputs are those of the old one."""
        before, after = (
            [[node.name for node in graph.inputs], list(graph.output_names)] for graph in (old, new)
        )
        if before != after:
            raise PassError(
                f"the converter made {after} of the inputs and outputs {before}",
                where=f"graph {old.name!r}",
                remedy="Choose a nearer opset",
            )
        return new


def _holds_graph(node: Node) -> bool:
    return bool(node.bodies)


def _check_scan(node: Node, opset: int) -> None:
    pass


def _converted(model: Any, opset: int, g: Graph) -> Any:
    """ONNX's converter; whatever it raises becomes one error."""
    from onnx.version_converter import convert_version

    try:
        return convert_version(model, opset)
    except Exception as error:
        text = str(error).strip().split("\n")[0]
        raise PassError(
            f"ONNX cannot convert it from opset {g.opsets.get('', 1)} to {opset}: {text}",
            where=f"graph {g.name!r}",
            remedy="Choose a nearer opset, or replace the op that has no conversion",
        ) from error
