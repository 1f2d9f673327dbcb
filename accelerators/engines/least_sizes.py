"""Lower bounds of the sizes of a graph's values if no input of the graph is empty.

Symbolic sizes are not trusted, since a file may declare any: the sizes of outputs are derived from those of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.passes import apply_pass
from partita.passes.deciding import COUNTING, deciding, follows_from_sizes
from partita.passes.infer import without_declared

Sizes = tuple[int, ...]
"""The lower bound of each dimension; 0 if unknown."""

_LARGE = 1 << 31

_BROADCAST = ops("unary", "broadcast", "softmax") | {"CumSum", "Dropout", "Identity"}
"""Ops whose first output has the broadcast shape of all inputs."""

_LIKE_THE_FIRST = ops("norm", "quantizing") | frozenset(
    "CastLike ReverseSequence Scatter ScatterElements ScatterND Trilu".split()
)
"""Ops whose first output has the shape of the first input."""

_KEEPING = frozenset(
    "Concat DepthToSpace Einsum Gather GatherElements GatherND MatMulInteger QLinearMatMul SpaceToDepth Transpose".split()
) | ops("reduction", "arg_reduction", "global_pool", "recurrent", "matmul", "reshape")
"""Further ops with non-empty outputs for non-empty inputs."""

_WINDOWED = frozenset("AveragePool Conv ConvInteger LpPool MaxPool QLinearConv".split())

_WEIGHTS: Mapping[str, int] = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""The index of the input with a convolution's weights."""


def least_sizes(graph: Graph, resized: bool = False) -> Mapping[NodeEntry, Sizes]:
    """The lower bounds of each tensor of known rank. Linear. `resized`: the engine raises an error if a size of a Resize is
    zero."""
    least: dict[NodeEntry, Sizes] = {}
    inferred = _inferred_types(graph)
    for node in graph.nodes:
        for index, entry in enumerate(node.outputs):
            known = entry.type
            if not entry.name or not isinstance(known, TensorType) or known.shape is None:
                continue
            sizes = (1,) * len(known.shape) if node.is_variable else _made(node, index, least, resized)
            if sizes is None or len(sizes) != len(known.shape):
                sizes = (0,) * len(known.shape)
            least[entry] = _at_least(sizes, inferred.get(entry))
    return least


def _at_least(sizes: Sizes, inferred: object) -> Sizes:
    """Replaces lower bounds by the static sizes of an inferred type."""
    if not isinstance(inferred, TensorType) or inferred.shape is None or len(inferred.shape) != len(sizes):
        return sizes
    return tuple([size if isinstance(size, int) else low for size, low in zip(inferred.shape, sizes)])


def _inferred_types(graph: Graph) -> Mapping[NodeEntry, object]:
    """The types inferred from those of the inputs; declared ones are not trusted."""
    if all(map(_follows, graph.nodes)):
        return {entry: entry.type for node in graph.nodes for entry in node.outputs}
    try:
        inferred = apply_pass(without_declared(graph, frozenset()), "InferShape", verify=False, strict=False)
    except PartitaError:  # a declared type hid an error, which running the model reports
        return {node[0]: node[0].type for node in graph.inputs}
    pairs = zip(graph.nodes, inferred.nodes, strict=True)
    return {entry: typed.type for node, other in pairs for entry, typed in zip(node.outputs, other.outputs, strict=True)}


def _follows(node: Node) -> bool:
    """True if the sizes of the results certainly follow from static sizes."""
    if node.is_variable:
        return isinstance(node[0].type, TensorType) and node[0].type.is_static
    if node.domain or node.bodies or node.is_call or node.op in COUNTING:
        return False
    return all(map(follows_from_sizes, deciding(node)))


def has_elements(entry: NodeEntry, least: Mapping[NodeEntry, Sizes]) -> bool:
    """True if the value has elements whenever the graph's inputs have."""
    return entry in least and 0 not in least[entry]


def shortfalls(node: Node, kernel: Sequence[int]) -> list[int] | None:
    """For each dimension of an image, the size of the window minus the padding; None if the padding is automatic."""
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    rank = len(kernel)
    pads = [int(pad) for pad in node.attrs.get("pads") or (0,) * (2 * rank)]
    dilations = node.attrs.get("dilations") or (1,) * rank
    return [(size - 1) * step + 1 - a - b for size, step, a, b in zip(kernel, dilations, pads[:rank], pads[rank:])]


def kernel_of(node: Node) -> Sequence[int] | None:
    """The sizes of a pool's or a convolution's window; None if unknown."""
    stated = node.attrs.get("kernel_shape")
    slot = _WEIGHTS.get(str(node.op), 1)
    if stated or len(node.inputs) <= slot or node.inputs[slot] is None:
        return stated or None
    weights = node.inputs[slot].type  # type: ignore[union-attr]
    is_known = isinstance(weights, TensorType) and weights.is_static
    return weights.shape[2:] if is_known else None  # type: ignore[union-attr, index, return-value]


def _made(node: Node, index: int, least: Mapping[NodeEntry, Sizes], resized: bool) -> Sizes | None:
    """The lower bounds of an output's sizes; None if nothing is known."""
    if node.domain or node.bodies or node.is_call or any(entry not in least for entry in node.reads) or not node.reads:
        return None
    read, op = [least[entry] for entry in node.reads], str(node.op)
    rule = _RULES.get(op)
    if resized and op == "Resize" and len(node.inputs) > 3 and node.inputs[3] is not None and 0 not in read[0]:
        return (1,) * len(read[0])
    if rule is not None:
        return rule(node, read)
    if index == 0 and (op in _LIKE_THE_FIRST or "broadcast" in node.attrs):  # below opset 7 ops broadcast to the first
        return read[0]
    if index == 0 and op in _BROADCAST:
        return _together(read)
    if op in _KEEPING and all(0 not in sizes for sizes in read):
        kind = node.output_types[index]
        return (1,) * len(kind.shape or ()) if isinstance(kind, TensorType) else None
    return None


