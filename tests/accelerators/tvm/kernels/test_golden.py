"""Kernels as text, kept in files: a change of a kernel is seen in them. `pytest --refresh-golden` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import Body, make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel, fuse_kernels
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.layouts.kept_weights import pack_weights
from partita.accelerators.tvm.layouts.quantized.quantize import quantize
from partita.accelerators.tvm.layouts.recurrent_projections import project_inputs
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, gpu_machine
from partita.accelerators.tvm.prepare.quantized_weights import hold_weights
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.kernels.test_quantized_pairs import Pair
from tests.accelerators.tvm.narrow import Weight
from tests.accelerators.tvm.quantizing import Layer

pytest.importorskip("tvm")

FOLDER = Path(__file__).parent / "golden"
MACHINE = Machine("cpu", "haswell", 4, 8, 16)
PAIRS = Machine("cpu", "znver4", 4, 16, 32, instructions=(Used("vdpbf16ps"),))


def weights(*shape: int, dtype: str = "float32") -> pt.Node:
    return pt.constant(np.ones(shape, numpy_dtype(dtype)))


def values(*shape: int, name: str = "x", dtype: str = "float32") -> pt.Node:
    return pt.variable(name, dtype, shape)


def attention() -> pt.Node:
    query, key, value = (values(2, 32, 16, name=name) for name in "qkv")
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1]))
    return pt.op("MatMul", pt.op("Softmax", scores), value)


GRAPHS: dict[str, Callable[[], pt.Node]] = {
    "matmul": lambda: pt.op("Relu", pt.op("Add", pt.op("MatMul", values(20, 40), weights(40, 48)), weights(48))),
    "matmul_of_bfloat16": lambda: pt.op(
        "Relu", pt.op("MatMul", values(20, 40, dtype="bfloat16"), weights(40, 48, dtype="bfloat16"))
    ),
    "matmul_of_pairs": lambda: pt.op("MatMul", values(20, 41, dtype="bfloat16"), weights(41, 48, dtype="bfloat16")),
    "product": lambda: pt.op("MatMul", values(2, 20, 24), values(2, 24, 32, name="y")),
    "thin": lambda: pt.op("MatMul", values(9, 40), weights(40, 3)),
    "attention": attention,
    "softmax": lambda: pt.op("Softmax", values(12, 40)),
    "layer_norm": lambda: pt.op("LayerNormalization", values(12, 40), weights(40), weights(40)),
    "sums_of_rows_apart": lambda: pt.op("ReduceSum", values(3, 9, 4, 40), pt.constant(np.array([1, 3]))),
    "max_pool": lambda: pt.op("MaxPool", values(2, 3, 9, 9), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0]),
    "col2im": lambda: pt.op(
        "Col2Im", values(2, 18, 12), pt.constant(np.array([7, 9])), pt.constant(np.array([3, 3])),
        strides=[2, 2], pads=[0, 0, 1, 0],
    ),
    "remainder": lambda: pt.op("Mod", values(6, 5, dtype="int32"), values(5, name="y", dtype="int32")),
    "mean_across": lambda: pt.op("ReduceMean", values(3, 9, 40), pt.constant(np.array([1]))),
    "chain": lambda: pt.op("Mul", values(6, 64), pt.op("Tanh", values(6, 64, name="y"))),
    "chain_of_float16": lambda: pt.op(
        "Mul", values(6, 64, dtype="float16"), pt.op("Relu", values(6, 64, name="y", dtype="float16"))
    ),
    "transpose": lambda: pt.op("Transpose", values(3, 20, 30), perm=[0, 2, 1]),
    "concat": lambda: pt.op("Concat", values(3, 8), values(3, 12, name="y"), axis=1),
    "convolution": lambda: pt.op("Conv", values(1, 8, 12, 12), weights(16, 8, 3, 3), pads=[1, 1, 1, 1]),
    "arg_max": lambda: pt.op("ArgMax", values(12, 40), axis=1),
    "scatter": lambda: pt.op("ScatterElements", values(8, 5), pt.variable("i", "int64", (3, 5)), values(3, 5, name="u"), axis=0),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_text_of_a_kernel_is_the_one_kept(kind: str, request: pytest.FixtureRequest) -> None:
    body = make_body(pt.apply_pass(pt.Graph([GRAPHS[kind]()]), "InferShape"))
    _check(body, PAIRS if kind == "matmul_of_pairs" else MACHINE, kind, request)


GPU_KERNELS = {
    "matmul": "gpu_gemm", "matmul_of_bfloat16": "gpu_gemm_on_tensor_cores", "convolution": "gpu_convolution",
    "attention": "gpu_attention", "chain": "chain", "scatter": "scatter",
}
"""Kernels of the graphs above for a GPU, and the schedule of each."""


@pytest.mark.parametrize("kind", GPU_KERNELS)
def test_the_text_of_a_kernel_for_a_gpu_is_the_one_kept(kind: str, request: pytest.FixtureRequest) -> None:
    """The kernel of a GPU with 108 cores, whatever machine the test runs on."""
    body = make_body(pt.apply_pass(pt.Graph([GRAPHS[kind]()]), "InferShape"))
    draft = _check(body, gpu_machine("sm_80"), f"gpu_{kind}", request)
    assert draft.schedule == GPU_KERNELS[kind]


@pytest.mark.parametrize("name", ["avx-vnni", "avx2"])
def test_the_text_of_a_product_of_integers_is_the_one_kept(name: str, request: pytest.FixtureRequest) -> None:
    machine = attrs.evolve(MACHINE, instructions=(Used(name),))
    graph = Layer(8, 16, (12, 12), (3, 3), pads=(1, 1, 1, 1), relu=True).graph()
    fused = fuse_kernels(quantize(hold_weights(graph), machine))
    call = next(node for node in fused.nodes if node.is_call and node.subgraph is not None and "Product" in str(node.subgraph))
    assert call.subgraph is not None
    _check(make_body(call.subgraph), machine, f"product_by_{name}", request)


def test_the_text_of_a_product_of_two_quantized_values_is_the_one_kept(request: pytest.FixtureRequest) -> None:
    machine = attrs.evolve(MACHINE, instructions=(Used("avx-vnni"),))
    fused = fuse_kernels(quantize(Pair((2,), 9, 14, 24, turned=True).graph(), machine))
    (call,) = (node for node in fused.nodes if node.is_call)
    assert call.subgraph is not None
    _check(make_body(call.subgraph), machine, "quantized_pair", request)


def test_the_text_of_a_recurrent_layer_is_the_one_kept(request: pytest.FixtureRequest) -> None:
    x, given = values(5, 4, 6), (weights(1, 48, 6), weights(1, 48, 16))
    node = pt.op("GRU", x, *given, hidden_size=16, linear_before_reset=1, n_outputs=1)
    graph = project_inputs(pt.apply_pass(pt.Graph([node]), "InferShape"))
    calls = [node for node in fuse_kernels(graph).nodes if node.is_call and node.subgraph is not None]
    call = next(node for node in calls if "GRU" in str(node.subgraph))
    assert call.subgraph is not None
    _check(make_body(call.subgraph), MACHINE, "recurrent", request)


def test_the_text_of_a_product_by_half_bytes_is_the_one_kept(request: pytest.FixtureRequest) -> None:
    machine = attrs.evolve(MACHINE, threads=1)
    graph = fuse_kernels(pack_weights(hold_weights(Weight(64, 70, "int4", 32).product(2)), machine))
    (call,) = (node for node in graph.nodes if node.is_call)
    assert call.subgraph is not None
    _check(make_body(call.subgraph), machine, "product_by_half_bytes", request)


def _check(body: Body, machine: Machine, kind: str, request: pytest.FixtureRequest) -> Draft:
    draft = draft_kernel(body, machine)
    assert draft is not None and draft.kernel is not None
    path, text = FOLDER / f"{kind}.txt", f"{draft.kernel}\n"
    if request.config.getoption("--refresh-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.is_file(), f"there is no {path.name}; write it with pytest --refresh-golden {Path(__file__).name}"
    assert text == path.read_text("utf-8"), "the kernel has changed; look at the difference, then: pytest --refresh-golden"
    return draft
