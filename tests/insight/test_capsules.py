"""A subgraph in a folder, run again by a process that knows nothing else."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.arrays.distance import array_distance
from partita.accelerators.store.capsules.anonymous import anonymous, indices_like, random_like
from partita.accelerators.store.capsules.capsule import FILES
from partita.accelerators.store.capsules.value_roles import Indices, roles_of
from partita.by_layer import layer_of
from partita.graph.types import numpy_dtype
from tests.cli.conftest import Command, model, partita  # noqa: F401  fixtures
from tests.graphs.small_models import convolutions, inputs_of, transformer
from tests.insight.empty_environment import mailed
from tests.insight.small_devices import device_of
from tests.insight.vendor_device import Vendor

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def vendor() -> Iterator[str]:
    pt.register_accelerator(Vendor)
    yield Vendor.name
    pt.unregister_accelerator(Vendor.name)


def rerun(folder: Path, *options: str, path: str = str(ROOT)) -> tuple[int, str]:
    """The script's status and what it prints, in a process whose module path has this alone."""
    command = [sys.executable, "-P", "run.py", *options]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_the_node_to_blame_runs_again_elsewhere(vendor: str, tmp_path: Path) -> None:
    diagnosis = pt.diagnose(transformer(), vendor)
    folder = pt.capsule(diagnosis.fault, tmp_path / "softmax")
    assert {path.name for path in folder.iterdir()} == {
        "capsule.json", "expected.npz", "inputs.npz", "model.onnx", "requirements.txt", "run.py",
    }
    data = json.loads((folder / "capsule.json").read_text())
    assert data["nodes"] == [{"name": "softmax_0", "op": "Softmax"}]
    assert (data["device"], data["module"], data["reason"]) == ("vendor", "tests.insight.vendor_device", "wrong numbers")
    assert data["versions"]["numpy"] == np.__version__
    status, printed = rerun(folder)
    assert status == 1
    assert printed.splitlines() == [
        "1 op on vendor; reported: wrong numbers", "  softmax_0: error 1.00e-02, at most 0.001; 0 NaN", "wrong: softmax_0",
    ]
    status, printed = rerun(folder, "--device", "reference")
    assert (status, printed.splitlines()[-1]) == (0, "all outputs are right")
    with pytest.raises(pt.AcceleratorError, match="there is a capsule already"):
        pt.capsule(diagnosis.fault, folder)


def test_a_plugin_file_defines_the_device(vendor: str, tmp_path: Path) -> None:
    folder = pt.capsule(transformer(), tmp_path / "whole", 0, vendor)
    data = json.loads((folder / "capsule.json").read_text())
    data["module"] = "a_module_that_is_not_here"
    (folder / "capsule.json").write_text(json.dumps(data))
    status, printed = rerun(folder, "--plugin", str(ROOT / "tests/insight/vendor_device.py"))
    assert (status, printed.splitlines()[-1]) == (1, "wrong: add_1")
    status, printed = rerun(folder)
    assert status == 2 and "vendor cannot be found here: ModuleNotFoundError: No module named" in printed


def test_a_device_of_partita_is_found_wherever_its_module_is(tmp_path: Path) -> None:
    folder = pt.capsule(transformer(), tmp_path / "whole", 0, "reference")
    data = json.loads((folder / "capsule.json").read_text())
    (folder / "capsule.json").write_text(json.dumps({**data, "module": "partita.accelerators.where_it_was"}))
    assert rerun(folder)[0] == 0


def test_a_fault_that_is_only_wrong_by_a_smaller_tolerance_stays_wrong(tmp_path: Path) -> None:
    with device_of(lambda node, inputs: [np.maximum(inputs[0], 0) * np.float32(1.0002)], "Relu") as device:
        diagnosis = pt.diagnose(convolutions(), device, tolerance=1e-4)
        assert pt.diagnose(convolutions(), device).ok
    data = json.loads((pt.capsule(diagnosis.fault, tmp_path / "relu") / "capsule.json").read_text())
    assert data["tolerance"] == 1e-4


