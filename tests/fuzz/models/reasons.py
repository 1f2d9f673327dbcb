"""Differences that are known and stay, each with its reason: narrow, so that nothing else hides behind them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from graph.node import Node
from tests.fuzz.models.builder import Case
from tests.fuzz.models.check import Finding
from tests.fuzz.models.stability import run


@attrs.frozen
class Reason:
    """One known difference."""

    settings: str
    """Where it shows itself."""
    ops: str
    """The ops of the cut-down model, one of which has to be there; "*" stands for any."""
    when: Callable[[Case, Finding], bool]
    """Is it the case that is meant?"""
    text: str
    """Why it stays."""


def reason_of(case: Case, finding: Finding) -> str | None:
    """Why the difference is allowed, of a model that is cut down to what differs; None where nothing says so."""
    present = {node.op for node in case.graph.nodes if node.is_op}
    for reason in REASONS:
        if (
            finding.setting in reason.settings.split()
            and present & set(reason.ops.split())
            and reason.when(case, finding)
        ):
            return reason.text
    return None


def _nodes(case: Case, ops: str) -> list[Node]:
    return [node for node in case.graph.nodes if node.op in ops.split()]


def has_nonfinite(case: Case, finding: Finding) -> bool:
    """Is there any value that is not a number, or infinite?"""
    return any(
        isinstance(value, np.ndarray)
        and value.dtype.kind in "fV"
        and not np.isfinite(value.astype(np.float64)).all()
        for value in run(case.graph, case.feeds, None).values()
    )


def has_denormal(case: Case, finding: Finding) -> bool:
    """Is there any number so small that it has fewer digits?"""
    for value in run(case.graph, case.feeds, None).values():
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            small = np.abs(value[np.isfinite(value) & (value != 0)])
            if small.size and small.min() < np.finfo(np.float32).tiny:
                return True
    return False


REASONS: tuple[Reason, ...] = (
    Reason(
        "openvino scattered", "*", has_denormal,
        "openvino takes the smallest numbers (denormal ones, below 1.2e-38) for zero",
    ),
    Reason(
        "openvino scattered",
        "Relu Exp Max Min Clip Celu Elu Selu LeakyRelu PRelu Sign MaxPool AveragePool GlobalMaxPool ReduceMax ReduceMin ArgMax"
        " ArgMin Hardmax TopK Softmax HardSigmoid HardSwish Mish Gelu Sigmoid Softplus ThresholdedRelu Shrink",
        has_nonfinite,
        "openvino does not carry NaN through comparisons and what is made of them (docs/accelerators.md)",
    ),
    Reason(
        "onnxruntime scattered", "ArgMax ArgMin Hardmax RNN GRU LSTM RoiAlign", has_nonfinite,
        "onnxruntime passes over NaN in its comparisons and its clipped activations, where numpy stops at it",
    ),
    Reason(
        "onnxruntime scattered", "Resize STFT DFT LRN MeanVarianceNormalization", has_nonfinite,
        "onnxruntime also adds numbers whose weight is zero, and so makes NaN of an infinity; the reference leaves them out",
    ),
)  # fmt: skip
