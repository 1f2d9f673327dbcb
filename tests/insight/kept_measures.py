"""Comparisons of drawn arrays, diagnoses as text, searches for planted groups of ops, the roles of values, what an anonymous
subgraph keeps, and what the key of a subgraph depends on.

`python -m tests.insight.kept_measures` writes the file that `test_kept_measures.py` compares with anew."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from rich.console import Console

import partita as pt
from partita.accelerators.arrays.distance import array_distance, scales
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.store.cached_compiling import _change, _other_ops
from partita.accelerators.store.capsules.anonymous import anonymous, indices_like, random_like
from partita.accelerators.store.capsules.value_roles import Indices, roles_of
from partita.accelerators.store.key import graph_digest, make_key
from partita.by_layer import Layer, Side, _numbers_of, _rounded, compare_layers, compare_outputs, layer_of, matched_outputs
from partita.compare import Difference, check_tolerance, compare
from partita.graph.types import Array, numpy_dtype
from partita.insight.cutting import Cutter
from partita.insight.diagnosing import _reason
from partita.insight.diagnosis import Diagnosis, Fault, SubgraphCheck
from partita.insight.searching import first_wrong, search
from partita.insight.trial import RAISES, RIGHT, WRONG, Measure, Trial, _excess, _hides, _kind, _same_bits, _shifted
from tests.accelerators.hetero.small_devices import device
from tests.kept import lines_of, write_kept
from tests.partition.kept_partitions import graph_of

KEPT = Path(__file__).with_name("kept_measures.txt")

COUNTS = {
    "compare": 80, "layer": 150, "told": 30, "search": 160, "roles": 160, "like": 250, "indices": 80, "rounded": 30,
    "key": 12, "change": 12, "entry": 1, "layers": 20, "reduced": 30, "tried": 120,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]

DTYPES = "float32 float32 float32 float16 bfloat16 float8_e4m3fn int8 uint8 int64 bool object complex64".split()


def array_of(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small integers and halves, some of them far, as in a mask, or not finite."""
    random = np.random.default_rng(rng.randrange(10**6))
    wide = random.integers(-8, 9, shape) / (2 if "float" in dtype or dtype == "complex64" else 1)
    if dtype == "object":
        return np.array([f"t{number}" for number in wide.reshape(-1)], object).reshape(shape)
    if rng.random() < 0.3 and "float" in dtype and "8" not in dtype:
        some = random.random(shape) < 0.3
        wide = np.where(some, rng.choice((np.nan, np.inf, -np.inf, -10000.0, 20000.0, -999.0)), wide)
    if dtype == "uint8":
        wide = np.abs(wide)
    with np.errstate(all="ignore"):
        return wide.astype(numpy_dtype(dtype))


def beside(rng: random.Random, array: Array) -> Array:
    """The same, or nearly, or of another size or type."""
    chance = rng.random()
    if chance < 0.2:
        return array.copy()
    if chance < 0.27:
        return array.reshape(-1)
    if chance < 0.32 and array.dtype != object:
        return array.astype(np.float64 if array.dtype != np.complex64 else np.complex128)
    other = array.copy()
    position = rng.randrange(max(1, other.size))
    if other.size:
        flat, old = other.reshape(-1), other.reshape(-1)[position]
        with np.errstate(all="ignore"):
            flat[position] = "other" if other.dtype == object else rng.choice((old + old / 64, old + 1, old * 3 + 1, old))
    return other


def number(value: float) -> str:
    return f"{value:.6g}"


def ops_of(rng: random.Random) -> pt.Graph:
    """A graph with one output that has a type, computed by some kinds of ops."""
    x = pt.variable("x", rng.choice(("float32", "float32", "float16", "bfloat16")), (2, 3))
    y: Any = pt.op("Relu", x, name="relu")
    if rng.random() < 0.2:
        y = pt.op("Cast", pt.op("Cast", y, to="float16", name="narrow"), to="float32", name="wide")
    if rng.random() < 0.2:
        scale, point = pt.constant(np.float32(0.5)), pt.constant(np.uint8(3))
        y = pt.op("Cast", y, to="float32", name="cast")
        y = pt.op("DequantizeLinear", pt.op("QuantizeLinear", y, scale, point, name="q"), scale, point, name="d")
    y = pt.op(rng.choice(("Softmax", "Neg", "Neg")), y, name="last")
    return pt.apply_pass(pt.Graph([y], [x]), "InferShape")


