"""Packages that strangers made: no manifest, plan or body makes an import open a file, load a library or run a command."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import onnx
import pytest

import partita as pt
from partita.accelerators import Key
from partita.accelerators.interface.registry import accelerator, device_names
from partita.accelerators.runtime.package.container import Package, PackageError
from partita.cli import exits
from partita.cli.main import main
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.package.forging import forge
from tests.graphs.networks import dynamic_net, inputs_of, small_net


def usable_devices() -> list[str]:
    listed = []
    for name in device_names():
        try:
            accelerator(name)
            listed.append(name)
        except pt.AcceleratorUnavailable:
            pass
    return listed


VALUE = {"PROPERTIES": {"CACHE_DIR": "evil"}, "PROVIDER_OPTIONS": {"ep_context_file_path": "evil"}}


@pytest.fixture
def exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def export(name="reference", graph=None):
        path = tmp_path / "good.partita"
        pt.compile(graph or small_net(), name).export(path)
        return path

    return export


def giving(**values):
    def change(manifest):
        for row in manifest["units"]:
            row["config"].update(values)

    return change


def refused(path, match, **options) -> str:
    with pytest.raises(PackageError, match=match) as caught:
        pt.import_model(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_the_keys_that_name_files_are_known_as_such():
    """A key that is added to a device has to be looked at: one of these lists gets it."""
    values = {
        "cpu": "DEVICE_ID PERF_COUNT PRECISION PROGRESS ARCH NUM_THREADS INTEGERS BFLOATS ANY_SIZE SKIP_PASSES",
        "onnxruntime": "DEVICE_ID PERF_COUNT PRECISION NUM_THREADS INTER_OP_THREADS ALLOW_SPINNING SHARED_THREADS"
        " GRAPH_OPTIMIZATION PROVIDER NAN EP_NAME EP_DEVICE",
        "openvino": "DEVICE_ID PERF_COUNT PRECISION NUM_THREADS NAN PERFORMANCE_HINT NUM_STREAMS",
        "reference": "DEVICE_ID PERF_COUNT PRECISION",
    }
    for name in set(values) & set(usable_devices()):
        given = {key for key, what in accelerator(name).keys().items() if not what.names_files}
        assert given == set(values[name].split()), name


@pytest.mark.parametrize("name", [name for name in device_names() if name != "cuda"])
def test_a_manifest_gives_no_key_that_may_name_a_file(name, exported, tmp_path):
    """With "CACHE_DIR" an import loaded a shared library from that folder."""
    if name not in usable_devices():
        pytest.skip("it is not installed")
    good = exported(name)
    for key in [key for key, what in accelerator(name).keys().items() if what.names_files]:
        evil = forge(good, tmp_path / "evil.partita", giving(**{key: VALUE.get(key, str(tmp_path / "evil"))}))
        for options in ({}, {"recompile": True}):
            cause = f"it gives device '{name}' a value for {key}, which may name files, folders or code"
            result = refused(evil, cause, **options)
            assert "Do not trust the file. If you want it so, say it yourself" in result
        assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("dtype", ["9" * 5000, "V10", "object", "(2,)f4", "f4,f4", None, 7])
def test_a_weight_is_of_an_element_type(dtype, exported, tmp_path):
    """numpy parses some of them as Python, and raises a SyntaxError."""
    pytest.importorskip("tvm")

    def change(manifest):
        for row in manifest["units"]:
            row["weights"] = [[at, dtype, shape] for at, _, shape in row["weights"]]

    refused(forge(exported("cpu"), tmp_path / "evil.partita", change), "there is no element type|unhashable")


def test_no_value_of_such_a_key_is_harmless_not_even_its_default(exported, tmp_path):
    for value in (None, True, 0, "on", "off"):
        refused(forge(exported(), tmp_path / "evil.partita", giving(CACHE_DIR=value)), "a value for CACHE_DIR")


def test_sizes_that_are_compiled_later_take_no_folder_from_the_file(exported, tmp_path):
    """Where sizes vary the code is not in the file but is compiled, or read from the cache, when a size first comes."""
    if "cpu" not in usable_devices():
        pytest.skip("there is no TVM here")
    good = exported("cpu", dynamic_net())
    refused(forge(good, tmp_path / "evil.partita", giving(CACHE_DIR=str(tmp_path / "evil"))), "a value for CACHE_DIR")
    assert not (tmp_path / "evil").exists()


def test_a_plugins_key_travels_only_if_it_is_declared_a_value(exported, tmp_path):
    seen = []
    keys = {"LIBRARY": "", "LEVEL": Key(1)}
    compiled = lambda self, g, config: seen.append(dict(config)) or self.subgraph_type(g)  # noqa: E731
    with device("plug", config_keys=keys, compile=compiled) as plug:
        plug.travels_as_body = True
        good = tmp_path / "good.partita"
        pt.compile(small_net(), "plug", {"LIBRARY": "mine.so", "LEVEL": 3}).export(good)
        pt.import_model(good)
        assert [config["LIBRARY"] for config in seen] == ["mine.so", ""] and seen[1]["LEVEL"] == 3
        refused(forge(good, tmp_path / "evil.partita", giving(LIBRARY="evil.so")), "a value for LIBRARY")
        pt.import_model(good, config={"LIBRARY": "own.so"})
        assert seen[-1]["LIBRARY"] == "own.so"


def test_values_are_checked_as_the_callers_are(exported, tmp_path):
    for values in ({"PERF_COUNT": "perhaps"}, {"PRECISION": "f7"}, {"PERF_COUNT": [1]}, {"DEVICE_ID": {"a": 1}}):
        key = next(iter(values))
        refused(forge(exported(), tmp_path / "evil.partita", giving(**values)), f"{key} cannot be")


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "reference"])
@pytest.mark.parametrize("device_id", ["/etc/passwd", "HETERO:CPU", "7"])
def test_a_device_that_the_file_names_is_one_of_those_there_are(name, device_id, exported, tmp_path):
    if name != "reference":
        pytest.importorskip(name)
    evil = forge(exported(name), tmp_path / "evil.partita", giving(DEVICE_ID=device_id))
    for options in ({}, {"recompile": True}):
        refused(evil, f"DEVICE_ID cannot be '{device_id}'", **options)


@pytest.mark.parametrize("name", ["cpu", "onnxruntime", "openvino"])
def test_a_file_asks_for_no_more_threads_than_a_machine_has(name, exported, tmp_path):
    pytest.importorskip("tvm" if name == "cpu" else name)
    cause = "NUM_THREADS cannot be 100000\n.*Export the model again"
    refused(forge(exported(name), tmp_path / "evil.partita", giving(NUM_THREADS=100_000)), cause)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"requests": 1, "queue": "many"}, "QUEUE_SIZE cannot be 'many'"),
        ({"requests": -3}, "NUM_REQUESTS cannot be -3"),
        ({"limit": "never"}, "REQUEST_SECONDS cannot be 'never'"),
        ({"nothing": 1}, "its manifest is not what this version of Partita writes"),
        ([1], "its manifest is not what this version of Partita writes"),
    ],
)
def test_the_settings_of_the_model_are_checked_too(settings, match, exported, tmp_path):
    evil = forge(exported(), tmp_path / "evil.partita", lambda manifest: manifest.update(settings=settings))
    with pytest.raises(pt.AcceleratorError, match=match):
        pt.import_model(evil)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"subgraphs": None}, "subgraphs is not a list"),
        ({"subgraphs": [{"name": "a", "device": "cpu", "ops": "x"}]}, r"subgraphs\[0\].ops is 'x', which is not an integer"),
        ({"subgraphs": [{}]}, r"subgraphs\[0\] has no 'name'"),
        ({"placement": None}, "placement is not a table"),
        ({"placement": {"devices": [], "nodes": [1], "refusals": {}}}, "placement.nodes is not a table"),
        ({"placement": {"devices": [None], "nodes": {}, "refusals": {}}}, r"placement.devices\[0\] is None, which is not text"),
        ({"placement": {"devices": [], "nodes": {}, "refusals": {"relu1": {"cpu": 5}}}}, "placement.refusals.relu1.cpu is 5"),
        ({"notes": None}, "notes is not a list"),
        ({"model": 5}, "model is 5, which is not text"),
        ({"model": ...}, "it has no 'model'"),
    ],
)
def test_a_report_of_another_form_is_refused_at_import(change, wrong, exported, tmp_path):
    """`str(model.report)` and `report.why` raised a TypeError later."""
    good = exported()
    report = json.loads(bytes(Package(good, None).member("report.json"))) | change
    words = json.dumps({key: value for key, value in report.items() if value is not ...}).encode()
    evil = forge(good, tmp_path / "evil.partita", members={"report.json": words})
    refused(evil, f"its report is not what this version of Partita writes: {wrong}")
    assert main(["explain", str(evil), "relu1"]) == exits.NO


def product(rows=2, depth=4, dtype="float32", names="x"):
    first = pt.variable(names[0], dtype, (rows, depth))
    second = pt.constant(np.ones((4, 8), dtype), name="w") if len(names) == 1 else pt.variable(names[1], dtype, (depth, 8))
    return pt.Graph([pt.op("MatMul", first, second, name="mm")], name="net")


def with_outputs(count):
    x = pt.variable("x", "float32", (2, 4))
    return pt.Graph([pt.op("Tile", x, pt.constant(np.int64([n, 3])), name=f"y{n}") for n in range(1, count + 1)], name="net")


@pytest.mark.parametrize("name", ["reference", "cpu", "onnxruntime"])
@pytest.mark.parametrize(
    ("body", "match"),
    [
        (product(rows=64), r"input 0 of the call and of its body: float32\[2, 4\] and float32\[64, 4\] contradict each other"),
        (product(dtype="float64"), r"input 0 of .*: float32\[2, 4\] and float64\[2, 4\] contradict each other"),
        (product(names="xy"), "the call has 1 input and its body 2"),
        (with_outputs(2), "the call has 1 output and its body 2"),
        (with_outputs(1), "output 0 of .*contradict"),
        (pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 2, 2)))]), "input 0 of .*contradict"),
    ],
)
def test_a_body_fits_the_plan_around_it(name, body, match, exported, tmp_path):
    """The model told of outputs of (2, 8), and gave others of (2, 12)."""
    if name not in usable_devices():
        pytest.skip(f"there is no {name} here")
    good, other = exported(name, product()), tmp_path / "other.partita"
    pt.compile(body, "reference").export(other)
    members = {member: bytes(Package(other, None).member(member)) for member in ("bodies/0.onnx", "weights")}

    def without_code(manifest):
        manifest["units"][0].update(code=None, weights=[], any_size=None)

    refused(forge(good, tmp_path / "evil.partita", without_code, members), match)
    fitting = {member: bytes(Package(good, None).member(member)) for member in members}
    pt.import_model(forge(good, tmp_path / "fine.partita", without_code, fitting))


def test_a_folder_for_pictures_is_not_taken_from_the_file(exported, tmp_path):
    folder = {"dot_folder": str(tmp_path / "evil"), "parallel": None}
    evil = forge(exported(), tmp_path / "evil.partita", lambda manifest: manifest.update(settings=folder))
    assert pt.import_model(evil).settings.dot_folder is None


def test_code_for_a_device_whose_form_is_the_body_is_refused(exported, tmp_path):
    """onnxruntime would have been given a model that nobody had looked at."""
    if "onnxruntime" not in usable_devices():
        pytest.skip("there is no onnxruntime here")
    evil = forge(
        exported("onnxruntime"), tmp_path / "evil.partita",
        lambda manifest: manifest["units"][0].update(code="code/0"), {"code/0": b"anything"},
    )
    refused(evil, "has code, and what 'onnxruntime' compiles travels without")


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "secret", "weights/../secret", "link", ""])
def test_a_body_names_no_file(location, exported, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(4096))
    os.symlink(tmp_path / "secret", tmp_path / "link")
    good = exported()
    package = Package(good, None)
    body = onnx.ModelProto.FromString(bytes(package.member("bodies/0.onnx")))
    tensor = body.graph.initializer[0]
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = location
    if not tensor.external_data:
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
    evil = forge(good, tmp_path / "evil.partita", members={"bodies/0.onnx": body.SerializeToString()})
    refused(evil, "which is missing or shorter|external data")


@pytest.mark.parametrize("name", ["../plan.onnx", "/etc/passwd", "manifest", "", None, 7, ["plan.onnx"], {"a": 1}])
def test_a_member_is_found_in_the_manifest_and_nowhere_else(name, exported, tmp_path):
    evil = forge(exported(), tmp_path / "evil.partita", lambda manifest: manifest["units"][0].update(body=name))
    refused(evil, "it has no member|not what this version")


def test_model_metadata_do_not_reach_an_engine(exported, tmp_path):
    """onnxruntime takes session options from a model's metadata, if the environment allows that."""
    if "onnxruntime" not in usable_devices():
        pytest.skip("there is no onnxruntime here")
    from partita.accelerators.engines.model import engine_model
    good = exported("onnxruntime")
    package = Package(good, None)
    body = onnx.ModelProto.FromString(bytes(package.member("bodies/0.onnx")))
    body.metadata_props.add(key="ort_config", value='{"session_options": {"enable_profiling": 1}}')
    evil = forge(good, tmp_path / "evil.partita", members={"bodies/0.onnx": body.SerializeToString()})
    model = pt.import_model(evil)
    assert {item.key for item in engine_model(model.units[0].body, {}).proto.metadata_props} <= {"partita.order"}
    assert model(inputs_of(small_net()))[0].shape == (1, 40)


