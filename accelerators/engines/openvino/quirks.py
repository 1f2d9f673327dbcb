"""The nodes that openvino accepts, but then computes differently from ONNX's definition.

Each was found by ONNX's own node tests, or by extreme values, with openvino 2026.4; they are refused, so that another device
computes them. (Integers of more than 32 bits have a file of their own.)"""

from __future__ import annotations

from partita.accelerators.engines.lost_nan import Table, always, not_known_finite, with_reduction
from partita.accelerators.engines.openvino.index_checks import unseen
from partita.accelerators.engines.operands import condition_lengths, has_scales, known_scales, may_leave_a_size
from partita.accelerators.engines.quirks import Case, Quirk, Quirks
from partita.accelerators.interface.empty_reductions import may_be_empty, sums_nothing
from partita.graph.graph import Graph
from partita.graph.microsoft import DOMAIN
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.windows import SAME, extent
from partita.graph.ops.schemas import spec_of
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

DTYPES = frozenset("float32 float16 int8 uint8 int16 uint16 int32 int64 uint32 uint64 bool".split())
"""The supported element types of inputs and outputs."""


def refused(node: Node, graph: Graph, given: frozenset[Node]) -> str | None:
    """The reason why the node should run elsewhere, or None. `given` are the whole graph's inputs, which are never constant."""
    for entry in (*node.reads, *node.outputs):
        if entry.name and entry.type is not None:
            if not (isinstance(entry.type, TensorType) and entry.type.dtype in (*DTYPES, "float64")):
                return f"openvino gets no values of the type {entry.type} from Partita"
            if entry.type.dtype == "float64":
                return "openvino computes float64 in 32 bits"
    if any(entry.name and isinstance(entry.type, TensorType) and 0 in (entry.type.shape or ()) for entry in node.outputs):
        return "openvino loses the sizes of empty tensors"
    if node.domain:
        return _of_onnxruntimes_domain(node)
    known = _not_declared(node, graph) or sums_nothing(node) or may_be_empty(node, graph) or unseen(node)
    return known or _abs(node, given) or QUIRKS.reason(node, graph)


def _of_onnxruntimes_domain(node: Node) -> str | None:
    """Refuses onnxruntime's own ops on integers: openvino has conversions of its own for them."""
    if node.domain != DOMAIN or not str(node.op).startswith(("QLinear", "QGemm", "DynamicQuantize")):
        return None
    return f"openvino's {node.op} of onnxruntime's domain rounds differently from onnxruntime, and does not saturate"


def _not_declared(node: Node, graph: Graph) -> str | None:
    """Refuses element types that the op does not have: openvino accepts them."""
    spec = spec_of(node.op or "", node.domain, graph.opset)
    for param, entry in zip(() if spec is None else spec.inputs, node.inputs):
        kind = entry.type if entry is not None else None
        if isinstance(kind, TensorType) and param.types and kind.dtype not in param.types:
            return f"{spec.title} takes no {kind.dtype}"  # type: ignore[union-attr]
    return None


def _may_follow(entry: NodeEntry, given: frozenset[Node], depth: int = 8) -> bool:
    """True if the value may be computed from constants alone, by a few ops. None of `given` is constant."""
    if entry.node.value is not None or not entry.node.is_op or not depth:
        return entry.node not in given and not entry.node.is_op
    return all(_may_follow(read, given, depth - 1) for read in entry.node.reads)


def _abs(node: Node, given: frozenset[Node]) -> str | None:
    """Refuses an Abs of a value computed from constants. An input of a body may stand for a constant outside."""
    data = node.inputs[0] if node.op == "Abs" else None
    lost = data is not None and data.node.is_op and _may_follow(data, given)
    return "openvino drops an Abs whose input follows from constants" if lost else None


# -- conditions ----------------------------------------------------------------------------------------------


def _of_floats(c: Case) -> bool:
    return c.dtype().startswith("float")


def _along_nothing(c: Case) -> bool:
    axes = c.constant(1)
    unnamed = not c.has(1) or (axes is not None and not axes.size)
    return bool(c.attr("noop_with_empty_axes", 0)) and unnamed


def _over_nothing(c: Case) -> bool:
    return 0 in (c.shape() or ())


def _may_be_empty(c: Case) -> bool:
    result = c.result()
    return result is None or not result.is_static or 0 in (result.shape or ())


def _along_an_open_axis(c: Case) -> bool:
    data, scale = c.tensor(), c.tensor(1)
    if data is None or scale is None or scale.shape == ():
        return False
    axis = c.attr("axis", 1)
    return data.shape is None or axis >= len(data.shape) or not isinstance(data.shape[axis], int)