def compared(rng: random.Random) -> Iterator[str]:
    graph, shape = ops_of(rng), rng.choice(((2, 3), (2, 3), (0, 3), ()))
    wanted = array_of(rng, rng.choice(DTYPES), shape)
    ours = beside(rng, wanted)
    if rng.random() < 0.1:
        ours, wanted = [ours, wanted], [wanted, wanted]  # type: ignore[assignment]
    for tolerance, precision, inner in ((None, "f32", False), (None, rng.choice(("f16", "bf16", "fast", "tf32", "f8")), True),
                                        (rng.choice((0, 0.1)), "f32", True), (0.3, "f32", False)):
        with np.errstate(all="ignore"):
            (one,) = compare(graph, [ours], [wanted], tolerance, precision, inner)
        yield f"{one} {json.dumps(one.as_data())}"
    yield f"{matched_outputs(rng.sample('abcd', 3), rng.sample('abcd', rng.randint(1, 4)))}"


def layer(rng: random.Random) -> Iterator[str]:
    wanted = array_of(rng, rng.choice(DTYPES), rng.choice(((2, 3), (7,), (0,), ())))
    ours = beside(rng, wanted)
    with np.errstate(all="ignore"):
        one = layer_of("y", "Relu", True, ours, wanted)
        yield f"{attrs.evolve(one, absolute=0, relative=0, cosine=0)} {number(one.absolute)}"
        yield f"{number(one.relative)} {number(one.cosine)}"
        yield number(array_distance(ours, wanted))
        if wanted.dtype.kind == "f":
            yield str(scales(wanted.astype(np.float64)).tolist())


def some_layer(rng: random.Random, name: str) -> Layer:
    far = rng.choice((0.0, 1e-12, 3e-4, 0.25, 50.0, float("inf")))
    pairs = [rng.choice(((0, 0), (1, 0), (0, 2))) for _ in range(2)]
    return Layer(name, "Relu", rng.random() < 0.3, far * 2, far, 0.75, *pairs, ((-1.5, 2.0), (0.0, 1.0)))


def told(rng: random.Random) -> Iterator[str]:
    """A drawn diagnosis in words, in a table, as a picture and as data."""
    (device,) = parse_devices("reference")
    kinds = (RIGHT, RIGHT, WRONG, RAISES)
    checks = tuple([
        SubgraphCheck(f"s{i}", "reference", i + 1, rng.choice(kinds), 0.5, tuple(some_layer(rng, f"v{i}{j}") for j in range(i)))
        for i in range(rng.randint(1, 3))
    ])
    count = rng.choice((1, 2, 8, 9, 11))
    names = tuple([f"n{i}" for i in range(count)])
    graph = graph_of(random.Random(1))
    fault = Fault(
        "s1", "reference", names, tuple(["Relu"] * count), WRONG, rng.choice(("", "so it is")),
        (some_layer(rng, "v10"),), rng.randint(1, 2), rng.randint(1, 20), graph, (), (), device, {}, rng.choice((None, 0.1)),
    )
    outputs = tuple([
        Difference(f"y{i}", rng.choice((0.0, 5e-4, 0.01, 0.0999, 0.1, 0.11, 3.0, float("inf"))), (0, 1), rng.random() < 0.3, 1e-3)
        for i in range(rng.randint(0, 2))
    ])
    inside = tuple(some_layer(rng, f"inner{i}<{'long' * 12}") for i in range(rng.choice((0, 1, 70))))
    notes = ("first", "second") if rng.random() < 0.5 else ()
    one = Diagnosis("m", "d", "a", outputs, checks, fault if rng.random() < 0.5 else None, inside, notes)
    yield str(one)
    yield f"{one!r} {one.ok} {one.nodes}"
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(one.to_table())
    out.write(json.dumps(one.to_dict()))
    yield f"{len(out.getvalue().splitlines())} {zlib.crc32(out.getvalue().encode()):08x} {zlib.crc32(one.to_svg().encode()):08x}"


