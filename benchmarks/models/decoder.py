"""GPT-2 as it decodes: one token, with the keys and values of those before it, its weights float32, bytes or half bytes."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np

import partita as pt
from partita.graph.rewrite import Rewriter, rewrite

Value = pt.Node


@attrs.frozen
class Decoder:
    """The sizes of a model; by default those of GPT-2 with 124 million weights."""

    width: int = 768
    heads: int = 12
    layers: int = 12
    words: int = 50257
    past: int = 128
    """How many tokens came before."""
    tied: bool = True
    """Is the table of embeddings also what the last product multiplies by? Else that is a matrix of the same numbers."""

    def graph(self) -> pt.Graph:
        """The step: of the token, its position, and the past, the scores of the next word, then the keys and values."""
        return _Step(self).graph()


class _Step:
    def __init__(self, sizes: Decoder) -> None:
        self.sizes = sizes
        self.random = np.random.default_rng(0)
        self.present: list[Value] = []
        self.inputs = [pt.variable("token", "int64", (1, 1)), pt.variable("position", "int64", (1, 1))]

    def graph(self) -> pt.Graph:
        sizes = self.sizes
        token, position = self.inputs
        table = self._noise("words", (sizes.words, sizes.width), 0.02)
        positions = self._noise("positions", (1024, sizes.width), 0.01)
        x = pt.op("Add", pt.op("Gather", table, token), pt.op("Gather", positions, position))
        for layer in range(sizes.layers):
            x = pt.op("Add", x, self._attention(layer, self._norm(f"{layer}.first", x)))
            wide = self._linear(f"{layer}.up", self._norm(f"{layer}.second", x), 4 * sizes.width)
            x = pt.op("Add", x, self._linear(f"{layer}.down", pt.op("Gelu", wide, approximate="tanh"), sizes.width))
        assert table.value is not None
        turned = pt.op("Transpose", table, perm=[1, 0]) if sizes.tied else pt.constant(table.value.T.copy(), "scores.weight")
        scores = pt.op("MatMul", self._norm("last", x), turned, name="scores")
        graph = pt.Graph([scores, *self.present], self.inputs, "decoder", opsets={"": 21})
        return pt.apply_pass(graph, "InferShape")

    def _attention(self, layer: int, x: Value) -> Value:
        heads, each, past = self.sizes.heads, self.sizes.width // self.sizes.heads, self.sizes.past
        joined = self._linear(f"{layer}.attention", x, 3 * self.sizes.width)
        parts = pt.op("Split", joined, axis=2, num_outputs=3, name=f"{layer}.split", n_outputs=3)
        sides = [
            pt.op("Transpose", pt.op("Reshape", parts[i], pt.constant(np.array([1, 1, heads, each]))), perm=[0, 2, 1, 3])
            for i in range(3)
        ]
        for i, what in ((1, "keys"), (2, "values")):
            before = pt.variable(f"{layer}.{what}", "float32", (1, heads, past, each))
            self.inputs.append(before)
            sides[i] = pt.op("Concat", before, sides[i], axis=2, name=f"{layer}.all_{what}")
            self.present.append(sides[i])
        scaled = pt.op("Mul", sides[0], pt.constant(np.float32(each**-0.5)))
        chances = pt.op("Softmax", pt.op("MatMul", scaled, pt.op("Transpose", sides[1], perm=[0, 1, 3, 2])), axis=-1)
        seen = pt.op("Transpose", pt.op("MatMul", chances, sides[2]), perm=[0, 2, 1, 3])
        flat = pt.op("Reshape", seen, pt.constant(np.array([1, 1, self.sizes.width])))
        return self._linear(f"{layer}.out", flat, self.sizes.width)

    def _norm(self, name: str, x: Value) -> Value:
        scale = self._noise(f"{name}.scale", (self.sizes.width,), 0.1, 1.0)
        return pt.op("LayerNormalization", x, scale, self._noise(f"{name}.bias", (self.sizes.width,), 0.1), axis=-1)

    def _linear(self, name: str, x: Value, columns: int) -> Value:
        depth = 4 * self.sizes.width if name.endswith("down") else self.sizes.width
        product = pt.op("MatMul", x, self._noise(f"{name}.weight", (depth, columns), depth**-0.5), name=f"{name}.product")
        return pt.op("Add", product, self._noise(f"{name}.bias", (columns,), 0.02))

    def _noise(self, name: str, shape: tuple[int, ...], scale: float, around: float = 0.0) -> Value:
        return pt.constant(self.random.standard_normal(shape, np.float32) * np.float32(scale) + np.float32(around), name=name)


def narrow(graph: pt.Graph, bits: int, block: int = 0) -> pt.Graph:
    """The graph with the matrices that it multiplies by, and the tables that it gathers from, as signed integers of so many
    bits; a scale for each column, or for each block of so many numbers in it."""
    read = {}
    for node in graph.nodes:
        if node.op in ("MatMul", "Gather") and not node.domain:
            entry = node.inputs[node.op == "MatMul"]
            turned = entry is not None and entry.node.op == "Transpose"
            source = entry.node.inputs[0] if turned and entry is not None else entry
            if source is not None and source.node.value is not None and source.node.value.dtype == np.float32:
                read[source.node] = 1 if turned or node.op == "Gather" else 0

    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        if node not in read:
            rewriter.keep(node)
            return
        assert node.value is not None
        integers, scales = rounded(node.value, bits, block, read[node])
        arrays = {"integers": integers, "scales": scales}
        constants = [rewriter.keep(pt.constant(array, f"{node.name}.{what}")) for what, array in arrays.items()]
        axis = read[node] if block else 1 - read[node]
        stands = pt.op("DequantizeLinear", *constants, name=node.name, axis=axis, block_size=block)
        rewriter.replace(node[0], rewriter.keep(stands.evolve(output_types=node.output_types))[0])

    return rewrite(graph, visit)


def rounded(array: np.ndarray, bits: int, block: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest integers of so many bits, and the scale of each block along an axis; without a block, of all along it."""
    size = block or array.shape[axis]
    moved = np.moveaxis(array, axis, -1)
    blocks = moved.reshape(*moved.shape[:-1], -1, size)
    most = (1 << (bits - 1)) - 1
    scales = np.abs(blocks).max(-1) / most
    integers = np.clip(np.rint(blocks / scales[..., None]), -most - 1, most).reshape(moved.shape)
    kind = ml_dtypes.int4 if bits == 4 else np.int8
    scales = np.moveaxis(scales, -1, axis) if block else scales[..., 0]
    return np.moveaxis(integers, -1, axis).astype(kind), np.ascontiguousarray(scales.astype(np.float32))


