"""Parameter files, large files and damaged ones; ops that users declare; batch norms that are folded, opsets that are converted;
encoders and trees; weights that are drawn for a model; and sums of products.

`python -m tests.graph.kept_readers` writes the file that `test_kept_readers.py` compares with anew."""

from __future__ import annotations

import io
import random
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from onnx import TensorProto, helper, version_converter

import partita as pt
from partita.graph.attributes import converted as converted_value
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.ops.custom import register_op, unregister_op
from partita.graph.ops.schemas import AttrSpec
from partita.graph.readers import zoo
from partita.graph.readers.mxnet.params import V1, V2, V3, read_params
from partita.graph.readers.onnx import large
from partita.graph.types import BY_MXNET_NUMBER
from partita.passes import convert_opset
from partita.passes.decompose import decomposed, einsum
from partita.passes.version_converter import Refused
from tests.graphs.kept_graphs import text_sum
from tests.kept import lines_of, told, write_kept

KEPT = Path(__file__).with_name("kept_readers.txt")

COUNTS = {"params": 60, "large": 30, "own": 50, "folded": 100, "converted": 60, "learned": 80, "drawn": 12, "summed": 60,
          "attributes": 40, "nodes": 40}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


def shown(array: Any) -> str:
    """An array with few digits."""
    if not isinstance(array, np.ndarray):
        return str(array)
    flat = array.reshape(-1)[:6].tolist()
    return f"{array.dtype}{list(array.shape)}{[float(f'{one:.3g}') if isinstance(one, float) else one for one in flat]}"


# -- files ---------------------------------------------------------------------------------------------

def array_bytes(rng: random.Random, odd: float) -> bytes:
    """One array as MXNet writes it, sometimes in a way that is refused."""
    magic = rng.choice((V1, V2, V2, V3, 1, 2))
    flag = rng.choice(sorted(BY_MXNET_NUMBER)) if rng.random() > odd else rng.choice((99, -1, 13))
    dims = [rng.choice((1, 2, 3)) for _ in range(rng.choice((1, 2)))] if magic > 32 else [2] * magic
    if rng.random() < odd:
        dims = rng.choice(([], [0, 2], [-1, 2], [2**40, 2**30], [1] * 33))
    data = b""
    if magic in (V2, V3):
        data += struct.pack("<i", 0 if rng.random() > odd else rng.choice((-1, 1, 2, 7)))
    modern = magic > 32
    data = struct.pack("<I", magic if modern else len(dims)) + data
    if modern:
        data += struct.pack("<i", len(dims) if rng.random() > odd / 2 else rng.choice((-1, 33)))
    data += struct.pack(f"<{len(dims)}{'q' if modern else 'I'}", *[dim if modern else abs(dim) % 2**32 for dim in dims])
    data += struct.pack("<iii", 1, 0, flag)
    width = {"float64": 8, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "uint8": 1, "int8": 1,
             "bool": 1}.get(BY_MXNET_NUMBER.get(flag, ""), 4)
    count = int(np.prod([max(dim, 0) for dim in dims], dtype=object)) if all(dim < 9 for dim in dims) else 1
    return data + bytes(i % 3 for i in range(count * width))