class Planted:
    """Trials of a device that is wrong where a group of ops stands together."""

    def __init__(self, graph: pt.Graph, rng: random.Random) -> None:
        self.cutter = Cutter(graph)
        self.tried: dict[tuple[int, ...], Trial] = {}
        self.whole = 0
        count = len(self.cutter.ops)
        start = rng.randrange(count)
        near = [start, *self.cutter.producers[start], *self.cutter.siblings(start)][:4]
        self.group = set(rng.choice((near[:1], near[:2], near[-1:] + near[:1], near, range(max(0, start - 5), start + 1))))
        self.small = rng.choice((0.0, 0.0, rng.uniform(5, 500)))
        self.kind = rng.choice((WRONG, WRONG, RAISES))
        self.apart = rng.random() < 0.8

    def add(self, trial: Trial) -> None:
        self.tried[trial.members] = trial

    def __call__(self, members: Any) -> Trial:
        key = tuple(sorted(members))
        if key not in self.tried:
            bad = self.group <= set(key)
            excess = (self.small / 3 ** len(key) if self.small else 30.0) if bad else 0.3
            self.tried[key] = Trial(key, RIGHT if not bad or (excess <= 1 and self.kind == WRONG) else self.kind, excess)
        return self.tried[key]

    def alone(self) -> list[float]:
        self.whole += 1
        return [2.0 if self.group == {i} else 0.5 for i in range(len(self.cutter.ops))] if self.apart else []


def searched(rng: random.Random) -> Iterator[str]:
    graph = graph_of(rng)
    trials: Any = Planted(graph, rng)
    whole = Trial(tuple(range(len(trials.cutter.ops))), trials.kind, rng.choice((1.3, 2.0, 3.0, 30.0, float("inf"))))
    blamed = search(trials, whole)
    yield f"{sorted(trials.group)} {blamed.trial.members} {blamed.trial.kind} {blamed.tries} {[*trials.tried]}"
    wrong = first_wrong(trials)
    yield f"{None if wrong is None else wrong.members} {trials.whole}"
    cut = trials.cutter.cut(blamed.trial.members)
    yield f"{[entry.name for entry in cut.reads]} {[entry.name for entry in cut.makes]} {zlib.crc32(str(cut.graph).encode()):08x}"
    yield f"{[trials.cutter.siblings(i) for i in range(len(trials.cutter.ops))]}"


OPSETS = {"": 18, "ai.onnx.ml": 4, "mine": 1}

