"""SimplifyIdentities: removes ops that only pass their input on."""

from __future__ import annotations

from collections.abc import Callable

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import BY_NUMBER, TensorType
from partita.passes.bodies import control_targets, everywhere
from partita.passes.constants import as_constant, ints
from partita.passes.infer.shape_operands import follows_from_sizes
from partita.passes.registry import REQUESTS, register_pass

Rule = Callable[[Node, Graph], "NodeEntry | None"]
"""(node, graph) -> the value that the node's first output equals, or None."""


@register_pass("SimplifyIdentities", keeps=("shape", "dtype", *REQUESTS))
def simplify_identities(g: Graph) -> Graph:
    """Removes Identity, Dropout at inference, and every Cast, Reshape, Transpose, Slice, Pad, Concat and the like that
    changes nothing; merges two successive Transposes or Reshapes. It uses the types, so run
    InferShape before. Linear."""
    return everywhere(g, _simplify)


def _simplify(g: Graph) -> Graph:
    pinned = control_targets(g)
    read = {entry for node in g.nodes for entry in node.reads} | set(g.outputs)
    returned = set(g.outputs)

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if (
            not rebuilt.is_op
            or rebuilt.domain
            or rebuilt.after
            or node in pinned
            or any(e in read for e in node.outputs[1:])
        ):
            rewriter.keep(node, rebuilt)
            return
        rebuilt = _joined(rebuilt)
        same = next((e for rule in RULES.get(rebuilt.op or "", ()) if (e := rule(rebuilt, g)) is not None), None)
        if same is None or (node[0] in returned and same.type != node[0].type):
            rewriter.keep(node, rebuilt)
        else:
            rewriter.replace(node[0], same)

    return rewrite(g, visit)


def _input(node: Node, i: int) -> NodeEntry | None:
    return node.inputs[i] if i < len(node.inputs) else None


def _hands_on(node: Node, g: Graph) -> NodeEntry | None:
    return node.inputs[0]


def _only_one(node: Node, g: Graph) -> NodeEntry | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _dropout(node: Node, g: Graph) -> NodeEntry | None:
    """The input of a Dropout at inference: up to opset 6 with is_test, from 12 on unless training_mode is set."""
    version = g.opset
    if version < 7:
        return node.inputs[0] if node.attrs.get("is_test", 0) else None
    mode = _input(node, 2)
    if mode is None:
        return node.inputs[0]
    value = as_constant(mode)
    return node.inputs[0] if value is not None and not value.any() else None


def _cast(node: Node, g: Graph) -> NodeEntry | None:
    """The input of a Cast to the type that it has."""
    x, y = node.inputs[0], node[0]
    if x is None or not isinstance(x.type, TensorType):
        return None
    if isinstance(y.type, TensorType):
        wanted = y.type.dtype
    else:
        wanted = BY_NUMBER.get(node.attrs.get("to", 0), "")
    return x if wanted == x.type.dtype else None


def _same_shape(node: Node, g: Graph) -> NodeEntry | None:
    """The input of an op that keeps the order of elements and results in the same shape, symbols included."""
    x = node.inputs[0]
    return x if x is not None and _equal_shapes(x, node[0]) and follows_from_sizes(_input(node, 1)) else None


def _equal_shapes(x: NodeEntry, y: NodeEntry) -> bool:
    a, b = x.type, y.type
    return isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape == b.shape and _is_named(a)


def _is_named(known: TensorType) -> bool:
    return known.shape is not None and None not in known.shape


def _tile(node: Node, g: Graph) -> NodeEntry | None:
    if g.opset < 6:
        return None
    repeats = _input(node, 1)
    value = None if repeats is None else as_constant(repeats)
    return node.inputs[0] if value is not None and (value == 1).all() else None


def _slice(node: Node, g: Graph) -> NodeEntry | None:
    """The input of a Slice that returns all elements, forwards."""
    x, steps = node.inputs[0], _input(node, 4)
    if x is None or not (isinstance(x.type, TensorType) and x.type.is_static and _equal_shapes(x, node[0])):
        return None
    if steps is None:
        return x
    value = as_constant(steps)
    return x if value is not None and (value > 0).all() else None