def test_the_script_has_the_measure_of_a_diagnosis(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a mask, or numbers that only look like one, stand beside the others."""
    is_right = runpy.run_path(str(ROOT / "accelerators/store/capsules/run.py.txt"))["is_right"]
    for wanted in ([2, 1, -1e9], [2, 1, -1e9, -np.inf], [2, 1, -900], [20, 1, -1001], [1e9, 1, 2], [0, 0, -1e9], [np.nan, 1]):
        array = np.array(wanted, np.float32)
        error = array_distance(array * np.float32(1.01), array)
        assert is_right("y", array * np.float32(1.01), array, error * 1.001)
        assert not is_right("y", array * np.float32(1.01), array, error * 0.999)
    assert "error 1.00e-02, at most" in capsys.readouterr().out


def test_an_engine_needs_no_partita(tmp_path: Path) -> None:
    engine = pytest.importorskip("onnxruntime")
    graph = convolutions()
    folder = pt.capsule(graph, tmp_path / "capsule", "onnxruntime_0", "onnxruntime", inputs_of(graph)[0])
    packages = (folder / "requirements.txt").read_text().splitlines()
    assert packages == [f"onnxruntime=={engine.__version__}", f"numpy=={np.__version__}"]
    assert rerun(folder, path="")[0] == rerun(folder, "--plain")[0] == 0


def test_of_several_subgraphs_one_is_cut_out_with_its_own_inputs(tmp_path: Path) -> None:
    graph = convolutions()
    options = {"config": {"HETERO": {}}, "inputs": inputs_of(graph)[0]}
    placed = pt.query(graph, "HETERO:onnxruntime,reference", forbid={"MaxPool": "onnxruntime"}).apply(graph)
    folder = pt.capsule(placed, tmp_path / "capsule", 2, "HETERO:onnxruntime,reference", **options)
    data = json.loads((folder / "capsule.json").read_text())
    assert data["inputs"] == ["maxpool_0"]
    assert data["plan"]["subgraph"] == "onnxruntime_2"
    assert rerun(folder)[0] == 0
    with pytest.raises(pt.AcceleratorError, match="there is no subgraph 7") as error:
        pt.capsule(placed, tmp_path / "none", 7, "HETERO:onnxruntime,reference", **options)
    assert "They are 0 to 2: onnxruntime_0, reference_1, onnxruntime_2" in str(error.value)


def test_anonymous_weights_have_the_same_statistics_and_names_say_nothing(tmp_path: Path, vendor: str) -> None:
    graph = pt.apply_pass(transformer(), "InferShape")
    hidden = anonymous(graph).graph
    for before, after in zip(graph.nodes, hidden.nodes, strict=True):
        assert (before.op, before.output_types) == (after.op, after.output_types)
        if before.is_constant and before.value.size >= 64:
            assert not np.array_equal(before.value, after.value)
            assert after.value.mean() == pytest.approx(before.value.mean(), abs=0.2)
            assert after.value.std() == pytest.approx(before.value.std(), rel=0.3)
            assert before.value.min() <= after.value.min() <= after.value.max() <= before.value.max()
    diagnosis = pt.diagnose(graph, vendor)
    folder = pt.capsule(diagnosis.fault, tmp_path / "hidden", anonymous=True)
    texts = b"".join((folder / name).read_bytes() for name in ("model.onnx", "capsule.json", "inputs.npz", "expected.npz"))
    assert not [node.name for node in graph.nodes if node.is_op and node.name.encode() in texts]
    status, printed = rerun(folder)
    assert (status, printed.splitlines()[-1]) == (1, "wrong: output0")


def test_indices_are_followed_through_each_part_that_they_are_split_in() -> None:
    given = pt.variable("given", "int64", (6,))
    short, long = pt.variable("short", "float32", (5,)), pt.variable("long", "float32", (9,))
    first, second = pt.op("Split", given, n_outputs=2, num_outputs=2, name="split")
    unread = pt.Graph([pt.op("Gather", short, second, name="taken")])
    both = pt.Graph([pt.op("Gather", long, first, name="some"), pt.op("Gather", short, second, name="others")])
    assert roles_of(unread).bounds[given[0]].sizes == roles_of(both).bounds[given[0]].sizes == (5,)


def test_what_fails_to_compile_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    with device_of(None, "Gelu") as device:
        pt.compile(transformer(), f"HETERO:{device},reference", config={"HETERO": {"CAPSULES": tmp_path}})
    data = json.loads((tmp_path / "small_0" / "capsule.json").read_text())
    assert data["reason"] == "ValueError: no kernel for Gelu"
    status, printed = rerun(tmp_path / "small_0", "--device", "reference")
    assert (status, printed.splitlines()[-1]) == (0, "it compiles")


@pytest.mark.parametrize("kernel", [lambda node, inputs: 1 / 0, lambda node, inputs: [np.zeros(3, np.float32)]])
def test_what_fails_while_it_runs_is_kept_once_with_its_inputs(kernel: Any, tmp_path: Path) -> None:
    with device_of(kernel, "Gelu") as device:
        compiled = pt.compile(transformer(), device, config={"CAPSULES": tmp_path})
        array = inputs_of(transformer())[0]
        for _ in range(2):
            with pytest.raises(pt.RunError):
                compiled(array)
    assert [path.name for path in tmp_path.iterdir()] == ["small_0"]
    with np.load(tmp_path / "small_0" / "inputs.npz") as arrays:
        assert np.array_equal(arrays["x"], array if isinstance(array, np.ndarray) else next(iter(array.values())))
    assert rerun(tmp_path / "small_0", "--device", "reference")[0] == 0


def test_a_capsule_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with device_of(None, "Gelu") as device, pytest.warns(UserWarning, match="there is no capsule of subgraph 'small_0'"):
        pt.compile(transformer(), f"HETERO:{device},reference", config={"HETERO": {"CAPSULES": tmp_path / "file"}})



def test_no_file_of_the_users_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("the user's own")
    with pytest.raises(pt.AcceleratorError, match="there is a file 'run.py' already"):
        pt.capsule(convolutions(), tmp_path, 0, "reference")
    assert [path.name for path in tmp_path.iterdir()] == ["run.py"]


def test_a_capsule_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    x = pt.variable("x", "float32", (1, 4))
    graph = pt.Graph([pt.op("SequenceConstruct", x, x, name="list")])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious").write_text("mine")
    for folder in ("there", "capsule", "capsule"):
        with pytest.raises(pt.NotSupported, match="a list cannot be kept in a file of arrays"):
            pt.capsule(graph, tmp_path / folder, 0, "reference")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["there", "there/precious"]


@pytest.mark.parametrize("anonymous", [False, True])
def test_a_tolerance_may_be_one_of_numpys_numbers(anonymous: bool, tmp_path: Path) -> None:
    folder = pt.capsule(convolutions(), tmp_path / "capsule", 0, "reference", tolerance=np.float32(0.5), anonymous=anonymous)
    assert json.loads((folder / "capsule.json").read_text())["tolerance"] == 0.5


@pytest.mark.parametrize(
    ("option", "values", "match"),
    [
        ("seed", [-1, 1.5, float("nan"), "x", None, []], "capsule: seed cannot be .*\n  Give a whole number from 0 on"),
        ("tolerance", ["x", [], -1], "capsule: tolerance is .*\n  Give max"),
        ("keep", [None, 5, "abc", [1], b"abc"], "capsule: keep cannot be .*\n  Give a list of strings"),
        ("review", [5, "x"], "capsule: review cannot be .*\n  Give a function, or None"),
        ("folder", [5, None], "capsule, option folder: a folder is a path, not"),
        ("folder", ["\0", b"\0"], "capsule, option folder: there is a zero in the name"),
        ("folder", ["x" * 300], "the capsule cannot be written: File name too long"),
    ],
)
def test_what_an_option_of_a_capsule_cannot_be(option: str, values: list[Any], match: str, tmp_path: Path) -> None:
    for value in values:
        options: dict[str, Any] = {"folder": tmp_path / "capsule", "devices": "reference", "anonymous": True, option: value}
        with pytest.raises(pt.PartitaError, match=match):
            pt.capsule(convolutions(), **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_may_be_named_by_bytes(tmp_path: Path) -> None:
    assert pt.capsule(convolutions(), bytes(tmp_path / "capsule"), devices="reference") == tmp_path / "capsule"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["²", "9" * 5000, "-1"])
def test_the_verb_is_given_a_subgraph_that_is_not_there(partita: Command, model: str, name: str) -> None:  # noqa: F811
    done = partita(f"capsule {model} --devices reference --subgraph={name} -o kept")
    assert done.status == 1 and f"there is no subgraph '{name}"[:60] in done.err


@pytest.mark.slow
def test_resnet_with_a_fault_is_wrong_in_an_empty_environment_too(tmp_path: Path) -> None:
    """Takes some minutes, and asks pip's index for what Partita needs."""
    outcome = mailed(tmp_path, "zoo:resnet50")
    names = {line.partition("==")[0] for line in outcome.installed}
    assert {"partita", "partita-example-vendor"} <= names and "onnxruntime" not in names
    assert outcome.status == 1 and "wrong: " in outcome.printed
    assert 1 <= len(outcome.nodes) <= 3


def test_names_with_anything_in_them_lead_nowhere(tmp_path: Path) -> None:
    x = pt.variable("../../x", "float32", (2, 3))
    graph = pt.Graph([pt.op("Exp", x, name="/etc/pa\0ss")], name="../net", output_names=["..\0"])
    folder = pt.capsule(graph, tmp_path / "capsule", 0, "reference")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["capsule"]
    status, printed = rerun(folder)
    assert (status, printed.splitlines()[-1]) == (0, "all outputs are right")


def test_the_verb(partita: Command, model: str) -> None:  # noqa: F811
    done = partita(f"capsule {model} --devices reference -o kept")
    assert done.status == 0, done.err
    assert done.out == "kept: capsule.json, expected.npz, inputs.npz, model.onnx, requirements.txt, run.py\n"
    assert rerun(Path("kept"))[0] == 0
    with device_of(lambda node, inputs: [np.abs(inputs[0])], "Relu") as device, warnings.catch_warnings():
        done = partita(f"diagnose {model} --devices {device} --capsule blamed --anonymous")
    assert done.status == 1
    assert json.loads(Path("blamed/capsule.json").read_text())["nodes"] == [{"name": "node0", "op": "Relu"}]


SECRET = "SECRET"


def telling() -> tuple[pt.Graph, dict[str, Any]]:
    """A model that names its owner wherever a file can, and holds numbers that only its owner knows."""
    import onnx
    from onnx import helper, numpy_helper

    def node(op: str, inputs: str, output: str, domain: str = "", **attributes: Any) -> Any:
        names = [f"{SECRET}_{name}" for name in inputs.split()]
        proto = helper.make_node(op, names, [f"{SECRET}_{output}"], name=f"{SECRET}_{op}", domain=domain, **attributes)
        proto.doc_string = SECRET
        return proto

    def value(name: str, dtype: int, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(f"{SECRET}_{name}", dtype, shape)

    def branch(op: str) -> Any:
        return helper.make_graph([node(op, "r bias", op)], f"{SECRET}_{op}", [], [value(op, 1)], doc_string=SECRET)

    tree = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.123456, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [3.14159, 2.71828],
    }
    keys, labels = [f"{SECRET}alpha", f"{SECRET}beta"], [777001, 888002]
    nodes = [
        node("Gather", "table ids", "words"),
        node(f"{SECRET}_fn", "words", "h", f"{SECRET}.domain", **{f"{SECRET}_slope": 0.5}),
        node("Gather", "lookup pos", "found"),
        node("LabelEncoder", "text", "labels", "ai.onnx.ml", keys_strings=keys, values_int64s=labels),
        node("StringNormalizer", "text", "normal", stopwords=[f"{SECRET}stop"], case_change_action="LOWER", is_case_sensitive=1),
        node("Equal", "ids end", "ends"),
        node("Reshape", "h shape", "r"),
        node("TreeEnsembleRegressor", "features", "tree", "ai.onnx.ml", n_targets=1, **tree),
        node("If", "condition", "chosen", then_branch=branch("Add"), else_branch=branch("Sub")),
        node("Einsum", "r bias", "sum", equation="SECT,T->CES".replace("SEC", "SCE")),
    ]
    note = nodes[0].metadata_props.add()
    note.key = note.value = SECRET
    slope = onnx.AttributeProto(name="alpha", ref_attr_name=f"{SECRET}_slope", type=onnx.AttributeProto.FLOAT)
    inner = node("LeakyRelu", "x", "y")
    inner.attribute.add().CopyFrom(slope)
    opsets = [helper.make_opsetid(domain, version) for domain, version in ((f"{SECRET}.domain", 1), ("", 21), ("ai.onnx.ml", 3))]
    function = helper.make_function(
        f"{SECRET}.domain", f"{SECRET}_fn", [f"{SECRET}_x"], [f"{SECRET}_y"], [inner], opsets[1:2], attributes=[f"{SECRET}_slope"]
    )
    arrays = {
        "table": np.random.default_rng(0).standard_normal((50000, 2, 3)).astype(np.float32),
        "lookup": np.array([31337, 40404, 4242, 777001, 888002, 31338, 31339, 1000, 2000]),
        "end": np.array([31337, 40404, 4242, 777001, 888002, 31338]),
        "shape": np.array([1, 6, 2, 3]),
        "bias": np.array([0.11111, 0.22222, 0.33333], np.float32),
    }
    graph = helper.make_graph(
        nodes, f"{SECRET}_net",
        [value("ids", 7, [f"{SECRET}_n", f"{SECRET}_t"]), value("pos", 7, [f"{SECRET}_k"]), value("text", 8, [f"{SECRET}_w"]),
         value("features", 1, [f"{SECRET}_m", 2]), value("condition", 9, [])],
        [value("found", 7), value("labels", 7), value("normal", 8), value("ends", 9), value("tree", 1), value("chosen", 1),
         value("sum", 1)],
        [numpy_helper.from_array(array, f"{SECRET}_{name}") for name, array in arrays.items()], doc_string=SECRET,
    )
    proto = helper.make_model(
        graph, opset_imports=[*opsets, helper.make_opsetid(f"{SECRET}.unused", 7)], functions=[function], ir_version=10,
        producer_name=SECRET, doc_string=SECRET, domain=SECRET,
    )
    helper.set_model_props(proto, {SECRET: SECRET})
    inputs = {
        "ids": np.array([[31337, 40404, 4242, 31337, 49999, 7]]), "pos": np.array([3, 0, 8]),
        "text": np.array([keys[0], f"{SECRET}other", keys[1]], object),
        "features": np.array([[0.987654, 0.456789]], np.float32), "condition": np.array(True),
    }
    return pt.load(proto), {f"{SECRET}_{name}": array for name, array in inputs.items()}


def test_an_anonymous_capsule_holds_no_word_and_no_number_of_its_model(tmp_path: Path) -> None:
    import onnx

    graph, inputs = telling()
    listed: list[str] = []
    folder = pt.capsule(graph, tmp_path / "hidden", 0, "reference", inputs, anonymous=True, review=listed.extend)
    arrays = {name: dict(np.load(folder / f"{name}.npz")) for name in ("inputs", "expected")}
    for path in folder.iterdir():
        assert not any(SECRET.encode(encoding) in path.read_bytes() for encoding in ("utf-8", "utf-32-le")), path.name
    written = f"{onnx.load(folder / 'model.onnx')} {arrays} {listed}"
    known = "31337 40404 4242 777001 888002 0.1234 3.1415 2.7182 0.1111 0.9876".split()
    assert not [number for number in known if number in written]
    assert listed[1:4] == ["inputs of one number: True", "sizes and axes: [1, 6, 2, 3]", "numbers in attributes: alpha = 0.5"]
    assert (arrays["expected"]["output1"] != -1).tolist() == [True, False, True], "the keys fit the texts"
    assert rerun(folder)[0] == 0


def test_texts_and_numbers_that_stand_alone_in_attributes(tmp_path: Path) -> None:
    """In arrays of one element too; what stays is said."""
    words = [np.array([f"{SECRET}{name}"], object) for name in ("key", "value", "other")]
    tables = [np.array([number], np.int64) for number in (192837465, 918273645, 555666777)]
    text, time = pt.variable("text", "string", ("N",)), pt.variable("x", "float32", ("T", 1, 4))
    encoded = [
        pt.op("LabelEncoder", given, domain="ai.onnx.ml", keys_tensor=keys, values_tensor=values, default_tensor=default)
        for given, (keys, values, default) in ((text, words), (pt.op("Cast", pt.op("Shape", time), to="int64"), tables))
    ]
    ones = pt.constant(np.ones((1, 4, 4), np.float32))
    layer = pt.op("RNN", time, ones, ones, hidden_size=4, activations=["LeakyRelu"], activation_alpha=[0.125])
    filled = pt.op("ConstantOfShape", pt.op("Shape", layer[0]), value=np.array([7654.25], np.float32))
    graph = pt.Graph([*encoded, layer, filled], [text, time], opsets={"": 21, "ai.onnx.ml": 4})
    listed: list[str] = []
    inputs = {"text": np.array([f"{SECRET}key"], object), "x": np.ones((2, 1, 4), np.float32)}
    folder = pt.capsule(graph, tmp_path / "hidden", 0, "reference", inputs, anonymous=True, review=listed.extend)
    for path in folder.iterdir():
        data = path.read_bytes()
        assert not any(SECRET.encode(encoding) in data for encoding in ("utf-8", "utf-32-le")), path.name
        assert not any(number.tobytes() in data for number in tables), path.name
    assert "numbers in attributes: activation_alpha = [0.125], value = 7654.25" in listed
    assert rerun(folder)[0] == 0


def test_what_stays_is_seen_before_anything_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(lines: Any) -> None:
        raise ValueError(lines[0])

    with pytest.raises(ValueError, match="the ops with their order, their shapes"):
        pt.capsule(convolutions(), tmp_path / "capsule", 0, "reference", anonymous=True, review=refuse)
    assert not list(tmp_path.iterdir())
    pt.capsule(convolutions(), tmp_path / "capsule", 0, "reference", anonymous=True)
    assert "what stays in the capsule of the model:" in caplog.text and "the device: reference" in caplog.text


def test_texts_of_custom_ops_stay_where_their_attribute_is_named() -> None:
    x = pt.variable("x", "float32", ("N",))
    graph = pt.Graph([pt.op("Own", x, domain="mine", mode="fast", label="ours", sizes=[1, 2])])
    hidden = anonymous(graph, keep=["mode"])
    (node,) = (node for node in hidden.graph.nodes if node.is_op)
    assert (node.op, node.domain, node.attrs["mode"], node.attrs["sizes"]) == ("Own", "mine", "fast", [1, 2])
    assert node.attrs["label"] != "ours" and hidden.graph.inputs[0][0].type == pt.TensorType("float32", ("s0",))
    assert set(hidden.stays) == {
        "attributes of mine::Own: sizes = [1, 2]", "texts that were to be kept: mode = 'fast'",
        "ops that a device knows by name: mine::Own",
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "uint64"])
def test_a_number_that_stands_everywhere_is_another_one_everywhere(dtype: str) -> None:
    random, kind = np.random.default_rng(0), numpy_dtype(dtype)
    for value in (77, 2, *((2**63 + 11,) if dtype == "uint64" else ()), *(() if dtype.startswith("u") else (-77,))):
        array = np.full((3, 4), value, kind)
        drawn = random_like(array, random)
        assert (drawn != array).all() and (drawn == drawn[0, 0]).all() and drawn.dtype == kind
        assert abs(float(drawn[0, 0])) <= abs(float(value)) and (float(drawn[0, 0]) > 0) == (value > 0)
    for value in (0, 1):
        assert (random_like(np.full(3, value, kind), random) == value).all(), "it tells nothing, and a device may look for it"
    masked = np.array([77, -np.inf, 77, np.nan]).astype(numpy_dtype("float32"))
    drawn = random_like(masked, random)
    assert drawn[0] == drawn[2] != 77 and np.isneginf(drawn[1]) and np.isnan(drawn[3])