MAKERS: Mapping[str, Callable[[Any, Any, Any], pt.Node]] = {
    "gather": lambda x, value, given: pt.op("Gather", x, given, axis=1),
    "same": lambda x, value, given: pt.op("Identity", given),
    "joined": lambda x, value, given: pt.op("Concat", given, given, axis=0),
    "sum": lambda x, value, given: pt.op("Add", given, given),
    "flat": lambda x, value, given: pt.op("Reshape", value, pt.constant(np.array([-1]))),
    "wide": lambda x, value, given: pt.op("Expand", pt.constant(np.float32(2)), pt.op("Shape", value)),
    "points": lambda x, value, given: pt.op("GatherND", x, pt.constant(np.array([[0, 1], [2, -1]]))),
    "written": lambda x, value, given: pt.op(
        "ScatterND", x, pt.constant(np.array([[1], [3]])), pt.constant(np.ones((2, 5), np.float32))
    ),
    "total": lambda x, value, given: pt.op("ReduceSum", x, pt.constant(np.array([1]))),
    "scaled": lambda x, value, given: pt.op("Mul", value, pt.constant(np.float32(3.5))),
    "own": lambda x, value, given: pt.op("Own", value, pt.constant(np.arange(12)), domain="mine", mode="fast", sizes=[1, 2]),
    "code": lambda x, value, given: pt.op(
        "LabelEncoder", given, domain="ai.onnx.ml", keys_int64s=[4, 7], values_floats=[0.5, 0.25], default_float=-1.5
    ),
    "padded": lambda x, value, given: pt.op("Pad", x, pt.constant(np.array([0, 1, 1, 0])), mode="edge"),
    "words": lambda x, value, given: pt.op(
        "LabelEncoder", pt.op("Cast", given, to="string"), domain="ai.onnx.ml", keys_strings=["a", "b"], values_floats=[0.5, 0.25]
    ),
    "text": lambda x, value, given: pt.op(
        "StringNormalizer", pt.constant(np.array(["ab", "c"], object)), locale="de_DE", stopwords=["c"],
        case_change_action="LOWER",
    ),
    "fused": lambda x, value, given: pt.op("Fused", value, domain="com.microsoft", note="n", alpha=0.5),
    "selu": lambda x, value, given: pt.op("Selu", value, alpha=1.5),
    "norm": lambda x, value, given: pt.op("Normalizer", value, domain="ai.onnx.ml", norm="L1"),
    "scaler": lambda x, value, given: pt.op("Scaler", value, domain="ai.onnx.ml", offset=[1.0, 2.0, 3.0], scale=[0.5]),
    "table": lambda x, value, given: pt.op(
        "LabelEncoder", given, domain="ai.onnx.ml", keys_tensor=np.array([4, 7]), values_tensor=np.array([0.5, 0.25], np.float32),
        default_tensor=np.array([-1.5], np.float32),
    ),
    "filled": lambda x, value, given: pt.op("ConstantOfShape", pt.op("Shape", value), value=np.array([7.5], np.float32)),
    "mine": lambda x, value, given: pt.op(
        "Mine", value, domain="mine", equation="abc", factor=0.5, factors=[0.5, 1.5], table=np.arange(3.0),
        labels=["ab", "", "c"], none=[], raw=b"ab", locale="x", ones=[1, 2], alone=np.array([2.5]),
    ),
    "branch": lambda x, value, given: branches(x, given),
    "of twelve": lambda x, value, given: pt.op("ConstantOfShape", pt.constant(np.ones(12, np.int64))),
    "of more": lambda x, value, given: pt.op("ConstantOfShape", pt.constant(np.ones(14, np.int64))),
    "plainly": lambda x, value, given: pt.op("Gather", x, given),
    "inside": lambda x, value, given: padded_inside(x),
    "batched": lambda x, value, given: pt.op("GatherND", x, pt.constant(np.array([[4], [0], [-1], [3], [2], [2]])), batch_dims=1),
    "last": lambda x, value, given: pt.op("Gather", x, given, axis=-1),
    "elements": lambda x, value, given: pt.op("GatherElements", x, pt.constant(np.array([[0, 3], [5, -2]])), axis=0),
    "einsum": lambda x, value, given: pt.op("Einsum", x, pt.constant(np.ones((5, 2), "f")), equation="pq,qr->pr"),
}
"""Ops that read the model's input, another value or integers."""


def padded_inside(x: Any) -> pt.Node:
    """An If whose branches read how much to pad from outside."""
    def branch(mode: str) -> pt.Graph:
        inner, pads = pt.variable("inner", type=x[0].type), pt.variable("pads", "int64", (4,))
        return pt.Graph([pt.op("Pad", inner, pads, mode=mode, name=f"pad_{mode}")], [inner, pads], mode, OPSETS)

    node = pt.op("If", pt.constant(np.array(True)), then_branch=branch("edge"), else_branch=branch("constant"))
    return node.evolve(captures=(x[0], pt.constant(np.array([0, 1, 0, 2]))[0]))


def branches(x: Any, given: Any) -> pt.Node:
    """An If whose branches gather from what is outside."""
    def branch(axis: int) -> pt.Graph:
        inner, ids = pt.variable("inner", type=x[0].type), pt.variable("inner_ids", type=given[0].type)
        return pt.Graph([pt.op("Gather", inner, ids, axis=axis, name=f"along{axis}")], [inner, ids], f"branch{axis}", OPSETS)

    node = pt.op("If", pt.constant(np.array(True)), then_branch=branch(0), else_branch=branch(1))
    return node.evolve(captures=(x[0], given[0]))