def params(rng: random.Random) -> Iterator[str]:
    """Parameters as they are read, whole, cut off and changed."""
    for odd in (0.0, 0.0, 0.25, 0.25):
        count = rng.randint(1, 2)
        names = [rng.choice(("arg:w", "aux:w", "w", "arg:b", "b")).encode() for _ in range(count)]
        arrays = b"".join(array_bytes(rng, odd) for _ in range(count))
        listed = len(names) if rng.random() > odd / 2 else rng.choice((0, 1, 3, 2**50))
        data = struct.pack("<QQQ", 0x112, 0, count) + arrays + struct.pack("<Q", listed)
        data += b"".join(struct.pack("<Q", len(name)) + name for name in names)
        if rng.random() < odd / 2:
            data += rng.choice((b"x", b"\xff" * 8))
        yield told(lambda content: {name: shown(array) for name, array in read_params(content).items()}, data)
        at = rng.randrange(len(data))
        yield f"{at} {told(read_params, data[:at])[:200]}"
        changed = data[:at] + bytes([data[at] ^ rng.choice((1, 128))]) + data[at + 1 :]
        yield told(lambda content: sorted(read_params(content)), changed)[:200]
    values: tuple[Any, ...] = (np.ones(2), [1, 2], "text", [["a"]], None, np.array([object()]), 3)
    given = {rng.choice(("arg:a", "a")): rng.choice(values)}
    yield told(lambda: {name: shown(array) for name, array in read_params(given).items()})
    yield told(read_params, {rng.choice((3, "a")): rng.choice(values)})[:160]
    yield told(read_params, {"arg:a": np.ones(1), "aux:a": np.ones(1)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.params"
        path.write_bytes(rng.choice((b"", data)))
        yield told(lambda: sorted(read_params(path))).replace(folder, "")[:200]
        yield told(read_params, Path(folder) / "none").replace(folder, "")
    yield told(read_params, 3)


def in_parts(rng: random.Random) -> Iterator[str]:
    """A file whose large tensors are read apart, and the same file damaged."""
    sizes = [rng.choice((16, 63, 64, 65, 66, 200)) for _ in range(rng.randint(1, 3))]
    weights = [helper.make_tensor(f"w{i}", TensorProto.UINT8, [size], bytes(size), raw=True) for i, size in enumerate(sizes)]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [], weights)
    data = helper.make_model(graph).SerializeToString()

    def read(content: bytes) -> str:
        file = io.BytesIO(content)
        parts = large.read_parts(file)
        if parts is None:
            return f"None {file.tell()}"
        return f"{zlib.crc32(parts.rest):08x} {[(i, one.size, bool(one.any())) for i, one in parts.data.items()]}"

    with mock.patch.object(large, "LARGE", 64), mock.patch.object(large, "WORTH", rng.choice((10, len(data), len(data) + 1))):
        yield f"{sizes} {len(data)} {read(data)}"
        yield f"{read(data + data)} {read(b'')}"
        yield "".join("N" if read(data[:end]).startswith("None") else "." for end in range(len(data) + 1))
        yield "".join("N" if read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]).startswith("None") else "."
                      for at in range(len(data)))
        fixed = b"\x31" + bytes(8), b"\x35" + bytes(4), b"\x3d" + bytes(3)
        for more in (*fixed, b"\x33", b"\x30\xff\x01", b"\x30" + b"\xff" * 10):
            yield read(data + more)


# -- ops of users --------------------------------------------------------------------------------------

def _mine(many: int, **attributes: Any) -> str:
    """The attributes of a node of the op that is declared."""
    return str(pt.op("Mine", *[pt.variable("x", "float32", (2,))] * many, domain="drawn", **attributes).attrs)