def _ends_in_padding(c: Case) -> bool:
    """True if the last window of a pool with ceil_mode may begin in the padding: openvino permits it, ONNX does not."""
    if not c.attr("ceil_mode", 0):
        return False
    if not c.is_static() or "auto_pad" in c.node.attrs:
        return True
    kernel = c.attr("kernel_shape", ())
    rank = len(kernel)
    pads, strides, dilations = c.attr("pads", [0] * 2 * rank), c.attr("strides", [1] * rank), c.attr("dilations", [1] * rank)
    sizes = [int(dim or 0) for dim in (c.shape() or ())[2:]]
    for size, window, stride, dilation, begin, end in zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:]):
        last = -(-(size + begin + end - (window - 1) * dilation - 1) // stride)
        if last * stride >= size + begin:
            return True
    return False


def _may_see_padding_alone(c: Case) -> bool:
    """True if the padding at an end is at least as large as a window."""
    kernel = c.attr("kernel_shape", ())
    spans = [extent(size, dilation) for size, dilation in zip(kernel, c.attr("dilations") or [1] * len(kernel))]
    return any(pad >= span for pad, span in zip(c.attr("pads") or (), spans * 2))


def _may_be_longer_than_data(c: Case) -> bool:
    length, size = condition_lengths(c.node)
    return not (isinstance(length, int) and isinstance(size, int) and length <= size)


def _is_none(c: Case, slot: int) -> bool:
    """True if that input is a constant of zeros."""
    value = c.constant(slot)
    return value is not None and not value.any()


def _stacks(c: Case) -> bool:
    """True for a Loop with results besides the carried values."""
    return len(c.node.output_names) > len(c.node.inputs) - 2


def _may_lose_sizes(c: Case) -> bool:
    carried = [entry.type for entry in c.node.inputs[2:] if entry is not None]
    known = all(isinstance(kind, TensorType) and kind.is_static for kind in carried)
    return _stacks(c) and c.constant(0) is None and not known


def _apart(c: Case) -> bool:
    """True for indices that do not match the data along another dimension; a dynamic size may match a static one."""
    data, indices = c.shape(), c.shape(1)
    if not data or indices is None:
        return False
    axis = int(c.attr("axis", 0)) % len(data)
    return any(a != b and type(a) is type(b) for i, (a, b) in enumerate(zip(data, indices)) if i != axis)


def _of_dequantized_constant(c: Case) -> bool:
    """True for a convolution of dequantized constant data; dequantized inputs are computed correctly."""
    entry = c.entry(0)
    data = entry.node if entry is not None else None
    if data is None or data.op != "DequantizeLinear" or data.domain or data.inputs[0] is None:
        return False
    source = data.inputs[0].node
    if source.op == "QuantizeLinear" and not source.domain and source.inputs[0] is not None:
        source = source.inputs[0].node
    return source.value is not None


def _flattens(c: Case) -> bool:
    """True unless the axis is the last one: below opset 13, Softmax flattens all dimensions from there on."""
    rank = len(c.shape() or ())
    return not (rank and int(c.attr("axis", 1)) % rank == rank - 1)


def _other_nearest(c: Case) -> bool:
    scales = known_scales(c.node)
    return c.attr("mode", "nearest") == "nearest" and (scales is None or bool((scales % 1 != 0).any()))


def _leaves_a_size(c: Case) -> bool:
    scales = known_scales(c.node) if has_scales(c.node) else None
    return scales is not None and may_leave_a_size(c.node, scales)


def _far_diagonal(c: Case) -> bool:
    diagonal = c.constant(1)
    return diagonal is not None and abs(int(diagonal.item())) >= 2**31


_CRASH = "openvino divides by zero, which ends the process, while it folds the results"
_REDUCTIONS = " ".join(sorted(ops("reduction")))

ROWS = (
    Quirk(
        "AveragePool", "openvino counts positions beyond the padding too (ceil_mode and count_include_pad)",
        lambda c: c.attr("ceil_mode", 0) and c.attr("count_include_pad", 0),
    ),
    Quirk(
        "MaxPool", "openvino's MaxPool of unsigned integers returns an index in the padding for a zero",
        lambda c: c.dtype().startswith("uint") and c.gives(1),
    ),
    Quirk(
        "MaxPool", "openvino's MaxPool returns a finite number for a window of padding alone",
        _may_see_padding_alone,
    ),
    Quirk("AveragePool MaxPool", "openvino may pool a window of padding alone (ceil_mode)", _ends_in_padding),
    Quirk("BitShift", "openvino shifts signed integers as unsigned ones", lambda c: c.dtype().startswith("int")),
    Quirk(
        "BitShift", "openvino returns a vector for a BitShift of constant scalars",
        lambda c: c.result() is None or not c.result().shape,  # type: ignore[union-attr]
    ),
    Quirk(
        "Cast CastLike", "openvino's {op} returns False for NaN, which is not zero and so True",
        lambda c: c.result() is not None and c.result().dtype == "bool" and _of_floats(c),  # type: ignore[union-attr]
    ),
    Quirk("Compress", f"{_CRASH} of a constant condition of Compress that keeps nothing", lambda c: _is_none(c, 1)),
    Quirk(
        "Compress", "openvino's Compress returns zeros where its condition is longer than the data", _may_be_longer_than_data,
    ),
    Quirk(
        "Conv ConvTranspose", "openvino loses the zero point of constant data that {op} reads dequantized",
        _of_dequantized_constant,
    ),
    Quirk("ConvTranspose", "openvino pads differently for output_shape", lambda c: c.attr("output_shape")),
    Quirk(
        "ConvTranspose", "openvino computes other sizes for auto_pad where a size is not fixed",
        lambda c: c.attr("auto_pad", "NOTSET") in SAME and not c.is_static(),
    ),
    Quirk("DFT STFT", "openvino returns other shapes, and is less exact"),
    Quirk("DynamicQuantizeLinear", "openvino rounds differently in the last bit"),
    Quirk("Expand", "openvino does not expand to a shape without dimensions", lambda c: c.shape(1) == (0,)),
    Quirk("GRU LSTM RNN", "openvino misreads {op} with the batch first (layout=1)", lambda c: c.attr("layout", 0)),
    Quirk("LSTM", "openvino ignores the peepholes of LSTM", lambda c: c.has(7)),
    Quirk("LSTM", "openvino ignores input_forget of LSTM", lambda c: c.attr("input_forget", 0)),
    Quirk(
        "GatherElements",
        "openvino needs indices of GatherElements as long as the data along the other dimensions", _apart,
    ),
    Quirk("GlobalLpPool", "openvino's GlobalLpPool needs fixed sizes", lambda c: not c.is_static()),
    Quirk("LRN", "openvino's LRN is wrong with a bias other than 1", lambda c: c.attr("bias", 1.0) != 1.0),
    Quirk("LRN", "openvino centres an even window of LRN differently", lambda c: c.attr("size") % 2 == 0),
    Quirk(
        "Loop", f"{_CRASH} of a Loop that takes no step", lambda c: _stacks(c) and (_is_none(c, 0) or _is_none(c, 1)),
    ),
    Quirk(
        "Loop", "openvino loses dynamic sizes of the results of a Loop that takes no step", _may_lose_sizes,
    ),
    Quirk("LpNormalization", "openvino adds a small number to the norm in LpNormalization"),
    Quirk(
        "LpPool", "openvino's LpPool treats windows that end beyond the data as whole",
        lambda c: c.attr("ceil_mode", 0),
    ),
    Quirk(
        "MeanVarianceNormalization",
        "openvino's MeanVarianceNormalization of equal numbers is NaN in this element type",
        lambda c: c.dtype() not in ("", "float32"),
    ),
    Quirk("Mod", "openvino's Mod of large floats overflows", _of_floats),
    Quirk("NonMaxSuppression", "openvino also drops boxes that overlap by the threshold exactly"),
    Quirk("NonZero", f"{_CRASH} of the places that NonZero finds in a constant of zeros", lambda c: _is_none(c, 0)),
    Quirk("OneHot", "openvino's OneHot of opset 9 does not count from the end", until=11),
    Quirk(
        "Pad", "openvino pads with zeros if the padding value is not constant",
        lambda c: c.has(2) and c.constant(2) is None and c.attr("mode", "constant") == "constant",
    ),
    Quirk(
        "QLinearConv", "openvino's QLinearConv of a constant image is wrong",
        lambda c: c.constant(0) is not None,
    ),
    Quirk(
        "QLinearConv", "openvino applies the scales of QLinearConv's weights by input channel",
        lambda c: c.shape(4) not in ((), (1,)),
    ),
    Quirk(
        "QuantizeLinear", "openvino may use wrong zero points in QuantizeLinear along a dynamic axis",
        _along_an_open_axis,
    ),
    Quirk("Range", "openvino returns elements for a Range that is empty because it runs the wrong way", _may_be_empty),
    Quirk(
        "ReduceL1 ReduceL2 ReduceLogSum", "openvino's {op} along no dimension returns its input", _along_nothing,
    ),
    Quirk(
        "ReduceL1 ReduceLogSum ReduceLogSumExp",
        "openvino may lose the kept dimensions of {op} if sizes are dynamic",
        lambda c: not c.attr("keepdims", 1) and c.tensor() is not None and not c.is_static(),
    ),
    Quirk(_REDUCTIONS, "openvino's {op} over no elements is a finite number", _over_nothing),
    Quirk(
        "ReduceL1 ReduceLogSum ReduceLogSumExp", "openvino ignores the axes of {op} at opset {opset}",
        lambda c: "axes" in c.node.attrs, since=13, until=18,
    ),
    Quirk(
        "Upsample", "openvino's Upsample chooses other nearest pixels for fractional scales", _other_nearest,
    ),
    Quirk("Resize Upsample", "openvino's antialiasing differs", lambda c: c.attr("antialias", 0)),
    Quirk("Resize Upsample", "openvino has no exclude_outside", lambda c: c.attr("exclude_outside", 0)),
    Quirk(
        "Resize Upsample", "openvino ignores keep_aspect_ratio_policy",
        lambda c: c.attr("keep_aspect_ratio_policy", "stretch") != "stretch",
    ),
    Quirk(
        "Resize Upsample", "openvino aligns corners by the scales, not by the sizes computed from them",
        lambda c: has_scales(c.node) and c.attr("coordinate_transformation_mode") == "align_corners",
    ),
    Quirk(
        "Resize Upsample", "openvino ignores a scale other than one that leaves the size unchanged", _leaves_a_size,
    ),
    Quirk("RoiAlign", "openvino samples differently in RoiAlign's mode max", lambda c: c.attr("mode") == "max"),
    Quirk(
        "RoiAlign",
        "openvino samples other positions in RoiAlign below opset 16, and without sampling_ratio",
        lambda c: c.opset < 16 or "sampling_ratio" not in c.node.attrs,
    ),
    Quirk(
        "Shrink", "openvino rounds the bias and the threshold of Shrink for integers",
        lambda c: "int" in c.dtype(),
    ),
    Quirk(
        "Slice", "openvino reads beyond the data if the axes of an empty Slice are not constant",
        lambda c: c.has(3) and c.constant(3) is None,
    ),
    Quirk(
        "Softmax", "below opset 13 {op} normalises over all dimensions from {axis} on, and openvino over {axis} alone; the pass"
        " ConvertOpset makes opset 13 of it",
        lambda c: {"axis": c.attr("axis", 1)} if _flattens(c) else None, until=13,
    ),
    Quirk("ThresholdedRelu", "openvino's ThresholdedRelu returns NaN for minus infinity"),
    Quirk("Tile", "openvino's Tile needs constant repeats", lambda c: c.constant(1) is None),
    Quirk("TopK", "openvino's TopK returns any index among equal elements, not the first", lambda c: c.gives(1)),
    Quirk("Trilu", "openvino keeps 32 bits of Trilu's diagonal", _far_diagonal),
    Quirk(
        "Unique", "openvino's Unique along an axis returns other positions and counts",
        lambda c: "axis" in c.node.attrs and (c.gives(1) or c.gives(3)),
    ),
    Quirk("Unique", "openvino's Unique sorts floats wrongly if one is NaN, and in its own order for sorted=0", _of_floats),
)
"""The first row that applies to an op gives the reason."""

QUIRKS = Quirks(ROWS)

LOSES_NAN: Table = {
    **dict.fromkeys(
        "ArgMax ArgMin Celu Clip Exp GRU GlobalMaxPool GridSample HardSigmoid Hardmax LSTM LogSoftmax Max MaxPool Min RNN"
        " ReduceLogSumExp ReduceMax ReduceMin Relu Resize RoiAlign Shrink Softmax SoftmaxCrossEntropyLoss TopK".split(),
        always,
    ),
    "Conv": not_known_finite(1),
    "Gemm": lambda node: node.attrs.get("beta", 1.0) == 0.0 and not_known_finite(2)(node),
    "ScatterElements": with_reduction,
    "ScatterND": with_reduction,
}
"""The ops refused with NAN=exact. A Conv does not multiply its padding by weights; a Gemm multiplies what beta=0 leaves out."""
