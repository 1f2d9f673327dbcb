"""Drawn nodes: inputs whose values follow from sizes, reasons to refuse ops without a trial, results that are known to be wrong,
what is known once sizes are, and weights that stay integers.

`python -m tests.accelerators.tvm.kept_nodes` writes the file that `test_kept_nodes.py` compares with anew."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.tvm.prepare.inferred_operands import _implied, fold_implied, has_implied
from partita.accelerators.tvm.prepare.quantized_weights import hold_weights, release_weights
from partita.accelerators.tvm.query.known_wrong import RULES, known_wrong
from partita.accelerators.tvm.query.support import _refusal, _signature, is_settled, unsettled_input
from partita.graph.types import numpy_dtype
from partita.passes.infer.shape_operands import INDEXED
from tests.kept import lines_of, write_kept

KEPT = Path(__file__).with_name("kept_nodes.txt")

COUNTS = {"implied": 300, "refused": 300, "settled": 40, "held": 60}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


def implied(rng: random.Random) -> Iterator[str]:
    """The value of an operand that is computed by each call, from the sizes around it."""
    def shape_of(least: int = 0) -> list[Any]:
        return [rng.choice((1, 1, 2, 3, 4, 0 if rng.random() < 0.1 else 2)) for _ in range(rng.randint(least, 4))]

    kind = rng.choice(("Reshape", "Expand", "Tile", "Split", "Resize", "ConstantOfShape", "Squeeze", "Unsqueeze", "ReduceSum",
                       "ReduceMax", "Relu"))
    given = shape_of()
    made: list[list[Any]] = [shape_of()]
    options: dict[str, Any] = {}
    count: Any = rng.randint(0, 3)
    if kind in ("Expand", "Tile", "ConstantOfShape", "Reshape", "Resize"):
        made = [[size * rng.choice((1, 2, 3)) for size in given]]
        count = len(made[0])
        if kind == "Expand" and rng.random() < 0.4:
            made, count = [[2, *made[0]]], rng.choice((1, count + 1))
    if kind == "Split" and given:
        axis = rng.randrange(len(given))
        options["axis"] = rng.choice((axis, axis - len(given)))
        made = [[rng.randint(1, 3) if d == axis else size for d, size in enumerate(given)] for _ in range(rng.randint(1, 3))]
        count = len(made)
    if kind in ("Squeeze", "Unsqueeze"):
        longer, axes = given, sorted(rng.sample(range(len(given)), min(len(given), rng.randint(0, 2))))
        if rng.random() < 0.8:
            longer = [1 if d in axes else size for d, size in enumerate(given)]
        shorter = [size for d, size in enumerate(longer) if d not in axes]
        given, made = (longer, [shorter]) if kind == "Squeeze" else (shorter, [longer])
        count = len(axes)
    if kind.startswith("Reduce"):
        axes = sorted(rng.sample(range(len(given)), min(len(given), rng.randint(0, 2))))
        keep = rng.choice((None, 0, 1))
        options = {} if keep is None else {"keepdims": keep}
        made = [[1 if d in axes else size for d, size in enumerate(given) if keep != 0 or d not in axes]]
        count = len(axes)
    if kind == "Resize":
        options = rng.choice(({}, {}, {"keep_aspect_ratio_policy": "stretch"}, {"keep_aspect_ratio_policy": "not_larger"}))
        if given and rng.random() < 0.3:
            options, count = {**options, "axes": [rng.choice((0, -1))]}, 1
    if rng.random() < 0.1:
        count = rng.choice((count + 1, "n"))
    if rng.random() < 0.08 and kind != "Split":
        rng.choice((given, *made)).append(rng.choice((2, "n")))
    x = pt.variable("x", "float32", tuple(given))
    operand: Any = pt.variable("operand", "int64", () if rng.random() < 0.1 else (count,))
    if rng.random() < 0.08:
        operand = pt.constant(np.array([1]), name="operand")
    slots: dict[str, list[Any]] = {"Resize": [x, None, None, operand], "ConstantOfShape": [operand]}
    inputs = slots.get(kind, [x, operand] if rng.random() < 0.95 else [x])
    domain = "mine" if rng.random() < 0.04 else ""
    node = pt.op(kind, *inputs, name="op", domain=domain, n_outputs=len(made), **options)
    node = node.evolve(output_types=tuple([pt.TensorType("float32", tuple(shape)) for shape in made]))
    yield f"{kind} {given} {made} {count} {options} {_implied(node)}"
    variables = [one for one in (x, operand) if one.is_variable]
    graph = pt.Graph([node[i] for i in range(len(made))], variables, "small", {"": 18, "mine": 1})
    folded = fold_implied(graph, watched=True)
    yield f"{has_implied(graph)} {len(folded.outputs)} {folded.output_names[-1]} {zlib.crc32(str(folded).encode()):08x}"


OTHERS = "Relu Add MatMul Reshape Expand NonZero ConvTranspose Gather RandomNormal Own"
OPS = sorted({rule.op for rule in RULES} | set(OTHERS.split()))

ATTRIBUTES: Mapping[str, tuple[Any, ...]] = {
    "training_mode": (0, 1), "alpha": (1.0, 2.0, 0.5), "beta": (1.0, 0.25),
    "mode": ("nearest", "linear", "max", "avg", "CRD", "DCR"),
    "detect_negative": (0, 1), "detect_positive": (0, 1), "fmod": (0, 1), "antialias": (0, 1), "axis": (0, 1, -1),
    "coordinate_transformation_mode": ("half_pixel", "half_pixel_symmetric", "asymmetric"), "noop_with_empty_axes": (0, 1),
}


def refused(rng: random.Random) -> Iterator[str]:
    """Why an op is refused without a trial, or what its result would be."""
    def value(name: str) -> Any:
        dtype = rng.choice("float32 float32 float64 float16 int8 uint8 int32 int64 bool string float8_e5m2".split())
        shape = rng.choice(((2, 3), (2, 3), (2, 2), ("n", 3), (1, 1), None))
        if rng.random() < 0.3 and dtype not in ("string",):
            array = np.full(rng.choice(((2, 3), (1, 3), (35, 2))), rng.choice((1, 2, 0)), np.float32)
            if rng.random() < 0.1:
                array[...] = np.inf
            with np.errstate(all="ignore"):
                return pt.constant(array.astype(numpy_dtype(dtype)), name)
        kind: Any = pt.TensorType(dtype, shape)
        if rng.random() < 0.06:
            kind = rng.choice((None, pt.SequenceType(pt.TensorType("float32", (2,)))))
        return pt.variable(name, type=kind)

    op = rng.choice(OPS)
    inputs = [value(name) for name in "abcdef"[: 1 + max(INDEXED.get(op, 0), rng.randint(1, 2))]]
    options = {name: rng.choice(values) for name, values in ATTRIBUTES.items() if rng.random() < 0.3}
    names = tuple("op second".split()[: rng.choice((1, 1, 2))])
    read = tuple([one[0] for one in inputs])
    kinds = (pt.TensorType("float32", (2, 3)), pt.TensorType("int64", ("n",)), pt.TensorType("float32", (1 << 21,)), None)
    types = [rng.choice(kinds) for _ in names]
    node = pt.Node("op", op, read, options, names, tuple(types), "mine" if op == "Own" else "")
    node = node.evolve(metadata={"partita.fused": "x"} if rng.random() < 0.1 else {})
    variables = [one for one in inputs if one.is_variable]
    graph = pt.Graph([node[0]], variables, "small", {"": rng.choice((13, 18, 21)), "mine": 1})
    reason = _refusal(node, graph)
    yield f"{op} {[str(one[0].type) for one in inputs]} {options} {types[0]}: {reason}"
    yield f"{known_wrong(node)}"
    if reason is None and all(getattr(entry.type, "shape", None) is not None for entry in (*node.reads, *node.outputs)):
        yield _signature(node, graph)


def settled(rng: random.Random) -> Iterator[str]:
    """The values of a graph that are known once its sizes are, and inputs that are not and decide on sizes."""
    x, given = pt.variable("x", "float32", ("n", 4)), pt.variable("given", "int64", (2,))
    integers: list[Any] = [pt.op("Shape", x, name="shape"), given, pt.constant(np.array([2, 3]), name="fixed")]
    values: list[Any] = [x]
    makers: dict[str, Callable[[Any, Any, Any], pt.Node]] = {
        "Add": lambda value, one, other: pt.op("Add", one, other),
        "Concat": lambda value, one, other: pt.op("Concat", one, other, axis=0),
        "Gather": lambda value, one, other: pt.op("Gather", one, pt.constant(np.array([0, 1]))),
        "Shape": lambda value, one, other: pt.op("Shape", value),
        "Cast": lambda value, one, other: pt.op("Cast", pt.op("Relu", value), to="int64"),
        "Expand": lambda value, one, other: pt.op("Expand", value, one),
        "Reshape": lambda value, one, other: pt.op("Reshape", value, one),
        "NonZero": lambda value, one, other: pt.op("NonZero", value),
        "Slice": lambda value, one, other: pt.op("Slice", x, one, other),
    }
    for _ in range(rng.randint(2, 7)):
        kind = rng.choice([*makers])
        made = makers[kind](rng.choice(values), rng.choice(integers), rng.choice(integers))
        (integers if kind in ("Add", "Concat", "Gather", "Shape", "Cast") else values).append(made)
    graph = pt.apply_pass(pt.Graph([values[-1], integers[-1]], [x, given], "small"), "InferShape", strict=False)
    for node in graph.nodes:
        if node.is_op:
            unknown = unsettled_input(node, graph)
            yield f"{node.name} {is_settled(node, graph)} {None if unknown is None else unknown.name} {_refusal(node, graph)}"


def held(rng: random.Random) -> Iterator[str]:
    """Which stored integers stay integers for the kernels to come, and what becomes of the others."""
    x = pt.variable("x", "float32", (4, 4))
    scale, point = pt.constant(np.float32(0.5), name="scale"), pt.constant(np.int8(1), name="point")
    numbers = pt.constant(np.arange(16, dtype=np.int8).reshape(4, 4), name="numbers")
    value: Any = x
    outputs: list[Any] = []
    for i in range(rng.randint(1, 3)):
        stored: Any = numbers
        if rng.random() < 0.3:
            whole = rng.choice((pt.constant(np.ones((4, 4), np.float32), name=f"whole{i}"), x))
            stored = pt.op("QuantizeLinear", whole, scale, point, name=f"q{i}")
        weight: Any = pt.op("DequantizeLinear", stored, scale, point, name=f"d{i}", domain=rng.choice(("", "", "", "mine")))
        for turn in range(rng.choice((0, 0, 1, 1, 2))):
            weight = pt.op("Transpose", weight, perm=[1, 0], name=f"t{i}{turn}", domain=rng.choice(("", "", "", "mine")))
        kind = rng.choice(("MatMul", "MatMul", "Gather", "Add", "swapped", "Relu"))
        if kind == "Gather":
            outputs.append(pt.op("Gather", weight, pt.constant(np.array([0, 2])), name=f"gather{i}"))
        elif kind == "swapped":
            value = pt.op("MatMul", weight, value, name=f"swapped{i}")
        elif kind == "Relu":
            outputs.append(pt.op("Relu", weight, name=f"relu{i}"))
        else:
            value = pt.op(kind, value, weight, name=f"op{i}")
        outputs += [weight] if rng.random() < 0.15 else []
    graph = pt.Graph([value, *outputs], [x], "small", {"": 21, "mine": 1})
    kept = hold_weights(graph)
    for one in (kept, release_weights(kept)):
        ops = [f"{node.name}:{node.domain}.{node.op}" for node in one.nodes if node.is_op]
        constants = sorted(node.name for node in one.nodes if node.is_constant)
        yield f"{ops} {constants} {zlib.crc32(str(one).encode()):08x}"


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "implied": implied, "refused": refused, "settled": settled, "held": held,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "nodes", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