def _together(read: Sequence[Sizes]) -> Sizes:
    columns = zip_longest(*[sizes[::-1] for sizes in read], fillvalue=1)
    return tuple([0 if 0 in column else max(column) for column in columns][::-1])


def _slid(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """A convolution or a pool: the number of images, the channels, and how often the window fits."""
    kernel = kernel_of(node)
    if kernel is None or len(read[0]) != len(kernel) + 2:
        return None
    short, strides = shortfalls(node, kernel), node.attrs.get("strides") or (1,) * len(kernel)
    if short is None:
        is_same = str(node.attrs["auto_pad"]).startswith("SAME")
        fits = [min(size, 1) if is_same else 0 for size in read[0][2:]]
    else:
        fits = [max(0, (size - less) // step + 1) for size, less, step in zip(read[0][2:], short, strides)]
    channels = read[_WEIGHTS[str(node.op)]][0] if node.op in _WEIGHTS else read[0][1]
    return (read[0][0], channels, *fits)


def _transposed(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """A transposed convolution: a window for each element, minus the padding."""
    kernel, attrs = kernel_of(node), node.attrs
    short = None if kernel is None else shortfalls(node, kernel)
    if kernel is None or short is None or "output_shape" in attrs or len(read[0]) != len(kernel) + 2:
        return None
    ones = (1,) * len(kernel)
    steps = zip(read[0][2:], attrs.get("strides") or ones, short, attrs.get("output_padding") or (0,) * len(kernel))
    grown = [max(0, (size - 1) * stride + less + more) if size else 0 for size, stride, less, more in steps]
    return (read[0][0], read[1][1] * int(attrs.get("group", 1)), *grown)


def _along_an_axis(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """The input's sizes, except along one axis."""
    axis = int(node.attrs.get("axis", -1 if node.op == "TopK" else 0))
    return _with(read[0], {axis: 0})


def _sliced(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """The input's sizes, except along the sliced axes, where they follow from constant bounds."""
    starts, ends, axes, steps = [_numbers(node, i, name) for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
    if axes is None and starts is not None and not _is_computed(node, 3):
        axes = tuple(range(len(starts)))
    if axes is None:
        return None
    if starts is None or ends is None or _is_computed(node, 4):
        return _with(read[0], dict.fromkeys(axes, 0))
    bounds = zip(axes, starts, ends, steps or (1,) * len(starts))
    left = {axis: _left(read[0][axis], bound) for axis, *bound in bounds if -len(read[0]) <= axis < len(read[0])}
    return _with(read[0], left)


def _left(size: int, bound: Sequence[int]) -> int:
    """Lower bound of the sliced size. 0 if only the start counts from the end: a larger input may then leave fewer elements."""
    start, end, step = bound
    if step <= 0 or (start < 0 <= end < _LARGE - 1):
        return 0
    return len(range(*slice(start, end, step).indices(size)))


def _repeated(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """Tile and Expand by constants."""
    values = _numbers(node, 1, "repeats" if node.op == "Tile" else "shape")
    if values is None:
        return None
    if node.op == "Expand":
        return _together([read[0], values])
    return tuple([size * more for size, more in zip(read[0], values)]) if len(values) == len(read[0]) else None


def _with(sizes: Sizes, other: Mapping[int, int]) -> Sizes | None:
    """The sizes with some dimensions replaced."""
    rank = len(sizes)
    if not all(-rank <= dim < rank for dim in other):
        return None
    chosen = {dim % rank: size for dim, size in other.items()}
    return tuple([chosen.get(dim, size) for dim, size in enumerate(sizes)])


def _is_computed(node: Node, slot: int) -> bool:
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    return entry is not None and entry.node.value is None


def _numbers(node: Node, slot: int, name: str) -> Sizes | None:
    """The constant integers of an input, or of the attribute that older opsets have instead."""
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    given = node.attrs.get(name) if entry is None else entry.node.value
    return None if given is None else tuple([int(number) for number in given])


def _padded(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """Each dimension plus its padding, from a constant or an attribute. Padding of selected axes is not handled."""
    given = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else node.attrs.get("pads")
    sizes, axes = read[0], node.inputs[3] if len(node.inputs) > 3 else None
    if given is None or axes is not None or len(given) != 2 * len(sizes):
        return None
    added = [int(pad) for pad in given]
    return tuple([max(0, size + a + b) for size, a, b in zip(sizes, added, added[len(sizes) :])])


def _scaled(node: Node, read: Sequence[Sizes]) -> Sizes | None:
    """The sizes multiplied by constant scales; None for resizes by other means."""
    scales = node.inputs[-1]
    if "axes" in node.attrs or (node.op == "Resize" and len(node.inputs) != 3):
        return None
    values = None if scales is None else scales.node.value
    if values is None or len(values) != len(read[0]):
        return None
    return tuple([int(min(size * float(scale), _LARGE)) if scale > 0 else 0 for size, scale in zip(read[0], values)])


_RULES: Mapping[str, Callable[[Node, Sequence[Sizes]], Sizes | None]] = {
    **dict.fromkeys(_WINDOWED, _slid),
    **dict.fromkeys(("Expand", "Tile"), _repeated),
    **dict.fromkeys(("Split", "TopK"), _along_an_axis),
    "ConvTranspose": _transposed,
    "Pad": _padded,
    "Resize": _scaled,
    "Slice": _sliced,
    "Upsample": _scaled,
}
