"""Random nodes whose sizes follow from odd attributes: what inference says of them is held against what they compute.

    python -m tests.passes.shape_cases [first] [count]

prints each case in which an inferred size is not the computed one."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from partita.graph import Graph, Node, PartitaError, TensorType, constant, op, variable
from partita.graph.interpret import interpret
from partita.graph.ops.schemas import spec_of
from partita.passes.infer import infer

OPSETS = (9, 11, 12, 13, 18, 19, 20, 21, 22)

Random = random.Random
Made = tuple[str, list[Any], dict[str, Any]]
"""An op, its inputs (arrays: those in a `Fixed` are constants; None is absent), its attributes."""


@attrs.frozen
class Fixed:
    """An input whose value is in the graph."""

    value: np.ndarray[Any, Any]


def _image(r: Random, n: int, least: int = 1, most: int = 9) -> np.ndarray[Any, Any]:
    shape = (r.randint(1, 2), r.choice((1, 2, 4)), *[r.randint(least, most) for _ in range(n)])
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _any(r: Random, least: int = 1, most: int = 4) -> np.ndarray[Any, Any]:
    shape = [r.randint(1, 4) for _ in range(r.randint(least, most))]
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> Fixed:
    return Fixed(np.array(values, np.int64))


def _window(r: Random, n: int) -> dict[str, Any]:
    """Strides, dilations and padding, some of them left out."""
    listed: dict[str, Any] = {}
    if r.random() < 0.7:
        listed["strides"] = [r.randint(1, 4) for _ in range(n)]
    if r.random() < 0.4:
        listed["dilations"] = [r.randint(1, 3) for _ in range(n)]
    which = r.random()
    if which < 0.6:
        listed["pads"] = [r.randint(0, 2) for _ in range(2 * n)]
    elif which < 0.8:
        listed["auto_pad"] = r.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return listed


def _pool(r: Random, version: int) -> Made:
    n = r.randint(1, 3)
    given = {"kernel_shape": [r.randint(1, 4) for _ in range(n)], **_window(r, n)}
    if r.random() < 0.7:
        given["ceil_mode"] = 1
    name = r.choice(("MaxPool", "AveragePool", "LpPool"))
    if name == "AveragePool":
        given["count_include_pad"] = r.randint(0, 1)
    return name, [_image(r, n)], given


def _conv(r: Random, version: int) -> Made:
    n = r.randint(1, 3)
    x = _image(r, n, 2)
    kernel = [r.randint(1, 4) for _ in range(n)]
    w = np.ones((r.choice((2, 4)), x.shape[1], *kernel), np.float32)
    return "Conv", [x, Fixed(w)], {**_window(r, n), **({"kernel_shape": kernel} if r.random() < 0.5 else {})}


def _conv_transpose(r: Random, version: int) -> Made:
    n = r.randint(1, 2)
    x = _image(r, n, 2)
    kernel = [r.randint(1, 4) for _ in range(n)]
    given = _window(r, n)
    if r.random() < 0.3:
        given["output_padding"] = [r.randint(0, 1) for _ in range(n)]
    if r.random() < 0.3:
        given["output_shape"] = [size * r.randint(1, 3) for size in x.shape[2:]]
    return "ConvTranspose", [x, Fixed(np.ones((x.shape[1], 2, *kernel), np.float32))], given


def _resize(r: Random, version: int) -> Made:
    x = _image(r, 2, 2)
    given: dict[str, Any] = {"mode": r.choice(("nearest", "linear"))}
    if version < 11:
        return "Resize" if version >= 10 else "Upsample", [x, Fixed(np.float32([1, 1, r.uniform(1, 3), 2.5]))], given
    if version >= 18 and r.random() < 0.5:
        given["keep_aspect_ratio_policy"] = r.choice(("stretch", "not_larger", "not_smaller"))
    if r.random() < 0.5:
        return "Resize", [x, None, Fixed(np.float32([1, 1, r.uniform(0.3, 3), r.uniform(0.3, 3)]))], given
    if version >= 18:
        given["axes"] = [2, 3]
        return "Resize", [x, None, None, _ints(r.randint(1, 9), r.randint(1, 9))], given
    return "Resize", [x, None, None, _ints(*x.shape[:2], r.randint(1, 9), r.randint(1, 9))], given


def _slice(r: Random, version: int) -> Made:
    x = _any(r)
    axes = r.sample(range(x.ndim), r.randint(1, x.ndim))
    many = [
        [r.randint(-6, 6) for _ in axes],
        [r.choice((r.randint(-6, 6), 2**31, 2**63 - 1, -(2**63))) for _ in axes],
        [axis - r.choice((0, x.ndim)) for axis in axes],
        [r.choice((1, 1, 2, 3, -1, -2)) for _ in axes],
    ]
    return "Slice", [x, *[_ints(*values) for values in many]], {}


def _pad(r: Random, version: int) -> Made:
    x = _any(r)
    pads = [r.randint(-1, 3) for _ in range(2 * x.ndim)]
    return "Pad", [x, _ints(*pads)], {}


def _tile(r: Random, version: int) -> Made:
    x = _any(r)
    return "Tile", [x, _ints(*[r.randint(0, 3) for _ in x.shape])], {}


def _split(r: Random, version: int) -> Made:
    x = _any(r)
    axis = r.randrange(-x.ndim, x.ndim)
    if version >= 18 and r.random() < 0.5:
        return "Split", [x], {"axis": axis, "num_outputs": r.randint(1, max(1, x.shape[axis]))}
    first = r.randint(0, x.shape[axis])
    return "Split", [x, _ints(first, x.shape[axis] - first)], {"axis": axis}


def _reshape(r: Random, version: int) -> Made:
    x = _any(r)
    target = list(x.shape)
    r.shuffle(target)
    target = target[: r.randint(1, len(target))] if r.random() < 0.3 else target
    target[r.randrange(len(target))] = -1
    if r.random() < 0.3:
        target[0] = 0
    return "Reshape", [x, _ints(*target)], {"allowzero": 1} if version >= 14 and r.random() < 0.1 else {}


def _expand(r: Random, version: int) -> Made:
    x = _any(r)
    return "Expand", [x, _ints(*[r.choice((1, size, 3)) for size in (1, *x.shape)][r.randint(0, 1) :])], {}


def _squeeze(r: Random, version: int) -> Made:
    x = _any(r)
    ones = [i - r.choice((0, x.ndim)) for i, size in enumerate(x.shape) if size == 1]
    return "Squeeze", [x, _ints(*ones)] if ones and r.random() < 0.6 else [x], {}


def _unsqueeze(r: Random, version: int) -> Made:
    x = _any(r)
    rank = x.ndim + 2
    return "Unsqueeze", [x, _ints(*[i - r.choice((0, rank)) for i in r.sample(range(rank), 2)])], {}


def _flatten(r: Random, version: int) -> Made:
    x = _any(r)
    return "Flatten", [x], {"axis": r.randint(-x.ndim, x.ndim) if version >= 11 else r.randint(0, x.ndim)}


def _reduce(r: Random, version: int) -> Made:
    x = np.abs(_any(r)) + 1
    name = r.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd", "ReduceLogSumExp"))
    axes = [axis - r.choice((0, x.ndim)) for axis in r.sample(range(x.ndim), r.randint(0, x.ndim))]
    given: dict[str, Any] = {"keepdims": r.randint(0, 1)} if r.random() < 0.8 else {}
    if version >= 18 or (name == "ReduceSum" and version >= 13):
        given.update({"noop_with_empty_axes": 1} if r.random() < 0.3 else {})
        return name, [x, _ints(*axes)] if r.random() < 0.8 else [x], given
    return name, [x], {**given, **({"axes": axes} if axes else {})}


def _arg(r: Random, version: int) -> Made:
    x = _any(r)
    return r.choice(("ArgMax", "ArgMin")), [x], {"axis": r.randrange(-x.ndim, x.ndim), "keepdims": r.randint(0, 1)}


def _topk(r: Random, version: int) -> Made:
    x = _any(r)
    axis = r.randrange(-x.ndim, x.ndim)
    return "TopK", [x, _ints(r.randint(0, x.shape[axis]))], {"axis": axis}


def _gather(r: Random, version: int) -> Made:
    x = _any(r)
    axis = r.randrange(-x.ndim, x.ndim)
    shape = [r.randint(0, 3) for _ in range(r.randint(0, 2))]
    return "Gather", [x, Fixed(np.zeros(shape, np.int64))], {"axis": axis}


def _gather_nd(r: Random, version: int) -> Made:
    x = _any(r, 2)
    batch = r.randint(0, x.ndim - 1) if version >= 12 else 0
    count = r.randint(1, x.ndim - batch)
    shape = (*x.shape[:batch], *[r.randint(1, 3) for _ in range(r.randint(0, 2))], count)
    return "GatherND", [x, Fixed(np.zeros(shape, np.int64))], {"batch_dims": batch} if batch else {}


def _concat(r: Random, version: int) -> Made:
    x = _any(r)
    axis = r.randrange(-x.ndim, x.ndim)
    return "Concat", [x, np.repeat(x, r.randint(0, 2), axis), x][: r.randint(1, 3)], {"axis": axis}


def _matmul(r: Random, version: int) -> Made:
    m, k, n = (r.randint(1, 4) for _ in range(3))
    front = [r.randint(2, 3) for _ in range(r.randint(0, 2))]
    some = [r.choice((1, size)) for size in front][r.randint(0, len(front)) :]
    a, b = np.ones((*front, m, k), np.float32), np.ones((*some, k, n), np.float32)
    a = a[..., 0, :] if r.random() < 0.1 else a
    b = b[..., 0] if r.random() < 0.1 and not some else b
    return "MatMul", [a, b], {}


def _gemm(r: Random, version: int) -> Made:
    m, k, n = (r.randint(1, 4) for _ in range(3))
    turn_a, turn_b = r.randint(0, 1), r.randint(0, 1)
    a, b = np.ones((k, m) if turn_a else (m, k), np.float32), np.ones((n, k) if turn_b else (k, n), np.float32)
    return "Gemm", [a, b, np.ones(r.choice(((), (1,), (n,), (m, 1))), np.float32)], {"transA": turn_a, "transB": turn_b}


def _space(r: Random, version: int) -> Made:
    block = r.randint(1, 3)
    shape = (1, 2, block * r.randint(1, 3), block * r.randint(1, 3))
    if r.random() < 0.5:
        return "SpaceToDepth", [np.ones(shape, np.float32)], {"blocksize": block}
    return "DepthToSpace", [np.ones((1, 2 * block**2, 3, 2), np.float32)], {"blocksize": block}


def _transpose(r: Random, version: int) -> Made:
    x = _any(r)
    return "Transpose", [x], {"perm": r.sample(range(x.ndim), x.ndim)} if r.random() < 0.8 else {}


def _one_hot(r: Random, version: int) -> Made:
    x = np.zeros([r.randint(1, 3) for _ in range(r.randint(1, 2))], np.int64)
    return "OneHot", [x, _ints(r.randint(1, 5)), Fixed(np.float32([0, 1]))], {"axis": r.randint(-x.ndim - 1, x.ndim)}


def _range(r: Random, version: int) -> Made:
    kind = r.choice((np.int64, np.float32))
    values = [r.randint(-5, 5), r.randint(-9, 9), r.choice((1, 2, 3, -1, -2))]
    return "Range", [Fixed(np.array(value, kind)) for value in values], {}


def _softmax(r: Random, version: int) -> Made:
    x = _any(r)
    return r.choice(("Softmax", "LogSoftmax", "Hardmax")), [x], {"axis": r.randrange(x.ndim)}


def _binary(r: Random, version: int) -> Made:
    x = _any(r)
    some = np.ones([r.choice((1, size)) for size in x.shape][r.randint(0, x.ndim) :], np.float32)
    return r.choice(("Add", "Mul", "Pow", "Equal" if version >= 11 else "Sub")), r.sample([x, some], 2), {}


def _einsum(r: Random, version: int) -> Made:
    a, b = np.ones((2, 3, 4), np.float32), np.ones((2, 4, 5), np.float32)
    return "Einsum", [a, b], {"equation": r.choice(("bij,bjk->bik", "bij,bjk->", "bij,bjk", "...ij,...jk->...ik", "bij,bjk->kb"))}


def _recurrent(r: Random, version: int) -> Made:
    name, gates = r.choice((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    ways = r.randint(1, 2)
    x = np.ones((3, 2, 4), np.float32)
    w, u = np.ones((ways, gates * 5, 4), np.float32), np.ones((ways, gates * 5, 5), np.float32)
    direction = "bidirectional" if ways == 2 else r.choice(("forward", "reverse"))
    layout = {"layout": 1} if version >= 14 and r.random() < 0.5 else {}
    return name, [x, Fixed(w), Fixed(u)], {"hidden_size": 5, "direction": direction, **layout}


def _center_crop_pad(r: Random, version: int) -> Made:
    x = _any(r)
    axes = r.sample(range(x.ndim), r.randint(1, x.ndim))
    return "CenterCropPad", [x, _ints(*[r.randint(1, 6) for _ in axes])], {"axes": axes}


def _max_unpool(r: Random, version: int) -> Made:
    n = r.randint(1, 2)
    x = _image(r, n)
    given = {key: value for key, value in _window(r, n).items() if key in ("strides", "pads")}
    return "MaxUnpool", [x, Fixed(np.zeros(x.shape, np.int64))], {"kernel_shape": [r.randint(2, 4) for _ in range(n)], **given}


def _col2im(r: Random, version: int) -> Made:
    return "Col2Im", [np.ones((1, 8, 9), np.float32), _ints(4, 4), _ints(2, 2)], {}


def _constant_of_shape(r: Random, version: int) -> Made:
    return "ConstantOfShape", [_ints(*[r.randint(0, 3) for _ in range(r.randint(0, 3))])], {}


def _dft(r: Random, version: int) -> Made:
    x = np.ones((2, r.randint(2, 6), r.randint(2, 6), r.choice((1, 2))), np.float32)
    axis = r.choice((1, 2, -2, -3))
    given = {"onesided": int(x.shape[-1] == 1 and r.random() < 0.6), "inverse": 0}
    length = Fixed(np.array(r.randint(1, 8), np.int64)) if r.random() < 0.5 else None
    if version >= 20:
        return "DFT", [x, length, Fixed(np.array(axis, np.int64))], given
    return "DFT", [x, length], {**given, "axis": axis}


MAKERS: tuple[tuple[int, Callable[[Random, int], Made]], ...] = (
    *[(9, _pool)] * 6, *[(9, _conv), (9, _conv_transpose), (9, _resize), (11, _slice), (9, _reduce)] * 2, (11, _pad), (9, _tile),
    (13, _split), (9, _reshape), (9, _expand), (13, _squeeze), (13, _unsqueeze), (9, _flatten), (11, _arg), (11, _topk),
    (9, _gather), (11, _gather_nd), (11, _concat), (9, _matmul), (9, _gemm), (9, _space), (9, _transpose), (11, _one_hot),
    (11, _range), (9, _softmax), (9, _binary), (12, _einsum), (9, _recurrent), (18, _center_crop_pad), (11, _max_unpool),
    (18, _col2im), (9, _constant_of_shape), (18, _dft),
)
"""From which opset each op is made."""


def random_case(seed: int) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """A graph of one node, and its inputs."""
    r = Random(seed)
    version = r.choice(OPSETS)
    since, make = r.choice(MAKERS)
    version = max(version, since)
    name, given, attributes = make(r, version)
    spec = spec_of(name, "", version)
    assert spec is not None
    read: list[Node | None] = []
    arrays = []
    for i, item in enumerate(given):
        if isinstance(item, Fixed):
            read.append(constant(item.value, f"c{i}"))
        elif item is None:
            read.append(None)
        else:
            arrays.append(item)
            read.append(variable(f"x{i}", item.dtype.name, item.shape))
    known = {key: value for key, value in attributes.items() if key in spec.attributes}
    count = {"Split": known.get("num_outputs", 2), "TopK": 2, "LSTM": 3, "GRU": 2, "RNN": 2}.get(name, 1)
    node = op(name, *read, name="n", opset=version, output_names=[f"y{i}" for i in range(count)], **known)
    return Graph(list(node.outputs), [n for n in read if n is not None and n.is_variable], "g", {"": version}), arrays


def outcome(seed: int) -> str:
    """"right", "refused" where the op does not take the case, or what is inferred beside what is computed."""
    graph, arrays = random_case(seed)
    try:
        with np.errstate(all="ignore"):
            outputs = interpret(graph, arrays)
    except (PartitaError, ValueError, IndexError):
        return "refused"
    node = next(node for node in graph.nodes if node.is_op)
    for entry, array in zip(infer(graph, strict=False).outputs, outputs, strict=True):
        kind = entry.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            continue
        if len(kind.shape) != array.ndim or any(isinstance(m, int) and m != n for m, n in zip(kind.shape, array.shape)):
            given = [str(e.type) for e in node.reads]
            return f"{graph.opsets['']} {node.op}({given}) {dict(node.attrs)}: {kind} inferred, {array.shape} computed"
    return "right"


def main() -> None:
    """Print what differs."""
    first, count = (int(text) for text in (*sys.argv[1:], "0", "2000")[:2])
    listed = [outcome(seed) for seed in range(first, first + count)]
    for seed, said in enumerate(listed, first):
        if said not in ("right", "refused"):
            print(seed, said)
    print(f"{count} cases: {listed.count('right')} right, {listed.count('refused')} refused")


if __name__ == "__main__":
    main()
