"""Types that a file declares are claims: what follows takes their place; with `strict` they are errors."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import pytest

import partita as pt
from partita.accelerators.building.units import compile_unit
from partita.accelerators.errors import CompileError
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.interface.device_property import DeviceProperty
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.readers.text import parse
from partita.graph.rewrite import rewrite
from partita.graph.types import TensorType
from partita.graph.writers.nnvm import to_nnvm_json
from tests.accelerators.hetero.small_devices import device

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'

NETS = {
    "Relu": ("float[1,4,8] x", "y = Relu(x)", (1, 4, 8)),
    "MatMul": ("float[2,3] x, float[3,4] w", "y = MatMul(x, w)", (2, 4)),
    "Conv": ("float[1,2,8,8] x, float[4,2,3,3] w", "y = Conv(x, w)", (1, 4, 6, 6)),
    "Slice": ("float[8,4] x", "a = Constant<value=int64[1]{1}>() b = Constant<value=int64[1]{5}>() y = Slice(x, a, b)", (4, 4)),
    "Gather": ("float[8,4] x", "i = Constant<value=int64[2]{1,5}>() y = Gather(x, i)", (2, 4)),
    "Concat": ("float[2,4] x", "y = Concat<axis=0>(x, x)", (4, 4)),
    "Reshape": ("float[2,4] x", "s = Constant<value=int64[2]{4,-1}>() y = Reshape(x, s)", (4, 2)),
    "Transpose": ("float[2,4] x", "y = Transpose(x)", (4, 2)),
    "Split": ("float[4,4] x", "y, z = Split<num_outputs=2>(x)", (2, 4)),
    "Pad": ("float[2,4] x", "p = Constant<value=int64[4]{0,1,0,1}>() y = Pad(x, p)", (2, 6)),
    "Tile": ("float[2,4] x", "r = Constant<value=int64[2]{1,3}>() y = Tile(x, r)", (2, 12)),
    "Expand": ("float[1,4] x", "s = Constant<value=int64[2]{3,4}>() y = Expand(x, s)", (3, 4)),
    "Resize": (
        "float[1,1,2,4] x",
        "s = Constant<value=float[4]{1,1,2,2}>() y = Resize<mode=\"nearest\",coordinate_transformation_mode=\"asymmetric\","
        "nearest_mode=\"floor\">(x, , s)",
        (1, 1, 4, 8),
    ),
    "ReduceSum": ("float[2,4] x", "a = Constant<value=int64[1]{1}>() y = ReduceSum(x, a)", (2, 1)),
    "MaxPool": ("float[1,1,8,8] x", "y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)", (1, 1, 4, 4)),
    "Softmax": ("float[2,4] x", "y = Softmax(x)", (2, 4)),
}


def loaded(inputs: str, outputs: str, body: str, strict: bool = False) -> pt.Graph:
    return pt.load(onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({outputs}) {{ {body} }}"), strict=strict)


def lies(shape: tuple[int, ...]) -> list[str]:
    """Larger, much larger, smaller, a rank more, a rank less, another element type, and a size beside a symbol."""
    *front, last = shape
    shapes = [(*front, last + 1), (*front, 4000 * last), (*front, last - 1), (1, *shape), shape[1:]]
    typed = [f"float{list(item)}" for item in shapes] + [f"double{list(shape)}"]
    return [*typed, f"float[{', '.join(['N'] * len(front))}, {last + 7}]"]


@pytest.mark.parametrize("op", NETS)
def test_a_declared_output_is_held_against_what_the_op_computes(op):
    inputs, body, shape = NETS[op]
    right = loaded(inputs, f"float{list(shape)} y", body)
    assert pt.apply_pass(right, "InferShape").attrs["shape"]["y"] == shape
    for lie in lies(shape):
        graph = loaded(inputs, f"{lie} y", body)
        said = rf"node '.*' \({op}\): the value 'y' is declared .*, and float32{re.escape(str(list(shape)))} follows"
        for ask in (
            lambda graph=graph: pt.apply_pass(graph, "InferShape"),
            lambda lie=lie: loaded(inputs, f"{lie} y", body, strict=True),
            lambda graph=graph: pt.compile(graph, "cpu", strict=True),
            lambda graph=graph: pt.compile(graph, "reference", strict=True),
        ):
            with pytest.raises(pt.PartitaError, match=said):
                ask()
        loose = pt.apply_pass(graph, "InferShape", strict=False)
        assert loose.attrs["shape"]["y"] == shape, "what follows takes the place of what is declared"
        assert re.search(r"'y' is declared .*; float32.* follows, and is taken", loose.attrs["notes"][0])
        assert pt.query(graph, "cpu").graph["y"][0].type.shape == shape
    model = pt.compile(graph, "reference")
    arrays = model.example_inputs()
    assert model.report.notes[0] == loose.attrs["notes"][0]
    for name in ("cpu", "reference"):
        for result, wanted in zip(pt.compile(graph, name)(*arrays), pt.compile(right, "reference")(*arrays), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_a_value_between_ops():
    text = f"{HEAD} g (float[1,4,8] x) => (float y) <float[1,4,4000] a> {{ a = Relu(x) y = ReduceSum<keepdims=0>(a) }}"
    with pytest.raises(pt.PartitaError, match=r"'a' is declared float32\[1, 4, 4000\], and float32\[1, 4, 8\] follows"):
        pt.compile(pt.load(onnx.parser.parse_model(text)), "cpu", strict=True)
    model = pt.compile(pt.load(onnx.parser.parse_model(text)), "cpu")
    assert model(np.ones((1, 4, 8), np.float32))[0] == 32
    assert "'a' is declared float32[1, 4, 4000]; float32[1, 4, 8] follows, and is taken" in model.report.notes[0]


def test_a_value_in_a_body():
    g = pt.parse(
        """
        graph net(x: float32[2], c: bool[]) -> (z) {
          z = If(c) { then_branch=graph t(p) -> (u) { u = Neg(p) : float32[5] },
                      else_branch=graph e(p) -> (v) { v = Abs(p) : float32[5] } } captures(x)
        }
        """
    )
    for strict in (True, False):
        with pytest.raises(pt.PartitaError, match=r"is declared float32\[5\], and float32\[2\] follows"):
            pt.apply_pass(g, "InferShape", strict=strict, check_declared=True)
    loose = pt.apply_pass(g, "InferShape", strict=False)
    assert [str(body.outputs[0].type) for _, body in loose["z"].bodies] == ["float32[2]"] * 2


CALLS = {
    "input": "func f(a: float32[7]) -> (b) { b = Relu(a) }\n graph g(x: float32[3]) -> (y) { y = call f(x) }",
    "inside": "func f(a) -> (b) { b = Relu(a) : float32[7] }\n graph g(x: float32[3]) -> (y) { y = call f(x) }",
    "output": "func f(a) -> (b) { b = Relu(a) }\n graph g(x: float32[3]) -> (y) { y = call f(x) : float32[7] }",
}


@pytest.mark.parametrize("where", CALLS)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_what_a_call_declares(where, device):
    g = pt.parse(CALLS[where])
    with pytest.raises(pt.PartitaError, match=r"declared float32\[7\],? and (float32\[3\] follows|gets float32\[3\])"):
        pt.compile(g, device, strict=True)
    assert str(pt.apply_pass(g, "InferShape", strict=False).outputs[0].type) == "float32[3]"
    assert pt.compile(g, device)(np.ones(3, np.float32))[0].shape == (3,)


def test_nnvms_json():
    g = pt.parse("graph g(x: float32[3]) -> (y) { y = Relu(x) : float32[7] }")
    read = from_nnvm_json(to_nnvm_json(g))
    assert str(read.outputs[0].type) == "float32[7]"
    with pytest.raises(pt.PartitaError, match=r"'y' is declared float32\[7\], and float32\[3\] follows"):
        pt.compile(read, "cpu", strict=True)


def test_a_chain_of_lies_that_agree_with_one_another():
    lines = "\n".join(f"y{i} = Relu({f'y{i - 1}' if i else 'x'}) : float32[9]" for i in range(40))
    g = pt.parse(f"graph g(x: float32[3]) -> (y39) {{ {lines} }}")
    with pytest.raises(pt.PartitaError, match=r"'y0' is declared float32\[9\], and float32\[3\] follows"):
        pt.compile(g, "cpu", strict=True)
    assert pt.compile(g, "cpu")(np.ones(3, np.float32))[0].shape == (3,)
    loose = pt.apply_pass(g, "InferShape", strict=False)
    assert not any("9" in str(node[0].type) for node in loose.nodes)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_size_that_comes_with_the_inputs(device):
    graph = loaded("float[N,4] x", "float[7,4] y", "y = Relu(x)")
    model = pt.compile(graph, device, strict=True)
    assert model(np.ones((7, 4), np.float32))[0].shape == (7, 4)
    with pytest.raises(pt.RunError, match=r"the value 'y' is declared float32\[7, 4\], and .*\[1, 4\]"):
        model(np.ones((1, 4), np.float32))


@pytest.mark.parametrize("device", ["cpu", "reference", "HETERO:cpu,reference"])
@pytest.mark.parametrize("declared, body, rows", [("7,4", "y = Relu(x)", 1), ("N,4", "y = Concat<axis=0>(x, x)", 2)])
def test_a_size_that_only_a_call_refutes_gives_way_to_what_follows(device, declared, body, rows):
    model = pt.compile(loaded("float[N,4] x", f"float[{declared}] y", body), device)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given in (x, x[:1], x[:2]):
        for result in (model(given), model.start(given).result(), model(given, out=[None])):
            np.testing.assert_array_equal(result[0], np.concatenate([given] * rows))
    notes = [note for note in model.report.notes if re.search(r"'y' is declared float32\[(7|N|3), 4\], and ", note)]
    assert len(notes) == 1 and notes[0].endswith("; the sizes that follow are taken instead")


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_body_that_is_compiled_by_itself(device):
    """A package or a plan hands over bodies with types of their own."""
    body = pt.parse("graph g(x: float32[3]) -> (y) { y = Relu(x) : float32[7000] }")
    one = parse_devices(device)[0]
    with pytest.raises(CompileError, match=r"'y' is declared float32\[7000\], and float32\[3\] follows"):
        compile_unit("u", one, body, one.accelerator.full_config({}))


@pytest.mark.parametrize("op", ["Relu", "Softmax", "Transpose"])
def test_a_kernels_body_is_held_against_what_its_op_makes(op):
    """The second line of defence: whoever put the body together."""
    from partita.accelerators.interface.registry import accelerator
    from partita.accelerators.tvm.bodies.body import make_body
    from partita.accelerators.tvm.lower.lowering import lower

    device = accelerator("cpu")
    body = make_body(pt.parse(f"graph g(x: float32[3, 3]) -> (y) {{ y = {op}(x) : float32[3, 7000] }}"))
    with pytest.raises(pt.PartitaError, match=r"is declared float32\[3, 7000\], and float32\[3, 3\] follows"):
        lower(body, device.machine(device.full_config({})))


class Lying(DeviceProperty):
    """Its subgraphs declare a size inside that does not follow."""

    def create_subgraph_node(self, subgraph, index):
        def visit(node, rewriter):
            lie = {"output_types": (TensorType("float32", (2, 4000)),)} if node.op == "Relu" else {}
            rewriter.keep(node, rewriter.rebuilt(node, **lie))

        return super().create_subgraph_node(rewrite(subgraph, visit), index)


def test_a_body_that_a_property_of_a_devices_own_has_changed():
    net = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
    error = re.escape("the value 'a' is declared float32[2, 4000], and float32[2, 3] follows")
    with device("liar", subgraph_property=lambda self: Lying(self)), pytest.raises(CompileError, match=error):
        pt.compile(net, "liar")


@pytest.mark.filterwarnings("ignore:.*runs otherwise:UserWarning")
@pytest.mark.parametrize("device", ["cpu", "onnxruntime", "openvino"])
def test_a_symbol_that_lies_between_does_no_harm(device: str) -> None:
    """A file says of rows that a condition keeps that they are as many as the input's. onnxruntime, where it is told so, gives
    values of both sizes the same memory, and fails."""
    pytest.importorskip("tvm" if device == "cpu" else device)
    model = onnx.parser.parse_model(f"""{HEAD}
    g (float[N, 4] x, bool[N] keep) => (float y, float[N, 4] z) <float[N, 4] a, float[N, 4] b> {{
      kept = Compress <axis = 0> (x, keep)  a = Softmax (kept)  b = Sin (a)  y = ReduceSum <keepdims = 0> (b)
      sum = Add (x, y)  c = Softmax (sum)  d = Cos (c)  z = Softmax (d)
    }}""")
    given = np.random.default_rng(3).standard_normal((64, 4)).astype(np.float32), np.arange(64) < 2
    wanted = pt.compile(pt.load(model), "reference")(*given)
    results = pt.compile(pt.load(model), f"HETERO:{device},reference")(*given)
    for result, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)