def with_wide_tables(graph: pt.Graph) -> pt.Graph:
    """The graph with the tables that it gathers from as the float32 numbers that their integers stand for: onnxruntime would
    widen all of a narrow table at each token."""
    tables = {node.reads[0].node for node in graph.nodes if node.op == "Gather" and node.reads[0].node.op == "DequantizeLinear"}

    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        if node not in tables:
            rewriter.keep(node)
            return
        integers, scales = (entry.node.value for entry in node.reads)
        assert integers is not None and scales is not None
        axis, block = int(node.attrs["axis"]), int(node.attrs["block_size"])
        each = np.repeat(scales, block, axis) if block else np.expand_dims(scales, 1 - axis)
        rewriter.replace(node[0], rewriter.keep(pt.constant(integers.astype(np.float32) * each, node.name))[0])

    return rewrite(graph, visit)


def in_blocks(graph: pt.Graph) -> pt.Graph:
    """The graph with its products by narrow matrices as onnxruntime's MatMulNBits, with 8 bits for the activations, as its
    documents advise. (Its quantizer writes the same, and needs a package more.)"""
    packed_matrices: dict[pt.Node, list[Value]] = {}

    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        right = node.inputs[1].node if node.op == "MatMul" and node.inputs[1] is not None else None
        if right is None or right.op != "DequantizeLinear" or not right.attrs["block_size"] or right.attrs["axis"] != 0:
            rewriter.keep(node)
            return
        integers, scales = (entry.node.value for entry in right.reads)
        assert integers is not None and scales is not None
        depth, columns = integers.shape
        bits, block = 4 if integers.dtype.name == "int4" else 8, int(right.attrs["block_size"])
        if right not in packed_matrices:
            moved = (integers.astype(np.int16) + (1 << (bits - 1))).astype(np.uint8).T.reshape(columns, depth // block, block)
            packed = moved[..., ::2] | moved[..., 1::2] << 4 if bits == 4 else moved
            arrays = {"packed": np.ascontiguousarray(packed), "flat": scales.T.reshape(-1).copy()}
            packed_matrices[right] = [rewriter.keep(pt.constant(array, f"{right.name}.{what}")) for what, array in arrays.items()]
        sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 4}
        (left, *_) = node.reads
        inputs = rewriter.value(left), *packed_matrices[right]
        product = pt.op("MatMulNBits", *inputs, name=node.name, domain="com.microsoft", **sizes)  # type: ignore[arg-type]
        rewriter.replace(node[0], rewriter.keep(product.evolve(output_types=node.output_types))[0])

    rewriter = Rewriter(graph.evolve(opsets={**graph.opsets, "com.microsoft": 1}))
    for node in graph.nodes:
        visit(node, rewriter)
    return rewriter.finish(nodes=())
