"""Ops that change the shape or order of elements."""

from __future__ import annotations

from collections.abc import Iterator

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import Part, SizeOf, shape_of, shape_value, size_at


@converter("Flatten flatten", onnx="Flatten")
def flatten(c: Conversion) -> NodeEntry:
    return c.result("Flatten", c.inputs[0], axis=1, shape=(None, None))


@converter("Reshape reshape", "shape reverse target_shape keep_highest", onnx="Reshape")
def reshape(c: Conversion) -> NodeEntry:
    data, params = c.inputs[0], c.params
    if not params.integers("shape") and params.integers("target_shape"):
        return _by_target_shape(c)
    codes = list(params.integers("shape"))
    if not codes:
        params.fail("shape", "given")
    if min(codes) < -4:
        params.fail("shape", "sizes, or MXNet's codes from 0 to -4")
    if min(codes) >= -1 and not params.boolean("reverse"):
        # 0 and -1 mean the same in ONNX.
        return c.result("Reshape", data, c.integers("shape", codes))
    parts = _Decoded(c, codes, params.boolean("reverse")).parts
    return c.result("Reshape", data, shape_value(c, "shape", parts, infer=True), shape=(None,) * len(parts))


def _by_target_shape(c: Conversion) -> NodeEntry:
    """The parameter of the first releases, in which 0 is the inferred dimension."""
    codes = [size or -1 for size in c.params.integers("target_shape")]
    if c.params.boolean("keep_highest"):
        codes[0] = 0
    if min(codes) < -1 or codes.count(-1) > 1:
        c.params.fail("target_shape", "sizes, at most one of them 0")
    return c.result("Reshape", c.inputs[0], c.integers("shape", codes))


class _Decoded:
    """MXNet's codes, decoded from left to right: 0 copies a dimension, -1 is inferred, -2 copies all that follow,
    -3 multiplies two, -4 splits one into the next two numbers. `reverse` decodes from right to left, with -4 after its numbers.
    """

    def __init__(self, c: Conversion, codes: list[int], reverse: bool) -> None:
        self.c = c
        self.data = c.inputs[0]
        self.rank = c.rank(self.data)
        self.reverse = reverse
        self.at = 0
        self.parts: list[Part] = []
        items = iter(codes[::-1] if reverse else codes)
        for code in items:
            self.read(code, items)
        if reverse:
            self.parts.reverse()
        if self.parts.count(-1) > 1:
            c.params.fail("shape", "one with a single -1")

    def take(self, count: int = 1) -> Part:
        """The product of the next dimensions."""
        if self.at + count > self.rank:
            self.c.params.fail("shape", f"one that takes at most the {self.rank} dimensions of the data")
        axes = [self.rank - 1 - i if self.reverse else i for i in range(self.at, self.at + count)]
        self.at += count
        return size_at(self.c, self.data, *axes)

    def read(self, code: int, items: Iterator[int]) -> None:
        if code == 0:
            self.parts.append(self.take())
        elif code == -2:
            self.parts += [self.take() for _ in range(self.at, self.rank)]
        elif code == -3:
            self.parts.append(self.take(2))
        elif code == -4:
            self.split(next(items, 0), next(items, 0))
        else:
            # A size or -1 consumes one dimension, if there is one left.
            self.at = min(self.at + 1, self.rank)
            self.parts.append(code)

    def split(self, first: int, second: int) -> None:
        if first < -1 or second < -1 or not first * second or first == second == -1:
            self.c.params.fail("shape", "one with two sizes after -4, at most one of them -1")
        whole = self.take()
        if -1 in (first, second) and isinstance(whole, SizeOf):
            self.parts += [first, second]  # Reshape infers the -1
            return
        if isinstance(whole, int):
            first = whole // second if first == -1 else first
            second = whole // first if second == -1 else second
            if first * second != whole:
                self.c.fail(f"a dimension of {whole} cannot be split into {first} and {second}")
        self.parts += [first, second]


@converter("reshape_like", "lhs_begin lhs_end rhs_begin rhs_end", inputs=2, onnx="Reshape")
def reshape_like(c: Conversion) -> NodeEntry:
    left, right = c.inputs
    if not any(name in c.params for name in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")):
        return c.result("Reshape", left, shape_of(c, "shape", right))
    l_begin, l_end = _span(c, "lhs", c.rank(left))
    r_begin, r_end = _span(c, "rhs", c.rank(right))
    parts = [size_at(c, left, i) for i in range(l_begin)]
    parts += [size_at(c, right, i) for i in range(r_begin, r_end)]
    parts += [size_at(c, left, i) for i in range(l_end, c.rank(left))]
    return c.result("Reshape", left, shape_value(c, "shape", parts, infer=True))


def _span(c: Conversion, side: str, rank: int) -> tuple[int, int]:
    begin, end = c.params.integer(f"{side}_begin", 0), c.params.integer(f"{side}_end", rank)
    begin, end = begin + rank * (begin < 0), end + rank * (end < 0)
    return (begin, end) if 0 <= begin <= end <= rank else c.fail(f"{side} has no axes {begin} to {end}")


@converter("transpose", "axes", onnx="Transpose")
def transpose(c: Conversion) -> NodeEntry:
    perm = c.params.integers("axes")
    if not perm:
        return c.result("Transpose", c.inputs[0])
    if sorted(axes := c.axes(perm, len(perm))) != list(range(len(perm))):
        c.params.fail("axes", "every axis once")
    return c.result("Transpose", c.inputs[0], perm=axes)


@converter("SwapAxis swapaxes", "dim1 dim2", onnx="Transpose")
def swap_axes(c: Conversion) -> NodeEntry:
    rank = c.rank(c.inputs[0])
    a, b = (c.axis(c.params.integer(name, 0), rank) for name in ("dim1", "dim2"))
    perm = list(range(rank))
    perm[a], perm[b] = b, a
    return c.result("Transpose", c.inputs[0], perm=perm)


@converter("expand_dims", "axis", onnx="Unsqueeze")
def expand_dims(c: Conversion) -> NodeEntry:
    return c.result("Unsqueeze", c.inputs[0], c.integers("axis", [c.params.integer("axis")]))


@converter("squeeze", "axis", onnx="Squeeze")
def squeeze(c: Conversion) -> NodeEntry:
    data, rank = c.inputs[0], c.rank(c.inputs[0])
    dims = c.dims(data)
    axes = c.axes(c.params.integers("axis"), rank)
    if not axes:
        if any(not isinstance(d, int) for d in dims):
            c.unknown("the shape")
        axes = [i for i, d in enumerate(dims) if d == 1]
    if len(axes) == rank:  # MXNet keeps one dimension
        axes = axes[1:]
    return c.result("Squeeze", data, c.integers("axes", axes)) if axes else c.result("Identity", data)


BLOCKS = {"depth_to_space": "DepthToSpace", "space_to_depth": "SpaceToDepth"}


@converter(" ".join(BLOCKS), "block_size", onnx=BLOCKS)
def blocks(c: Conversion) -> NodeEntry:
    size = c.params.integer("block_size", least=1)
    return c.result(BLOCKS[c.kind], c.inputs[0], blocksize=size)