def own(rng: random.Random) -> Iterator[str]:
    """Declarations of ops, and nodes of them."""
    counts: tuple[Any, ...] = (1, 1, 0, 2, (1, 3), (0, 2), [1, 2], (2, 1), -1, True, "x", (1,), None)
    attributes: tuple[Any, ...] = (
        {}, None, {"beta": 1.0}, {"count": 3}, {"on": True}, {"name": "x"}, {"sizes": [1, 2]}, {"none": []}, {"text": ["a"]},
        {"required": int}, {"floats": (0.5,)}, {"odd": [object()]}, {"array": np.ones(2)}, [1], {3: 4}, {"kind": float},
    )
    for _ in range(5):
        options: dict[str, Any] = {"inputs": rng.choice(counts[:7] * 2 + counts), "outputs": rng.choice(counts[:2] * 4 + counts)}
        options["attributes"] = rng.choice(attributes)
        if rng.random() < 0.3:
            options |= rng.choice(({"random": True}, {"random": 1}, {"traits": ["unary"]}, {"traits": "random"}, {"traits": 3},
                                   {"traits": [3]}, {"shape": 3}, {"numpy": len}, {"traits": ("nothing",)}))
        wrong: tuple[Any, ...] = (("", "drawn"), ("Mine", ""), ("Mine", "ai.onnx"), (3, "drawn"), ("Mine", 3))
        name, domain = rng.choice((("Mine", "drawn"),) * 6 + wrong)
        try:
            spec = register_op(name, domain, **options).spec
        except pt.PartitaError as error:
            yield f"{type(error).__name__}: {error}".partition(" object at")[0]
        else:
            yield f"{spec.inputs} {spec.min_inputs} {spec.max_inputs} {spec.min_outputs} {spec.max_outputs} {spec.random}"[:300]
            yield f"{[(one.name, one.kind, one.required, one.default) for one in spec.attributes.values()]}"
            for count in range(3):
                yield told(_mine, count)[:200]
            yield told(_mine, 1, beta=2.0, count=4, sizes=[1])[:200]
            unregister_op(name, domain)
        yield told(unregister_op, name, domain)


# -- passes --------------------------------------------------------------------------------------------

