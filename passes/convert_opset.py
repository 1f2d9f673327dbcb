"""ConvertOpset: converts a graph to another version of ONNX's own domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from partita.graph.errors import PassError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import COORDINATES_SINCE, older_positions
from partita.graph.ops import spec_of
from partita.graph.ops.onnx_crashes import is_fragile
from partita.graph.ops.traits import ops
from partita.graph.readers.onnx import load_onnx
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.graph.writers.onnx import to_model
from partita.passes.bodies import control_targets
from partita.passes.constants import Namer
from partita.passes.infer import infer
from partita.passes.registry import REQUESTS, register_pass
from partita.passes.version_converter import Refused, convert_version

SHOWN = 1 << 16
"""Maximum bytes of a constant that is passed to the converter: some of its steps read them."""


MASKS_ARE_BOOL = 10
"""The first opset whose Dropout returns a mask of bool; in older ones it has the data's type."""

OPAQUE, OPAQUE_DOMAIN = "Opaque", "partita.opaque"
"""The op of a node that is hidden from the converter, and its domain; its attribute `key` numbers them."""


@register_pass("ConvertOpset", keeps=REQUESTS)
def convert_opset(g: Graph, *, opset: int) -> Graph:
    """Runs ONNX's version converter, graph by graph: it drops functions and leaves bodies unchanged, so each body is
    converted separately. Names, inputs and outputs are kept; an op without a conversion is an error with its reason."""
    if g.opsets.get("") == opset:
        return g
    _check(g, opset)
    if "" not in g.opsets:
        return g.evolve(opsets={**g.opsets, "": opset})
    return _Conversion(g.opsets[""], opset, Namer(g)).run(infer(g, strict=False))


def _check(g: Graph, opset: int) -> None:
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, int) or not 1 <= opset <= newest:
        raise PassError(f"there is no opset {opset!r}", remedy=f"The onnx package here knows 1 to {newest}")
    if control_targets(g):
        raise PassError(
            "the graph has control dependencies, which ONNX cannot express",
            remedy="Convert before they are added",
        )


