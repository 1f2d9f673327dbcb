"""Differences that are known and stay, each with its reason: narrow, so that nothing else hides behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import attrs
import ml_dtypes
import numpy as np

from partita.graph.types import Array, TensorType
from tests.fuzz.models.builder import Case
from tests.fuzz.models.check import Finding
from tests.fuzz.models.stability import SPECIAL, Noise, run, step_of


@attrs.frozen
class Reason:
    """One known difference."""

    settings: str
    """The settings under which the difference shows itself."""
    ops: str
    """The ops of the cut-down model, one of which has to be there; "*" stands for any."""
    when: Callable[[Case, Finding], bool]
    """Is it the case that is meant?"""
    text: str
    """Why it stays."""


def reason_of(case: Case, finding: Finding) -> str | None:
    """Why the difference is allowed, of a model that is cut down to what differs; None where nothing says so."""
    present = {node.op for node in case.graph.nodes if node.is_op}
    setting = finding.setting.removesuffix("-nan")
    overflows = setting == finding.setting or has_overflow(case, finding)
    for reason in REASONS:
        if (
            setting in reason.settings.split()
            and (overflows or reason.when not in OF_NAN)
            and (reason.ops == "*" or present & set(reason.ops.split()))
            and reason.when(case, finding)
        ):
            return reason.text
    return None


def _values(case: Case) -> Iterator[Array]:
    """All floats that are computed or read."""
    for value in run(case.graph, case.feeds, None).values():
        if isinstance(value, np.ndarray) and step_of(value.dtype):
            yield value


def has_nonfinite(case: Case, finding: Finding) -> bool:
    """Is there any value that is not a number, or infinite?"""
    return any(not np.isfinite(value.astype(np.float64)).all() for value in _values(case))


def has_nan(case: Case, finding: Finding) -> bool:
    """Is there any value that is not a number?"""
    return any(np.isnan(value.astype(np.float64)).any() for value in _values(case))


def has_overflow(case: Case, finding: Finding) -> bool:
    """Is there an infinity, or a number whose square is none of its type? NaN alone does not count."""
    return any(_is_extreme(np.where(value != value, value.dtype.type(0), value)) for value in _values(case))


def has_extreme(case: Case, finding: Finding) -> bool:
    """Is there a NaN, an infinity, or a number whose square is none of its type?"""
    return any(_is_extreme(value) for value in _values(case))


def is_special(case: Case, finding: Finding) -> bool:
    """Is each number that differs NaN or infinite on one side, and does a NaN, an infinity, or a number whose square is none of
    its type stand among the values?"""
    return SPECIAL in finding.detail and has_extreme(case, finding)


def _is_extreme(value: Array) -> bool:
    # Norms of double precision are computed in single precision, as ONNX says.
    largest = min(float(ml_dtypes.finfo(value.dtype).max), float(np.finfo(np.float32).max))
    with np.errstate(all="ignore"):
        return not bool((np.abs(value.astype(np.float64)) < np.sqrt(largest)).all())


def has_denormal(case: Case, finding: Finding) -> bool:
    """Is there any number so small that it has fewer digits?"""
    for value in _values(case):
        if value.dtype == np.float32:
            small = np.abs(value[np.isfinite(value) & (value != 0)])
            if small.size and small.min() < np.finfo(np.float32).tiny:
                return True
    return False


def leaves_an_error(case: Case, finding: Finding) -> bool:
    """Is a square of an LRN so large that its rounding shows beside the bias?"""
    values = run(case.graph, case.feeds, None)
    for node in case.graph.nodes:
        if node.op == "LRN" and node.inputs[0] is not None:
            largest = float(np.abs(values[node.inputs[0]].astype(np.float64)).max(initial=0.0))
            weight = node.attrs.get("alpha", 1e-4) / node.attrs["size"] / node.attrs.get("bias", 1.0)
            if weight * largest**2 * np.finfo(np.float32).eps > 1e-5:
                return True
    return False


def lacks_a_bound(case: Case, finding: Finding) -> bool:
    """Is there a Clip without one of its bounds, that differs by an infinity alone?"""
    open_ended = any(
        node.op == "Clip" and (len(node.inputs) < 3 or None in node.inputs) for node in case.graph.nodes if node.is_op
    )
    return open_ended and is_special(case, finding)


def has_nan_bound(case: Case, finding: Finding) -> bool:
    """Is there a Clip with a bound that is NaN, that differs by NaN alone?"""
    values = run(case.graph, case.feeds, None)
    bounds = [values[entry] for node in case.graph.nodes if node.op == "Clip" for entry in node.inputs[1:] if entry is not None]
    return is_special(case, finding) and any(np.isnan(bound.astype(np.float64)).any() for bound in bounds)


def refused_for_length(case: Case, finding: Finding) -> bool:
    """Is it the engine's own complaint, and is the length of a value not fixed?"""
    kinds = [entry.type for node in case.graph.nodes if node.op == "GatherElements" for entry in node.reads]
    is_open = any(isinstance(kind, TensorType) and not kind.is_static for kind in kinds)
    return "must have equal or intersecting dimensions" in finding.detail and is_open