def folded(rng: random.Random) -> Iterator[str]:
    """An op with a batch norm behind it, folded where that is the same."""
    random = np.random.default_rng(rng.randrange(10**6))
    channels = rng.choice((2, 4))

    def constant(*shape: int, dtype: str = "float32") -> Any:
        if rng.random() < 0.03:
            return pt.variable(f"v{rng.randrange(99)}", dtype, shape)
        return pt.constant((random.integers(1, 9, shape) / 4).astype(dtype))

    kind = rng.choice(("Conv", "Conv", "ConvTranspose", "Gemm", "MatMul", "Add"))
    options: dict[str, Any] = {}
    x = pt.variable("x", "float32", (2, 4) if kind in ("Gemm", "MatMul", "Add") else (1, 4, 5, 5))
    if kind == "Conv":
        options["group"] = group = rng.choice((1, 1, 2))
        inputs = [x, constant(channels, 4 // group, 3, 3)]
    elif kind == "ConvTranspose":
        options["group"] = group = rng.choice((1, 2))
        inputs = [x, constant(4, channels // group, 3, 3)]
    elif kind == "Add":
        inputs, channels = [x, constant(4)], 4
    else:
        if kind == "Gemm" and rng.random() < 0.5:
            options = {"transB": 1, "beta": rng.choice((1.0, 0.5))}
        inputs = [x, constant(channels, 4) if options.get("transB") else constant(4, channels)]
    if kind in ("Conv", "ConvTranspose", "Gemm") and rng.random() < 0.5:
        inputs.append(constant(rng.choice((channels, channels, 1)) if kind == "Gemm" else channels))
    made = pt.op(kind, *inputs, name="op", **options)
    parts = [constant(channels) for _ in range(4)]
    if rng.random() < 0.1:
        parts[3] = pt.constant(np.full(channels, rng.choice((0.0, -1.0, 1e-40)), np.float32))
    epsilon = rng.choice(({}, {"epsilon": 0.5}, {"epsilon": 0.0}, {"momentum": 0.5}))
    norm = pt.op("BatchNormalization", made, *parts, name="norm", **epsilon)
    if rng.random() < 0.1:
        norm = norm.evolve(attrs={**norm.attrs, **rng.choice(({"training_mode": 1}, {"spatial": 0}, {"is_test": 1}))})
    if rng.random() < 0.05:
        made.affinity = "elsewhere"
    outputs = [pt.op("Relu", norm, name="y")] + [made] * (rng.random() < 0.1)
    if rng.random() < 0.1:
        outputs.append(pt.op("Neg", made, name="z"))
    version = rng.choice((17, 17, 17, 15, 9, 6))
    graph = pt.apply_pass(pt.Graph(outputs, name="net", opsets={"": version}), "InferShape", verify=False, strict=False)
    for scale in (True, False):
        found = pt.apply_pass(graph, "FoldBatchNorm", verify=False, scale_weights=scale)
        kinds = [f"{node.op}({', '.join(map(str, node.attrs.items()))})" for node in found.nodes if node.is_op]
        yield f"{version} {kind} {options} {epsilon} {kinds}"
        yield str([shown(node.value) for node in found.nodes if node.value is not None and node not in graph.nodes])
        yield text_sum(found)


def converted(rng: random.Random) -> Iterator[str]:
    """Small graphs in other opsets."""
    x, flag = pt.variable("x", "float32", (2, 3)), pt.variable("flag", "bool", ())
    old, new = rng.choice((7, 9, 11, 12, 13, 17, 21)), rng.choice((7, 9, 11, 12, 13, 17, 21, 0, 99, True))
    chance = rng.random()
    if chance < 0.2:
        y: Any = pt.op("Softmax", x, axis=rng.choice((0, 1, -1)), opset=old, name="soft")
    elif chance < 0.35 and old < 12:
        y = pt.op("Dropout", x, ratio=0.5, n_outputs=2, opset=old, name="drop")
    elif chance < 0.5:
        y = pt.op("If", flag, then_branch=branch("Neg", x), else_branch=branch("Exp", x), name="if").evolve(captures=(x[0], x[0]))
    elif chance < 0.6:
        y = pt.op("Own", x, domain="mine", name="own")
    else:
        y = pt.op(rng.choice(("Relu", "Sigmoid", "Neg")), x, name="one", opset=old)
    last = pt.op("Add", y, pt.constant(np.ones(3, np.float32), name="k"), name="sum", opset=old)
    if isinstance(y, pt.Node) and rng.random() < 0.3:
        last.affinity = "somewhere"
    outputs = [last] + ([y[1]] if len(y.output_names) > 1 and rng.random() < 0.5 else [])
    graph = pt.Graph(outputs, [x, flag], "net", opsets={"": old, **({"mine": 1} if y.domain else {})})
    if rng.random() < 0.05:
        graph = graph.evolve(opsets={"mine": 1})

    def convert(model: Any, opset: int) -> Any:
        try:
            return version_converter.convert_version(model, opset)
        except Exception as error:
            raise Refused(str(error)) from error

    with mock.patch.object(convert_opset, "convert_version", convert):
        found = told(lambda: str(pt.apply_pass(graph, "ConvertOpset", verify=False, opset=new)))
    if "cannot convert" in found or "knows" in found:  # what follows are words and numbers of the onnx package's version
        found = re.sub(r"(to [0-9]+: |knows 1 to ).*", "", found, flags=re.DOTALL)
    yield f"{old} {new} {y.op}: {found[:700]}"


def branch(op: str, x: Any) -> Graph:
    inner = pt.variable("inner", type=x[0].type)
    return pt.Graph([pt.op(op, inner, name=op.lower())], [inner], op)


# -- meanings ------------------------------------------------------------------------------------------

def learned(rng: random.Random) -> Iterator[str]:
    """Encoders, vectorizers and classifiers of ai.onnx.ml."""
    def ask(op: str, *arrays: Any, version: int = 4, outputs: int = 1, domain: str = "ai.onnx.ml", **attributes: Any) -> str:
        entries = [pt.variable(f"x{i}", type=None) for i in range(len(arrays))]
        node = pt.Node("node", op, tuple(entry[0] for entry in entries), attributes, tuple(f"y{i}" for i in range(outputs)),
                       (None,) * outputs, domain)
        return told(lambda: [shown(one) for one in evaluate_node(node, list(arrays), {"": 17, domain: version or 17})])[:300]

    texts, numbers = np.array(rng.choices(("a", "b", "c"), k=4), object), np.array(rng.choices((1, 2, 3), k=4))
    floats = np.array(rng.choices((0.5, 1.5, np.nan, 0.1), k=4), np.float32)
    kind = rng.choice(("labels", "labels", "tensors", "classes", "rows", "zip", "linear", "trees", "ngrams"))
    if kind == "labels":
        keys: Any = rng.choice((
            {"keys_strings": ["a", "b", "a"]}, {"keys_int64s": [1, 2, 1]}, {"keys_floats": [0.5, float("nan"), 0.1]},
        ))
        values = rng.choice(({"values_strings": ["p", "q", "r"]}, {"values_int64s": [7, 8, 9]},
                             {"values_floats": [0.5, 0.25, 2.0]}, {}, {"values_floats": [0.5]}))
        x = texts if "keys_strings" in keys else numbers if "keys_int64s" in keys else floats
        more = rng.choice(({}, {"default_string": "?"}, {"default_int64": -3}, {"default_float": -2.5}))
        yield f"{keys} {values} {more} " + ask("LabelEncoder", x.reshape(rng.choice(((4,), (2, 2)))), **keys, **values, **more)
    elif kind == "tensors":
        made = {"keys_tensor": np.array([1, 2]), "values_tensor": np.array(rng.choice(([7, 8], [0.5, 1.5])))}
        if rng.random() < 0.5:
            made["default_tensor"] = np.array(rng.choice(([-1], [])), made["values_tensor"].dtype)
        yield f"{made} " + ask("LabelEncoder", numbers, **made)
    elif kind == "classes":
        yield ask("LabelEncoder", rng.choice((texts, numbers)), version=1, classes_strings=["a", "b"], default_int64=-5,
                  default_string="none")
    elif kind == "rows":
        shapes = [rng.choice(((2, 3), (2, 2), (2, 1, 2), (2,))) for _ in range(rng.randint(1, 2))]
        lengths = [rng.choice((1, 2, 4)) for _ in shapes]
        arrays = [np.arange(float(np.prod(shape))).reshape(shape) for shape in shapes]
        yield f"{shapes} {lengths} " + ask("FeatureVectorizer", *arrays, **rng.choice(({}, {"inputdimensions": lengths})))
    elif kind == "zip":
        x = np.arange(float(rng.choice((2, 3, 4)))).reshape(rng.choice(((-1,), (1, -1))))
        yield ask("ZipMap", x, **rng.choice(({"classlabels_strings": ["a", "b"]}, {"classlabels_int64s": [1, 2, 3]})))
    elif kind == "linear":
        more = {"classlabels_ints": [0, 1, 2], "intercepts": [0.5, 0.25, -1.0], "multi_class": rng.choice((0, 1))}
        given = [float(i) / 4 for i in range(rng.choice((6, 6, 8)))]
        post = rng.choice(("NONE", "SOFTMAX", "LOGISTIC"))
        yield ask("LinearClassifier", np.array([[1.0, 2.0]], np.float32), version=1, outputs=2, coefficients=given,
                  post_transform=post, **more)
    elif kind == "trees":
        width = rng.choice((np.float32, np.float64))
        nodes = {"nodes_nodeids": [0, 1, 2], "nodes_treeids": [0, 0, 0], "nodes_featureids": [0, 0, 0],
                 "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
                 "target_ids": [0, 0], "target_nodeids": [1, 2], "target_treeids": [0, 0], "n_targets": 1}
        tensors = {"nodes_values": [0.5, 0.0, 0.0], "target_weights": [1.5, -2.0]}
        given_as: dict[str, Any] = {f"{name}_as_tensor": np.array(value, width) for name, value in tensors.items()}
        if rng.random() < 0.4:
            given_as["nodes_hitrates_as_tensor"] = np.ones(3, width)
        yield ask("TreeEnsembleRegressor", np.array([[0.25], [0.75]], width), version=3, **nodes, **given_as)
    else:
        more = {"min_gram_length": rng.choice((0, 1, 2)), "max_gram_length": 2, "max_skip_count": rng.choice((0, 1, 2**40)),
                "mode": "TF", "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 3]}
        yield ask("TfIdfVectorizer", rng.choice((numbers, numbers.reshape(2, 2))), version=0, domain="", **more)


def drawn(rng: random.Random) -> Iterator[str]:
    """The weights that a light model gets."""
    x = pt.variable("x", "float32", (1, 3, 6, 6))

    def filled(name: str, *shape: int) -> Any:
        if rng.random() < 0.5:
            return pt.constant(np.full(shape, 0.5, np.float32), name=name)
        return pt.op("ConstantOfShape", pt.constant(np.array(shape), name=f"{name}_shape"), name=name,
                     value=np.array([0.25], np.float32))

    y: Any = pt.op("Conv", x, filled("w", 4, 3, 3, 3), filled("b", 4), name="conv")
    y = pt.op("BatchNormalization", y, *[filled(f"p{i}", 4) for i in range(4)], name="norm")
    if rng.random() < 0.5:
        y = pt.op("Mul", y, pt.op("Unsqueeze", filled("s", 4), axes=[1, 2], opset=11, name="wide"), name="scaled")
    y = pt.op("Flatten", pt.op("GlobalAveragePool", pt.op("Relu", y)), name="flat")
    transposed = rng.random() < 0.5
    y = pt.op("Gemm", y, filled("g", *((5, 4) if transposed else (4, 5))), filled("c", 5), transB=int(transposed), name="gemm")
    if rng.random() < 0.7:
        y = pt.op("Softmax", y, name="last")
    graph = pt.apply_pass(pt.Graph([y], [x], "light", opsets={"": 9}), "InferShape", verify=False, strict=False)
    zoo._weights.cache_clear()
    with mock.patch.object(zoo, "_light", lambda name: graph), mock.patch.object(zoo, "zoo_names", lambda: ["light"]):
        weights = zoo._weights("light")
        for name, array in sorted(weights.items()):
            yield f"{name} {shown(array)} {float(array.std()):.3g} {array.flags.writeable}"
        found = zoo.load_zoo("light")
        yield f"{[f'{node.op}' for node in found.nodes]} {len(found.inputs)}"
        yield told(zoo.load_zoo, "lihgt")
    zoo._weights.cache_clear()


def summed(rng: random.Random) -> Iterator[str]:
    """Sums of products of several operands, as products of two."""
    letters = "abcde"
    sizes = {letter: rng.choice((1, 2, 3)) for letter in letters}
    terms = ["".join(rng.sample(letters, rng.randint(1, 3))) for _ in range(rng.randint(1, 4))]
    every = sorted(set("".join(terms)))
    result = "".join(rng.sample(every, rng.randint(0, len(every))))
    equation = ",".join(terms) + rng.choice((f"->{result}", f" -> {result}", ""))
    if rng.random() < 0.1:
        equation = "..." + equation
    dynamic = rng.random() < 0.2
    values = [
        pt.variable(f"x{i}", "float32", [f"s{letter}" if dynamic and letter == "a" else sizes[letter] for letter in term])
        for i, term in enumerate(terms)
    ]
    node = pt.op("Einsum", *values, equation=equation, name="sum")
    graph = pt.apply_pass(pt.Graph([node], values, "sum", opsets={"": 17}), "InferShape", verify=False, strict=False)
    body = told(lambda: text_sum(found) if (found := decomposed(graph["sum"], graph.opsets)) is not None else None)
    yield f"{equation} {sizes} {dynamic} {graph['sum'][0].type} {body}"
    found = decomposed(graph["sum"], graph.opsets) if not body.startswith(("None", "Value")) else None
    if found is not None:
        yield str([f"{each.op}{each[0].type}" for each in found.nodes if each.is_op])
    with mock.patch.object(einsum, "MOST_PRODUCTS", rng.choice((4, 1 << 28))):
        yield f"{einsum.is_long(graph['sum'])} {told(lambda: einsum.contractions(graph['sum']))}"


# -- nodes ---------------------------------------------------------------------------------------------

def attributes(rng: random.Random) -> Iterator[str]:
    """Values of all kinds, converted to what a schema declares."""
    inside = branch("Neg", pt.variable("x", "float32", (2,)))
    values: tuple[Any, ...] = (
        1, True, 2.5, "text", b"raw", [1, 2], [1, 2.5], ["a"], [], (1, 2), np.int64(3), np.float32(0.5), np.array([1, 2]),
        np.array([[1.5]]), np.bool_(True), None, {"a": 1}, "float32", np.dtype("int8"), np.float16, inside, [inside], [[1]],
        [None], object, float("nan"), 10**20,
    )
    for kind in rng.sample(("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS", "TENSOR", "GRAPH", "GRAPHS", "TYPE_PROTO"), 4):
        for value in rng.sample(values, 9):
            spec = AttrSpec(rng.choice(("a", "to", "dtype")), kind, False, None)
            said = told(lambda asked, given: repr(converted_value(asked, given, "here")), spec, value)
            yield f"{spec.name} {kind} {type(value).__name__}: {said}".partition(" at 0x")[0][:200]


def nodes(rng: random.Random) -> Iterator[str]:
    """The properties of nodes and values, and what may not be changed of them."""
    x = pt.variable("x", rng.choice(("float32", "int8")), rng.choice(((2, 3), ("n",), None)))
    made: list[Any] = [
        x, pt.constant(np.ones(2, np.float32), name="k"), pt.op("Split", x, name="two", num_outputs=2, n_outputs=2, opset=18),
        pt.op("Own", x, None, x, domain="mine", name="own", level=3), pt.variable("untyped"),
        pt.op("If", pt.constant(np.array(True)), then_branch=branch("Neg", x), else_branch=branch("Exp", x), name="if").evolve(
            captures=(x[0], x[0])),
        pt.call(pt.Graph([pt.op("Relu", pt.variable("i", "float32", (2,)), name="r")], name="body"), x, name="call"),
    ]
    for node in rng.sample(made, 4):
        yield f"{node!r} {node.is_variable} {node.is_constant} {node.is_op} {node.is_call} {[name for name, _ in node.bodies]}"
        yield f"{node.outputs} {[entry.name for entry in node.reads]} {node.op} {node.domain}"
        for index in (0, 1, -1, -2, 2, -3):
            yield told(lambda at, node=node: node[at], index)
        try:
            node.affinity = rng.choice(("cpu", None, 3))
        except pt.PartitaError as error:
            yield str(error)
        try:
            node.name = "other"
        except pt.PartitaError as error:
            yield str(error)
        copy = node.evolve(**rng.choice(({"name": "new"}, {"affinity": "gpu"}, {"metadata": {"a": "b"}}, {})))
        yield f"{copy!r} {copy.affinity} {dict(copy.metadata)} {copy is node} {copy.place == node.place}"
        yield f"{node[0] == node[0]} {node[0] == copy[0]} {node[0] == 3} {hash(node[0]) == hash(node[0])}"
    graph = pt.apply_pass(pt.Graph([made[2][1], made[3]], name="g"), "InferShape", strict=False)
    yield f"{graph!r} {len(graph.nodes)} {'two' in graph} {'three' in graph} {graph.opset} {[str(one) for one in graph.outputs]}"
    yield told(lambda: graph["three"])
    yield told(lambda: graph["tow"])


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "params": params, "large": in_parts, "own": own, "folded": folded, "converted": converted, "learned": learned, "drawn": drawn,
    "summed": summed, "attributes": attributes, "nodes": nodes,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "readers", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
