"""Conditions on sizes, and rejections of ops, that kernels for any size need beyond the ops' own constraints.

An op of which neither we nor TVM have a kernel for any size is refused later, when its body is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.accelerators.tvm.sizes.floors import same_padding
from partita.accelerators.tvm.sizes.symbols import READERS
from partita.graph.node import Node
from partita.graph.numerics.windows import SAME, extent
from partita.graph.ops.traits import ops
from partita.passes.infer.reading import has_rule

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

JOINING = ops("reduction", "arg_reduction", "pool", "global_pool", "softmax", "norm") - {"BatchNormalization", "LRN"}
"""Ops that compute one element from several."""


def hold_needs(reading: Reading, node: Node) -> None:
    """Records the conditions of an op's kernel; CompileError if it has no kernel for any size."""
    if not any(isinstance(size, Extent) for entry in (*node.reads, *node.outputs) if entry.name for size in reading.sizes(entry)):
        return
    if not has_rule(node):
        raise CompileError(f"no kernel for any size takes {node.domain}{'.' if node.domain else ''}{node.op}")
    _hold_some(reading, node)
    if node.op in JOINING and not node.domain:
        for size in reading.sizes(node.inputs[0]):
            reading.assume(size - 1)  # For no elements kernels compute other results than ONNX.
    need = NEEDS.get(str(node.op)) if not node.domain else None
    if need is not None:
        need(reading, node)


def _hold_some(reading: Reading, node: Node) -> None:
    """Assumes that operands that depend on a cache's size are not empty, unless the op can read empty ones."""
    if not reading.pasts or (node.op in READERS and not node.domain):
        return
    for entry in node.reads:
        count = reading.count(entry)
        if isinstance(count, Extent) and not reading.pasts.isdisjoint(count.symbols):
            reading.assume(count - 1)


def _static(reading: Reading, node: Node) -> list[int]:
    """The sizes of a convolution's weights, which are static: they decide on its kernel."""
    weights = reading.sizes(node.inputs[1])
    if any(isinstance(size, Extent) for size in weights):
        raise CompileError(f"{node.op} by weights of {' x '.join(map(str, weights))}: all of these have to be known")
    return [size for size in weights if isinstance(size, int)]


def _convolution(reading: Reading, node: Node) -> None:
    _same_padding(reading, node, _static(reading, node)[2:])


def _same_padding(reading: Reading, node: Node, taps: list[int]) -> None:
    """Gives symbols to the quotients of automatic padding, which kernels read."""
    automatic, count = node.attrs.get("auto_pad", "NOTSET"), len(taps)
    strides, dilations = (node.attrs.get(name) or [1] * count for name in ("strides", "dilations"))
    if automatic in SAME:
        for size, tap, step, gap in zip(reading.sizes(node.inputs[0])[2:], taps, strides, dilations, strict=True):
            same_padding(size, extent(tap, gap), step, automatic, reading.divide)


def _pool(reading: Reading, node: Node) -> None:
    _single(reading, node)
    _same_padding(reading, node, list(node.attrs["kernel_shape"]))


def _single(reading: Reading, node: Node) -> None:
    """Only the first result has a kernel."""
    if any(node.output_names[1:]):
        raise CompileError(f"{node.op} with several results has no rule for any size")


def _transposed(reading: Reading, node: Node) -> None:
    """Padding is explicit, and the result has elements."""
    _static(reading, node)
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET" or node.attrs.get("output_shape"):
        raise CompileError(f"a transposed convolution of {list(reading.sizes(node.inputs[0]))} with automatic padding")
    for size in reading.sizes(node[0])[2:]:
        reading.assume(size - 1)


def _pad(reading: Reading, node: Node) -> None:
    """No padding is negative, and none reads outside the data."""
    data, (amounts, _, named) = reading.sizes(node.inputs[0]), (*node.inputs, None, None, None)[1:4]
    pads = node.attrs.get("pads") if amounts is None else reading.vector(amounts)
    axes = range(len(data)) if named is None else reading.numbers(named)
    if pads is None or any(isinstance(size, int) and size < 0 for size in pads):
        raise CompileError(f"Pad by {pads} has no rule for any size")
    for i, axis in enumerate(axes):
        for amount in (pads[i], pads[len(axes) + i]):
            reading.assume(amount)
            reading.assume(data[axis] - _read_by_padding(node.attrs.get("mode", "constant"), amount))


def _read_by_padding(mode: str, padding: Size) -> Size:
    """Number of elements that an amount of padding reads."""
    return {"reflect": padding + 1, "wrap": padding, "edge": int(padding != 0)}.get(mode, 0)


def _tile(reading: Reading, node: Node) -> None:
    """The result has elements if the data have."""
    for count in reading.vector(node.inputs[1]):
        reading.assume(count - 1)


def _split(reading: Reading, node: Node) -> None:
    """The last part has elements if it may be smaller."""
    if node.attrs.get("num_outputs") is not None:
        axis = int(node.attrs.get("axis", 0))
        reading.assume(reading.sizes(node.outputs[-1])[axis] - 1)


def _resize(reading: Reading, node: Node) -> None:
    """At least two dimensions (one of a matrix) are kept by constant factors, or all dimensions are resized to sizes."""
    data, inputs = reading.sizes(node.inputs[0]), (*node.inputs, None, None, None)
    scales, sizes = (inputs[2], inputs[3]) if len(node.inputs) > 2 else (inputs[1], None)  # The latter before opset 11.
    if node.attrs.get("axes"):
        raise CompileError("Resize of chosen dimensions has no rule for any size")
    factors = None if scales is None else scales.node.value
    if sizes is None and (factors is None or factors.size != len(data)):
        raise CompileError("Resize by factors that are not constant has no rule for any size")
    listed = [] if sizes is not None or factors is None else factors.tolist()
    if listed and listed.count(1) < min(2, len(listed) - 1):
        raise CompileError(f"Resize of {list(data)} by {listed}")


def _recurrent(reading: Reading, node: Node) -> None:
    """The weights are constant, and the input is float32."""
    is_constant = all(entry is not None and entry.node.value is not None for entry in node.inputs[1:3])
    if node.inputs[0] is None or reading.type_of(node.inputs[0]).dtype != "float32" or not is_constant:
        raise CompileError(f"{node.op} has kernels for any size of float32 by constant weights")


NEEDS: Mapping[str, Callable[[Reading, Node], None]] = {
    **dict.fromkeys(ops("norm"), _single),
    **dict.fromkeys(ops("pool"), _pool),
    **dict.fromkeys(ops("recurrent"), _recurrent),
    **dict.fromkeys(("Conv", "ConvInteger"), _convolution),
    **dict.fromkeys(ops("resizing"), _resize),
    "ConvTranspose": _transposed, "Pad": _pad, "Split": _split, "Tile": _tile,
}