def test_a_column_of_truth_values_is_shuffled() -> None:
    for array in (np.arange(64)[:, None] % 3 == 0, (np.arange(64)[:, None] % 3 == 0).astype(np.int64)):
        drawn = random_like(array, np.random.default_rng(0))
        assert drawn.shape == array.shape and drawn.sum() == array.sum() and (drawn != array).any()


def test_indices_stay_in_their_dimensions_and_what_is_written_stays_distinct() -> None:
    x, updates = pt.variable("x", "float32", (6, 5)), pt.variable("u", "float32", (6,))
    written = np.array([[0, -5], [5, 4], [3, 0], [2, -1], [2, 0], [1, 9]])
    axes = pt.constant(np.array([0, 1]))
    columns = pt.constant(np.array([0, -1, 4]))
    nodes = [pt.op("ScatterND", x, pt.constant(written), updates), pt.op("Gather", x, columns, axis=1)]
    nodes.append(pt.op("ReduceSum", x, axes))
    graph, seen = pt.apply_pass(pt.Graph(nodes, inputs=[x, updates]), "InferShape"), set()
    for seed in range(40):
        scatter, gather, total = (node for node in anonymous(graph, seed=seed).graph.nodes if node.is_op)
        first, second, third = (node.inputs[1].node.value for node in (scatter, gather, total))
        assert (first[:, 0] >= 0).all() and (first[:, 0] < 6).all() and first[-1, 1] == 9, "outside it was, and is"
        assert ((first[:5, 1] < 0) == (written[:5, 1] < 0)).all() and (first[:5, 1] >= -5).all() and (first[:5, 1] < 5).all()
        assert len({(row, column % 5) for row, column in first[:5].tolist()}) == 5
        assert ((second < 0) == [False, True, False]).all() and (second >= -5).all() and (second < 5).all()
        assert third.tolist() == [0, 1]
        seen.add((first[:5].tobytes(), second.tobytes()))
    assert len(seen) > 20