def test_an_engines_own_code_inside_a_graph_is_refused():
    """EPContext names a file of compiled code, or holds it."""
    if "onnxruntime" not in usable_devices():
        pytest.skip("there is no onnxruntime here")
    entry = onnx.helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", ep_cache_context="evil.bin", embed_mode=0)
    info = [onnx.helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([entry], "g", info[:1], info[1:]),
        opset_imports=[onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)],
    )
    graph = pt.load(model)
    with pytest.raises(pt.PartitaError, match="EPContext holds or names code that an engine compiled"):
        pt.compile(graph, "onnxruntime")
    body = accelerator("onnxruntime")
    with pytest.raises(pt.PartitaError, match="EPContext holds or names code that an engine compiled"):
        body.compile(graph, body.full_config({}))


def test_an_import_of_a_package_without_code_opens_no_other_file(exported, tmp_path):
    """Every file that Python opens meanwhile is the package, or belongs to what is installed."""
    good, opened = exported(), []
    pt.import_model(good)(inputs_of(small_net()))
    active = [True]
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event in ("open", "ctypes.dlopen") and active[0] else None)
    pt.import_model(good)(inputs_of(small_net()))
    active[0] = False
    installed = (sys.prefix, sys.base_prefix, str(pt.__file__).removesuffix("/partita/__init__.py"))
    others = [path for path in opened if isinstance(path, (str, os.PathLike)) and not os.fspath(path).startswith(installed)]
    assert set(map(os.fspath, others)) == {str(good)}


def test_what_a_good_package_states_is_values_alone(exported):
    for name in [name for name in usable_devices() if name != "cuda"]:
        graph = small_net()
        pt.compile(graph, name, {"CACHE_DIR": "off"}).export("made.partita")
        for row in Package("made.partita", None).manifest["units"]:
            assert not any(accelerator(name).keys()[key].names_files for key in row["config"]), row["config"]
            assert json.dumps(row["config"])
        pt.import_model("made.partita")(inputs_of(graph))
