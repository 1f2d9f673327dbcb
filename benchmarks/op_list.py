"""The ops that the TVM device takes, each in the shapes and element types that matter, from small to bound by memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import partita as pt
from benchmarks.op_case import Case, Shape, case, floats, integer, integers, shown, single, weight

SMALL, MIDDLE, LARGE = (4, 64), (1, 32, 56, 56), (64, 256, 256)
"""256 numbers, 100 thousand, and four million, which no cache holds."""

TINY = 20_000
"""The tests measure the cases of so many numbers at most."""


def cases() -> Iterator[Case]:
    """All of them, one op at a time."""
    for family in (_elementwise, _typed, _reductions, _moves, _indexed, _images, _products, _quantized):
        yield from family()


def chains() -> Iterator[Case]:
    """Element-wise chains and layer norms, which are compared with ONNX Runtime too."""
    for shape in (SMALL, (128, 768), (1, 64, 56, 56), LARGE):
        yield case(f"chain gelu {shown(shape)}", _gelu, shape)
        yield case(f"chain silu {shown(shape)}", lambda x: pt.op("Mul", x, pt.op("Sigmoid", x)), shape)
        yield case(f"chain axpy {shown(shape)}", _axpy, shape, shape)
        yield case(f"chain scale {shown(shape)}", _scaled, shape, (shape[-1],))
        yield case(f"chain two outputs {shown(shape)}", _two, shape)
    for shape in ((8, 64), (128, 768), (512, 1024), (4096, 1024), (197, 100)):
        weights = [shape[-1:], shape[-1:]]
        yield case(f"LayerNormalization {shown(shape)}", lambda *x: pt.op("LayerNormalization", *x, axis=-1), shape, *weights)


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
            yield case(f"{op} {shown(shape)}", single(op), shape, opset=22, low=0.1 if op in ("Log", "Sqrt") else None)
    equal = [(shape, shape) for shape in (SMALL, MIDDLE, LARGE)]
    for op in _BINARY:
        for a, b in (*equal, (LARGE, (256,)), (MIDDLE, (32, 1, 1)), (LARGE, (64, 1, 1))):
            yield case(f"{op} {shown(a)} {shown(b)}", single(op), a, b)
    for a, b in (((256, 1), (1, 256)), ((2048, 1), (1, 2048)), ((64, 256, 1), (256, 256))):
        yield case(f"Add {shown(a)} {shown(b)}", single("Add"), a, b)
    for shape in (SMALL, MIDDLE, LARGE, (1000, 1001)):
        condition = ("bool", shape)
        yield case(f"Where {shown(shape)}", single("Where"), condition, shape, shape)
        yield case(f"Where {shown(shape)} scalar", single("Where"), condition, shape, ())
        yield case(f"Clip {shown(shape)}", lambda x: pt.op("Clip", x, floats(-1.0), floats(1.0)), shape)
        yield case(f"Sum {shown(shape)} x3", single("Sum"), shape, shape, shape)


def _typed() -> Iterator[Case]:
    for dtype in ("int32", "int64", "uint8", "int8", "float16", "float64"):
        for shape in (SMALL, LARGE):
            for op in ("Add", "Mul", "Max", "Less", *(("Div", "Mod") if "float" not in dtype else ("Exp",))):
                given = [(dtype, shape)] * (1 if op == "Exp" else 2)
                yield case(f"{op} {dtype} {shown(shape)}", single(op), *given, low=1)
            if "8" not in dtype:
                yield case(f"ReduceSum {dtype} {shown(shape)}", lambda x: pt.op("ReduceSum", x, integers(-1)), (dtype, shape))
            yield case(f"Transpose {dtype} {shown(shape)}", single("Transpose"), (dtype, shape))
    for source, target in (("float32", "float16"), ("float16", "float32"), ("float32", "int64"), ("int64", "float32"),
                           ("float32", "uint8"), ("uint8", "float32"), ("bool", "float32"), ("float32", "bool"),
                           ("float32", "float64"), ("int64", "int32")):
        for shape in (SMALL, LARGE):
            to = pt.TensorType(target, ()).dtype
            yield case(f"Cast {source} {to} {shown(shape)}", single("Cast", to=_ONNX[to]), (source, shape))
    for op in ("And", "Or", "Xor"):
        yield case(f"{op} {shown(LARGE)}", single(op), ("bool", LARGE), ("bool", LARGE))
    yield case(f"Not {shown(LARGE)}", single("Not"), ("bool", LARGE))


_ONNX = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


def _reductions() -> Iterator[Case]:
    ops = "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()
    for op in ops:
        for shape, axes in ((SMALL, (1,)), ((512, 768), (1,)), ((512, 768), (0,)), (LARGE, (1,)), (LARGE, (1, 2)), (LARGE, (0,)),
                            ((1, 64, 56, 56), (2, 3)), ((1000, 1001), (1,)), ((1 << 20,), (0,))):
            reduce = lambda x, op=op, axes=axes: pt.op(f"Reduce{op}", x, integers(*axes))  # noqa: E731
            yield case(f"Reduce{op} {shown(shape)} over {shown(axes)}", reduce, shape, low=0.1)
    for op in ("ArgMax", "ArgMin", "CumSum", "Softmax", "LogSoftmax", "Hardmax"):
        for shape, axis in ((SMALL, 1), ((512, 1000), 1), ((512, 1000), 0), (LARGE, 1), (LARGE, 2)):
            text = f"{op} {shown(shape)} along {axis}"
            if op == "CumSum":
                yield case(text, lambda x, axis=axis: pt.op("CumSum", x, integer(axis)), shape)
            else:
                yield case(text, single(op, axis=axis), shape)
    for shape in ((16, 64), (128, 768), (512, 1024), (197, 100)):
        norm = lambda *x: pt.op("RMSNormalization", *x, opset=23)  # noqa: E731
        yield case(f"RMSNormalization {shown(shape)}", norm, shape, shape[-1:], opset=23)
    for shape in ((1, 32, 56, 56), (8, 64, 28, 28)):
        channels = (shape[1],)
        yield case(f"InstanceNormalization {shown(shape)}", single("InstanceNormalization"), shape, channels, channels)
        yield case(f"LpNormalization {shown(shape)}", single("LpNormalization", axis=1), shape)
        yield case(f"LRN {shown(shape)}", single("LRN", size=5), shape)
        statistics = [channels] * 4
        yield case(f"BatchNormalization {shown(shape)}", single("BatchNormalization"), shape, *statistics, low=0.1)


def _moves() -> Iterator[Case]:
    turned: tuple[tuple[Shape, Shape], ...] = (
        ((64, 64), (1, 0)), ((1024, 1024), (1, 0)), ((2048, 2048), (1, 0)), ((1000, 1001), (1, 0)),
        ((1, 128, 12, 64), (0, 2, 1, 3)), ((1, 12, 128, 64), (0, 1, 3, 2)), ((8, 64, 56, 56), (0, 2, 3, 1)),
        ((8, 56, 56, 64), (0, 3, 1, 2)), ((64, 50, 50, 9), (3, 2, 1, 0)),
    )
    for shape, perm in turned:
        yield case(f"Transpose {shown(shape)} by {shown(perm)}", single("Transpose", perm=list(perm)), shape)
    kept: tuple[Shape, ...] = (SMALL, (512, 512), LARGE)
    for shape in kept:
        last = len(shape) - 1
        for axis in (0, last):
            yield case(f"Concat {shown(shape)} along {axis}", single("Concat", axis=axis), shape, shape)
            yield case(f"Split {shown(shape)} along {axis}", lambda x, a=axis: _halves(x, a), shape)
            yield case(f"Slice {shown(shape)} along {axis}", lambda x, a=axis: _slice(x, 1, -1, a, 1), shape)
            yield case(f"Slice {shown(shape)} steps {axis}", lambda x, a=axis: _slice(x, 0, 9999, a, 2), shape)
        yield case(f"Slice {shown(shape)} back", lambda x, a=last: _slice(x, -1, -9999, a, -1), shape)
        pads = [1] * (2 * len(shape))
        for mode in ("constant", "reflect", "edge", "wrap"):
            pad = lambda x, m=mode, p=tuple(pads): pt.op("Pad", x, integers(*p), mode=m)  # noqa: E731
            yield case(f"Pad {mode} {shown(shape)}", pad, shape)
        yield case(f"Tile {shown(shape)}", lambda x, twice=tuple(2 for _ in shape): pt.op("Tile", x, integers(*twice)), shape)
        row = shape[-1:]
        yield case(f"Expand {shown(row)} to {shown(shape)}", lambda x, s=shape: pt.op("Expand", x, integers(*s)), row)
        column = (*shape[:-1], 1)
        yield case(f"Expand {shown(column)} to {shown(shape)}", lambda x, s=shape: pt.op("Expand", x, integers(*s)), column)
        yield case(f"Trilu {shown(shape)}", single("Trilu"), shape)
    for shape in ((1, 16, 8, 8), (4, 64, 128, 128)):
        yield case(f"DepthToSpace {shown(shape)}", single("DepthToSpace", blocksize=2), shape)
        yield case(f"DepthToSpace CRD {shown(shape)}", single("DepthToSpace", blocksize=2, mode="CRD"), shape)
        yield case(f"SpaceToDepth {shown(shape)}", single("SpaceToDepth", blocksize=2), shape)


def _indexed() -> Iterator[Case]:
    random = np.random.default_rng(1)
    for rows, width, count in ((100, 16, 10), (30_000, 768, 128), (1000, 1000, 1000)):
        data, indices = (rows, width), random.integers(0, min(rows, width), count)
        yield case(f"Gather {shown(data)} {count}", single("Gather"), data, indices)
        yield case(f"Gather {shown(data)} {count} along 1", single("Gather", axis=1), data, indices[:50])
        elements = random.integers(0, rows, (count, width))
        yield case(f"GatherElements {shown(data)} {count}", single("GatherElements"), data, elements)
        positions = np.stack([indices % rows, indices % width], 1)
        yield case(f"GatherND {shown(data)} {count}", single("GatherND"), data, positions)
        yield case(f"GatherND {shown(data)} rows {count}", single("GatherND"), data, indices[:, None])
        yield case(f"ScatterND {shown(data)} {count}", single("ScatterND"), data, indices[:, None], (count, width))
        yield case(f"ScatterElements {shown(data)} {count}", single("ScatterElements"), data, elements, (count, width))
    for shape in ((4, 64), (64, 1000), (8, 50_000)):
        yield case(f"TopK {shown(shape)}", lambda x: pt.op("TopK", x, integers(5)).outputs, shape)
    one_hot = lambda x: pt.op("OneHot", x, integer(1000), floats([0.0, 1.0]))  # noqa: E731
    yield case("OneHot 1000 of 1000", one_hot, random.integers(0, 1000, 1000))


def _images() -> Iterator[Case]:
    for shape in ((1, 3, 16, 16), (1, 64, 56, 56), (8, 64, 112, 112)):
        for pads in ([0] * 4, [1] * 4):
            window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads}
            padded = " padded" if any(pads) else ""
            yield case(f"MaxPool {shown(shape)}{padded}", single("MaxPool", **window), shape)
            yield case(f"AveragePool {shown(shape)}{padded}", single("AveragePool", **window), shape)
        yield case(f"LpPool {shown(shape)}", single("LpPool", kernel_shape=[2, 2]), shape)
        yield case(f"GlobalAveragePool {shown(shape)}", single("GlobalAveragePool"), shape)
        yield case(f"GlobalMaxPool {shown(shape)}", single("GlobalMaxPool"), shape)
        for mode in ("nearest", "linear", "cubic"):
            scale = floats([1.0, 1.0, 2.0, 2.0])
            yield case(f"Resize {mode} {shown(shape)}", lambda x, m=mode, s=scale: pt.op("Resize", x, None, s, mode=m), shape)
        grid = np.random.default_rng(0).uniform(-1, 1, (shape[0], shape[2], shape[3], 2)).astype("float32")
        yield case(f"GridSample {shown(shape)}", single("GridSample"), shape, grid)


def _products() -> Iterator[Case]:
    for m, k, n in ((1, 64, 64), (128, 768, 768), (33, 100, 77)):
        yield case(f"MatMul {m}x{k}x{n}", single("MatMul"), (m, k), (k, n))
        yield case(f"MatMul {m}x{k}x{n} constant", lambda x, k=k, n=n: pt.op("MatMul", x, weight(k, n)), (m, k))
        yield case(f"Gemm {m}x{k}x{n}", lambda x, k=k, n=n: pt.op("Gemm", x, weight(n, k), weight(n), transB=1), (m, k))
        yield case(f"MatMul batch {m}x{k}", single("MatMul"), (12, m, k), (12, k, m))
    yield case("MatMul float64", single("MatMul"), ("float64", (128, 128)), ("float64", (128, 128)))
    yield case("Einsum bij,bjk->bik", single("Einsum", equation="bij,bjk->bik"), (4, 64, 64), (4, 64, 64))
    for channels, size, group in ((8, 8, 1), (64, 28, 1), (64, 28, 64)):
        shape, inner = (1, channels, size, size), channels // group
        conv = lambda x, c=channels, i=inner, g=group: pt.op("Conv", x, weight(c, i, 3, 3), pads=[1] * 4, group=g)  # noqa: E731
        yield case(f"Conv {shown(shape)} group {group}", conv, shape)
    yield case("Conv 1D", lambda x: pt.op("Conv", x, weight(32, 16, 5)), (1, 16, 500))
    yield case("Conv 3D", lambda x: pt.op("Conv", x, weight(8, 4, 3, 3, 3)), (1, 4, 12, 12, 12))
    yield case("ConvTranspose", lambda x: pt.op("ConvTranspose", x, weight(32, 16, 2, 2), strides=[2, 2]), (1, 32, 28, 28))


def _quantized() -> Iterator[Case]:
    scale, zero = floats(0.1), pt.constant(np.uint8(3))
    for shape in (SMALL, LARGE):
        yield case(f"QuantizeLinear {shown(shape)}", lambda x: pt.op("QuantizeLinear", x, scale, zero), shape)
        yield case(f"DequantizeLinear {shown(shape)}", lambda x: pt.op("DequantizeLinear", x, scale, zero), ("uint8", shape))
        yield case(f"DynamicQuantizeLinear {shown(shape)}", lambda x: pt.op("DynamicQuantizeLinear", x).outputs, shape)
    yield case("MatMulInteger", single("MatMulInteger"), ("uint8", (64, 128)), ("uint8", (128, 64)))


def _halves(x: pt.Node, axis: int) -> Sequence[pt.NodeEntry]:
    return pt.op("Split", x, axis=axis, num_outputs=2).outputs


def _slice(x: pt.Node, start: int, end: int, axis: int, step: int) -> pt.Node:
    return pt.op("Slice", x, integers(start), integers(end), integers(axis), integers(step))