def indexed(rng: random.Random) -> pt.Graph:
    """A graph in which sizes, indices and parameters are computed, given, or constants."""
    height = rng.choice((6, "n"))
    x, ids = pt.variable("x", "float32", (height, 5)), pt.variable("ids", "int64", (3,))
    values: list[Any] = [x]
    integers: list[Any] = [ids, pt.constant(np.array([2, 0, 1])), pt.constant(np.array([1, 1, 4, 9, 2, 3, 3, 3, 3]))]
    for _ in range(rng.randint(3, 9)):
        value, given = rng.choice(values), rng.choice(integers)
        kind = rng.choice([*MAKERS])
        made = MAKERS[kind](x, value, given)
        (integers if kind in ("same", "joined", "sum") else values).append(made)
    return pt.Graph(values[-3:] + integers[-1:], [x, ids], "secret", OPSETS)


def plain(value: Any) -> Any:
    """The value of an attribute, with rounded numbers."""
    if isinstance(value, pt.Graph):
        return [node.name for node in value.nodes]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(one) for one in value]
    return round(float(value), 3) if isinstance(value, (float, np.floating)) else value


def roles(rng: random.Random) -> Iterator[str]:
    graph = pt.apply_pass(indexed(rng), "InferShape", strict=False)
    found = roles_of(graph)
    yield f"{sorted(e.name for e in found.deciding)} {sorted(e.name for e in found.parameters)}"
    bounds = {entry.name: (one.sizes, one.are_written) for entry, one in found.bounds.items()}
    yield str(dict(sorted(bounds.items())))
    inputs = (np.ones((6, 5), np.float32), np.array([2, 0, 1]))
    hidden = anonymous(graph, inputs, seed=1, keep=rng.choice(((), ("mode",))))
    yield from hidden.stays
    kept = {node.name: node.attrs for node in graph.nodes if node.is_op}.values()
    attributes = [
        {key: plain(value) if key in old else key for key, value in node.attrs.items()}
        for node, old in zip([node for node in hidden.graph.nodes if node.is_op], kept, strict=True)
    ]
    outputs = hidden.graph.output_names
    yield f"{[node.name for node in hidden.graph.nodes]} {outputs} {hidden.graph.name} {hidden.graph.opsets} {attributes}"
    before = [node for node in graph.nodes if node.value is not None]
    after = [node for node in hidden.graph.nodes if node.value is not None]
    yield f"{[(one.value.dtype.name, one.value.shape) for one in after]}"
    yield f"{[bool(np.array_equal(a.value, b.value)) for a, b in zip(before, after, strict=True)]}"
    yield f"{[array.shape for array in hidden.inputs]} {bool((hidden.inputs[1] == inputs[1]).all())}"


def rounded(rng: random.Random) -> Iterator[str]:
    """The values that are read through quantizers alone, and those that two models have in common."""
    x = pt.variable("x", "float32", (2, 3))
    scale, point = pt.constant(np.float32(0.5)), pt.constant(np.uint8(3))
    values: list[Any] = [pt.op("Relu", x, name="relu")]
    outputs: list[Any] = []
    for i in range(rng.randint(2, 5)):
        value = rng.choice(values)
        chance = rng.random()
        if chance < 0.7:
            q = pt.op("QuantizeLinear", value, scale, point, name=f"q{i}")
            values.append(pt.op("DequantizeLinear", q, scale, point, name=f"d{i}"))
            outputs += [q] if rng.random() < 0.2 else []
            outputs += [pt.op("DequantizeLinear", q, scale, point, name=f"e{i}")] if rng.random() < 0.2 else []
            outputs += [pt.op("Cast", q, to="int32", name=f"c{i}")] if rng.random() < 0.2 else []
        else:
            values.append(pt.op(rng.choice(("Neg", "Abs")), value, name=f"n{i}"))
    graph = pt.apply_pass(pt.Graph([values[-1], *outputs], [x]), "InferShape")
    yield f"{sorted((entry.name, value.name) for entry, value in _rounded(graph).items())} {[*_numbers_of(graph)]}"


