"""Words that users of other programs type from habit: each works, or the error names Partita's own word for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import partita as pt

IMAGE = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def graph() -> pt.Graph:
    return pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)), name="relu")], name="small")


@pytest.fixture
def proto(graph: pt.Graph, tmp_path: Path) -> onnx.ModelProto:
    pt.save(graph, tmp_path / "small.onnx")
    return onnx.load(tmp_path / "small.onnx")


def test_a_model_in_memory_is_compiled(proto: onnx.ModelProto) -> None:
    for source in (proto, proto.SerializeToString(), bytearray(proto.SerializeToString())):
        np.testing.assert_array_equal(pt.compile(source, "reference")(IMAGE)[0], np.maximum(IMAGE, 0))


@pytest.mark.parametrize(
    ("device", "remedy"),
    [
        ("GPU", "Did you mean 'cuda' or 'opencl'?"),
        ("CPU", "Did you mean 'cpu'?"),
        ("AUTO", "HETERO:cuda,cpu gives each op to the first that runs it"),
        ("NPU", "OpenVINO's own devices are openvino.CPU, openvino.GPU and openvino.NPU"),
        ("mine", "Register a device of your own first: pt.register_accelerator"),
        ("cuda:1", "The number of a device follows a dot: cuda.1"),
        ("CUDAExecutionProvider", "{'onnxruntime': {'PROVIDER': 'CUDAExecutionProvider'}}, or 'cuda'"),
        ("TensorrtExecutionProvider", "{'PROVIDER': 'TensorrtExecutionProvider'}}, or 'cuda'"),
        ("QNNExecutionProvider", "{'PROVIDER': 'QNNExecutionProvider'}}."),
    ],
)
def test_devices(graph: pt.Graph, device: str, remedy: str) -> None:
    with pytest.raises(pt.UnknownDevice) as caught:
        pt.compile(graph, device)
    assert remedy in str(caught.value)


def test_auto_is_for_compile(graph: pt.Graph) -> None:
    with pytest.raises(pt.UnknownDevice, match="AUTO is for compile and auto, .* HETERO:cpu,reference gives each"):
        pt.query(graph, "AUTO:cpu,reference")


@pytest.mark.parametrize(
    ("device", "key", "meant"),
    [
        ("cpu", "INFERENCE_PRECISION_HINT", "PRECISION"),
        ("cpu", "intra_op_num_threads", "NUM_THREADS"),
        ("cpu", "num_threads", "NUM_THREADS"),
        ("cpu", "KEY_INFERENCE_NUM_THREADS", "NUM_THREADS"),
        ("cpu", "enable_profiling", "PERF_COUNT"),
        ("reference", "intra_op_num_threads", None),
    ],
)
def test_keys(graph: pt.Graph, device: str, key: str, meant: str | None) -> None:
    with pytest.raises(pt.UnknownKey) as caught:
        pt.query(graph, device, config={key: 2})
    remedy = str(caught.value).splitlines()[1].strip()
    assert remedy.startswith(f"Did you mean {meant!r}?" if meant else "It has ")


def test_keys_that_are_something_else(graph: pt.Graph) -> None:
    for key, remedy in (("DEVICE_PRIORITIES", "is their priority"), ("NUM_STREAMS", "NUM_REQUESTS"), ("LOG_LEVEL", "-v")):
        with pytest.raises(pt.UnknownKey, match=f"has no configuration key {key!r}\n  .*{remedy}"):
            pt.query(graph, "cpu", config={key: 2})


def test_names_in_the_module() -> None:
    names = {
        "InferenceSession": "pt.compile", "Core": "pt.load", "register_pattern_table": "SubgraphProperty",
        "load_model": "pt.load", "run": r"model\(inputs\)", "is_op": "pt.Pattern", "relax": "ONNX's ops", "var": "pt.variable",
        "register_backend": "pt.register_property", "list_devices": "pt.devices",
    }
    for name, remedy in names.items():
        with pytest.raises(AttributeError, match=f"module 'partita' has no attribute '{name}'. .*{remedy}"):
            getattr(pt, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'$"):
        pt.nonesuch


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("run", "Call the model: outputs = m({name: array, ...})"),
        ("create_infer_request", "m.start(inputs) starts a call"),
        ("get_inputs", "m.properties.inputs"),
        ("outputs", "m.properties.outputs are its outputs"),
        ("run_with_iobinding", "m(x, out=array) writes to an array of yours"),
        ("nonesuch", "has no attribute 'nonesuch'"),
    ],
)
def test_methods(graph: pt.Graph, method: str, remedy: str) -> None:
    model = pt.compile(graph, "reference")
    assert not hasattr(model, method)
    with pytest.raises(AttributeError) as caught:
        getattr(model, method)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("net.tflite", b"\x1c\0\0\0TFL3", "it is a file of LiteRT's\n  Convert it to ONNX: python -m tf2onnx.convert"),
        ("net.xml", b"<?xml version='1.0'?><net/>", "it is a file of OpenVINO's\n  OpenVINO writes no ONNX"),
        ("net.gguf", b"GGUF\3", "it is a file of llama.cpp's"),
        ("net.unknown", b"\x1c\0\0\0", "it is damaged, or of another format"),
        ("net.txt", b"some text", "it is a text file"),
    ],
)
def test_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pt.ReadError) as caught:
        pt.load(tmp_path / name)
    assert message in str(caught.value)


@pytest.mark.parametrize(("package", "remedy"), [("openvino", "OpenVINO writes no ONNX"), ("tvm.ir.module", "calls TVM itself")])
def test_objects(package: str, remedy: str) -> None:
    theirs = type("Model", (), {"__module__": package})()
    for read in (pt.load, pt.compile):
        with pytest.raises(pt.PartitaError) as caught:
            read(theirs)
        assert remedy in str(caught.value)


def test_an_op_that_nobody_declared() -> None:
    with pytest.raises(pt.UnknownOp, match=r"Did you mean 'Swish'.*Declare an op of your own with register_op"):
        pt.op("Swish2", pt.variable("x", "float32", (2, 3)))
    for name in ("relu", "nn.relu", "relax.nn.relu", "aten::relu"):
        with pytest.raises(pt.UnknownOp, match=r"Did you mean 'Relu'\?"):
            pt.op(name, pt.variable("x", "float32", (2, 3)))


def test_a_model_is_no_package(tmp_path: Path, graph: pt.Graph) -> None:
    pt.save(graph, tmp_path / "net.onnx")
    with pytest.raises(pt.PartitaError, match="this is not a package of Partita's.*\n  pt.load reads ONNX files"):
        pt.import_model(tmp_path / "net.onnx")


def test_a_backend_is_no_device(graph: pt.Graph) -> None:
    class Both(pt.Accelerator):
        name = "both"

    pt.register_property("both", lambda: pt.PatternProperty(pt.Pattern("Relu"), "both"))
    try:
        with pytest.raises(pt.UnknownDevice, match="It is a backend of properties: .*backend='both'"):
            pt.compile(graph, "HETERO:both,reference")
        with pytest.warns(UserWarning, match="'both' is a device, and has registered properties too"):
            pt.register_accelerator(Both)
    finally:
        pt.unregister_property("both")
        pt.unregister_accelerator("both")


def test_options_of_other_programs(graph: pt.Graph) -> None:
    options = [
        ("providers", "It is device"), ("dynamic", "dynamic_shapes"), ("enabled_precisions", "PRECISION"),
        ("intra_op_num_threads", "NUM_THREADS"),
    ]
    for option, hint in options:
        with pytest.raises(TypeError, match=rf"compile\(\) got an unexpected keyword argument '{option}'\. .*{hint}"):
            pt.compile(graph, "reference", **{option: 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"from_torch\(\) got .* 'dynamic_axes'\. Name the sizes that vary: dynamic_shapes"):
        pt.from_torch(graph, dynamic_axes={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"compile\(\) got an unexpected keyword argument 'nonesuch'$"):
        pt.compile(graph, "reference", nonesuch=1)  # type: ignore[arg-type]


def test_what_is_given_in_place_of_something_else(graph: pt.Graph, tmp_path: Path) -> None:
    with pytest.raises(pt.AcceleratorError, match=r"device ndarray: .*\n  Inputs go by name: .*example_inputs="):
        pt.compile(graph, IMAGE)  # type: ignore[arg-type]
    with pytest.raises(pt.GraphError, match=r"a Graph is expected, not CompiledModel\n  m.export\(path\) writes"):
        pt.save(pt.compile(graph, "reference"), tmp_path / "net.onnx")  # type: ignore[arg-type]


def test_a_selector_in_place_of_a_property(graph: pt.Graph) -> None:
    for one in (pt.ContainOpSelector({"Relu"}), pt.Pattern("Relu"), pt.ContainOpSelector):
        with pytest.raises(pt.PartitaError, match=r"not a SubgraphProperty\n  A property makes .*pt.PatternProperty"):
            pt.plan(graph, subgraph_property=one)


def test_a_model_of_the_zoo() -> None:
    with pytest.raises(pt.ReadError, match="Did you mean 'zoo:resnet50'"):
        pt.load("ResNet50")
