"""Kernels of several kinds on the simulator Oclgrind, which watches every access. For a process of its own, with its options:

    OCLGRIND_DATA_RACES=1 python -m tests.accelerators.tvm.opencl_kernels [without [NAME ...]]

With an argument the barriers are taken out: then each kernel that has any is wrong, which shows that they are seen. With names
these kernels alone are run."""

from __future__ import annotations

import sys

import numpy as np

import partita as pt
from partita.accelerators.tvm.run.opencl_driver import Driver, drivers
from tests.accelerators.tvm.opencl_nets import Value


def numbers(*shape: int) -> np.ndarray:
    """Values to compute with."""
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


SIZES = {"N": 1, "S": 39}
"""What symbols are in the call."""


def graphs() -> dict[str, pt.Graph]:
    """A small graph for each rule that schedules kernels for GPUs, and for each that does so for any size; sizes that divide
    nothing."""
    square, row, image = (pt.variable("x", "float32", shape) for shape in ((9, 37), (3, 70), (1, 3, 7, 9)))
    dot = pt.variable("x", "float32", (1, 1, 2, 3))
    heads, pixels = pt.variable("x", "float32", (1, 40, 17)), pt.variable("x", "float32", (1, 4, 32))
    open_row, open_heads = pt.variable("x", "float32", ("N", "S")), pt.variable("x", "float32", ("N", "S", 17))
    places = np.random.default_rng(1).permuted(np.tile(np.arange(-35, 35), (3, 1)), axis=1)
    ops = {
        "product": pt.op("MatMul", square, pt.constant(numbers(37, 11))),
        "product with a vector": pt.op("MatMul", pt.variable("x", "float32", (1, 70)), pt.constant(numbers(70, 13))),
        "softmax": pt.op("Softmax", row),
        "sum": pt.op("ReduceSum", row, pt.constant(np.array([1])), keepdims=0),
        "norm": pt.op("LayerNormalization", row, pt.constant(numbers(70)), pt.constant(numbers(70))),
        "transpose": pt.op("Transpose", square, perm=[1, 0]),
        "convolution": pt.op("Conv", image, pt.constant(numbers(5, 3, 3, 3)), pads=[1, 1, 1, 1]),
        "attention": attention(heads),
        "convolution in steps": pt.op("Conv", pt.variable("x", "float32", (1, 32, 3, 4)), pt.constant(numbers(5, 32, 3, 3))),
        "chain": pt.op("Tanh", pt.op("Mul", row, pt.constant(np.array(0.3, "float32")))),
        "phases of several kinds": pt.op("ConvTranspose", dot, pt.constant(numbers(1, 2, 3, 3)), strides=[2, 2]),
        "product of quantized values": quantized_pair(pt.variable("x", "float32", (1, 9, 17))),
        "numbers that choose their scale": pt.op("DynamicQuantizeLinear", row, n_outputs=3),
        "joined in place": pt.op("Neg", pt.op("Concat", *(pt.op(op, pixels) for op in ("Sin", "Cos", "Exp")), axis=1)),
        "gather": pt.op("GatherElements", row, pt.constant(places), axis=1),
        "scatter": pt.op("ScatterElements", row, pt.constant(places), pt.constant(numbers(3, 70)), axis=1),
        "product of any rows": pt.op("MatMul", open_heads, pt.constant(numbers(17, 11))),
        "softmax of any length": pt.op("Softmax", open_row),
        "attention of any length": attention(open_heads),
        "gather of any length": pt.op("Gather", pt.constant(numbers(40, 8)), pt.op("Cast", open_row, to="int64")),
    }
    return {name: pt.Graph([node[0]], name="net") for name, node in ops.items()}


def quantized_pair(heads: Value) -> Value:
    """The product of a value with itself turned, of bytes."""
    scale, point = pt.constant(np.float32(0.05)), pt.constant(np.uint8(120))
    number = pt.op("DequantizeLinear", pt.op("QuantizeLinear", heads, scale, point), scale, point)
    return pt.op("MatMul", number, pt.op("Transpose", number, perm=[0, 2, 1]))


def attention(heads: Value) -> Value:
    """Of a value with itself."""
    scores = pt.op("MatMul", heads, pt.op("Transpose", heads, perm=[0, 2, 1]))
    return pt.op("MatMul", pt.op("Softmax", scores), heads)


def without_barriers() -> None:
    """From now on programs are built without any barrier."""
    build = Driver.program
    Driver.program = lambda self, source, binary=None: build(  # type: ignore[method-assign]
        self, source.replace("barrier(CLK_LOCAL_MEM_FENCE);", ""), binary
    )


def main() -> None:
    """Run the kernels that are named, or all, without barriers where the first word says so; say which are wrong."""
    if sys.argv[1:2] == ["without"]:
        without_barriers()
    named = sys.argv[2:]
    wrong = []
    device = next(f"opencl.{i}" for i, driver in enumerate(drivers()) if "Oclgrind" in driver.name)
    for name, graph in graphs().items():
        if named and name not in named:
            continue
        shape = graph.inputs[0][0].type.shape  # type: ignore[union-attr]
        data = numbers(*(size if isinstance(size, int) else SIZES[str(size)] for size in shape))  # type: ignore[union-attr]
        ours = pt.compile(graph, device, config={"CACHE_DIR": ""})(data)[0]
        wanted = pt.compile(graph, "reference")(data)[0]
        if not np.allclose(ours, wanted, 1e-4, 1e-4):
            wrong.append(name)
    print("wrong:", ", ".join(wrong) or "none")


if __name__ == "__main__":
    main()