@attrs.frozen(slots=True)
class _Conversion:
    """One run over a graph and all graphs inside it."""

    old: int
    """The current version."""
    opset: int
    """The target version."""
    namer: Namer
    """Names for the nodes that the converter adds."""
    done: dict[int, Graph] = attrs.Factory(dict)
    """The bodies converted so far: a shared body remains shared."""

    def run(self, g: Graph) -> Graph:
        """The graph converted."""
        if id(g) not in self.done:
            self.done[id(g)] = self._convert(g)
        return self.done[id(g)]

    def _convert(self, g: Graph) -> Graph:
        opsets = {**g.opsets, "": self.opset}
        computed = [entry for entry in dict.fromkeys(g.outputs) if entry.node.is_op]
        if not any(node.is_op for node in g.nodes):
            return g.evolve(opsets=opsets)
        _refuse_wrong(g, self.opset)
        for entry in computed:
            if entry.index and self._changes_mask(entry.node):
                cause = f"the mask, an output of the graph, has another type in opset {self.opset} than in {self.old}"
                raise PassError(cause, where=f"node {entry.node.name!r} (Dropout)", remedy="Leave it out of the outputs")
        hidden: list[Node] = []
        shown = _with_opaque(g.evolve(outputs=computed, output_names=[entry.name for entry in computed]), hidden)
        model = to_model(shown, elide_constants_above=SHOWN)
        new, entries = self._restored(g, load_onnx(_converted(model, self.opset, g)), hidden)
        return g.evolve(
            outputs=[entries(entry) for entry in g.outputs],
            output_names=g.output_names,
            nodes=new,
            opsets=opsets,
        )

    def _restored(self, old: Graph, new: Graph, hidden: list[Node]) -> Any:
        """The converter's nodes on the old inputs and constants, with the old names and everything that it dropped; and a
        function that maps old values to new ones."""
        given = {node.output_names[0]: node for node in old.nodes if not node.is_op}
        ops = {node.name: node for node in old.nodes if node.is_op}
        names = {name for node in old.nodes for name in node.output_names}
        rewriter = Rewriter(new)
        kept: list[Node] = []
        for node in new.nodes:
            if not node.is_op and node.output_names[0] in given:
                rewriter.keep(node, given[node.output_names[0]])
            else:
                kept.append(rewriter.keep(node, self._node(rewriter.rebuilt(node), ops, names, hidden)))
        values = {name: NodeEntry(node, i) for node in kept for i, name in enumerate(node.output_names)}

        def entry(value: NodeEntry) -> NodeEntry:
            if not value.node.is_op:
                return value
            if value.name not in values:
                raise PassError(f"the converter lost the value {value.name!r}", where=f"graph {old.name!r}")
            return values[value.name]

        return kept, entry

    def _node(self, converted: Node, ops: dict[str, Node], names: set[str], hidden: list[Node]) -> Node:
        """One node: a hidden one restored, an old one with the fields that ONNX lacks, or one that the converter added."""
        if converted.domain == OPAQUE_DOMAIN:
            return self._shown(converted, hidden[converted.attrs["key"]])
        if converted.op == "Resize" and not converted.domain and self.old < COORDINATES_SINCE <= self.opset:
            converted = converted.evolve(attrs={**converted.attrs, **self._positions(converted)})
        if self._changes_mask(converted) and len(converted.output_types) == 2:
            data, _ = converted.output_types
            mask = attrs.evolve(data, dtype="bool") if isinstance(data, TensorType) and self.opset >= MASKS_ARE_BOOL else data
            converted = converted.evolve(output_types=(data, mask))
        origin = ops.get(converted.name)
        if origin is not None and converted.is_op:
            return converted.evolve(affinity=origin.affinity, metadata=origin.metadata)
        name = self.namer(converted.name)
        own = {converted.name: name}
        values = [v if v in names or not v else own.get(v) or self.namer(v) for v in converted.output_names]
        return converted.evolve(name=name, output_names=tuple(values))

    def _changes_mask(self, node: Node) -> bool:
        """True for a Dropout whose mask, a float like the data in older versions, has another type in the target version."""
        changes = (self.old < MASKS_ARE_BOOL) != (self.opset < MASKS_ARE_BOOL)
        return changes and node.op == "Dropout" and not node.domain

    def _positions(self, resize: Node) -> Mapping[str, str]:
        """Attributes for the coordinate transformation of an older Resize, which the converter does not write."""
        factors = resize.inputs[2].node.value if len(resize.inputs) > 2 and resize.inputs[2] is not None else None
        try:
            return older_positions(str(resize.attrs.get("mode", "nearest")), factors)
        except ValueError as error:
            cause = f"Resize has no conversion from opset {self.old} to {self.opset}: {error}"
            raise PassError(cause, where=f"node {resize.name!r} (Resize)") from error

    def _shown(self, call_node: Node, node: Node) -> Node:
        """Restores a hidden node, with its bodies converted."""
        self._check_op(node)
        count = len(node.inputs)
        attributes = {k: self.run(v) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        padded = call_node.inputs + (None,) * (count - len(call_node.inputs))
        return node.evolve(
            inputs=padded[:count],
            captures=tuple(entry for entry in padded[count:] if entry is not None),
            attrs=attributes,
            subgraph=None if node.subgraph is None else self.run(node.subgraph),
            place=call_node.place,
        )

    def _check_op(self, node: Node) -> None:
        """Raises if a hidden op differs between versions. They are all the same but Scan, which lost its batch in opset 9."""
        if node.subgraph is not None or node.domain:
            return
        if spec_of(node.op or "", "", self.opset) is None or (
            node.op == "Scan" and (self.old < 9) != (self.opset < 9)
        ):
            raise PassError(
                f"{node.op} has no conversion from opset {self.old} to {self.opset}",
                where=f"node {node.name!r} ({node.op})",
            )


def _with_opaque(g: Graph, hidden: list[Node]) -> Graph:
    """The graph with opaque ops in place of nodes that the converter drops, does not enter or crashes at; their captures become
    further inputs."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.is_op and (node.bodies or is_fragile(node)):
            rebuilt = rebuilt.evolve(
                op=OPAQUE, domain=OPAQUE_DOMAIN, inputs=rebuilt.inputs + rebuilt.captures, captures=(), subgraph=None,
                attrs={"key": len(hidden)},
            )
            hidden.append(node)
        rewriter.keep(node, rebuilt)

    rewritten = rewrite(g, visit)
    return rewritten.evolve(opsets={**g.opsets, OPAQUE_DOMAIN: 1}) if hidden else g


def _refuse_wrong(g: Graph, opset: int) -> None:
    """Up to opset 12 Softmax and its kin normalize over all axes from the given one on; the converter ignores that when it
    converts downwards, which is right for the last axis only."""
    if opset >= 13 or g.opsets[""] < 13:
        return
    for node in g.nodes:
        if node.op in ops("softmax") and not node.domain:
            known = node[0].type
            rank = known.rank if isinstance(known, TensorType) else None
            if node.attrs.get("axis", -1) not in (-1, None if rank is None else rank - 1):
                raise PassError(
                    f"{node.op} over an axis that is not the last has no equal below opset 13",
                    where=f"node {node.name!r} ({node.op})",
                    remedy="Choose opset 13 or newer",
                )


def _converted(model: Any, opset: int, g: Graph) -> Any:
    """The result of ONNX's converter, whose errors all become PassError."""
    try:
        return convert_version(model, opset)
    except Refused as error:
        text = str(error).strip().split("\n")[0].rpartition(" failed: ")[2]
        raise PassError(
            f"ONNX cannot convert it from opset {g.opsets.get('', 1)} to {opset}: {text}",
            where=f"graph {g.name!r}",
            remedy="Choose a nearer opset, or replace the op that has no conversion",
        ) from error