def layers(rng: random.Random) -> Iterator[str]:
    """The values that two drawn models have in common, layer by layer."""
    def model(factor: float, seed: int) -> pt.Graph:
        mine = random.Random(seed)
        x = pt.variable("x", "float32", (2, 3))
        scale, point = pt.constant(np.float32(0.5), name="scale"), pt.constant(np.uint8(3), name="point")
        value: Any = pt.op("Mul", x, pt.constant(np.float32(factor), name="factor"), name="scaled")
        for i in range(3):
            if mine.random() < 0.4:
                q = pt.op("QuantizeLinear", value, scale, point, name=f"q{i}")
                value = pt.op("DequantizeLinear", q, scale, point, name=f"d{i}")
            value = pt.op(mine.choice(("Relu", "Neg", "Abs")), value, name=f"n{i}")
        return pt.Graph([value, pt.op("Neg", value, name="last")], [x], "m", output_names=["y", mine.choice(("z", "w"))])

    first = model(1.0, rng.randrange(9))
    sides = [Side(first, "reference"), Side(model(rng.choice((1.0, 1.25)), rng.randrange(9)), "reference")]
    array = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    for one in compare_layers(*sides, {"x": array}):
        yield f"{one.name} {one.op} {one.is_output} {number(one.absolute)} {number(one.relative)} {one.types}"
    models = [pt.compile(side.graph, "reference") for side in sides]
    yield f"{[(one.name, one.op, number(one.absolute)) for one in compare_outputs(*models, {'x': array})]}"


def reduced(rng: random.Random) -> Iterator[str]:
    """What is left of a drawn graph that fails where some ops stand together, or where a size is large."""
    graph = graph_of(rng)
    names = [node.name for node in graph.nodes if node.is_op]
    bad, least, tried = set(rng.sample(names, min(2, rng.randint(1, len(names))))), rng.choice((1, 1, 3)), list[int]()

    def fails(part: pt.Graph, arrays: Any) -> bool:
        held = {node.name for node in part.nodes if node.is_op}
        tried.append(len(held))
        return bad <= held and all(array.shape[0] >= least for array in arrays.values())

    most, repeats = rng.choice((100, 100, 5)), rng.choice((1, 2))
    found = pt.reduce(graph, None, fails, shapes=rng.random() < 0.3, most=most, repeats=repeats, seed=1)
    yield f"{sorted(bad)} {least} {most} {repeats} {tried}"
    yield f"{found} {found!r} {found.tries} {found.ops}"


def tried(rng: random.Random) -> Iterator[str]:
    """What the outputs of a part say of it: right, or wrong in some way, and for a known reason."""
    graph, count = ops_of(rng), rng.choice((3, 40))
    wanted = array_of(rng, rng.choice(DTYPES[:9]), (count,))
    ours = beside(rng, wanted)
    if rng.random() < 0.2 and wanted.dtype.kind in "iu":
        ours = wanted + np.array(np.arange(count) % 9 == 0, wanted.dtype)
    measure = Measure(rng.choice((None, 0.05, 0)), rng.choice(("f32", "f16")))
    with np.errstate(all="ignore"):
        differences = compare(graph, [ours], [wanted], measure.tolerance, measure.precision, inner=True)
        excess = _excess(differences[0])
        yield f"{number(excess)} {number(_shifted(ours, wanted))} {_hides(graph, differences, [wanted], measure)}"
        kind = _kind([ours], [wanted], excess) if wanted.dtype != object and ours.shape == wanted.shape else WRONG
        trial = Trial(tuple(range(rng.choice((1, 8, 9)))), kind, excess)
        large = [wanted.astype(np.float32) * rng.choice((1, 5000))] if wanted.dtype != object else []
        yield f"{kind} {_reason(trial, large, rng.choice(({}, {'PRECISION': 'f16'}, {'PRECISION': 'bf16'})))}"
        pairs: list[Any] = [(ours, wanted), ([ours], [wanted]), ([ours], ours), ("a", "a"), ([ours], [ours] * 2)]
        yield f"{[_same_bits([a], [b]) for a, b in pairs]}"


