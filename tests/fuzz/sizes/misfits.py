"""Graphs whose symbols meet constants, or each other, in each place where an op demands that sizes fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

import partita as pt
from partita.graph.node import Node
from partita.graph.types import Array, Dim
from tests.fuzz.sizes.opened import Opened

BASE = {"N": 3, "M": 4, "K": 1, "C": 4, "B": 2, "T": 5, "S": 5, "D": 2, "R": 3}
"""Sizes that fit, where any do."""

Dims = Sequence[Dim]


class _Drawn:
    """Inputs of random numbers, in the order in which they are made."""

    def __init__(self, name: str) -> None:
        self._random = np.random.default_rng(sum(map(ord, name)))
        self.inputs: list[Node] = []
        self.feeds: list[Array] = []

    def __call__(self, *dims: Dim, dtype: str = "float32") -> Node:
        """An input of these sizes."""
        self.inputs.append(pt.variable(f"x{len(self.inputs)}", dtype, dims))
        self.feeds.append(self._array(tuple([BASE[d] if isinstance(d, str) else int(d or 0) for d in dims]), dtype))
        return self.inputs[-1]

    def given(self, array: Array, *dims: Dim) -> Node:
        """An input with this value."""
        node = self(*dims, dtype=array.dtype.name)
        self.feeds[-1] = array
        return node

    def const(self, *shape: int, dtype: str = "float32") -> Node:
        """A constant of this shape."""
        return pt.constant(self._array(shape, dtype))

    def _array(self, shape: tuple[int, ...], dtype: str) -> Array:
        if dtype == "bool":
            return self._random.integers(0, 2, shape).astype(bool)
        if "int" in dtype:
            return self._random.integers(1, 5, shape).astype(dtype)
        return np.abs(self._random.standard_normal(shape)).astype(dtype) + np.array(0.5, dtype)


def ints(*values: int) -> Node:
    """A constant vector of integers."""
    return pt.constant(np.array(values, np.int64))


def scalar(value: float, dtype: str = "int64") -> Node:
    """A constant number."""
    return pt.constant(np.array(value, dtype))


_NEWER = frozenset("Attention RotaryEmbedding RMSNormalization TensorScatter".split())
"""Ops that came after opset 21."""

Maker = Callable[[_Drawn], Node]

_BROADCAST: Mapping[str, str] = {
    **dict.fromkeys("Add Sub Mul Div Max Min Mean Sum Pow PRelu".split(), "float32"),
    **dict.fromkeys("Equal Greater Less LessOrEqual GreaterOrEqual".split(), "float32"),
    **dict.fromkeys("And Or Xor".split(), "bool"),
    **dict.fromkeys("BitwiseAnd BitwiseOr BitwiseXor Mod".split(), "int32"),
    "BitShift": "uint32",
}
"""Ops that broadcast, each with an element type."""


def _broadcasts() -> dict[str, Maker]:
    def one(op: str, dtype: str, left: Dims, right: Dims, fixed: bool, swapped: bool = False) -> Maker:
        def make(x: _Drawn) -> Node:
            given = x(*left, dtype=dtype)
            other = x.const(*[int(d or 0) for d in right], dtype=dtype) if fixed else x(*right, dtype=dtype)
            pair = (other, given) if swapped else (given, other)
            return pt.op(op, *pair, **({"direction": "LEFT"} if op == "BitShift" else {}))

        return make

    makers: dict[str, Maker] = {}
    for op, dtype in _BROADCAST.items():
        makers[f"{op} rows"] = one(op, dtype, ("N", 4), (3, 4), True)
        makers[f"{op} columns"] = one(op, dtype, (3, "M"), (4,), True, swapped=op != "PRelu")
        makers[f"{op} table"] = one(op, dtype, ("B", "T", 4), (1, 5, 4), True)
        makers[f"{op} symbols"] = one(op, dtype, ("N", "M"), ("R", "C"), False)
        makers[f"{op} ends"] = one(op, dtype, ("N", "M"), ("C",), False)
    for place in range(3):
        def where(x: _Drawn, place: int = place) -> Node:
            parts = [(x if i == place else x.const)(*(("N", 4) if i == place else (3, 4)), dtype="bool" if not i else "float32")
                     for i in range(3)]  # type: ignore[operator]
            return pt.op("Where", *parts)

        makers[f"Where part {place}"] = where
    makers["Where symbols"] = lambda x: pt.op("Where", x("N", 4, dtype="bool"), x("R", 4), x("K", 4))
    return makers


def _windowed(x: _Drawn, *dims: Dim, **attributes: object) -> Node:
    return pt.op("Conv", x(*dims), x.const(6, 4, 3), **attributes)


def _recurrent(op: str, batch: Dim, initial: Dim, size: Dim) -> Maker:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    return lambda x: pt.op(
        op, x("T", batch, size), x.const(1, gates * 5, 4), x.const(1, gates * 5, 5), None, None, x(1, initial, 5), hidden_size=5,
        n_outputs=1,
    )


def _positions(x: _Drawn, rows: int) -> Node:
    """An embedding of positions from 0 on, as many as there are tokens."""
    tokens = x("B", "T", 8)
    length = pt.op("Squeeze", pt.op("Shape", tokens, start=1, end=2), ints(0))
    return pt.op("Add", tokens, pt.op("Gather", x.const(rows, 8), pt.op("Range", scalar(0), length, scalar(1))))


def _buffer(x: _Drawn, rows: int, table: int) -> Node:
    """A buffer of position numbers, cut to the length of the text."""
    tokens = x("B", "T", 8)
    numbers = pt.constant(np.arange(rows, dtype=np.int64)[None])
    cut = pt.op("Slice", numbers, ints(0), pt.op("Shape", tokens, start=1, end=2), ints(1))
    return pt.op("Add", tokens, pt.op("Gather", x.const(table, 8), cut))


def _cut_table(x: _Drawn) -> Node:
    """A table of positions, cut to the length of the text."""
    tokens = x("B", "T", 8)
    return pt.op("Add", tokens, pt.op("Slice", x.const(1, 6, 8), ints(0), pt.op("Shape", tokens, start=1, end=2), ints(1)))


def _masked(x: _Drawn) -> Node:
    """Attention with a causal mask kept as a constant."""
    query, key = x("B", 2, "T", 4), x("B", 2, "S", 4)
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    return pt.op("MatMul", pt.op("Softmax", pt.op("Add", scores, x.const(1, 1, 5, 5)), axis=-1), key)


def _branch(x: _Drawn) -> Node:
    value, condition = x("N", 4), x.given(np.array(True))
    inner = pt.variable("inner", "float32", ("N", 4))
    then = pt.Graph([pt.op("Add", inner, x.const(3, 4))], [inner], name="then")
    other = pt.variable("other", "float32", ("N", 4))
    otherwise = pt.Graph([pt.op("Mul", other, x.const(1, 4))], [other], name="otherwise")
    return pt.op("If", condition, captures=[value[0]], then_branch=then, else_branch=otherwise)


def _turns(x: _Drawn) -> Node:
    value = x("N", 4)
    turn, go, state = (pt.variable(n, t, s) for n, t, s in (("i", "int64", ()), ("go", "bool", ()), ("s", "float32", ("N", 4))))
    body = pt.Graph([pt.op("Identity", go), pt.op("Add", state, x.const(3, 4))], [turn, go, state], name="body")
    return pt.op("Loop", scalar(2), scalar(True, "bool"), value, body=body, n_outputs=1)


def _scale(op: str, **attributes: object) -> Maker:
    return lambda x: pt.op(op, x("N", "C", 5), x.const(4), x.const(4), **attributes)


_NUMBERS: dict[str, Maker] = {
    "Clip min of N": lambda x: pt.op("Clip", x(4, 5), x("N"), scalar(9, "float32")),
    "Clip max of N": lambda x: pt.op("Clip", x("M", 5), scalar(0, "float32"), x("K")),
    "CumSum axis of K": lambda x: pt.op("CumSum", x("N", 4), x.given(np.array([1]), "K")),
    "CumSum axis beyond": lambda x: pt.op("CumSum", x("N", "M"), scalar(5)),
    "CumSum axis before": lambda x: pt.op("CumSum", x("N", "M"), scalar(-3)),
    "OneHot values": lambda x: pt.op("OneHot", x("N", dtype="int64"), scalar(6), x("B")),
    "OneHot depth": lambda x: pt.op("OneHot", x("N", dtype="int64"), x.given(np.array([6]), "K"), x.const(2)),
    "TopK rows": lambda x: pt.op("TopK", x("N", 4), ints(3), axis=0, n_outputs=2),
    "TopK k": lambda x: pt.op("TopK", x("N", 4), x.given(np.array([2]), "K"), n_outputs=2),
    "Trilu k": lambda x: pt.op("Trilu", x("N", "M"), x.given(np.array([1]), "K")),
    "Range": lambda x: pt.op("Range", scalar(0), x.given(np.array([5]), "K"), scalar(1)),
    "Pad value": lambda x: pt.op("Pad", x("N", 4), ints(0, 1, 0, 1), x("K")),
    "Pad reflect": lambda x: pt.op("Pad", x("N", "M"), ints(2, 3, 2, 3), mode="reflect"),
    "Pad edge": lambda x: pt.op("Pad", x("N", "M"), ints(1, 1, 1, 1), mode="edge"),
    "Pad wrap": lambda x: pt.op("Pad", x("N", "M"), ints(3, 4, 3, 4), mode="wrap"),
    "Pad negative": lambda x: pt.op("Pad", x("N", "M"), ints(-1, -2, -1, -1)),
    "Squeeze": lambda x: pt.op("Squeeze", x("K", 4), ints(0)),
    "Reshape whole": lambda x: pt.op("Reshape", x("N", 4), ints(2, 6)),
    "Reshape rest": lambda x: pt.op("Reshape", x("N", "M"), ints(-1, 6)),
    "Reshape copied": lambda x: pt.op("Reshape", x("N", "M", 2), ints(0, 2, -1)),
    "Expand": lambda x: pt.op("Expand", x("N", "M"), ints(3, 4)),
    "Expand higher": lambda x: pt.op("Expand", x("N", 1), ints(2, 3, 4)),
    "Tile repeats": lambda x: pt.op("Tile", x("N", 4), x.given(np.array([2, 1]), "B")),
    "Split parts": lambda x: pt.op("Split", x("T", 4), ints(2, 3), axis=0, n_outputs=2),
    "Split count": lambda x: pt.op("Split", x("T", 4), axis=0, num_outputs=3, n_outputs=3),
    "Slice steps": lambda x: pt.op("Slice", x("N", "M"), ints(0, 1), ints(3, 9), ints(0, 1), ints(1, 2)),
    "Concat beside": lambda x: pt.op("Concat", x("N", "M"), x.const(3, 2), axis=1),
    "Concat below": lambda x: pt.op("Concat", x.const(2, 4), x("N", "M"), x("T", "C"), axis=0),
    "DepthToSpace": lambda x: pt.op("DepthToSpace", x("N", "C", 2, 2), blocksize=2),
    "SpaceToDepth": lambda x: pt.op("SpaceToDepth", x("N", 1, "M", 4), blocksize=2),
    "Compress": lambda x: pt.op("Compress", x("T", 4), pt.constant(np.array([True, False, True])), axis=0),
    "Compress by": lambda x: pt.op("Compress", x(4, 2), x("N", dtype="bool"), axis=0),
    "ReverseSequence": lambda x: pt.op("ReverseSequence", x("T", "B", 4), ints(3, 2)),
    "ReverseSequence by": lambda x: pt.op("ReverseSequence", x("T", 2, 4), x.given(np.array([3, 2]), "B")),
    "CenterCropPad": lambda x: pt.op("CenterCropPad", x("N", "M"), ints(2, 9)),
    "MaxUnpool": lambda x: pt.op(
        "MaxUnpool", x("K", 1, "B", 2), x.const(1, 1, 2, 2, dtype="int64"), kernel_shape=[2, 2], strides=[2, 2]),
}

_INDICES: dict[str, Maker] = {
    "Gather rows": lambda x: pt.op("Gather", x("N", 4), ints(0, 2)),
    "Gather negative": lambda x: pt.op("Gather", x("N", 4), ints(-3)),
    "Gather columns": lambda x: pt.op("Gather", x("N", "M"), ints(3, 0), axis=1),
    "Gather scalar": lambda x: pt.op("Gather", x("N", "M"), scalar(2)),
    "Gather by": lambda x: pt.op("Gather", x.const(5, 4), x("N", dtype="int64")),
    "GatherElements": lambda x: pt.op("GatherElements", x("N", "M"), pt.constant(np.array([[0, 2], [1, -3]])), axis=0),
    "GatherElements wide": lambda x: pt.op("GatherElements", x("N", "M"), pt.constant(np.array([[3], [0], [1]])), axis=1),
    "GatherElements by": lambda x: pt.op("GatherElements", x.const(3, 5), x("N", "M", dtype="int64"), axis=1),
    "ScatterElements": lambda x: pt.op("ScatterElements", x("N", "M"), pt.constant(np.array([[2, 0]])), x.const(1, 2), axis=0),
    "ScatterElements by": lambda x: pt.op("ScatterElements", x("T", 4), x.given(np.array([[1] * 4, [0] * 4]), "B", 4), x("D", 4)),
    "GatherND depth 1": lambda x: pt.op("GatherND", x("N", 4), pt.constant(np.array([[2], [-3]]))),
    "GatherND second": lambda x: pt.op("GatherND", x("N", 4), pt.constant(np.array([[0, -4], [2, 3]]))),
    "GatherND beyond": lambda x: pt.op("GatherND", x("N", 4), pt.constant(np.array([[0, 4]]))),
    "GatherND symbols": lambda x: pt.op("GatherND", x("N", "M"), pt.constant(np.array([[1, 3], [-3, -4]]))),
    "GatherND middle": lambda x: pt.op("GatherND", x(2, "M", 3), pt.constant(np.array([[1, 3, 2], [0, -4, -3]]))),
    "GatherND batch": lambda x: pt.op("GatherND", x("B", "M", 3), pt.constant(np.array([[3], [0]])), batch_dims=1),
    "GatherND batch by": lambda x: pt.op("GatherND", x("B", 5, 3), x.given(np.array([[3], [0]]), "N", 1), batch_dims=1),
    "GatherND huge": lambda x: pt.op("GatherND", x("N", 4), pt.constant(np.array([[10**9]]))),
    "GatherND tuple": lambda x: pt.op("GatherND", x("N", 4), x.given(np.array([[2], [-1], [0]]), "R", "K")),
    "ScatterND rows": lambda x: pt.op("ScatterND", x("N", 4), pt.constant(np.array([[2], [-1]])), x.const(2, 4)),
    "ScatterND second": lambda x: pt.op("ScatterND", x("N", 4), pt.constant(np.array([[0, -5]])), x.const(1)),
    "ScatterND beyond": lambda x: pt.op("ScatterND", x("N", 4), pt.constant(np.array([[0, 100]])), x.const(1)),
    "ScatterND last": lambda x: pt.op("ScatterND", x("N", "M"), pt.constant(np.array([[2, -4]])), x.const(1)),
    "ScatterND middle": lambda x: pt.op("ScatterND", x(2, "M", 3), pt.constant(np.array([[1, 3, 2]])), x.const(1)),
    "ScatterND add": lambda x: pt.op("ScatterND", x("N", 4), pt.constant(np.array([[2], [0]])), x("B", 4), reduction="add"),
    "ScatterND updates": lambda x: pt.op("ScatterND", x(6, "M"), pt.constant(np.array([[2], [0]])), x("B", "C")),
    "TensorScatter": lambda x: pt.op("TensorScatter", x("B", 6, 4), x("D", "M", 4), x.given(np.array([1, 0]), "B"), opset=24),
    "table of positions": lambda x: _positions(x, 6),
    "buffer of positions": lambda x: _buffer(x, 6, 9),
    "buffer beyond its table": lambda x: _buffer(x, 9, 6),
    "cut table": _cut_table,
    "constant mask": _masked,
}

_WEIGHTS: dict[str, Maker] = {
    "MatMul depth": lambda x: pt.op("MatMul", x("N", "M"), x.const(4, 5)),
    "MatMul left": lambda x: pt.op("MatMul", x.const(5, 4), x("M", "N")),
    "MatMul symbols": lambda x: pt.op("MatMul", x("N", "T"), x("S", "M")),
    "MatMul batches": lambda x: pt.op("MatMul", x("B", "N", 4), x.const(2, 4, 5)),
    "MatMul vector": lambda x: pt.op("MatMul", x("N", "M"), x.const(4)),
    "Gemm depth": lambda x: pt.op("Gemm", x("N", "M"), x.const(4, 5), x.const(5)),
    "Gemm bias": lambda x: pt.op("Gemm", x("N", 4), x.const(4, 5), x.const(3, 5)),
    "Gemm bias of M": lambda x: pt.op("Gemm", x("N", 4), x.const(4, 4), x("M")),
    "Gemm turned": lambda x: pt.op("Gemm", x("M", "N"), x.const(5, 4), transA=1, transB=1),
    "Einsum": lambda x: pt.op("Einsum", x("N", "M"), x.const(4, 5), equation="ij,jk->ik"),
    "Einsum symbols": lambda x: pt.op("Einsum", x("B", "T", "M"), x("B", "S", "C"), equation="bij,bkj->bik"),
    "Conv channels": lambda x: _windowed(x, "N", "C", 8),
    "Conv small": lambda x: _windowed(x, 1, 4, "T"),
    "Conv strided": lambda x: _windowed(x, "N", 4, "T", strides=[2], pads=[1, 0]),
    "Conv groups": lambda x: pt.op("Conv", x("N", "C", "T"), x.const(4, 1, 3), group=4),
    "Conv weights": lambda x: pt.op("Conv", x(1, 4, 8), x("N", "C", 2), x("R")),
    "Conv bias": lambda x: pt.op("Conv", x(1, 4, "T"), x.const(3, 4, 2), x("N")),
    "ConvTranspose channels": lambda x: pt.op("ConvTranspose", x("N", "C", "T"), x.const(4, 2, 3), x.const(2)),
    "MaxPool": lambda x: pt.op("MaxPool", x("N", "C", "T"), kernel_shape=[4], strides=[2]),
    "AveragePool": lambda x: pt.op("AveragePool", x("N", "C", "T", "S"), kernel_shape=[2, 4]),
    "BatchNormalization": lambda x: pt.op("BatchNormalization", x("N", "C", 5), *[x.const(4) for _ in range(4)]),
    "BatchNormalization by": lambda x: pt.op("BatchNormalization", x("N", 4, 5), x("C"), x("M"), x.const(4), x.const(4)),
    "InstanceNormalization": _scale("InstanceNormalization"),
    "GroupNormalization": _scale("GroupNormalization", num_groups=2),
    "GroupNormalization groups": lambda x: pt.op("GroupNormalization", x("N", "C", 5), x("M"), x("M"), num_groups=2),
    "LayerNormalization": lambda x: pt.op("LayerNormalization", x("N", "C"), x.const(4), x.const(4)),
    "LayerNormalization rows": lambda x: pt.op("LayerNormalization", x("N", "T", "C"), x.const(5, 4), axis=1),
    "LayerNormalization by": lambda x: pt.op("LayerNormalization", x("N", 4), x("C"), x("M")),
    "RMSNormalization": lambda x: pt.op("RMSNormalization", x("N", "C"), x.const(4), opset=24),
    "DequantizeLinear": lambda x: pt.op(
        "DequantizeLinear", x("N", "C", dtype="uint8"), x.const(4), x.const(4, dtype="uint8"), axis=1),
    "DequantizeLinear rows": lambda x: pt.op("DequantizeLinear", x("N", 4, dtype="int8"), x("R"), axis=0),
    "QuantizeLinear": lambda x: pt.op("QuantizeLinear", x("N", "C"), x.const(4), x.const(4, dtype="uint8"), axis=1),
    "MatMulInteger": lambda x: pt.op("MatMulInteger", x("N", "M", dtype="uint8"), x.const(4, 5, dtype="int8")),
    "MatMulInteger rows": lambda x: pt.op(
        "MatMulInteger", x("N", 4, dtype="uint8"), x.const(4, 5, dtype="int8"), x.const(3, dtype="uint8")),
    "QLinearMatMul": lambda x: pt.op(
        "QLinearMatMul", x("N", "M", dtype="uint8"), scalar(0.1, "float32"), scalar(3, "uint8"), x.const(4, 5, dtype="int8"),
        scalar(0.1, "float32"), scalar(0, "int8"), scalar(0.2, "float32"), scalar(5, "uint8")),
    "QLinearConv": lambda x: pt.op(
        "QLinearConv", x("N", "C", "T", dtype="uint8"), scalar(0.1, "float32"), scalar(3, "uint8"),
        x.const(6, 4, 3, dtype="int8"), x.const(6), x.const(6, dtype="int8"), scalar(0.2, "float32"), scalar(5, "uint8"),
        x.const(6, dtype="int32")),
    "ConvInteger": lambda x: pt.op("ConvInteger", x("N", "C", "T", dtype="uint8"), x.const(6, 4, 3, dtype="int8")),
    "RNN size": _recurrent("RNN", "B", "B", "C"),
    "GRU batch": _recurrent("GRU", "B", "D", 4),
    "LSTM size": _recurrent("LSTM", 2, "B", "C"),
    "LSTM batch": _recurrent("LSTM", "B", 2, 4),
    "Attention keys": lambda x: pt.op("Attention", x("B", 2, "T", 4), x("B", 2, "S", "C"), x("D", 2, "T", 4), opset=24),
    "Attention constant": lambda x: pt.op("Attention", x("B", 2, "T", "C"), x.const(2, 2, 5, 4), x.const(2, 2, 5, 3), opset=24),
    "Attention mask": lambda x: pt.op(
        "Attention", x("B", 2, "T", 4), x("B", 2, "S", 4), x("B", 2, "S", 4), x.const(5, 5), opset=24),
    "RotaryEmbedding": lambda x: pt.op("RotaryEmbedding", x("B", 2, "T", 4), x.const(2, 5, 2), x.const(2, 5, 2), opset=24),
    "Resize sizes": lambda x: pt.op("Resize", x("N", "C", 4), None, None, ints(3, 4, 8), mode="nearest"),
    "Resize scales": lambda x: pt.op(
        "Resize", x("N", 2, "T"), None, pt.constant(np.array([1, 1, 0.3], np.float32)), mode="linear"),
    "GridSample": lambda x: pt.op("GridSample", x("B", 1, 4, 4), x.const(2, 3, 3, 2)),
    "NonMaxSuppression": lambda x: pt.op("NonMaxSuppression", x("K", "M", 4), x("K", 2, "C"), scalar(2)),
    "NegativeLogLikelihoodLoss": lambda x: pt.op(
        "NegativeLogLikelihoodLoss", x("N", "C"), x.given(np.array([0, 3, 1]), "T"), x.const(4)),
    "STFT": lambda x: pt.op("STFT", x("K", "M", 1), scalar(2), x.const(4)),
    "Col2Im": lambda x: pt.op("Col2Im", x("N", "C", "T"), ints(1, 6), ints(1, 2)),
    "Det": lambda x: pt.op("Det", x("B", "M", "C")),
    "If": _branch,
    "Loop": _turns,
}

MISFITS: Mapping[str, Maker] = {**_broadcasts(), **_NUMBERS, **_INDICES, **_WEIGHTS}
"""The graphs by name."""


def misfit(name: str) -> Opened:
    """The graph with inputs of the sizes of BASE."""
    drawn = _Drawn(name)
    result = MISFITS[name](drawn)
    graph = pt.Graph(list(result.outputs), drawn.inputs, name="misfit", opsets={"": 24 if result.op in _NEWER else 21})
    return Opened(graph, tuple(drawn.feeds))
