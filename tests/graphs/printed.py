"""Random graphs with everything that a graph can hold, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from partita.graph import Graph, MapType, Node, NodeEntry, OptionalType, SequenceType, SparseTensorType, TensorType
from partita.graph.node import frozen_attrs
from partita.graph.sparse import SparseTensor
from partita.graph.types import numpy_dtype

FIXED = (
    "float16 float32 float64 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn "
    "int4 uint4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"
).split()

OPS = (("Conv", ""), ("Call", "partita"), ("const", ""), ("F x", "a.b"), ("null", ""))

odd_names = st.sampled_from(
    ["a b", 'say "hi"', "/layer/0/Conv", "naïve", "λ", "7", "_", "a.b", "x\ny", "back\\slash", "%", "\u2028"]
    + "const input call name opset metadata graph func inf true".split()
)
texts = st.one_of(st.text(max_size=6), odd_names)
names = st.one_of(st.from_regex(r"[a-z]{1,3}", fullmatch=True), odd_names, st.text(min_size=1, max_size=4))
dims = st.one_of(st.none(), st.integers(0, 2**40), names.filter(lambda name: name != "?"))
shapes = st.one_of(st.none(), st.lists(dims, max_size=3).map(tuple))
tensor_types = st.builds(TensorType, st.sampled_from([*FIXED, "string"]), shapes)
types = st.recursive(
    st.one_of(st.none(), tensor_types, st.builds(SparseTensorType, st.just("float32"), shapes)),
    lambda inner: st.one_of(
        st.builds(SequenceType, inner),
        st.builds(OptionalType, inner),
        st.builds(MapType, st.sampled_from(["int64", "string"]), inner),
    ),
    max_leaves=3,
)


@st.composite
def arrays(draw: Any) -> np.ndarray:
    """An array of any dtype, of 0 to 2 dimensions, with any bits."""
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    count = int(np.prod(shape))
    name = draw(st.sampled_from([*FIXED, "string"]))
    if name == "string":
        outcome = np.empty(count, object)
        outcome[:] = draw(st.lists(st.one_of(texts, st.binary(max_size=3)), min_size=count, max_size=count))
        return outcome.reshape(shape)
    dtype = numpy_dtype(name)
    if name == "bool" or "int" in name:
        low, high = (0, 1) if name == "bool" else (-8, 7) if name == "int4" else (0, 15) if name == "uint4" else (0, 100)
        numbers = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
        return np.array(numbers, np.int64).astype(dtype).reshape(shape)
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if name == "float4_e2m1fn":
        data = bytes(byte & 15 for byte in data)
    return np.frombuffer(data, dtype).copy().reshape(shape)


scalars = st.one_of(
    st.integers(-(2**63), 2**63), st.floats(), st.booleans(), st.none(), texts, st.binary(max_size=4),
    types.filter(lambda t: t is not None),
)
sparse = st.builds(SparseTensor, arrays(), arrays(), st.lists(st.integers(0, 9), max_size=2).map(tuple))
values = st.recursive(
    st.one_of(scalars, arrays(), sparse),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple)),
    max_leaves=4,
)
attributes = st.dictionaries(texts, values, max_size=3)
metadata = st.dictionaries(texts, texts, max_size=2)
opsets = st.dictionaries(st.one_of(st.just(""), names), st.integers(1, 30), min_size=1, max_size=2)
affinities = st.one_of(st.none(), st.sampled_from(["cpu", "cuda:0"]))


@st.composite
def graphs(draw: Any, depth: int = 2, bodies: tuple[Graph, ...] = ()) -> Graph:
    """Variables, constants, ops, calls and ops with bodies, in any order; some nodes dead, some bodies shared."""
    listed: list[Node] = []
    taken: set[str] = set()
    values_taken: set[str] = set()
    known = list(bodies)

    def fresh(i: int) -> str:
        name = draw(names)
        while name in taken:
            name = f"{name}{i}"
        taken.add(name)
        return name

    def result(i: int, node: str) -> str:
        name = draw(st.one_of(st.just(node), names, st.just("")))
        while name and name in values_taken:
            name = f"{name}{i}"
        values_taken.add(name)
        return name

    def entry() -> NodeEntry | None:
        choices = [n for n in listed if n.output_names]
        if not choices:
            return None
        node = draw(st.sampled_from(choices))
        return NodeEntry(node, draw(st.integers(0, len(node.output_names) - 1)))

    for i in range(draw(st.integers(1, 6))):
        name = fresh(i)
        kind = draw(st.sampled_from(["input", "input", "const", "op", "op", "call", "body"]))
        common: dict[str, Any] = {"metadata": draw(metadata), "affinity": draw(affinities)}
        common["attrs"] = frozen_attrs(draw(attributes))
        count = 1 if kind in ("input", "const") else draw(st.integers(0, 3))
        results = tuple(result(i, name) for _ in range(count))
        made_types = draw(st.lists(types, min_size=count, max_size=count).map(tuple))
        inputs = tuple(draw(st.lists(st.builds(entry), max_size=3)))
        if kind == "input":
            node = Node(name, None, (), output_names=results, output_types=made_types, **common)
        elif kind == "const":
            array = draw(arrays())
            own = draw(st.sampled_from([TensorType(_dtype(array), array.shape), None]))
            node = Node(name, "Constant", output_names=results, output_types=(own,), value=array, **common)
        else:
            if kind != "op" and depth:
                if not known or draw(st.booleans()):
                    known.append(draw(graphs(depth=depth - 1, bodies=tuple(known))))
                body = draw(st.sampled_from(known))
                if kind == "call":
                    common["subgraph"] = body
                else:
                    common["attrs"] = frozen_attrs({**common["attrs"], "body": body})
            captures = tuple(e for e in (entry(),) if e is not None and draw(st.booleans()))
            after = tuple(draw(st.lists(st.sampled_from(listed), max_size=1))) if listed else ()
            op, domain = draw(st.sampled_from(OPS))
            node = Node(name, op, inputs, domain=domain, captures=captures, after=after,
                        output_names=results, output_types=made_types, **common)
        listed.append(node)
    choices = [n for n in listed if n.output_names]
    outputs = [e for e in draw(st.lists(st.builds(entry), max_size=3)) if e is not None] if choices else []
    variables = draw(st.permutations([n for n in listed if n.is_variable]))
    out_names = draw(st.lists(st.one_of(texts, names), min_size=len(outputs), max_size=len(outputs), unique=True))
    if draw(st.booleans()) and all(e.name or outputs.count(e) == len(outputs) for e in outputs):
        out_names = [e.name for e in outputs]
    return Graph(
        outputs, variables, draw(names), draw(opsets), output_names=out_names, nodes=listed, metadata=draw(metadata)
    )


def _dtype(array: np.ndarray) -> str:
    return "string" if array.dtype == object else array.dtype.name