def has_wide_integers(case: Case, finding: Finding) -> bool:
    """Is there an integer that a double does not hold?"""
    values = run(case.graph, case.feeds, None).values()
    whole = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind in "iu"]
    return any(float(np.abs(value.astype(np.float64)).max(initial=0.0)) > 2.0**53 for value in whole)


def quantizes_zeros(case: Case, finding: Finding) -> bool:
    """Is it the scale of DynamicQuantizeLinear, and are all numbers zero, or errors of a rounding that may be zero?"""
    nodes = [node for node in case.graph.nodes if node.op == "DynamicQuantizeLinear"]
    scales = [node for node in nodes if finding.detail.startswith(f"{node.output_names[1]} of ")]
    runs = [run(case.graph, case.feeds, noise) for noise in (None, Noise(np.random.default_rng(1), 1.0, zeros=True))]
    return any(not np.any(values[node.inputs[0]]) for values in runs for node in scales if node.inputs[0] is not None)


def normalizes_zeros(case: Case, finding: Finding) -> bool:
    """Is all that one LpNormalization divides by zero, or the errors of a rounding that may be zero?"""
    named = [node for node in case.graph.nodes if node.op == "LpNormalization"]
    nodes = [node for node in named if finding.detail.startswith(f"{node.output_names[0]} of ")]
    runs = [run(case.graph, case.feeds, noise) for noise in (None, Noise(np.random.default_rng(1), 1.0, zeros=True))]
    inputs = [(values[node.inputs[0]], node.attrs.get("axis", -1)) for values in runs for node in nodes if node.inputs[0]]
    return any(not np.all(np.any(value, axis=axis)) for value, axis in inputs)


def divides_by_errors(case: Case, finding: Finding) -> bool:
    """Is it a quotient whose divisor is zero somewhere, or the error of a rounding that may be zero?"""
    nodes = [node for node in case.graph.nodes if node.op in ("Reciprocal", "Div")]
    named = [node.inputs[-1] for node in nodes if finding.detail.startswith(f"{node.output_names[0]} of ")]
    if not named:
        return False
    plain, rounded = (run(case.graph, case.feeds, n) for n in (None, Noise(np.random.default_rng(1), 1.0, zeros=True)))
    return any(np.any((plain[entry] == 0) != (rounded[entry] == 0)) for entry in named)


def rounds_a_product(case: Case, finding: Finding) -> bool:
    """Is it a dequantized number that is off by the rounding of the scale times the largest integer of eight bits?"""
    values = run(case.graph, case.feeds, None)
    nodes = [node for node in case.graph.nodes if node.op == "DequantizeLinear" and node.inputs[1] is not None]
    scales = [values[n.inputs[1]] for n in nodes if finding.detail.startswith(f"{n.output_names[0]} of ")]
    numbers = re.search(r"(\S+) instead of ([^\s,]+)$", finding.detail)
    largest = max((float(np.abs(scale.astype(np.float64)).max(initial=0.0)) for scale in scales), default=0.0)
    return numbers is not None and abs(float(numbers[1]) - float(numbers[2])) <= 256 * 2.0**-23 * largest


OF_NAN = (has_nonfinite, has_nan, has_extreme, is_special, lacks_a_bound, has_nan_bound)
"""Differences that NaN alone may cause; no reason where NAN is "exact"."""


