"""Recipes: what works number by number, and reductions."""

from __future__ import annotations

import numpy as np

from partita.graph.types import Array
from tests.fuzz.models.builder import Builder, Skip
from tests.fuzz.models.recipes import recipe
from tests.fuzz.models.values import INTS


@recipe(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor HardSwish Identity IsNaN Log Mish Neg Not"
    " Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)
def unary(b: Builder, op: str) -> None:
    """One input, no attributes."""
    b.add(op, b.tensor(b.dtype(op)))


@recipe("Celu Elu HardSigmoid LeakyRelu Selu Shrink Swish ThresholdedRelu Gelu IsInf")
def parametrized(b: Builder, op: str) -> None:
    """One input, and numbers as attributes."""
    b.add(
        op,
        b.tensor(b.dtype(op)),
        alpha=b.choice(None, 0.1, 1.5) if op != "Celu" else b.choice(None, 0.5, 2.0),
        beta=b.choice(None, 0.3),
        gamma=b.choice(None, 1.2),
        lambd=b.choice(None, 0.25),
        bias=b.choice(None, 0.125) if op == "Shrink" else None,
        approximate=b.choice(None, "none", "tanh"),
        detect_negative=b.choice(None, 0, 1),
        detect_positive=b.choice(None, 0, 1),
    )


@recipe(
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod Mul Or Pow Sub Xor"
)
def binary(b: Builder, op: str) -> None:
    """Two inputs that are broadcast."""
    dtype = b.dtype(op)
    left = b.tensor(dtype)
    shape = broadcastable(b, b.shape(left))
    whole = op in ("Div", "Mod", "Pow") and dtype in INTS
    if not whole:
        right = b.tensor(dtype, shape)
    elif op == "Pow":
        right = b.given(b.random.within(dtype, shape, 0, 4))
        if b.array(left).size and np.abs(b.array(left).astype("d")).max() ** 3 > np.iinfo(dtype).max:
            raise Skip  # what becomes of an overflow, ONNX does not say
    else:
        right = b.given(b.random.within(dtype, shape, 1, 7))
    floats = dtype not in INTS
    fmod = 1 if op == "Mod" and floats else b.choice(None, 0, 1)
    b.add(op, *((left, right) if b.chance(0.5) or whole else (right, left)), fmod=fmod)


def broadcastable(b: Builder, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes that go with these in a broadcast."""
    kind = b.rng.random()
    if kind < 0.4:
        return shape
    sizes = tuple(1 if b.chance(0.4) else size for size in shape)
    return sizes[b.rng.randrange(len(sizes) + 1) :] if kind < 0.7 else sizes


@recipe("BitShift")
def bit_shift(b: Builder, op: str) -> None:
    """Counts below the width."""
    dtype = b.dtype(op, only=("uint8", "uint16", "uint32", "uint64"))
    left = b.tensor(dtype)
    b.add(
        op,
        left,
        b.given(b.random.within(dtype, broadcastable(b, b.shape(left)), 0, 8)),
        direction=b.choice("LEFT", "RIGHT"),
    )


@recipe("Max Min Sum Mean")
def variadic(b: Builder, op: str) -> None:
    """One input or more."""
    dtype = b.dtype(op)
    first = b.tensor(dtype)
    rest = [b.tensor(dtype, broadcastable(b, b.shape(first))) for _ in range(b.choice(0, 1, 1, 2, 3))]
    b.add(op, first, *rest)


@recipe("Where")
def where(b: Builder, op: str) -> None:
    """Three inputs that are broadcast."""
    dtype = b.dtype(op, 1)
    left = b.tensor(dtype)
    right = b.tensor(dtype, broadcastable(b, b.shape(left)))
    b.add(op, b.tensor("bool", broadcastable(b, b.shape(left))), left, right)


@recipe("Clip")
def clip(b: Builder, op: str) -> None:
    """Bounds that may be missing, or the wrong way round."""
    dtype = b.dtype(op)
    low, high = (b.given(b.random.array(dtype, ())) if b.chance(0.7) else None for _ in range(2))
    if b.opset < 11:
        raise Skip
    b.add(op, b.tensor(dtype), *((low, high) if high is not None else (low,) if low is not None else ()))


@recipe("PRelu")
def prelu(b: Builder, op: str) -> None:
    """A slope for each number, or fewer."""
    dtype = b.dtype(op)
    left = b.tensor(dtype)
    b.add(op, left, b.tensor(dtype, broadcastable(b, b.shape(left))))


@recipe("SwiGLU")
def gated(b: Builder, op: str) -> None:
    """Two inputs of one shape."""
    dtype = b.dtype(op)
    left = b.tensor(dtype)
    b.add(op, left, b.tensor(dtype, b.shape(left)), alpha=b.choice(None, 0.5))


TYPES = (
    "float32",
    "float16",
    "float64",
    "bfloat16",
    "int32",
    "int64",
    "int8",
    "uint8",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "uint64",
)

CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}
"""ONNX's numbers for element types."""


@recipe("Cast CastLike")
def cast(b: Builder, op: str) -> None:
    """Cast from any type to any; numbers that an integer type cannot hold have no defined result, and are clipped before."""
    source, target = b.dtype(op), b.choice(*TYPES)
    given = b.tensor(source)
    array = b.array(given)
    if target in INTS:
        wide = array.astype(np.float64)
        bounds = np.iinfo(target)
        if not np.isfinite(wide).all() or (
            wide.size and (wide.min() < max(bounds.min, -1e9) or wide.max() > min(bounds.max, 1e9))
        ):
            raise Skip
    if op == "Cast":
        b.add(op, given, to=CODES[target])
    else:
        b.add(op, given, b.tensor(target))


@recipe("BitCast")
def bit_cast(b: Builder, op: str) -> None:
    """BitCast to a type of the same width."""
    source = b.dtype(op)
    given = b.tensor(source)
    width = b.array(given).dtype.itemsize
    same = [name for name in TYPES if name not in ("bool", "bfloat16") and np.dtype(name).itemsize == width]
    if source == "bool":
        raise Skip
    b.add(op, given, to=CODES[b.choice(*same)])


def axes_of(
    b: Builder, op: str, rank: int, **attributes: object
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Some axes as the op takes them at this opset: an attribute at first, an input since."""
    axes = b.rng.sample(range(rank), b.rng.randint(1, rank)) if rank else []
    axes = [axis - rank if b.opset >= 11 and b.chance(0.3) else axis for axis in axes]
    if not axes or b.chance(0.2):
        return (), attributes
    if "axes" in b.spec(op).attributes:
        return (), {**attributes, "axes": axes}
    return (b.numbers(*axes),), attributes


def stays_in_range(array: Array) -> bool:
    """Is every product of some of these numbers, in whatever order, far from the smallest and the largest numbers? Beyond that
    digits are lost, and how many the order decides."""
    with np.errstate(all="ignore"):
        powers = np.abs(np.log2(np.abs(array.astype(np.float64))))
    return float(powers[np.isfinite(powers)].sum()) < 120


def stays_small(array: Array, op: str) -> bool:
    """Does no sum or product of these integers leave their type? What becomes of one that does, ONNX does not say."""
    wide = np.abs(array.astype(np.float64))
    if op == "ReduceProd" and np.log2(np.maximum(wide, 1)).sum() > 60:
        return False
    sums = {"ReduceProd": np.prod(np.maximum(wide, 1)), "ReduceSumSquare": (wide**2).sum(), "ReduceL2": (wide**2).sum()}
    return bool(sums.get(op, wide.sum()) <= np.iinfo(array.dtype).max)


@recipe(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
def reduction(b: Builder, op: str) -> None:
    """Over some axes, or all."""
    dtype = b.dtype(op)
    if dtype in INTS and op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceMean"):
        raise Skip  # what is not an integer is rounded, ONNX does not say how

    def fits(array: Array) -> bool:
        return stays_small(array, op) if dtype in INTS else op != "ReduceProd" or stays_in_range(array)

    given = b.tensor(dtype, when=lambda array: bool(array.size) and fits(array))
    rank = b.array(given).ndim
    more, attributes = axes_of(
        b, op, rank, keepdims=b.choice(None, 0, 1), noop_with_empty_axes=b.choice(None, None, 0, 1)
    )
    b.add(op, given, *more, **attributes)  # type: ignore[arg-type]


@recipe("ArgMax ArgMin")
def arg(b: Builder, op: str) -> None:
    """The place of the largest, or of the smallest."""
    given = b.tensor(b.dtype(op), when=lambda array: array.ndim > 0 and bool(array.size))
    b.add(
        op,
        given,
        axis=b.axis(b.array(given).ndim),
        keepdims=b.choice(None, 0, 1),
        select_last_index=b.choice(None, 0, 1),
    )


@recipe("CumSum CumProd")
def cumulative(b: Builder, op: str) -> None:
    """Along an axis, in either direction."""
    given = b.tensor(b.dtype(op), when=lambda array: array.ndim > 0 and (op == "CumSum" or stays_in_range(array)))
    axis = b.number(b.axis(b.array(given).ndim), b.choice("int32", "int64"))
    b.add(op, given, axis, exclusive=b.choice(None, 0, 1), reverse=b.choice(None, 0, 1))


@recipe("Softmax LogSoftmax Hardmax LpNormalization")
def along(b: Builder, op: str) -> None:
    """Normalised along an axis."""
    given = b.tensor(b.dtype(op), when=lambda array: array.ndim > 0 and bool(array.size))
    b.add(op, given, axis=b.axis(b.array(given).ndim), p=b.choice(None, 1, 2))


@recipe("MeanVarianceNormalization")
def mean_variance(b: Builder, op: str) -> None:
    """Over some axes."""
    rank = b.choice(2, 3, 4)
    given = b.tensor(b.dtype(op), rank=rank, when=lambda array: bool(array.size))
    b.add(op, given, axes=sorted(b.rng.sample(range(rank), b.rng.randint(1, rank))))


@recipe("Dropout")
def dropout(b: Builder, op: str) -> None:
    """Dropout as in inference, where it does nothing."""
    b.add(op, b.tensor(b.dtype(op)), n_outputs=b.choice(1, 2) if b.opset >= 12 else 1, ratio=0.5 if b.opset < 12 else None)
