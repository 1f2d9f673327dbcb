"""The nodes that openvino accepts, but then computes differently from ONNX's definition.

Each was found by ONNX's own node tests, or by extreme values, with openvino 2026.4; they are refused, so that another device
computes them. (Integers of more than 32 bits have a file of their own.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partita.accelerators.engines.lost_nan import Table, always, not_known_finite, with_reduction
from partita.accelerators.engines.openvino.index_checks import unseen
from partita.accelerators.engines.operands import condition_lengths, has_scales, known_scales, may_leave_a_size
from partita.accelerators.interface.empty_reductions import may_be_empty, sums_nothing
from partita.graph.graph import Graph
from partita.graph.microsoft import DOMAIN
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.windows import SAME, extent
from partita.graph.ops.schemas import spec_of
from partita.graph.types import TensorType

Hazard = Callable[[Node], "str | None"]

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
    hazard, versioned = _HAZARDS.get(node.op or ""), _VERSIONED.get(node.op or "")
    known = _not_declared(node, graph) or sums_nothing(node) or may_be_empty(node, graph) or unseen(node)
    known = known or _abs(node, given) or (None if hazard is None else hazard(node))
    return known or (None if versioned is None else versioned(node, graph.opsets.get("", 1)))


def _of_onnxruntimes_domain(node: Node) -> str | None:
    """Refuses onnxruntime's own ops on integers: openvino has conversions of its own for them."""
    if node.domain != DOMAIN or not str(node.op).startswith(("QLinear", "QGemm", "DynamicQuantize")):
        return None
    return f"openvino's {node.op} of onnxruntime's domain does not round as onnxruntime, and does not saturate"


def _not_declared(node: Node, graph: Graph) -> str | None:
    """Refuses element types that the op does not have: openvino accepts them."""
    spec = spec_of(node.op or "", node.domain, graph.opsets.get("", 1))
    if spec is None:
        return None
    for param, entry in zip(spec.inputs, node.inputs):
        if entry is not None and entry.type is not None and param.types and _dtype(entry.type) not in param.types:
            return f"{spec.title} takes no {_dtype(entry.type)}"
    return None


def _dtype(value_type: object) -> str:
    assert isinstance(value_type, TensorType)
    return value_type.dtype


def _always(why: str) -> Hazard:
    return lambda node: why


def _resize(node: Node) -> str | None:
    attrs = node.attrs
    if attrs.get("antialias", 0):
        return "openvino's antialiasing differs"
    if attrs.get("exclude_outside", 0):
        return "openvino has no exclude_outside"
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "openvino stretches, whatever keep_aspect_ratio_policy says"
    if not has_scales(node):
        return None
    if attrs.get("coordinate_transformation_mode") == "align_corners":
        return "openvino aligns corners by the scales, not by the sizes that come of them"
    scales = known_scales(node)
    if scales is not None and may_leave_a_size(node, scales):
        return "openvino leaves out a scale that is not one where the size stays as it was"
    return None


def _upsample(node: Node) -> str | None:
    scales = known_scales(node)
    if node.attrs.get("mode", "nearest") == "nearest" and (scales is None or (scales % 1 != 0).any()):
        return "openvino's Upsample takes other nearest pixels for scales that are no whole numbers"
    return _resize(node)


def _reduction(node: Node) -> str | None:
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    unnamed = axes is None or (axes.node.value is not None and not axes.node.value.size)
    if node.op in ("ReduceL1", "ReduceL2", "ReduceLogSum") and node.attrs.get("noop_with_empty_axes", 0) and unnamed:
        return f"openvino's {node.op} along no dimension returns what it is given"
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    loses = node.op in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp") and not node.attrs.get("keepdims", 1)
    if loses and isinstance(data_type, TensorType) and not data_type.is_static:
        return f"openvino may lose the dimensions that {node.op} leaves where sizes are not fixed"
    return _over_nothing(node)


def _range(node: Node) -> str | None:
    result_type = node.output_types[0]
    if isinstance(result_type, TensorType) and result_type.is_static and 0 not in (result_type.shape or ()):
        return None
    return "openvino puts numbers into a Range that is empty since it runs the wrong way"


def _quantize(node: Node) -> str | None:
    data_type, scale = (entry.type if entry is not None else None for entry in node.inputs[:2])
    if not (isinstance(data_type, TensorType) and isinstance(scale, TensorType)) or scale.shape == ():
        return None
    axis = node.attrs.get("axis", 1)
    if data_type.shape is None or axis >= len(data_type.shape) or not isinstance(data_type.shape[axis], int):
        return "openvino may take other zero points in QuantizeLinear along an axis whose size is not fixed"
    return None