def test_masks_keep_their_rows_and_tables_their_order() -> None:
    random = np.random.default_rng(0)
    mask = np.tri(6, dtype=bool)
    assert (random_like(mask, random).sum(-1) == mask.sum(-1)).all() and (random_like(mask, random) != mask).any()
    table = np.arange(100, 1000, 9)
    drawn = random_like(table, random)
    assert (np.diff(drawn) > 0).all() and drawn.min() >= 100 and drawn.max() <= 991 and (drawn != table).any()
    masked = np.where(mask, np.float32(0.25), -np.inf)
    assert (np.isinf(random_like(masked, random)) == ~mask).all()


def test_sorted_indices_of_one_dimension_stay_sorted() -> None:
    random = np.random.default_rng(0)
    rising = np.arange(0, 60, 3)
    one, two = (indices_like(array, Indices((100,) * n), random) for n, array in ((1, rising), (2, rising.reshape(-1, 2))))
    assert (np.diff(one) >= 0).all() and len(set(one)) > 5 and (np.diff(two) < 0).any()


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("seen", [[0], [3, 0, 3], [-4, 2]])
def test_indices_of_an_unknown_size_stay_within_those_seen(seen: list[int], is_written: bool) -> None:
    random = np.random.default_rng(0)
    drawn = [indices_like(np.array(seen), Indices((None,), is_written), random) for _ in range(200)]
    end = max(map(abs, seen)) + 1
    expected = [set(range(end)) if index >= 0 else set(range(-end, 0)) for index in seen]
    if not is_written:
        assert set().union(*map(set, drawn)) == set().union(*expected)
    assert all(-end <= index < end for row in drawn for index in row)


def test_text_and_complex_numbers_are_equal_or_infinitely_far() -> None:
    for first, second in ((np.array(["a", "b"], object), np.array(["a", "c"], object)), (np.array([1j, 2]), np.array([1j, 3]))):
        assert array_distance(first, first.copy()) == 0 and array_distance(first, second) == np.inf
        same, other = (layer_of("y", "Relu", True, array, first) for array in (first.copy(), second))
        assert (same.absolute, same.cosine) == (0, 1) and (other.absolute, other.cosine) == (np.inf, 0)
