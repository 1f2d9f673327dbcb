"""Drawn files and sizes, as engines read them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper

import partita as pt
from partita.accelerators.engines.lower_bounds import kernel_of, least_sizes, shortfalls
from partita.accelerators.engines.onnxruntime.plain_files import is_plain
from partita.accelerators.engines.openvino.small_integers import SmallIntegers


def free(op: str, *inputs: Any, domain: str = "", name: str = "node", **attributes: Any) -> pt.Node:
    """A node that no schema was asked about."""
    entries = tuple([each[0] if isinstance(each, pt.Node) else each for each in inputs])
    return pt.Node(name, op, entries, attributes, (name,), (None,), domain)


# -- files that are plain ------------------------------------------------------------------------------

OPS = """Abs Add ArgMax Atan AveragePool BatchNormalization Cast Clip Concat Constant Conv ConvTranspose Cos CumSum Div Dropout
Elu Equal Erf Exp Expand Flatten Floor Gather GatherND Gelu Gemm GlobalAveragePool Greater HardSigmoid HardSwish If Identity IsNaN
LayerNormalization LeakyRelu Less Log LogSoftmax MatMul Max MaxPool Mul Neg Not Or PRelu Pad Pow ReduceMax ReduceMean Relu Reshape
Resize Round Selu Shape Sigmoid Sin Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh TopK Transpose Unsqueeze
Where""".split()

ATTRIBUTES: tuple[tuple[str, Any], ...] = (
    ("axis", 1), ("axes", [0, 1]), ("alpha", 0.5), ("beta", 0.25), ("gamma", 1.5), ("perm", [1, 0]), ("keepdims", 0), ("to", 1),
    ("kernel_shape", [2, 2]), ("pads", [0, 0, 1, 1]), ("strides", [1, 2]), ("dilations", [1, 1]), ("group", 2), ("transA", 1),
    ("transB", 1), ("min", 0.0), ("max", 1.0), ("epsilon", 1e-3), ("momentum", 0.5), ("stash_type", 1), ("ratio", 0.5),
    ("seed", 3), ("approximate", "tanh"), ("allowzero", 1), ("count_include_pad", 1), ("auto_pad", "NOTSET"),
    ("auto_pad", "SAME_UPPER"), ("auto_pad", "VALID"), ("batch_dims", 0), ("batch_dims", 1), ("ceil_mode", 0), ("ceil_mode", 1),
    ("storage_order", 1), ("noop_with_empty_axes", 0), ("noop_with_empty_axes", 1), ("training_mode", 1), ("output_padding", [1]),
    ("value_floats", [0.5]), ("body", None), ("value", None), ("value_empty", None), ("largest", 300),
)


def attribute(name: str, value: Any) -> AttributeProto:
    """The attribute of a node; a tensor where it has no value, or a graph."""
    if name == "body":
        return helper.make_attribute("then_branch", helper.make_graph([], "inner", [], []))
    if name == "value":
        return helper.make_attribute(name, helper.make_tensor("", TensorProto.FLOAT, [2], [0.5, 1.5]))
    if name == "value_empty":
        return helper.make_attribute("value", helper.make_tensor("", TensorProto.FLOAT, [0], []))
    return helper.make_attribute(name, value)


def small_file(rng: random.Random, odd: float) -> ModelProto:
    """A model of a few nodes, sometimes with something that is not plain."""
    nodes = []
    for number in range(rng.randint(1, 3)):
        op = rng.choice(OPS)
        reads = [f"v{number}" if number else "x", "w", "w", "w"][: rng.randint(1, 4 if op == "Dropout" else 2)]
        node = helper.make_node(op, reads, [f"v{number + 1}"] + ["more"] * (rng.random() < 0.1), f"n{number}")
        node.attribute.extend([attribute(*rng.choice(ATTRIBUTES)) for _ in range(rng.choice((0, 0, 1, 2)))])
        nodes.append(node)
    if rng.random() < odd:
        rng.choice(nodes).domain = "mine"
    if rng.random() < odd:
        nodes[0].metadata_props.add(key=rng.choice(("partita.device", "other.key")), value="a")
    sizes = [rng.choice((2, 3, 0 if rng.random() < odd else 1)) for _ in range(rng.randint(0, 3))]
    weight = helper.make_tensor("w", TensorProto.FLOAT, sizes, np.zeros(sizes).reshape(-1).tolist())
    if rng.random() < odd:
        weight.data_location = rng.choice((0, 1))
        if rng.random() < 0.5:
            weight.external_data.add(key="location", value="elsewhere")
    kind = helper.make_tensor_value_info
    x = kind("x", TensorProto.FLOAT, rng.choice(([2, 3], ["n", 3])))
    inner = [kind("v1", TensorProto.FLOAT, rng.choice(([2, 3], ["n", 3], [None, 3], None)))] if rng.random() < 3 * odd else []
    wanted = [kind(f"v{len(nodes)}", TensorProto.FLOAT, None)]
    if rng.random() < odd:
        wanted.append(kind(rng.choice(("x", "w", "v1")), TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "g", [x], wanted if rng.random() > odd / 3 else [], [weight], value_info=inner)
    if rng.random() < odd / 2:
        graph.sparse_initializer.add().dims.extend([2])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    if rng.random() < odd / 2:
        model.functions.add().name = "f"
    if rng.random() < odd / 2:
        model.training_info.add()
    return model


def file(rng: random.Random) -> Iterator[str]:
    """The plain ones of several files."""
    def asked(odd: float) -> str:
        model = small_file(rng, odd)
        ops = [f"{node.op_type}({', '.join(one.name for one in node.attribute)})" for node in model.graph.node]
        return f"{' '.join(ops)} {is_plain(io.BytesIO(model.SerializeToString()))}"

    for odd in (0.0, 0.0, 0.0, 0.0, 0.15, 0.15, 0.15):
        yield asked(odd)
    model = helper.make_model(helper.make_graph(
        [helper.make_node(rng.choice(("Relu", "Atan")), ["x"], ["y"])], "g", [],
        [helper.make_tensor_value_info("y", 1, [2])],
        [helper.make_tensor("w", TensorProto.UINT8, [70000], bytes(70000), raw=True)],
    ))
    yield f"large {is_plain(io.BytesIO(model.SerializeToString()))}"
    large = helper.make_tensor("", TensorProto.UINT8, [20000], bytes(20000), raw=True)
    after = helper.make_node(rng.choice(("Relu", "Atan")), ["c"], ["y"])
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend([helper.make_node("Constant", [], ["c"], value=large), after])
    yield f"large constant {is_plain(io.BytesIO(model.SerializeToString()))}"


def cut(rng: random.Random) -> Iterator[str]:
    """A file that ends early, or of which a byte is another: for each position whether it is plain."""
    while not is_plain(io.BytesIO(data := small_file(rng, 0.0).SerializeToString())):
        pass
    yield "".join("01"[is_plain(io.BytesIO(data[:end]))] for end in range(len(data) + 1))
    for change in (1, 8, 0x80):
        yield "".join(
            "01"[is_plain(io.BytesIO(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]))] for at in range(len(data))
        )


# -- integers and sizes --------------------------------------------------------------------------------

INDEXED = """Add And ArgMax BitShift Cast Concat ConstantOfShape CumSum Div Equal Expand Gather GatherElements
GatherND Greater Identity
MatMul Max Mod Mul NonMaxSuppression NonZero OneHot Pad PRelu ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Scatter ScatterElements ScatterND
Shape Slice Split Squeeze Sub Tile TopK Transpose Trilu Unique Unsqueeze Where""".split()


def small(rng: random.Random) -> Iterator[str]:
    """Why integers of a node might be computed wrongly, in each place of its inputs."""
    for op in rng.sample(INDEXED, 9):
        dtype = rng.choice(("int64", "int64", "int64", "int32", "uint8", "int16", "uint64", "bool", "float32"))
        wide = pt.TensorType("int64", (2,))
        sources: dict[str, Any] = {
            "given": pt.variable("given", dtype, (2,)), "constant": pt.constant(np.array([3, 4], dtype)),
            "size": pt.op("Shape", pt.variable("x", "float32", (2, 3)), name="size"),
            "sum": pt.op("Add", pt.constant(np.array([1, 2])), pt.op("Shape", pt.variable("x", "float32", (2, 3))), name="sum"),
            "cast": pt.op("Cast", pt.variable("narrow", rng.choice(("int16", "bool", "float32", "uint16")), (2,)), to=7),
            "large": pt.constant(np.array(rng.choice(([2**31], [2**31 - 1], [-(2**31)], [1.0])))),
            "filled": pt.op("ConstantOfShape", pt.op("Shape", pt.variable("x", "float32", (2, 3))), name="filled",
                            **rng.choice(({}, {"value": np.array([2**31])}, {"value": np.array([3])}))),
            "best": pt.op("TopK", pt.variable("x", "float32", (2, 3)), pt.constant(np.array([1])), n_outputs=2, name="best")[1],
        }
        sources = {
            name: node.evolve(output_types=(wide,)) if isinstance(node, pt.Node) and node.is_op else node
            for name, node in sources.items()
        }
        for slot in range(5):
            name = rng.choice([*sources, "given", "given"])
            plain = [pt.variable(f"p{i}", "float32", (2, 3)) for i in range(5)]
            inputs: list[Any] = [*plain[:slot], sources[name], *plain[slot + 1 : rng.choice((slot + 1, 5))]]
            attributes = {"reduction": "add"} if op.startswith("Scatter") and rng.random() < 0.5 else {}
            node = free(op, *inputs, **attributes)
            node = node.evolve(output_types=(pt.TensorType(rng.choice(("float32", dtype)), (2,)),) * len(node.output_names))
            graph = pt.Graph([node], name="g", opsets={"": 17})
            found = SmallIntegers(graph)
            yield f"{op} {slot} {name} {dtype} {attributes}: {found.refused(graph['node'])} {len(found._small)}"


def _reading(rng: random.Random, read: Any, x: Any, n: Any) -> Any:
    """An op whose sizes follow from those of its operands, or not."""
    return rng.choice((
        lambda: pt.op("Relu", read), lambda: pt.op("ReduceMax", read, keepdims=0), lambda: pt.op("Slice", read, n, n),
        lambda: pt.op("NonZero", read), lambda: pt.op("Resize", read, None, None, n), lambda: pt.op("Softmax", read),
        lambda: pt.op("Concat", read, read, axis=0), lambda: pt.op("Reshape", read, n), lambda: pt.op("Transpose", read),
        lambda: pt.op("Own", read, domain="mine"), lambda: pt.op("Gather", read, n), lambda: pt.op("Add", read, x),
        lambda: pt.op("Reshape", read, pt.constant(np.array([-1]))), lambda: pt.op("GlobalAveragePool", read),
        lambda: pt.op("Expand", read, n), lambda: pt.op("ArgMax", read), lambda: pt.op("Compress", read, pt.op("Cast", n, to=9)),
    ))()


def least(rng: random.Random) -> Iterator[str]:
    """Lower bounds of sizes, and how far windows reach beyond padding."""
    def dim() -> Any:
        return rng.choice((1, 2, 3, 5, "n", "m", None))

    x = pt.variable("x", "float32", rng.choice(((dim(), dim()), (dim(), dim(), dim(), dim()), (dim(),), None)))
    n = pt.variable("n", "int64", (1,))
    values: list[Any] = [x]
    for _ in range(rng.randint(1, 4)):
        values.append(_reading(rng, rng.choice(values[-2:]), x, n))
    graph = pt.apply_pass(pt.Graph([values[-1]], [x, n], "g", opsets={"": 17}), "InferShape", verify=False, strict=False)
    for resized in (False, True):
        found = least_sizes(graph, resized)
        entries = [entry for node in graph.nodes for entry in node.outputs if entry in found]
        yield " ".join(f"{entry.node.op} {list(found[entry])}" for entry in entries)
    rank = rng.randint(1, 3)
    options: dict[str, Any] = {}
    for name, length in (("pads", 2 * rank), ("dilations", rank), ("kernel_shape", rank)):
        if rng.random() < 0.6:
            options[name] = [rng.randint(1, 3) if name != "pads" else rng.randint(0, 2) for _ in range(length)]
    if rng.random() < 0.2:
        options["auto_pad"] = rng.choice(("NOTSET", "VALID"))
    op = rng.choice(("Conv", "MaxPool", "ConvInteger", "QLinearConv"))
    weights = pt.variable("w", "float32", rng.choice(((4, 2, *[3] * rank), (4, 2, *["k"] * rank), None)))
    read_by = [x, weights, weights, weights][: rng.choice((1, 2, 4))]
    node = free(op, *read_by, **options)
    kernel = kernel_of(node)
    yield f"{op} {options} {kernel} {None if kernel is None else shortfalls(node, kernel)}"