def _over_nothing(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if isinstance(data_type, TensorType) and data_type.shape is not None and 0 in data_type.shape:
        return f"openvino's {node.op} over no numbers is a finite number"
    return None


def _mod(node: Node) -> str | None:
    return "openvino's Mod of large floats overflows" if _floats(node) else None


def _floats(node: Node) -> bool:
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(data_type, TensorType) and data_type.dtype.startswith("float")


def _cast(node: Node) -> str | None:
    result_type = node.output_types[0]
    to_bool = isinstance(result_type, TensorType) and result_type.dtype == "bool"
    return f"openvino's {node.op} makes False of NaN, which is not zero and so True" if to_bool and _floats(node) else None


def _max_pool(node: Node) -> str | None:
    """Refuses pools with ceil_mode whose last window would begin in the padding: openvino permits it, ONNX does not."""
    if not node.attrs.get("ceil_mode", 0):
        return None
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    kernel = node.attrs.get("kernel_shape", ())
    rank = len(kernel)
    if isinstance(data_type, TensorType) and data_type.is_static and data_type.shape is not None and "auto_pad" not in node.attrs:
        pads = node.attrs.get("pads", [0] * 2 * rank)
        strides, dilations = node.attrs.get("strides", [1] * rank), node.attrs.get("dilations", [1] * rank)
        sizes = [int(dim or 0) for dim in data_type.shape[2:]]
        for size, window, stride, dilation, begin, end in zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:]):
            last = -(-(size + begin + end - (window - 1) * dilation - 1) // stride)
            if last * stride >= size + begin:
                break
        else:
            return None
    return "openvino may pool a window that lies in the padding alone (ceil_mode)"


def _average_pool(node: Node) -> str | None:
    if node.attrs.get("ceil_mode", 0) and node.attrs.get("count_include_pad", 0):
        return "openvino counts what lies beyond the padding too (ceil_mode and count_include_pad)"
    return _max_pool(node)


def _lp_pool(node: Node) -> str | None:
    return "openvino's LpPool takes windows that end beyond the data for whole ones" if node.attrs.get("ceil_mode", 0) else None


def _max_pool_with_indices(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    unsigned = isinstance(data_type, TensorType) and data_type.dtype.startswith("uint")
    if unsigned and len(node.output_names) > 1 and node.output_names[1]:
        return "openvino's MaxPool of unsigned integers names the padding as the place of a zero"
    if _may_see_padding_alone(node):
        return "openvino's MaxPool makes a finite number of a window that lies in the padding alone"
    return _max_pool(node)


def _may_see_padding_alone(node: Node) -> bool:
    """True if the padding at an end is at least as large as a window."""
    kernel = node.attrs.get("kernel_shape", ())
    dilations = node.attrs.get("dilations") or [1] * len(kernel)
    spans = [extent(size, dilation) for size, dilation in zip(kernel, dilations)]
    return any(pad >= span for pad, span in zip(node.attrs.get("pads") or (), spans * 2))


def _recurrent(node: Node) -> str | None:
    if node.attrs.get("layout", 0):
        return f"openvino misreads {node.op} with the batch first (layout=1)"
    if node.op == "LSTM" and len(node.inputs) > 7 and node.inputs[7] is not None:
        return "openvino leaves out the peepholes of LSTM"
    if node.op == "LSTM" and node.attrs.get("input_forget", 0):
        return "openvino ignores input_forget of LSTM"
    return None


def _lrn(node: Node) -> str | None:
    if node.attrs.get("bias", 1.0) != 1.0:
        return "openvino's LRN takes a bias other than 1 for another one"
    return "openvino places an even window of LRN in another way" if node.attrs["size"] % 2 == 0 else None


def _compress(node: Node) -> str | None:
    """The condition must not be longer than the data, and a constant one has to keep something."""
    if _has_none(node, 1):
        return f"{_CRASH} of a constant condition of Compress that keeps nothing"
    length, size = condition_lengths(node)
    if isinstance(length, int) and isinstance(size, int) and length <= size:
        return None
    return "openvino's Compress returns zeros where its condition is longer than the data"


_CRASH = "openvino divides by zero, which ends the process, while it folds what comes"


def _has_none(node: Node, slot: int) -> bool:
    """True if that input is a constant of zeros."""
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    return entry is not None and entry.node.value is not None and not entry.node.value.any()


def _non_zero(node: Node) -> str | None:
    return f"{_CRASH} of the places that NonZero finds in a constant of zeros" if _has_none(node, 0) else None


def _loop(node: Node) -> str | None:
    """Refuses a Loop with zero iterations: its scan outputs are empty, and openvino crashes at them."""
    scans = len(node.output_names) > len(node.inputs) - 2
    if scans and (_has_none(node, 0) or _has_none(node, 1)):
        return f"{_CRASH} of a Loop that has no turn"
    turns = node.inputs[0].node.value if node.inputs[0] is not None else None
    carried = [entry.type for entry in node.inputs[2:] if entry is not None]
    if scans and turns is None and not all(isinstance(kind, TensorType) and kind.is_static for kind in carried):
        return "openvino loses the sizes of the results of a Loop without turns, where they are not fixed"
    return None


def _pad(node: Node) -> str | None:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None or value.node.value is not None or node.attrs.get("mode", "constant") != "constant":
        return None
    return "openvino pads with zeros where the value to pad with is computed or given"


def _slice(node: Node) -> str | None:
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    unknown = axes is not None and axes.node.value is None
    return "openvino reads beyond the data where the axes of an empty Slice are computed or given" if unknown else None


def _expand(node: Node) -> str | None:
    sizes = node.inputs[1].type if len(node.inputs) > 1 and node.inputs[1] is not None else None
    none = isinstance(sizes, TensorType) and sizes.shape == (0,)
    return "openvino does not expand to a shape without dimensions" if none else None


def _gather_elements(node: Node) -> str | None:
    """The indices have to match the data along all other dimensions; a dynamic size may match a static one."""
    data, indices = (entry.type if entry is not None else None for entry in node.inputs[:2])
    if not (isinstance(data, TensorType) and isinstance(indices, TensorType)) or not data.shape or indices.shape is None:
        return None
    axis = int(node.attrs.get("axis", 0)) % len(data.shape)
    rest = [pair for i, pair in enumerate(zip(data.shape, indices.shape)) if i != axis]
    if any(a != b and type(a) is type(b) for a, b in rest):
        return "openvino needs indices of GatherElements that are as long as the data along the other dimensions"
    return None


def _unique(node: Node) -> str | None:
    positions = any(node.output_names[i] for i in (1, 3) if i < len(node.output_names))
    if "axis" in node.attrs and positions:
        return "openvino's Unique along an axis returns other positions and counts"
    return "openvino's Unique sorts floats wrongly where one is NaN, and in its own way for sorted=0" if _floats(node) else None


def _qlinear_conv(node: Node) -> str | None:
    if node.inputs[0] is not None and node.inputs[0].node.value is not None:
        return "openvino's QLinearConv of a constant image gives other numbers"
    scale = node.inputs[4].type if node.inputs[4] is not None else None
    whole = isinstance(scale, TensorType) and scale.shape in ((), (1,))
    return None if whole else "openvino takes the scales of QLinearConv's weights by input channel"


def _mean_variance(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    half = isinstance(data_type, TensorType) and data_type.dtype != "float32"
    return "openvino's MeanVarianceNormalization of equal numbers is NaN in this element type" if half else None


def _named_axes(node: Node, version: int) -> str | None:
    """Refuses reductions whose axes are an attribute that openvino does not read: they became an input with opset 18."""
    if 13 <= version < 18 and "axes" in node.attrs:
        return f"openvino ignores the axes of {node.op} at opset {version}"
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


def _convolution(node: Node) -> str | None:
    """Refuses a convolution of dequantized constant data; dequantized inputs are computed correctly."""
    data = node.inputs[0].node if node.inputs[0] is not None else None
    if data is None or data.op != "DequantizeLinear" or data.domain or data.inputs[0] is None:
        return None
    source = data.inputs[0].node
    if source.op == "QuantizeLinear" and not source.domain and source.inputs[0] is not None:
        source = source.inputs[0].node
    return None if source.value is None else f"openvino loses the zero point of constant data that {node.op} reads dequantized"


def _conv_transpose(node: Node) -> str | None:
    if node.attrs.get("output_shape"):
        return "openvino pads otherwise for output_shape"
    if node.attrs.get("auto_pad", "NOTSET") in SAME and not _is_static(node):
        return "openvino makes other sizes of auto_pad where a size is not fixed"
    return None


def _is_static(node: Node) -> bool:
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(data_type, TensorType) and data_type.is_static


def _shrink(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    whole = isinstance(data_type, TensorType) and "int" in data_type.dtype
    return "openvino rounds the bias and the threshold of Shrink where the numbers are whole" if whole else None


def _trilu(node: Node) -> str | None:
    diagonal = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    far = diagonal is not None and abs(int(diagonal.item())) >= 2**31
    return "openvino keeps 32 bits of Trilu's diagonal" if far else None


def _top_k(node: Node) -> str | None:
    gives_indices = len(node.output_names) > 1 and bool(node.output_names[1])
    return "openvino's TopK gives any position of equal numbers, not the first" if gives_indices else None


def _global_lp_pool(node: Node) -> str | None:
    return None if _is_static(node) else "openvino's GlobalLpPool needs fixed sizes"


def _roi_align(node: Node, version: int) -> str | None:
    if node.attrs.get("mode") == "max":
        return "openvino samples otherwise in RoiAlign's mode max"
    if version < 16 or "sampling_ratio" not in node.attrs:
        return "openvino samples other positions in RoiAlign below opset 16, and where no sampling_ratio is given"
    return None


def _softmax(node: Node, version: int) -> str | None:
    """Below opset 13, Softmax flattens all dimensions from the axis on."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    rank = data_type.rank if isinstance(data_type, TensorType) else None
    if version >= 13 or (rank and int(node.attrs.get("axis", 1)) % rank == rank - 1):
        return None
    axis = node.attrs.get("axis", 1)
    whole = f"below opset 13 {node.op} normalises over all dimensions from {axis} on, and openvino over {axis} alone"
    return f"{whole}; the pass ConvertOpset makes opset 13 of it"


def _tile(node: Node) -> str | None:
    repeats = node.inputs[1] if len(node.inputs) > 1 else None
    return None if repeats is not None and repeats.node.value is not None else "openvino's Tile needs constant repeats"


def _bit_shift(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    signed = isinstance(data_type, TensorType) and data_type.dtype.startswith("int")
    if signed:
        return "openvino shifts signed integers as unsigned ones"
    result_type = node.output_types[0]
    one_number = not isinstance(result_type, TensorType) or result_type.shape in ((), None)
    return "openvino makes a vector of a BitShift of single numbers that are constant" if one_number else None


_TRANSFORM = _always("openvino makes other shapes of it, and is less exact")
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()

_HAZARDS: Mapping[str, Hazard] = {
    **{f"Reduce{kind}": _reduction for kind in _REDUCTIONS},
    "AveragePool": _average_pool,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast,
    "Compress": _compress,
    "Conv": _convolution,
    "ConvTranspose": lambda node: _convolution(node) or _conv_transpose(node),
    "DFT": _TRANSFORM,
    "DynamicQuantizeLinear": _always("openvino rounds otherwise, so that the last bit differs"),
    "Expand": _expand,
    "GRU": _recurrent,
    "GatherElements": _gather_elements,
    "GlobalLpPool": _global_lp_pool,
    "LRN": _lrn,
    "LSTM": _recurrent,
    "Loop": _loop,
    "LpNormalization": _always("openvino adds a small number to the length by which LpNormalization divides"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool_with_indices,
    "MeanVarianceNormalization": _mean_variance,
    "Mod": _mod,
    "NonMaxSuppression": _always("openvino also drops boxes that overlap by the threshold exactly"),
    "NonZero": _non_zero,
    "Pad": _pad,
    "QLinearConv": _qlinear_conv,
    "QuantizeLinear": _quantize,
    "RNN": _recurrent,
    "Range": _range,
    "Resize": _resize,
    "STFT": _TRANSFORM,
    "Shrink": _shrink,
    "Slice": _slice,
    "ThresholdedRelu": _always("openvino's ThresholdedRelu makes NaN of minus infinity"),
    "Tile": _tile,
    "TopK": _top_k,
    "Trilu": _trilu,
    "Unique": _unique,
    "Upsample": _upsample,
}

_VERSIONED: Mapping[str, Callable[[Node, int], str | None]] = {
    "OneHot": lambda node, opset: "openvino's OneHot of opset 9 does not count from the end" if opset < 11 else None,
    **dict.fromkeys(("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"), _named_axes),
    "RoiAlign": _roi_align,
    "Softmax": _softmax,
}
"""Ops whose meaning depends on the opset."""

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
