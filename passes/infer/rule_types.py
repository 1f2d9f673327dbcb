"""Types of the ops whose sizes ONNX's inference gets wrong: the shapes are those of their rules, the element types those of their
schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from partita.graph.build import variable
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.windows import SAME
from partita.graph.ops.schemas import spec_of
from partita.graph.ops.traits import ops
from partita.graph.single_node import graph_of_node
from partita.graph.symbols import AnySize, Sizes, symbol
from partita.graph.types import Dim, TensorType, Type
from partita.passes.infer.reading import Reading, symbolic


def is_misread(node: Node) -> bool:
    """True if ONNX's inference may compute wrong sizes for the op."""
    test = _MISREAD.get(str(node.op)) if not node.domain else None
    return test is not None and test(node)


def rule_types(node: Node, inputs: Sequence[Type | None], opsets: Mapping[str, int]) -> Sequence[Type | None]:
    """The types of the op's results by its rule. A size that is no integer and no symbol of the inputs is unknown."""
    types = dict(zip(node.inputs, inputs, strict=False))

    def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
        is_kept = entry.node.value is not None and entry != node.inputs[0]  # Without its data the op is not computed.
        return entry if is_kept else variable(f"x{number}", type=types[entry])[0]

    graph = graph_of_node(node.evolve(output_types=(None,) * len(node.output_names)), opsets, stand_in)
    reading = Reading(graph, [symbolic(one[0]) for one in graph.inputs], exact=True)
    result = next(one for one in graph.nodes if one.is_op)
    named = [size for kind in inputs if isinstance(kind, TensorType) for size in kind.shape or () if isinstance(size, str)]
    names: dict[AnySize | None, str] = {symbol(name): name for name in named}
    pairs = zip(_element_types(node, inputs, opsets), result.outputs, strict=False)
    return [None if dtype is None else TensorType(dtype, _dims(reading.sizes(entry), names)) for dtype, entry in pairs]


def _dims(sizes: Sizes | None, names: Mapping[AnySize | None, str]) -> tuple[Dim, ...] | None:
    """The sizes as a type holds them."""
    return None if sizes is None else tuple([size if isinstance(size, int) else names.get(size) for size in sizes])


def _element_types(node: Node, inputs: Sequence[Type | None], opsets: Mapping[str, int]) -> list[str | None]:
    """The element type of each result: the only one that the schema allows, or that of the inputs with the same letter."""
    spec = spec_of(str(node.op), node.domain, opsets.get(node.domain, 1))
    if spec is None:
        return []
    params = [spec.inputs[min(slot, len(spec.inputs) - 1)] for slot in range(len(inputs))]
    given = {p.symbol: kind.dtype for p, kind in zip(params, inputs, strict=True) if isinstance(kind, TensorType)}
    return [next(iter(p.types)) if len(p.types) == 1 else given.get(p.symbol) for p in spec.outputs[: len(node.output_names)]]


def _counts_windows_of_padding(node: Node) -> bool:
    """In ceil mode ONNX counts a window that would begin in the padding, and it rounds up if the padding is automatic."""
    return bool(node.attrs.get("ceil_mode", 0))


def _adds_padding_twice(node: Node) -> bool:
    """For automatic padding ONNX adds the output padding, which that includes. For a given output_shape that is smaller than the
    data it drops the last axes."""
    automatic = node.attrs.get("auto_pad", "NOTSET")
    automatic = automatic.decode() if isinstance(automatic, bytes) else automatic
    return bool(node.attrs.get("output_shape")) or (automatic in SAME and any(node.attrs.get("output_padding") or ()))


def _rounds_in_double(node: Node) -> bool:
    """ONNX multiplies by constant factors in double precision, the op in single: ten times 0.7 is 7, and not a little less."""
    scales, sizes = (*node.inputs[2:4], None, None)[:2] if len(node.inputs) > 2 else ((*node.inputs, None)[1], None)
    has_factors = "scales" in node.attrs if scales is None else scales.node.value is not None and scales.node.value.size > 0
    return has_factors and sizes is None and node.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize"


def _skips_axes(node: Node) -> bool:
    """Below opset 11, where none is negative, ONNX skips axes that follow a larger one."""
    axes = list(node.attrs.get("axes") or ())
    return axes != sorted(axes)


def _always(node: Node) -> bool:
    return True


_MISREAD: Mapping[str, Callable[[Node], bool]] = {
    **dict.fromkeys(ops("pool"), _counts_windows_of_padding),
    **dict.fromkeys(ops("resizing"), _rounds_in_double),
    "Attention": _always,  # ONNX takes an unknown size of heads, or number of keys, for zero.
    "ConvTranspose": _adds_padding_twice,
    "Einsum": _always,  # ONNX takes a letter's size from its first occurrence, even if that is 1 and another is not.
    "STFT": lambda node: "onesided" not in node.attrs,  # It is 1 by default, and ONNX takes it for 0.
    "Squeeze": _skips_axes,
}
"""Per op of which ONNX's inference gets sizes wrong, the test of a node."""