def _where(node: Node, g: Graph) -> NodeEntry | None:
    """The branch that a constant Where always selects, if broadcasting does not change its shape."""
    condition = as_constant(node.inputs[0])
    if condition is None or not condition.size or condition.any() != condition.all():
        return None
    taken, *others = (node.inputs[1 if condition.all() else 2], *node.inputs)
    return taken if taken is not None and all(_is_spread_over(other, taken) for other in others) else None


def _is_spread_over(entry: NodeEntry | None, whole: NodeEntry) -> bool:
    """True if each size of the value equals that of `whole`, symbols included, or is 1."""
    own, known = None if entry is None else entry.type, whole.type
    if not isinstance(own, TensorType) or not isinstance(known, TensorType) or own.shape is None or known.shape is None:
        return False
    aligned = known.shape[max(0, len(known.shape) - len(own.shape)) :]
    is_named = None not in known.shape
    return is_named and len(own.shape) <= len(known.shape) and all(a in (1, b) for a, b in zip(own.shape, aligned, strict=True))


def _pad(node: Node, g: Graph) -> NodeEntry | None:
    """The input of a Pad by zero elements."""
    pads = ints(node, 1, "pads" if g.opset > 1 else "paddings")
    return node.inputs[0] if pads is not None and not any(pads) else None


def _transpose(node: Node, g: Graph) -> NodeEntry | None:
    perm = _permutation(node)
    return node.inputs[0] if perm is not None and perm == sorted(perm) else None


def _permutation(node: Node) -> list[int] | None:
    """The order of the axes; by default it is reversed, which requires the rank."""
    if "perm" in node.attrs:
        return list(node.attrs["perm"])
    x = node.inputs[0]
    rank = x.type.rank if x is not None and isinstance(x.type, TensorType) else None
    return None if rank is None else list(range(rank))[::-1]


def _back_again(node: Node, g: Graph) -> NodeEntry | None:
    """The input of the first of two reshaping ops, if the second restores its shape."""
    first = _origin(node)
    x = None if first is None else first.inputs[0]
    return x if x is not None and _equal_shapes(x, node[0]) and follows_from_sizes(_input(node, 1)) else None


def _origin(node: Node) -> Node | None:
    """The op before it, if that only changes the shape, whatever the values are."""
    x = node.inputs[0]
    if x is None or x.node.op not in ops("reshape") or x.node.domain:
        return None
    return x.node if follows_from_sizes(_input(x.node, 1)) else None


def _joined(node: Node) -> Node:
    """The node merged with the one before it, if possible."""
    x = node.inputs[0] if node.inputs else None
    if x is None or x.node.domain or x.node.after:
        return node
    if node.op == x.node.op == "Transpose":
        inner, outer = _permutation(x.node), _permutation(node)
        if inner is not None and outer is not None:
            return node.evolve(inputs=x.node.inputs, attrs={**node.attrs, "perm": [inner[i] for i in outer]})
    if node.op == "Reshape" and _origin(node) is not None and _says_all(node):
        return node.evolve(inputs=(x.node.inputs[0], *node.inputs[1:]))
    return node


def _says_all(node: Node) -> bool:
    """True if the Reshape copies no dimension of its input by a 0."""
    shape = ints(node, 1, "shape")
    return shape is not None and (0 not in shape or bool(node.attrs.get("allowzero", 0)))


RULES: dict[str, tuple[Rule, ...]] = {
    "Identity": (_hands_on,),
    "Dropout": (_dropout,),
    "Cast": (_cast,),
    "CastLike": (_cast,),
    "Reshape": (_same_shape, _back_again),
    "Flatten": (_same_shape, _back_again),
    "Squeeze": (_same_shape, _back_again),
    "Unsqueeze": (_same_shape, _back_again),
    "Expand": (_same_shape,),
    "Tile": (_tile,),
    "Slice": (_slice,),
    "Pad": (_pad,),
    "Where": (_where,),
    "Transpose": (_transpose,),
    "Concat": (_only_one,),
    "Sum": (_only_one,),
    "Mean": (_only_one,),
    "Max": (_only_one,),
    "Min": (_only_one,),
}