REASONS: tuple[Reason, ...] = (
    Reason(
        "openvino scattered", "*", has_denormal,
        "openvino takes the smallest numbers (denormal ones, below 1.2e-38) for zero",
    ),
    Reason(
        "openvino scattered",
        "Relu Exp Max Min Clip Celu Elu Selu LeakyRelu PRelu Sign MaxPool AveragePool GlobalMaxPool ReduceMax ReduceMin ArgMax"
        " ArgMin Hardmax TopK Softmax LogSoftmax HardSigmoid HardSwish Mish Gelu Sigmoid Softplus ThresholdedRelu Shrink",
        has_nonfinite,
        "openvino does not carry NaN through comparisons and what is made of them (docs/accelerators.md)",
    ),
    Reason(
        "onnxruntime scattered", "ArgMax ArgMin Hardmax RNN GRU LSTM RoiAlign", has_nonfinite,
        "onnxruntime ignores NaN in its comparisons and its clipped activations, where numpy stops at it",
    ),
    Reason(
        "onnxruntime scattered", "Clip", has_nan_bound,
        "onnxruntime passes over a bound of Clip that is NaN",
    ),
    Reason(
        "onnxruntime scattered", "ScatterND ScatterElements", is_special,
        "onnxruntime ignores NaN where the larger or smaller of two numbers is scattered",
    ),
    Reason(
        "onnxruntime scattered", "RNN GRU LSTM", has_extreme,
        "the gates of onnxruntime are not closed or open, as they should be, where a weight and so their sum is huge",
    ),
    Reason(
        "onnxruntime scattered", "Resize STFT DFT", is_special,
        "onnxruntime also adds numbers whose weight is zero, and so makes NaN of an infinity; the reference leaves them out",
    ),
    Reason(
        "onnxruntime scattered",
        "Conv ConvTranspose DeformConv GridSample Attention LpPool GlobalLpPool Softmax LogSoftmax"
        " BatchNormalization GroupNormalization InstanceNormalization LayerNormalization RMSNormalization LpNormalization"
        " SoftmaxCrossEntropyLoss MatMul Gemm Einsum Det CumSum CumProd"
        " ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp ReduceProd",
        is_special,
        "onnxruntime orders sums and products otherwise and leaves out those with padding: of NaN, an infinity, or a number whose"
        " square overflows, it may make another of NaN, infinity and a number",
    ),
    Reason(
        "onnxruntime scattered", "LRN", leaves_an_error,
        "onnxruntime adds squares to a running sum in LRN and takes them away again: a large one leaves an error behind",
    ),
    Reason(
        "onnxruntime openvino scattered", "LRN", has_extreme,
        "the squares of LRN overflow in single precision, in which the reference does not compute them",
    ),
    Reason(
        "onnxruntime scattered", "MaxPool GlobalMaxPool", is_special,
        "onnxruntime's pools begin at the smallest finite number, which minus infinity does not replace",
    ),
    Reason(
        "onnxruntime scattered", "Clip", lacks_a_bound,
        "onnxruntime takes a bound of Clip that is left out for the largest finite number",
    ),
    Reason(
        "onnxruntime scattered", "ReduceMax ReduceMin TopK Sign", has_nan,
        "onnxruntime's extremes, and its Sign of float16, pass over NaN, where numpy stops at it",
    ),
    Reason(
        "onnxruntime scattered", "Unique", has_nan,
        "each NaN may be a number of its own in Unique, or be like any other; ONNX does not say",
    ),
    Reason(
        "onnxruntime scattered", "DynamicQuantizeLinear", quantizes_zeros,
        "the scale of zeros alone is 1 in onnxruntime and 1/255 in ONNX's reference; the quantized numbers are the same."
        " Numbers that are the errors of a rounding (the last one of a HannWindow) may be zero on one side alone",
    ),
    Reason(
        "onnxruntime openvino cpu scattered", "LpNormalization", normalizes_zeros,
        "numbers that are nothing but the errors of a rounding (of a Fourier transform, say) may all be zero on one side alone,"
        " and LpNormalization makes numbers of the size of one of them",
    ),
    Reason(
        "onnxruntime openvino cpu scattered", "Reciprocal Div", divides_by_errors,
        "a number that is nothing but the error of a rounding (the last one of a HannWindow) may be zero on one side alone, and"
        " its quotients are infinite there",
    ),
    Reason(
        "cpu scattered", "ConvTranspose", is_special,
        "TVM puts zeros between the data of ConvTranspose, of which a computed weight that is NaN or infinite makes NaN",
    ),
    Reason(
        "cpu scattered", "GridSample", is_special,
        "of a sample at the border the reference also reads a neighbour with the weight zero, of which an infinity makes NaN",
    ),
    Reason(
        "openvino scattered", "DequantizeLinear", rounds_a_product,
        "openvino multiplies number and zero point by the scale before it subtracts them: a rounding of their products stays",
    ),
    Reason(
        "openvino scattered", "RNN GRU LSTM Scan Loop If ScatterElements ScatterND RoiAlign", is_special,
        "openvino's recurrent layers, bodies and maxima do not carry NaN through their activations and comparisons",
    ),
    Reason(
        "openvino scattered",
        "Gemm MatMul Conv ConvTranspose AveragePool LpPool GlobalAveragePool GlobalLpPool GridSample Attention LRN"
        " BatchNormalization GroupNormalization InstanceNormalization LayerNormalization RMSNormalization LpNormalization"
        " ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp ReduceProd",
        is_special,
        "openvino orders sums and products otherwise: of NaN, an infinity, or a number whose square overflows, it may make"
        " another of NaN, infinity and a number",
    ),
    Reason(
        "openvino scattered", "GatherElements", refused_for_length,
        "openvino fails at run time on indices of GatherElements that are shorter than the data where a size is not fixed",
    ),
    Reason(
        "onnxruntime scattered", "ReduceSum ReduceProd Pow", has_wide_integers,
        "onnxruntime sums and multiplies 64-bit integers in double precision, which holds them up to 2^53",
    ),
)
