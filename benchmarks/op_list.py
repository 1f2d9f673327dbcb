"""The ops that the TVM device takes, each in the shapes and element types that matter, from small to bound by memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

import partita as pt

Shape = tuple[int, ...]

SMALL, MIDDLE, LARGE = (4, 64), (1, 32, 56, 56), (64, 256, 256)
"""256 numbers, 100 thousand, and four million, which no cache holds."""

TINY = 20_000
"""The tests measure the cases of so many numbers at most."""


@attrs.frozen
class Case:
    """One graph to measure; it is made when it is asked for."""

    name: str
    """The op, and what is special."""
    _build: Callable[..., Any]
    _given: tuple[Any, ...]
    _opset: int
    _low: float | None

    @property
    def size(self) -> int:
        """The numbers that are read."""
        return sum(spec.size if isinstance(spec, np.ndarray) else math.prod(_spec(spec)[1]) for spec in self._given)

    def arrays(self) -> list[np.ndarray]:
        """What it is fed."""
        random = np.random.default_rng(0)
        return [s if isinstance(s, np.ndarray) else _array(*_spec(s), random, self._low) for s in self._given]

    def graph(self) -> pt.Graph:
        """The op between inputs."""
        inputs = []
        for i, spec in enumerate(self._given):
            dtype, shape = (str(spec.dtype), spec.shape) if isinstance(spec, np.ndarray) else _spec(spec)
            inputs.append(pt.variable(f"x{i}", dtype, shape))
        made = self._build(*inputs)
        outputs = list(made) if isinstance(made, Sequence) else [made]
        return pt.apply_pass(pt.Graph(outputs, inputs=inputs, opsets={"": self._opset}), "InferShape")


def cases() -> Iterator[Case]:
    """All of them, one op at a time."""
    for family in (_elementwise, _typed, _reductions, _moves, _indexed, _images, _products, _quantized):
        yield from family()


def chains() -> Iterator[Case]:
    """Element-wise chains and layer norms, which are compared with ONNX Runtime too."""
    for shape in (SMALL, (128, 768), (1, 64, 56, 56), LARGE):
        yield _case(f"chain gelu {_text(shape)}", _gelu, shape)
        yield _case(f"chain silu {_text(shape)}", lambda x: pt.op("Mul", x, pt.op("Sigmoid", x)), shape)
        yield _case(f"chain axpy {_text(shape)}", _axpy, shape, shape)
        yield _case(f"chain scale {_text(shape)}", _scaled, shape, (shape[-1],))
        yield _case(f"chain two outputs {_text(shape)}", _two, shape)
    for shape in ((8, 64), (128, 768), (512, 1024), (4096, 1024), (197, 100)):
        weights = [shape[-1:], shape[-1:]]
        yield _case(f"LayerNormalization {_text(shape)}", lambda *x: pt.op("LayerNormalization", *x, axis=-1), shape, *weights)


def _gelu(x: pt.Node) -> pt.Node:
    inner = pt.op("Erf", pt.op("Div", x, pt.constant(np.float32(2**0.5))))
    half = pt.op("Mul", x, pt.constant(np.float32(0.5)))
    return pt.op("Mul", half, pt.op("Add", inner, pt.constant(np.float32(1))))


def _axpy(x: pt.Node, y: pt.Node) -> pt.Node:
    return pt.op("Relu", pt.op("Add", pt.op("Mul", x, pt.constant(np.float32(3))), y))


def _scaled(x: pt.Node, scale: pt.Node) -> pt.Node:
    return pt.op("Tanh", pt.op("Add", pt.op("Mul", x, scale), scale))


def _two(x: pt.Node) -> Sequence[pt.Node]:
    shared = pt.op("Exp", pt.op("Neg", x))
    return pt.op("Add", shared, x), pt.op("Sqrt", shared)


# -- families -----------------------------------------------------------------------------------------------

_UNARY = """Abs Ceil Cos Erf Exp Floor Log Neg Reciprocal Relu Round Sigmoid Sign Sin Softplus Softsign Sqrt Tanh Elu Selu Gelu
Mish HardSigmoid HardSwish LeakyRelu ThresholdedRelu Identity IsNaN IsInf Acos Asin Atan Sinh Cosh Tan Atanh Asinh""".split()

_BINARY = "Add Sub Mul Div Max Min Pow PRelu Less Equal".split()


def _elementwise() -> Iterator[Case]:
    for op in _UNARY:
        for shape in (SMALL, MIDDLE, LARGE):
            yield _case(f"{op} {_text(shape)}", _op(op), shape, opset=22, low=0.1 if op in ("Log", "Sqrt") else None)
    equal = [(shape, shape) for shape in (SMALL, MIDDLE, LARGE)]
    for op in _BINARY:
        for a, b in (*equal, (LARGE, (256,)), (MIDDLE, (32, 1, 1)), (LARGE, (64, 1, 1))):
            yield _case(f"{op} {_text(a)} {_text(b)}", _op(op), a, b)
    for a, b in (((256, 1), (1, 256)), ((2048, 1), (1, 2048)), ((64, 256, 1), (256, 256))):
        yield _case(f"Add {_text(a)} {_text(b)}", _op("Add"), a, b)
    for shape in (SMALL, MIDDLE, LARGE, (1000, 1001)):
        condition = ("bool", shape)
        yield _case(f"Where {_text(shape)}", _op("Where"), condition, shape, shape)
        yield _case(f"Where {_text(shape)} scalar", _op("Where"), condition, shape, ())
        yield _case(f"Clip {_text(shape)}", lambda x: pt.op("Clip", x, _c(-1.0), _c(1.0)), shape)
        yield _case(f"Sum {_text(shape)} x3", _op("Sum"), shape, shape, shape)


def _typed() -> Iterator[Case]:
    for dtype in ("int32", "int64", "uint8", "int8", "float16", "float64"):
        for shape in (SMALL, LARGE):
            for op in ("Add", "Mul", "Max", "Less", *(("Div", "Mod") if "float" not in dtype else ("Exp",))):
                given = [(dtype, shape)] * (1 if op == "Exp" else 2)
                yield _case(f"{op} {dtype} {_text(shape)}", _op(op), *given, low=1)
            if "8" not in dtype:
                yield _case(f"ReduceSum {dtype} {_text(shape)}", lambda x: pt.op("ReduceSum", x, _i(-1)), (dtype, shape))
            yield _case(f"Transpose {dtype} {_text(shape)}", _op("Transpose"), (dtype, shape))
    for source, target in (("float32", "float16"), ("float16", "float32"), ("float32", "int64"), ("int64", "float32"),
                           ("float32", "uint8"), ("uint8", "float32"), ("bool", "float32"), ("float32", "bool"),
                           ("float32", "float64"), ("int64", "int32")):  # fmt: skip
        for shape in (SMALL, LARGE):
            to = pt.TensorType(target, ()).dtype
            yield _case(f"Cast {source} {to} {_text(shape)}", _op("Cast", to=_ONNX[to]), (source, shape))
    for op in ("And", "Or", "Xor"):
        yield _case(f"{op} {_text(LARGE)}", _op(op), ("bool", LARGE), ("bool", LARGE))
    yield _case(f"Not {_text(LARGE)}", _op("Not"), ("bool", LARGE))


_ONNX = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


def _reductions() -> Iterator[Case]:
    ops = "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()
    for op in ops:
        for shape, axes in ((SMALL, (1,)), ((512, 768), (1,)), ((512, 768), (0,)), (LARGE, (1,)), (LARGE, (1, 2)), (LARGE, (0,)),
                            ((1, 64, 56, 56), (2, 3)), ((1000, 1001), (1,)), ((1 << 20,), (0,))):  # fmt: skip
            reduce = lambda x, op=op, axes=axes: pt.op(f"Reduce{op}", x, _i(*axes))  # noqa: E731
            yield _case(f"Reduce{op} {_text(shape)} over {_text(axes)}", reduce, shape, low=0.1)
    for op in ("ArgMax", "ArgMin", "CumSum", "Softmax", "LogSoftmax", "Hardmax"):
        for shape, axis in ((SMALL, 1), ((512, 1000), 1), ((512, 1000), 0), (LARGE, 1), (LARGE, 2)):
            text = f"{op} {_text(shape)} along {axis}"
            if op == "CumSum":
                yield _case(text, lambda x, axis=axis: pt.op("CumSum", x, _s(axis)), shape)
            else:
                yield _case(text, _op(op, axis=axis), shape)
    for shape in ((16, 64), (128, 768), (512, 1024), (197, 100)):
        norm = lambda *x: pt.op("RMSNormalization", *x, opset=23)  # noqa: E731
        yield _case(f"RMSNormalization {_text(shape)}", norm, shape, shape[-1:], opset=23)
    for shape in ((1, 32, 56, 56), (8, 64, 28, 28)):
        channels = (shape[1],)
        yield _case(f"InstanceNormalization {_text(shape)}", _op("InstanceNormalization"), shape, channels, channels)
        yield _case(f"LpNormalization {_text(shape)}", _op("LpNormalization", axis=1), shape)
        yield _case(f"LRN {_text(shape)}", _op("LRN", size=5), shape)
        statistics = [channels] * 4
        yield _case(f"BatchNormalization {_text(shape)}", _op("BatchNormalization"), shape, *statistics, low=0.1)


def _moves() -> Iterator[Case]:
    turned: tuple[tuple[Shape, Shape], ...] = (
        ((64, 64), (1, 0)), ((1024, 1024), (1, 0)), ((2048, 2048), (1, 0)), ((1000, 1001), (1, 0)),
        ((1, 128, 12, 64), (0, 2, 1, 3)), ((1, 12, 128, 64), (0, 1, 3, 2)), ((8, 64, 56, 56), (0, 2, 3, 1)),
        ((8, 56, 56, 64), (0, 3, 1, 2)), ((64, 50, 50, 9), (3, 2, 1, 0)),
    )  # fmt: skip
    for shape, perm in turned:
        yield _case(f"Transpose {_text(shape)} by {_text(perm)}", _op("Transpose", perm=list(perm)), shape)
    kept: tuple[Shape, ...] = (SMALL, (512, 512), LARGE)
    for shape in kept:
        last = len(shape) - 1
        for axis in (0, last):
            yield _case(f"Concat {_text(shape)} along {axis}", _op("Concat", axis=axis), shape, shape)
            yield _case(f"Split {_text(shape)} along {axis}", lambda x, a=axis: _halves(x, a), shape)
            yield _case(f"Slice {_text(shape)} along {axis}", lambda x, a=axis: _slice(x, 1, -1, a, 1), shape)
            yield _case(f"Slice {_text(shape)} steps {axis}", lambda x, a=axis: _slice(x, 0, 9999, a, 2), shape)
        yield _case(f"Slice {_text(shape)} back", lambda x, a=last: _slice(x, -1, -9999, a, -1), shape)
        pads = [1] * (2 * len(shape))
        for mode in ("constant", "reflect", "edge", "wrap"):
            yield _case(f"Pad {mode} {_text(shape)}", lambda x, m=mode, p=tuple(pads): pt.op("Pad", x, _i(*p), mode=m), shape)
        yield _case(f"Tile {_text(shape)}", lambda x, twice=tuple(2 for _ in shape): pt.op("Tile", x, _i(*twice)), shape)
        row = shape[-1:]
        yield _case(f"Expand {_text(row)} to {_text(shape)}", lambda x, s=shape: pt.op("Expand", x, _i(*s)), row)
        column = (*shape[:-1], 1)
        yield _case(f"Expand {_text(column)} to {_text(shape)}", lambda x, s=shape: pt.op("Expand", x, _i(*s)), column)
        yield _case(f"Trilu {_text(shape)}", _op("Trilu"), shape)
    for shape in ((1, 16, 8, 8), (4, 64, 128, 128)):
        yield _case(f"DepthToSpace {_text(shape)}", _op("DepthToSpace", blocksize=2), shape)
        yield _case(f"DepthToSpace CRD {_text(shape)}", _op("DepthToSpace", blocksize=2, mode="CRD"), shape)
        yield _case(f"SpaceToDepth {_text(shape)}", _op("SpaceToDepth", blocksize=2), shape)


def _indexed() -> Iterator[Case]:
    random = np.random.default_rng(1)
    for rows, width, count in ((100, 16, 10), (30_000, 768, 128), (1000, 1000, 1000)):
        data, indices = (rows, width), random.integers(0, min(rows, width), count)
        yield _case(f"Gather {_text(data)} {count}", _op("Gather"), data, indices)
        yield _case(f"Gather {_text(data)} {count} along 1", _op("Gather", axis=1), data, indices[:50])
        elements = random.integers(0, rows, (count, width))
        yield _case(f"GatherElements {_text(data)} {count}", _op("GatherElements"), data, elements)
        places = np.stack([indices % rows, indices % width], 1)
        yield _case(f"GatherND {_text(data)} {count}", _op("GatherND"), data, places)
        yield _case(f"GatherND {_text(data)} rows {count}", _op("GatherND"), data, indices[:, None])
        yield _case(f"ScatterND {_text(data)} {count}", _op("ScatterND"), data, indices[:, None], (count, width))
        yield _case(f"ScatterElements {_text(data)} {count}", _op("ScatterElements"), data, elements, (count, width))
    for shape in ((4, 64), (64, 1000), (8, 50_000)):
        yield _case(f"TopK {_text(shape)}", lambda x: pt.op("TopK", x, _i(5)).outputs, shape)
    yield _case("OneHot 1000 of 1000", lambda x: pt.op("OneHot", x, _s(1000), _c([0.0, 1.0])), random.integers(0, 1000, 1000))


def _images() -> Iterator[Case]:
    for shape in ((1, 3, 16, 16), (1, 64, 56, 56), (8, 64, 112, 112)):
        for pads in ([0] * 4, [1] * 4):
            window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads}
            padded = " padded" if any(pads) else ""
            yield _case(f"MaxPool {_text(shape)}{padded}", _op("MaxPool", **window), shape)
            yield _case(f"AveragePool {_text(shape)}{padded}", _op("AveragePool", **window), shape)
        yield _case(f"LpPool {_text(shape)}", _op("LpPool", kernel_shape=[2, 2]), shape)
        yield _case(f"GlobalAveragePool {_text(shape)}", _op("GlobalAveragePool"), shape)
        yield _case(f"GlobalMaxPool {_text(shape)}", _op("GlobalMaxPool"), shape)
        for mode in ("nearest", "linear", "cubic"):
            scale = _c([1.0, 1.0, 2.0, 2.0])
            yield _case(f"Resize {mode} {_text(shape)}", lambda x, m=mode, s=scale: pt.op("Resize", x, None, s, mode=m), shape)
        grid = np.random.default_rng(0).uniform(-1, 1, (shape[0], shape[2], shape[3], 2)).astype("float32")
        yield _case(f"GridSample {_text(shape)}", _op("GridSample"), shape, grid)


def _products() -> Iterator[Case]:
    for m, k, n in ((1, 64, 64), (128, 768, 768), (33, 100, 77)):
        yield _case(f"MatMul {m}x{k}x{n}", _op("MatMul"), (m, k), (k, n))
        yield _case(f"MatMul {m}x{k}x{n} constant", lambda x, k=k, n=n: pt.op("MatMul", x, _weight(k, n)), (m, k))
        yield _case(f"Gemm {m}x{k}x{n}", lambda x, k=k, n=n: pt.op("Gemm", x, _weight(n, k), _weight(n), transB=1), (m, k))
        yield _case(f"MatMul batch {m}x{k}", _op("MatMul"), (12, m, k), (12, k, m))
    yield _case("MatMul float64", _op("MatMul"), ("float64", (128, 128)), ("float64", (128, 128)))
    yield _case("Einsum bij,bjk->bik", _op("Einsum", equation="bij,bjk->bik"), (4, 64, 64), (4, 64, 64))
    for channels, size, group in ((8, 8, 1), (64, 28, 1), (64, 28, 64)):
        shape, inner = (1, channels, size, size), channels // group
        conv = lambda x, c=channels, i=inner, g=group: pt.op("Conv", x, _weight(c, i, 3, 3), pads=[1] * 4, group=g)  # noqa: E731
        yield _case(f"Conv {_text(shape)} group {group}", conv, shape)
    yield _case("Conv 1D", lambda x: pt.op("Conv", x, _weight(32, 16, 5)), (1, 16, 500))
    yield _case("Conv 3D", lambda x: pt.op("Conv", x, _weight(8, 4, 3, 3, 3)), (1, 4, 12, 12, 12))
    yield _case("ConvTranspose", lambda x: pt.op("ConvTranspose", x, _weight(32, 16, 2, 2), strides=[2, 2]), (1, 32, 28, 28))


def _quantized() -> Iterator[Case]:
    scale, zero = _c(0.1), pt.constant(np.uint8(3))
    for shape in (SMALL, LARGE):
        yield _case(f"QuantizeLinear {_text(shape)}", lambda x: pt.op("QuantizeLinear", x, scale, zero), shape)
        yield _case(f"DequantizeLinear {_text(shape)}", lambda x: pt.op("DequantizeLinear", x, scale, zero), ("uint8", shape))
        yield _case(f"DynamicQuantizeLinear {_text(shape)}", lambda x: pt.op("DynamicQuantizeLinear", x).outputs, shape)
    yield _case("MatMulInteger", _op("MatMulInteger"), ("uint8", (64, 128)), ("uint8", (128, 64)))


# -- making -------------------------------------------------------------------------------------------------


def _op(name: str, **attributes: Any) -> Callable[..., pt.Node]:
    return lambda *x: pt.op(name, *x, opset=22, **attributes)


def _case(name: str, build: Callable[..., Any], *given: Any, opset: int = 22, low: float | None = None) -> Case:
    """Inputs are shapes (of float32), pairs of element type and shape, or arrays."""
    return Case(name, build, given, opset, low)


def _spec(spec: Any) -> tuple[str, Shape]:
    return spec if len(spec) == 2 and isinstance(spec[0], str) else ("float32", spec)


def _array(dtype: str, shape: Shape, random: np.random.Generator, low: float | None) -> np.ndarray:
    if "float" in dtype:
        return np.asarray(random.standard_normal(shape) if low is None else random.uniform(low, 2, shape)).astype(dtype)
    return random.integers(int(low or 0), 2 if dtype == "bool" else 50, shape).astype(dtype)


def _halves(x: pt.Node, axis: int) -> Sequence[pt.NodeEntry]:
    return pt.op("Split", x, axis=axis, num_outputs=2).outputs


def _slice(x: pt.Node, start: int, end: int, axis: int, step: int) -> pt.Node:
    return pt.op("Slice", x, _i(start), _i(end), _i(axis), _i(step))


def _weight(*shape: int) -> pt.Node:
    return pt.constant(np.random.default_rng(2).standard_normal(shape).astype("float32"))


def _c(value: Any) -> pt.Node:
    return pt.constant(np.array(value, "float32"))


def _i(*values: int) -> pt.Node:
    return pt.constant(np.array(values, "int64"))


def _s(value: int) -> pt.Node:
    return pt.constant(np.array(value, "int64"))


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