def like(rng: random.Random) -> Iterator[str]:
    """What other elements have in common with those of an array; their own values are numpy's to choose."""
    dtype = rng.choice("float32 float64 float16 bfloat16 int8 uint8 int32 int64 uint16 bool complex64".split())
    shape = rng.choice(((1,), (40,), (5, 8), (8, 1), (0, 3), ()))
    random = np.random.default_rng(rng.randrange(10**6))
    spread = rng.choice((1, 2, 2, 3, 100))
    wide = random.integers(0, spread, shape) + rng.choice((0, 0, 7, 90, -7, -90) if not dtype.startswith("u") else (0, 7, 90))
    if rng.random() < 0.3 and shape == (40,):
        wide = random.permutation(40) * 2 if rng.random() < 0.5 else np.sort(wide)
    if "float" in dtype and rng.random() < 0.3 and wide.size:
        wide = np.where(random.random(shape) < 0.2, rng.choice((np.nan, np.inf, -np.inf)), wide)
    with np.errstate(all="ignore"):
        array = np.asarray(wide).astype(numpy_dtype(dtype))
        drawn = np.asarray(random_like(array, random))
        old, new = (np.asarray(each).astype(np.complex128 if dtype == "complex64" else np.float64) for each in (array, drawn))
    some = np.isfinite(old)
    inside = not some.any() or dtype == "complex64" or bool(
        (new[some] >= old[some].min() - 0.25 * abs(old[some].min())).all() and (new[some] <= old[some].max()).all()
    )
    facts = {
        "kind": (drawn.dtype.name, drawn.shape), "inside": inside, "same": bool(np.array_equal(old, new, equal_nan=True)),
        "lost": bool((np.isfinite(old) == np.isfinite(new)).all()), "sum": bool(new.sum() == old.sum()),
        "sorted": bool((np.diff(new.real.reshape(-1)) >= 0).all()), "distinct": len(np.unique(new)) == new.size,
        "few": len(np.unique(new)) <= 2, "whole": bool((new[some] == np.rint(new[some].real)).all()),
    }
    yield f"{dtype} {shape} {spread} {facts} {np.round(new.reshape(-1)[:6], 2).tolist()}"


def indices(rng: random.Random) -> Iterator[str]:
    """What other indices have in common with those that were."""
    random = np.random.default_rng(rng.randrange(10**6))
    sizes = rng.choice(((None,), (5,), (9,), (4, 7), (0,), (3, None)))
    count = rng.choice((0, 3, 8))
    columns = [random.integers(-(size or 4), (size or 4) + rng.choice((0, 0, 3)), count) for size in sizes]
    array = np.stack(columns, -1) if len(sizes) > 1 else columns[0]
    if rng.random() < 0.3 and len(sizes) == 1:
        array = np.sort(array)
    drawn = indices_like(array, Indices(sizes, rng.random() < 0.5), random)
    old, new = (each.reshape(-1, len(sizes)) for each in (array, drawn))
    facts = [
        (bool(((a < 0) == (b < 0)).all()), bool(((a >= end) == (b >= end)).all()), bool(((a < -end) == (b < -end)).all()),
         len(np.unique(a)) == len(np.unique(b)))
        for a, b, end in zip(old.T, new.T, [size or 99 for size in sizes], strict=True)
    ]
    yield str(drawn.tolist())
    ordered = bool((np.diff(drawn.reshape(-1)) >= 0).all())
    yield f"{sizes} {count} {drawn.shape} {facts} {ordered if len(sizes) == 1 else ''}"


