"""Random chains of ops of any size, in which a contradiction shows only after a few of them: behind reshapes, arithmetic on
sizes, indices that are computed or given, branches, loops and calls."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, Dim, dtype_name
from tests.fuzz.models.builder import typed
from tests.fuzz.sizes.networks import Network
from tests.fuzz.sizes.opened import LARGEST, Shapes

OPSET = 23
CALLS = 8
"""The sizes at which a chain is called; the last ones once more, with other indices."""

FAR = (-(2**63), 2**63 - 1, 10**9, -(10**9), 2**31, -1, 7, 2**32 + 1)
"""Indices and sizes that an input may hold."""

SIZES = (1, 2, 3, 4, 5, 6, 8)


class Unfit(Exception):
    """The recipe has nothing to add to this value."""


class Chain:
    """What a chain is written with: nodes, and the values that they have at the first sizes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.random = np.random.default_rng(rng.getrandbits(32))
        self.arrays: dict[NodeEntry, Any] = {}
        self.inputs: list[Node] = []
        self.feeds: list[Array] = []
        self.draws: list[Callable[[tuple[int, ...]], Array]] = []
        self.base: dict[str, int] = {}
        self.floats: list[NodeEntry] = []
        self.outer: Chain | None = None

    # -- nodes ---------------------------------------------------------------------------------------------

    def op(self, op: str, *inputs: Node | NodeEntry | None, **attributes: Any) -> NodeEntry:
        """The first output of an op; Unfit where it cannot be computed at the first sizes."""
        return self.ops(op, *inputs, **attributes)[0]

    def ops(self, op: str, *inputs: Node | NodeEntry | None, **attributes: Any) -> list[NodeEntry]:
        """An op's outputs."""
        entries = [x[0] if isinstance(x, Node) else x for x in inputs]
        try:
            node = pt.op(op, *entries, opset=OPSET, **attributes)
            values = [None if e is None else self.array(e) for e in entries]
            with np.errstate(all="ignore"):
                results = evaluate_node(node, values, {"": OPSET}, [self.array(e) for e in node.captures])
        except PartitaError as error:
            raise Unfit(str(error)) from error
        if any(np.size(r) > LARGEST for r in results):
            raise Unfit("too large")
        self.arrays.update(zip(node.outputs, results, strict=True))
        return list(node.outputs)

    def array(self, value: Node | NodeEntry) -> Any:
        """The value at the first sizes."""
        entry = value[0] if isinstance(value, Node) else value
        return entry.node.value if entry.node.value is not None else self.arrays[entry]

    def shape(self, value: Node | NodeEntry) -> tuple[int, ...]:
        """The first sizes of a value."""
        return tuple(np.shape(self.array(value)))

    def weight(self, *shape: int) -> NodeEntry:
        """A constant of numbers near one."""
        return pt.constant((self.random.random(shape) + 0.5).astype(np.float32))[0]

    def input(self, array: Array, dims: Sequence[Dim], draw: Callable[[tuple[int, ...]], Array] | None = None) -> NodeEntry:
        """An input that has this value at first."""
        node = pt.variable(f"x{len(self.inputs)}", dtype_name(array.dtype), dims)
        self.inputs.append(node)
        self.feeds.append(array)
        self.draws.append(draw or (lambda shape: self.random.standard_normal(shape).astype(array.dtype)))
        self.arrays[node[0]] = array
        return node[0]

    def symbol(self, size: int) -> Dim:
        """A size as an input declares it: a symbol of this size, an old one perhaps, or the number."""
        if self.chance(0.25):
            return size
        same = [name for name, other in self.base.items() if other == size]
        if same and self.chance(0.4):
            return self.rng.choice(same)
        name = f"N{len(self.base)}"
        self.base[name] = size
        return name

    def chance(self, share: float) -> bool:
        """True in that share of the cases."""
        return self.rng.random() < share

    def pick(self, *options: Any) -> Any:
        """One of them."""
        return self.rng.choice(options)

    # -- integers ------------------------------------------------------------------------------------------

    def integer(self, wanted: int, depth: int = 0) -> NodeEntry:
        """A vector of one integer, which has this value at first: a constant, or what follows from sizes or is given."""
        kind = self.rng.random()
        if kind < 0.25 or depth > 2:
            return ints(wanted)[0]
        if kind < 0.32 and depth == 0:
            return self.given(np.array([wanted], np.int64))
        if kind < 0.72 or depth > 1:
            value = self.rng.choice(self.floats)
            if not self.shape(value):
                return ints(wanted)[0]
            axis = self.rng.randrange(len(self.shape(value)))
            return self.adjusted(self.size_of(value, axis), self.shape(value)[axis], wanted)
        other = self.rng.choice((0, 1, 2, 3, 5))
        a, b = self.integer(wanted + other, depth + 1), self.integer(other, depth + 1)
        kind = self.rng.random()
        if kind < 0.5:
            return self.op("Sub", a, b)
        if kind < 0.7:
            return self.op(self.pick("Min", "Max"), self.integer(wanted, depth + 1), ints(wanted))
        test = self.op("Greater", self.integer(3, depth + 1), ints(self.pick(1, 2)))
        return self.op("Where", test, self.integer(wanted, depth + 1), self.integer(wanted + other, depth + 1))

    def size_of(self, value: NodeEntry, axis: int) -> NodeEntry:
        """One size as a vector, in one of the ways of exporters."""
        rank = len(self.shape(value))
        kind = self.rng.randrange(5)
        if kind == 0:
            return self.op("Shape", value, start=axis, end=axis + 1)
        shape = self.op("Shape", value)
        if kind == 1:
            return self.op("Slice", shape, ints(axis), ints(axis + 1), ints(0))
        if kind == 2:
            shape = self.op("Cast", self.op("Cast", shape, to=6), to=7)
        at = axis if self.chance(0.5) else axis - rank
        position = pt.constant(np.array(at, self.pick(np.int64, np.int32)))
        one = self.op("Gather", shape, position, axis=0)
        return self.op("Unsqueeze", one, ints(0)) if self.chance(0.5) else self.op("Reshape", one, ints(1))

    def adjusted(self, one: NodeEntry, size: int, wanted: int) -> NodeEntry:
        """Arithmetic that makes one integer of another."""
        if size == wanted and self.chance(0.8):
            return one
        if size and wanted and wanted % size == 0 and self.chance(0.5):
            return self.op("Mul", one, ints(wanted // size))
        if wanted > 0 and size > wanted and self.chance(0.4):
            by = size // wanted
            if size // by == wanted:
                if self.chance(0.3):
                    half = self.op("Div", self.op("Cast", one, to=1), pt.constant(np.array([by], np.float32)))
                    return self.op("Cast", self.op("Floor", half), to=7)
                return self.op("Div", one, ints(by))
        if self.chance(0.2) and 0 <= wanted < 3 and size > 3:
            for by in (2, 3, 4):
                if size % by == wanted:
                    return self.op("Mod", one, ints(by))
        if self.chance(0.5):
            return self.op("Sub", one, ints(size - wanted))
        return self.op("Add", ints(wanted - size), one)

    def given(self, array: Array, dims: Sequence[Dim] | None = None) -> NodeEntry:
        """An input of integers, which others take the place of in later calls."""
        def draw(shape: tuple[int, ...]) -> Array:
            value = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
            if value.size and self.chance(0.4):
                value = value.copy()
                far = np.array([self.rng.choice(FAR)]).astype(np.int64).astype(array.dtype)[0]
                value.reshape(-1)[self.rng.randrange(value.size)] = far
            return value
        if self.outer is not None:
            raise Unfit("an input in a body")
        return self.input(array, array.shape if dims is None else dims, draw)

    def vector(self, wanted: Sequence[int]) -> NodeEntry:
        """Integers beside each other."""
        if self.chance(0.3) or not wanted:
            return ints(*wanted)[0]
        if self.chance(0.1):
            return self.given(np.array(wanted, np.int64))
        return self.op("Concat", *[self.integer(w) for w in wanted], axis=0)

    def indices(self, size: int, shape: tuple[int, ...]) -> NodeEntry:
        """Indices into a dimension: constant, given, or computed."""
        if not size:
            raise Unfit("an empty dimension")
        array = self.random.integers(-size if self.chance(0.5) else 0, size, shape).astype(self.pick(np.int64, np.int32))
        kind = self.rng.random()
        if kind < 0.45:
            return pt.constant(array)[0]
        if kind < 0.65:
            return self.given(array.astype(np.int64), [self.symbol(s) for s in shape])
        if kind < 0.8 and len(shape) == 1:
            last = self.op("Squeeze", self.integer(shape[0]), ints(0))
            whole = self.op("Range", pt.constant(np.array(0)), last, pt.constant(np.array(1)))
            if shape[0] > size:
                whole = self.op("Mod", whole, ints(size))
            return whole
        rest = [self.integer(int(i)) for i in array.reshape(-1)[:6]]
        if len(rest) < array.size or not rest:
            return pt.constant(array)[0]
        flat = self.op("Concat", *rest, axis=0) if len(rest) > 1 or self.chance(0.5) else rest[0]
        return self.op("Reshape", flat, ints(*shape)) if shape else self.op("Squeeze", flat, ints(0))

    def body(self, value: NodeEntry, ops: int, name: str) -> tuple[pt.Graph, Chain]:
        """A body of one input, with a chain of its own."""
        inner = Chain(random.Random(self.rng.getrandbits(32)))
        inner.outer = self
        formal = pt.variable(f"{name}_x", "float32", [None] * len(self.shape(value)))
        inner.arrays[formal[0]] = self.array(value)
        inner.floats.append(formal[0])
        result = grown(inner, formal[0], ops)
        return pt.Graph([result], [formal], name=name, opsets={"": OPSET}), inner


def ints(*values: int) -> Node:
    """A constant vector of integers."""
    return pt.constant(np.array(values, np.int64))


# -- recipes -----------------------------------------------------------------------------------------------

Recipe = Callable[[Chain, NodeEntry], NodeEntry]
RECIPES: list[Recipe] = []


def recipe(function: Recipe) -> Recipe:
    """A way to go on."""
    RECIPES.append(function)
    return function


def axis_of(c: Chain, x: NodeEntry) -> int:
    """An axis of the value."""
    if not c.shape(x):
        raise Unfit("a single number")
    return c.rng.randrange(len(c.shape(x)))


@recipe
def reshape(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = list(c.shape(x))
    target = shape.copy()
    kind = c.rng.randrange(4)
    if kind == 0 and len(target) > 1:  # merge
        d = c.rng.randrange(len(target) - 1)
        target[d : d + 2] = [target[d] * target[d + 1]]
    elif kind == 1 and target:  # split
        d = c.rng.randrange(len(target))
        by = [n for n in range(1, target[d] + 1) if target[d] % n == 0]
        if by:
            n = c.rng.choice(by)
            target[d : d + 1] = [n, target[d] // n]
    elif kind == 2:
        c.rng.shuffle(target)
    else:
        target = [math.prod(shape)] if c.chance(0.5) else [1, *target]
    parts: list[int | None] = list(target)
    if parts and c.chance(0.6) and 0 not in target:
        parts[c.rng.randrange(len(parts))] = -1
    for d, size in enumerate(parts):
        if d < len(shape) and size == shape[d] and c.chance(0.3):
            parts[d] = 0
    wanted = [int(p) for p in parts if p is not None]
    return c.op("Reshape", x, c.vector(wanted))


@recipe
def transpose(c: Chain, x: NodeEntry) -> NodeEntry:
    order = list(range(len(c.shape(x))))
    c.rng.shuffle(order)
    return c.op("Transpose", x, perm=order)


@recipe
def concat(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    others = [x]
    for _ in range(c.pick(1, 1, 2)):
        fitting = [v for v in c.floats if len(c.shape(v)) == len(c.shape(x)) and all(
            a == b for d, (a, b) in enumerate(zip(c.shape(v), c.shape(x), strict=True)) if d != axis)]
        if fitting and c.chance(0.5):
            others.append(c.rng.choice(fitting))
        else:
            shape = list(c.shape(x))
            shape[axis] = c.pick(0, 1, 2)
            others.append(c.weight(*shape))
    c.rng.shuffle(others)
    return c.op("Concat", *others, axis=axis if c.chance(0.5) else axis - len(c.shape(x)))


@recipe
def cut(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    size = c.shape(x)[axis]
    if not size:
        raise Unfit("nothing")
    start, end = sorted(c.rng.randrange(size + 1) for _ in range(2))
    if start == end:
        start, end = 0, size
    step = c.pick(1, 1, 1, 2, -1, -2)
    if step < 0:
        start, end = end - 1, start - 1
        if end < 0:
            end -= size + c.pick(0, 5)
    elif c.chance(0.3) and start < size:
        start -= size
    if end == size and c.chance(0.3):
        end = c.pick(2**63 - 1, 2**31 - 1, size + 4)
    steps = c.integer(step) if c.chance(0.1) else ints(step)
    return c.op("Slice", x, c.integer(start), c.integer(end), ints(c.pick(axis, axis - len(c.shape(x)))), steps)


@recipe
def gather(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    shape = c.pick((), (1,), (2,), (3,), (2, 2), (c.shape(x)[axis],))
    return c.op("Gather", x, c.indices(c.shape(x)[axis], shape), axis=c.pick(axis, axis - len(c.shape(x))))


@recipe
def gather_table(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    size = c.shape(x)[axis]
    rows = size + c.pick(0, 0, 1, 3)
    last = c.op("Squeeze", c.size_of(x, axis), ints(0))
    where = c.op("Range", pt.constant(np.array(0)), last, pt.constant(np.array(1)))
    table = c.op("Gather", c.weight(max(rows, 1)), where)
    shape = [1] * len(c.shape(x))
    shape[axis] = -1
    return c.op("Add", x, c.op("Reshape", table, ints(*shape)))


@recipe
def gather_elements(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    shape = [min(s, c.pick(1, s, s)) if d != axis else c.pick(1, 2, s) for d, s in enumerate(c.shape(x))]
    return c.op("GatherElements", x, c.indices(c.shape(x)[axis], tuple(shape)), axis=axis)


@recipe
def scatter_elements(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    shape = tuple([min(s, c.pick(1, s, s)) if d != axis else 1 for d, s in enumerate(c.shape(x))])
    reduction = c.pick("none", "add", "mul", "max", "min")
    return c.op("ScatterElements", x, c.indices(c.shape(x)[axis], shape), c.weight(*shape), axis=axis, reduction=reduction)


def _tuples(c: Chain, sizes: Sequence[int], shape: tuple[int, ...]) -> NodeEntry:
    if 0 in sizes:
        raise Unfit("an empty dimension")
    columns = [c.random.integers(-s if c.chance(0.5) else 0, s, shape) for s in sizes]
    array = np.stack(columns, -1).astype(np.int64)
    if c.chance(0.5):
        return pt.constant(array)[0]
    if c.chance(0.5):
        return c.given(array, [*[c.symbol(s) for s in shape], len(sizes)])
    return c.op("Reshape", c.op("Concat", *[c.integer(int(i)) for i in array.reshape(-1)[:8]], axis=0), ints(*array.shape))


@recipe
def gather_nd(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if not shape:
        raise Unfit("a single number")
    batch = c.rng.randrange(len(shape)) if c.chance(0.4) else 0
    count = c.rng.randint(1, len(shape) - batch)
    outer = (*shape[:batch], *c.pick((1,), (2,), (), (2, 1)))
    return c.op("GatherND", x, _tuples(c, shape[batch : batch + count], outer), batch_dims=batch)


@recipe
def scatter_nd(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if not shape:
        raise Unfit("a single number")
    count = c.rng.randint(1, len(shape))
    outer = c.pick((1,), (), (1, 1))
    updates = c.weight(*outer, *shape[count:])
    if c.chance(0.3) and shape[count:]:
        updates = c.op("Expand", c.weight(1), c.op("Concat", ints(*outer), c.op("Shape", x, start=count), axis=0))
    reduction = c.pick("none", "add", "mul", "max", "min")
    return c.op("ScatterND", x, _tuples(c, shape[:count], outer), updates, reduction=reduction)


@recipe
def expand(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = list(c.shape(x))
    wanted = [c.pick(1, s) if s != 1 else c.pick(1, 2, 3) for s in shape]
    if c.chance(0.3):
        wanted = [c.pick(1, 2), *wanted]
    elif c.chance(0.2):
        wanted = wanted[1:]
    return c.op("Expand", x, c.vector(wanted))


@recipe
def tile(c: Chain, x: NodeEntry) -> NodeEntry:
    return c.op("Tile", x, c.vector([c.pick(1, 1, 2) for _ in c.shape(x)]))


@recipe
def split(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    size = c.shape(x)[axis]
    if c.chance(0.6):
        first = c.rng.randint(0, size)
        parts = c.ops("Split", x, c.vector([first, size - first]), axis=axis, n_outputs=2)
    else:
        count = c.pick(1, 2, 3)
        parts = c.ops("Split", x, axis=axis, num_outputs=count, n_outputs=count)
    c.floats += parts
    return c.rng.choice(parts)


@recipe
def squeeze(c: Chain, x: NodeEntry) -> NodeEntry:
    ones = [d for d, s in enumerate(c.shape(x)) if s == 1]
    if not ones or c.chance(0.4):
        rank = len(c.shape(x)) + 1
        return c.op("Unsqueeze", x, ints(c.rng.randrange(-rank, rank)))
    return c.op("Squeeze", x, ints(c.rng.choice(ones))) if c.chance(0.8) else c.op("Squeeze", x)


@recipe
def flatten(c: Chain, x: NodeEntry) -> NodeEntry:
    return c.op("Flatten", x, axis=c.rng.randint(0, len(c.shape(x))))


@recipe
def pad(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    size, mode = c.shape(x)[axis], c.pick("constant", "constant", "edge", "reflect", "wrap")
    before, after = (c.rng.randint(-min(1, size), 2) for _ in range(2))
    if mode == "reflect":
        before, after = min(before, size - 1), min(after, size - 1)
    if mode != "constant" and size == 0:
        raise Unfit("nothing")
    return c.op("Pad", x, c.vector([before, after]), None, ints(axis), mode=mode)


@recipe
def broadcast(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    op = c.pick("Add", "Mul", "Sub", "Max", "PRelu")
    fitting = [v for v in c.floats if _broadcasts(c.shape(v), shape) and v != x]
    if fitting and c.chance(0.5) and op != "PRelu":
        return c.op(op, x, c.rng.choice(fitting))
    other = [c.pick(1, s, s) for s in shape][c.pick(0, 0, 1) :]
    return c.op(op, x, c.weight(*other))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


@recipe
def where(c: Chain, x: NodeEntry) -> NodeEntry:
    test = c.op("Greater", x, pt.constant(np.float32(0.5)))
    return c.op("Where", test, x, c.weight(*[c.pick(1, s) for s in c.shape(x)]))


@recipe
def one_each(c: Chain, x: NodeEntry) -> NodeEntry:
    return c.op(c.pick("Relu", "Neg", "Tanh", "Identity", "Abs", "Sigmoid"), x)


@recipe
def matmul(c: Chain, x: NodeEntry) -> NodeEntry:
    if not c.shape(x):
        raise Unfit("a single number")
    right = c.weight(c.shape(x)[-1], c.pick(1, 3, 4))
    if len(c.shape(x)) > 2 and c.chance(0.3):
        right = c.weight(*c.shape(x)[:-2], c.shape(x)[-1], 2)
    return c.op("MatMul", x, right)


@recipe
def own_product(c: Chain, x: NodeEntry) -> NodeEntry:
    rank = len(c.shape(x))
    if rank < 2:
        raise Unfit("a vector")
    turned = c.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    fitting = [v for v in c.floats if len(c.shape(v)) >= 2 and c.shape(v)[-1] == c.shape(x)[-1]
               and _broadcasts(c.shape(v)[:-2], c.shape(x)[:-2])]
    return c.op("MatMul", c.rng.choice(fitting) if fitting and c.chance(0.6) else x, turned)


@recipe
def gemm(c: Chain, x: NodeEntry) -> NodeEntry:
    if len(c.shape(x)) != 2:
        raise Unfit("no matrix")
    m, k = c.shape(x)
    bias = c.pick((), (4,), (1, 4), (m, 4), (m, 1))
    return c.op("Gemm", x, c.weight(k, 4), c.weight(*bias))


@recipe
def einsum(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) == 2:
        return c.op("Einsum", x, c.weight(shape[1], 3), equation="ab,bc->ac")
    if len(shape) == 3:
        equation, other = c.pick(
            ("abc,cd->abd", (shape[2], 2)), ("abc,ac->ab", (shape[0], shape[2])), ("abc,abd->acd", (*shape[:2], 2)),
            ("abc,bc->b", shape[1:]), ("...c,c->...", shape[2:]),
        )
        return c.op("Einsum", x, c.weight(*other), equation=equation)
    raise Unfit("another rank")


@recipe
def convolution(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) not in (3, 4) or 0 in shape:
        raise Unfit("no image")
    taps = [min(s, c.pick(1, 2, 3)) for s in shape[2:]]
    kind = c.rng.randrange(4)
    if kind == 0:
        return c.op("MaxPool" if c.chance(0.5) else "AveragePool", x, kernel_shape=taps, strides=[c.pick(1, 2)] * len(taps),
                    ceil_mode=c.pick(0, 0, 1))
    if kind == 1:
        return c.op("ConvTranspose", x, c.weight(shape[1], 2, *taps), strides=[c.pick(1, 2)] * len(taps))
    group = shape[1] if c.chance(0.3) else 1
    weights, pads = c.weight(group * c.pick(1, 2), shape[1] // group, *taps), [c.pick(0, 1)] * 2 * len(taps)
    return c.op("Conv", x, weights, group=group, strides=[c.pick(1, 2)] * len(taps), pads=pads)


@recipe
def norms(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) < 2 or 0 in shape:
        raise Unfit("nothing to norm")
    kind = c.rng.randrange(5)
    if kind == 0:
        return c.op("BatchNormalization", x, *[c.weight(shape[1]) for _ in range(4)])
    if kind == 1 and len(shape) > 2:
        return c.op("InstanceNormalization", x, c.weight(shape[1]), c.weight(shape[1]))
    if kind == 2:
        groups = c.rng.choice([n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
        return c.op("GroupNormalization", x, c.weight(shape[1]), c.weight(shape[1]), num_groups=groups)
    axis = c.rng.randrange(1, len(shape))
    return c.op("LayerNormalization", x, c.weight(*shape[axis:]), c.weight(*shape[axis:]), axis=axis)


@recipe
def along(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    kind = c.rng.randrange(4)
    if kind == 0:
        return c.op(c.pick("Softmax", "LogSoftmax"), x, axis=axis)
    if kind == 1:
        at = c.integer(axis) if c.chance(0.5) else c.op("Squeeze", c.integer(axis), ints(0))
        return c.op("CumSum", x, at, reverse=c.pick(0, 1), exclusive=c.pick(0, 1))
    if kind == 2:
        return c.op(c.pick("ReduceSum", "ReduceMax", "ReduceMean"), x, c.integer(axis) if c.chance(0.2) else ints(axis),
                    keepdims=c.pick(0, 1))
    return c.op("Cast", c.op("ArgMax", x, axis=axis, keepdims=c.pick(0, 1)), to=1)


@recipe
def top(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    size = c.shape(x)[axis]
    count = c.integer(c.rng.randint(0 if c.chance(0.1) else min(1, size), size))
    values, positions = c.ops("TopK", x, count, axis=axis, n_outputs=2)
    if c.chance(0.4):
        return c.op("GatherElements", x, positions, axis=axis)
    if c.chance(0.2):
        return c.op("ScatterElements", x, positions, values, axis=axis)
    return values


@recipe
def one_hot(c: Chain, x: NodeEntry) -> NodeEntry:
    axis = axis_of(c, x)
    which = c.op("ArgMax", x, axis=axis, keepdims=0)
    if c.chance(0.3):
        which = c.op("Sub", which, ints(1))
    return c.op("OneHot", which, c.integer(c.shape(x)[axis] + c.pick(0, 1)), pt.constant(np.float32([0, 1])), axis=c.pick(-1, 0))


@recipe
def picked(c: Chain, x: NodeEntry) -> NodeEntry:
    kind = c.rng.randrange(4)
    test = c.op("Greater", x, pt.constant(np.float32(0.2)))
    if kind == 0:
        return c.op("Cast", c.op("NonZero", test), to=1)
    if kind == 1:
        return c.op("GatherND", x, c.op("Transpose", c.op("NonZero", test), perm=[1, 0]))
    axis = axis_of(c, x)
    if kind == 2:
        chosen = c.random.integers(0, 2, max(0, c.shape(x)[axis] - c.pick(0, 1))).astype(bool)
        return c.op("Compress", x, pt.constant(chosen), axis=axis)
    if len(c.shape(x)) < 2:
        return c.op("Compress", x, pt.constant(np.array([True])))
    return c.op("Trilu", x, pt.constant(np.array(c.pick(-1, 0, 1))), upper=c.pick(0, 1))


@recipe
def resized(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) not in (3, 4) or 0 in shape:
        raise Unfit("no image")
    wanted = [*shape[:2], *[s + c.pick(0, 1, 3) for s in shape[2:]]]
    mode = c.pick("nearest", "linear")
    if c.chance(0.7):
        sizes = c.op("Concat", c.op("Shape", x, start=0, end=2), *[c.integer(w) for w in wanted[2:]], axis=0)
        return c.op("Resize", x, None, None, sizes, mode=mode)
    return c.op("Resize", x, None, pt.constant(np.array([1, 1, *[c.pick(0.5, 1.5, 2)] * len(shape[2:])], np.float32)), mode=mode)


@recipe
def blocks(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) != 4:
        raise Unfit("no image")
    return c.op("DepthToSpace", x, blocksize=2) if shape[1] % 4 == 0 else c.op("SpaceToDepth", x, blocksize=2)


@recipe
def quantized(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    kind = c.rng.randrange(4)
    if kind == 0 or not shape:
        scale, zero, options = c.weight(), pt.constant(np.uint8(3))[0], {}
    else:
        axis = axis_of(c, x)
        if kind == 1 and shape[axis]:
            block = c.pick(1, 2, shape[axis])
            of = [*shape]
            of[axis] = -(-shape[axis] // block)
            scale, zero = c.weight(*of), pt.constant(np.full(of, 3, np.uint8))[0]
            options = {"axis": axis, "block_size": block}
        else:
            scale, zero, options = c.weight(shape[axis]), pt.constant(np.full(shape[axis], 3, np.uint8))[0], {"axis": axis}
    integers = c.op("QuantizeLinear", x, scale, zero, **options)
    if c.chance(0.3) and len(shape) == 2 and not options:
        w = pt.constant(c.random.integers(-9, 9, (shape[1], 3)).astype(np.int8))
        scales = c.weight(3) if c.chance(0.5) else c.weight()
        zeros = pt.constant(np.zeros(c.shape(scales), np.int8))
        integers = c.op("QLinearMatMul", integers, scale, zero, w, scales, zeros, c.weight(), pt.constant(np.uint8(0)))
        return c.op("DequantizeLinear", integers, c.weight(), pt.constant(np.uint8(0)))
    if c.chance(0.2) and len(shape) == 2 and not options:
        w = pt.constant(c.random.integers(-9, 9, (shape[1], 3)).astype(np.int8))
        return c.op("Cast", c.op("MatMulInteger", integers, w, zero, pt.constant(np.zeros(3, np.int8))), to=1)
    return c.op("DequantizeLinear", integers, scale, zero, **options)


@recipe
def recurrent(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) != 3 or 0 in shape:
        raise Unfit("no sequence")
    op, gates = c.pick(("RNN", 1), ("GRU", 3), ("LSTM", 4))
    lengths = None
    if c.chance(0.6):
        array = c.random.integers(1, shape[0] + 1, shape[1]).astype(np.int32)
        kind = c.rng.randrange(3)
        lengths = (pt.constant(array)[0] if kind == 0 else c.given(array, [c.symbol(shape[1])]) if kind == 1 else
                   c.op("Cast", c.op("Expand", c.integer(int(array[0])), c.op("Shape", x, start=1, end=2)), to=6))
    first = c.weight(1, shape[1], 2) if c.chance(0.4) else None
    weights = c.weight(1, gates * 2, shape[2]), c.weight(1, gates * 2, 2)
    result = c.op(op, x, *weights, None, lengths, first, hidden_size=2, n_outputs=1)
    return c.op("Squeeze", result, ints(1))


@recipe
def reversed_steps(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) < 2 or 0 in shape[:2]:
        raise Unfit("no sequence")
    array = c.random.integers(1, shape[0] + 1, shape[1]).astype(np.int64)
    lengths = pt.constant(array)[0] if c.chance(0.5) else c.given(array, [c.symbol(shape[1])])
    return c.op("ReverseSequence", x, lengths)


@recipe
def attention(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if len(shape) != 3 or 0 in shape:
        raise Unfit("no text")
    keys = c.op("Relu", x)
    fitting = [v for v in c.floats if len(c.shape(v)) == 3 and c.shape(v)[::2] == shape[::2] and c.shape(v)[1]]
    if fitting and c.chance(0.5):
        keys = c.rng.choice(fitting)
    mask = c.weight(*[c.pick(1, s) for s in (shape[1],)], c.shape(keys)[1]) if c.chance(0.4) else None
    if c.chance(0.3):
        half = shape[2] // 2
        if half and shape[2] % 2 == 0:
            rows = shape[1] + c.pick(0, 2)
            where_ = c.given(c.random.integers(0, rows, shape[:2]).astype(np.int64), [c.symbol(s) for s in shape[:2]])
            return c.op("RotaryEmbedding", x, c.weight(rows, half), c.weight(rows, half), where_, num_heads=1)
    return c.op("Attention", x, keys, keys, mask, q_num_heads=1, kv_num_heads=1, is_causal=c.pick(0, 0, 1))


@recipe
def branch(c: Chain, x: NodeEntry) -> NodeEntry:
    if c.outer is not None and c.chance(0.7):
        raise Unfit("deep enough")
    test = c.op("Greater", c.op("Squeeze", c.integer(c.pick(2, 4)), ints(0)), pt.constant(np.array(3)))
    then = c.body(x, c.pick(1, 2), "then")
    other = c.body(x, c.pick(1, 2), "otherwise")
    return c.op("If", test, captures=[x], then_branch=then[0], else_branch=other[0])


@recipe
def loop(c: Chain, x: NodeEntry) -> NodeEntry:
    if c.outer is not None:
        raise Unfit("deep enough")
    turn, go = pt.variable("turn", "int64", ()), pt.variable("go", "bool", ())
    inner = Chain(random.Random(c.rng.getrandbits(32)))
    inner.outer = c
    state = pt.variable("state", "float32", [None] * len(c.shape(x)))
    inner.arrays[state[0]] = c.array(x)
    inner.arrays[turn[0]], inner.arrays[go[0]] = np.array(0), np.array(True)
    inner.floats.append(state[0])
    kind = c.rng.randrange(3)
    result = grown(inner, state[0], c.pick(1, 2))
    outputs = [inner.op("Identity", go), result if kind else inner.op("Identity", state)]
    if kind != 1:
        outputs.append(result if kind == 0 else inner.op("Relu", result))
    body = pt.Graph(outputs, [turn, go, state], name="body", opsets={"": OPSET})
    count = c.op("Squeeze", c.integer(c.pick(1, 2, 3)), ints(0))
    results = c.ops("Loop", count, pt.constant(np.array(True)), x, body=body, n_outputs=len(outputs) - 1)
    return c.rng.choice(results)


@recipe
def scan(c: Chain, x: NodeEntry) -> NodeEntry:
    shape = c.shape(x)
    if c.outer is not None or not shape or not shape[0]:
        raise Unfit("deep enough")
    inner = Chain(random.Random(c.rng.getrandbits(32)))
    inner.outer = c
    row, state = (pt.variable(name, "float32", [None] * (len(shape) - 1)) for name in ("row", "state"))
    first = c.weight(*shape[1:])
    inner.arrays[row[0]], inner.arrays[state[0]] = c.array(x)[0], c.array(first)
    inner.floats += [row[0], state[0]]
    result = grown(inner, row[0], c.pick(1, 2))
    body = pt.Graph([inner.op("Add", state, row), result], [state, row], name="body", opsets={"": OPSET})
    return c.rng.choice(c.ops("Scan", first, x, body=body, num_scan_inputs=1, n_outputs=2))


@recipe
def call(c: Chain, x: NodeEntry) -> NodeEntry:
    if c.outer is not None:
        raise Unfit("deep enough")
    graph, inner = c.body(x, c.pick(1, 2, 3), "inside")
    node = pt.call(graph, name=f"call{c.rng.getrandbits(30)}").evolve(inputs=(x,))
    c.arrays[node[0]] = inner.array(graph.outputs[0])
    return node[0]


def grown(c: Chain, x: NodeEntry, ops: int) -> NodeEntry:
    """The value after so many recipes."""
    left = ops
    for _ in range(ops * 20):
        if not left:
            return x
        state = len(c.inputs), dict(c.base)
        try:
            y = c.rng.choice(RECIPES)(c, x)
        except (Unfit, ZeroDivisionError, IndexError, ValueError, OverflowError):
            del c.inputs[state[0] :], c.feeds[state[0] :], c.draws[state[0] :]
            c.base = state[1]
            continue
        if c.array(y).dtype != np.float32 or c.array(y).size > 4096 or len(c.shape(y)) > 5:
            continue
        x = y
        c.floats.append(x)
        left -= 1
    if left == ops:
        raise Unfit("nothing fits")
    return x


def chain(seed: int) -> Network | None:
    """The chain of a seed, and the sizes that it is called at."""
    rng = random.Random(f"chain {seed}")
    for _ in range(50):
        c = Chain(rng)
        for _ in range(rng.choice((1, 1, 2))):
            shape = tuple([rng.choice(SIZES) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))])
            c.floats.append(c.input(c.random.standard_normal(shape).astype(np.float32), [c.symbol(s) for s in shape]))
        try:
            outputs = [grown(c, c.floats[0], rng.choice((1, 2, 3, 3, 4)))]
        except Unfit:
            continue
        if rng.random() < 0.4:
            outputs.append(rng.choice(c.floats))
        c.input(np.zeros((1,), np.float32), ["tick"])
        if not any(isinstance(d, str) for node in c.inputs[:-1] for d in node[0].type.shape):  # type: ignore[union-attr]
            continue
        try:
            graph = typed(pt.Graph(outputs, c.inputs, name="chain", opsets={"": OPSET}))
        except PartitaError:
            continue
        return Network(graph, tuple(c.feeds), _sizes(c, rng), tuple(c.draws), {tuple(f.shape for f in c.feeds): list(c.feeds)})
    return None


def _sizes(c: Chain, rng: random.Random) -> tuple[Shapes, ...]:
    """The first sizes, then others in which one symbol is another one, or two; the last call is the first once more."""
    symbols = sorted(c.base)
    used = sorted({d for node in c.inputs for d in node[0].type.shape if isinstance(d, str)} - {"tick"})  # type: ignore[union-attr]
    listed: list[Shapes] = []
    for number in range(CALLS):
        sizes = {**{name: c.base[name] for name in symbols}, "tick": number + 1}
        if 0 < number < CALLS - 1:
            for name in rng.sample(used, min(len(used), rng.choice((0, 1, 1, 1, 2)))):
                size = sizes[name]
                sizes[name] = rng.choice((0, 1, max(0, size - 1), size + 1, 2 * size, size + 7))
        shapes = [tuple([sizes[d] if isinstance(d, str) else int(d or 0) for d in node[0].type.shape]) for node in c.inputs]  # type: ignore[union-attr]
        if all(math.prod(s) <= LARGEST for s in shapes):
            listed.append(tuple(shapes))
    return tuple(listed)