def key(rng: random.Random) -> Iterator[str]:
    """The parts of a subgraph's digest that differ from those of a variation."""
    graph = indexed(rng)
    first = graph_digest(graph)

    def changed(change: Callable[[pt.Node], Mapping[str, Any]]) -> pt.Graph:
        from partita.graph.rewrite import with_changes

        return with_changes(graph, change)

    large = np.arange(1024, dtype=np.float32)
    more = [pt.Graph([*graph.outputs, pt.op("Neg", pt.constant(array))[0]], graph.inputs, "secret", graph.opsets) for array in
            (large[:255], large[:255] + 1, large[:256], large[:256] + 1, large[:256].reshape(16, 16), large[:256].astype("i4"))]
    variations = {
        "names": graph.evolve(name="other", output_names=[f"o{i}" for i in range(len(graph.outputs))]),
        "op names": changed(lambda node: {"name": f"{node.name}_x"}), "opset": graph.evolve(opsets={**graph.opsets, "": 19}),
        "outputs": graph.evolve(outputs=graph.outputs[::-1]),
        "fewer": graph.evolve(outputs=graph.outputs[:1], output_names=["o"]),
        "attributes": changed(lambda node: {"attrs": {**node.attrs, "axis": 1}} if "axis" in node.attrs else {}),
        "types": pt.apply_pass(graph, "InferShape", strict=False),
        **{f"more {i}": one for i, one in enumerate(more)},
    }
    digests = {name: graph_digest(one) for name, one in variations.items()}
    for name, one in digests.items():
        yield f"{name}: {[f.name for f in attrs.fields(type(first)) if getattr(first, f.name) != getattr(one, f.name)]}"
    for i in range(1, len(more)):
        a, b = digests[f"more {i - 1}"], digests[f"more {i}"]
        yield f"{i}: {[f.name for f in attrs.fields(type(first)) if getattr(a, f.name) != getattr(b, f.name)]}"


def entry(rng: random.Random) -> Iterator[str]:
    """What the key of an entry of the cache depends on, and tolerances that make no sense."""
    graph = graph_of(random.Random(3))
    with device("alpha") as alpha:
        plain_config = alpha.full_config({})
        first = make_key(alpha, graph, plain_config)
        library = first.versions.partition("Partita ")[0]
        yield f"{first.device} | {first.options} | {first.target} | {library} | {len(first.digest)}"
        changes = {"LEVEL": 2, "CACHE_DIR": "x", "DEVICE_ID": "1", "ISOLATE": True, "ISOLATE_SECONDS": 3.0, "PERF_COUNT": True,
                   "PROGRESS": len, "OTHER": np.arange(2000)}
        for name, value in changes.items():
            other = make_key(alpha, graph, {**plain_config, name: value})
            yield f"{name}: {first.differences(other)} {first.digest == other.digest} {len(other.options)}"
        yield str(first.differences(make_key(alpha, graph_of(random.Random(4)), plain_config)))
    for tolerance in (None, 0, 0.5, -0.1, True, float("inf"), float("nan"), "x", np.float32(0.1)):
        try:
            yield f"{tolerance!r}: {check_tolerance(tolerance, 'here')}"  # type: ignore[arg-type,func-returns-value]
        except pt.PartitaError as error:
            yield f"{tolerance!r}: {error}"


def change(rng: random.Random) -> Iterator[str]:
    """Why something is compiled again, in words."""
    before, now = (Counter(rng.choices(("Relu", "Add", "Conv"), k=rng.randint(0, 4))) for _ in range(2))
    yield _other_ops(before, now)
    words = {"target": ("llvm", "features +a +b", "features +b +c", "lanes 8"), "options": ("A=1", "B=2", "B=3"),
             "versions": ("tvm 1", "tvm 2", "Partita ab"), "shapes": ("(float32[2])", "(float32[3])")}
    for part, each in words.items():
        glue = {"target": "; ", "options": " ", "versions": ", "}.get(part, "\n")
        one, other = (glue.join(rng.sample(each, rng.randint(1, 2))) for _ in range(2))
        yield _change(part, one, other)


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "compare": compared, "layer": layer, "told": told, "search": searched, "roles": roles, "like": like, "rounded": rounded,
    "indices": indices,
    "key": key, "change": change, "entry": entry, "layers": layers,
    "reduced": reduced, "tried": tried,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "measures", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
