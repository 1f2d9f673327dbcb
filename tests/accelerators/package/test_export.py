"""Export, then import in another process: equal outputs; what does not fit is refused or recompiled."""

from __future__ import annotations

import json
import os
import zipfile

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.interface.keys import Key
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.store.key import make_key
from tests.accelerators.hetero.small_devices import Ran, Small, device
from tests.accelerators.package.models import imported_elsewhere
from tests.graphs.networks import dynamic_net, inputs_of, small_net

DEVICES = ["reference", "onnxruntime", "openvino", "cpu", "HETERO:cpu,reference"]


def usable(devices: str):
    for name in devices.removeprefix("HETERO:").split(","):
        try:
            accelerator(name)
        except pt.AcceleratorUnavailable as error:
            pytest.skip(str(error))
    return devices


def compiled(devices: str, graph=None, **options):
    config = {"CACHE_DIR": "off"} if ":" not in devices else None
    return pt.compile(graph or small_net(), usable(devices), config=config, **options)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.thinned(6)
def test_another_process_gets_the_same_numbers(devices, tmp_path):
    forbid = {"Softmax": "cpu"} if devices.startswith("HETERO") else None
    model = compiled(devices, forbid=forbid)
    model.export(tmp_path / "net.partita")
    x = inputs_of(model.graph)
    result = imported_elsewhere(tmp_path / "net.partita", x)
    assert len(result) == 2
    for a, b in zip(model(x), result):
        np.testing.assert_array_equal(a, b)


def test_what_comes_from_the_cache_travels_too(tmp_path):
    for name in ("fresh", "cached"):
        model = pt.compile(small_net(), usable("cpu"))
        model.export(tmp_path / name)
        pt.import_model(tmp_path / name).export(tmp_path / f"{name} again")
    x = inputs_of(model.graph)
    for path in (tmp_path / name for name in ("fresh", "cached", "fresh again", "cached again")):
        np.testing.assert_array_equal(pt.import_model(path)(x)[0], model(x)[0])
    assert len(model.units[0].compiled.kernels()) == len(model.units[0].compiled.launches)


@pytest.mark.parametrize("devices", ["onnxruntime", "cpu"])
def test_dynamic_sizes_travel_as_symbols(devices, tmp_path):
    model = compiled(devices, dynamic_net())
    model.export(tmp_path / "net.partita")
    again = pt.import_model(tmp_path / "net.partita")
    assert str(again.graph.inputs[0][0].type) == "float32[N, 16]"
    for n in (1, 7, 3):
        x = inputs_of(model.graph, n=n)
        np.testing.assert_allclose(again(x)[0], model(x)[0], rtol=1e-5)


@pytest.mark.parametrize("devices", ["openvino", "cpu"])
def test_bodies_may_stay_behind(devices, tmp_path):
    model = compiled(devices)
    model.export(tmp_path / "net.partita", bodies=False)
    model.export(tmp_path / "whole.partita")
    again = pt.import_model(tmp_path / "net.partita")
    x = inputs_of(model.graph)
    np.testing.assert_array_equal(again(x)[0], model(x)[0])
    names = [node.op for unit in again.units for node in unit.body.nodes if node.is_op]
    assert names == ["Compiled"]
    assert (tmp_path / "net.partita").stat().st_size < (tmp_path / "whole.partita").stat().st_size


def test_the_file_is_a_zip_that_holds_each_weight_once(tmp_path):
    model = compiled("onnxruntime")
    model.export(tmp_path / "net.partita")
    with zipfile.ZipFile(tmp_path / "net.partita") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["weights", "bodies/0.onnx", "plan.onnx", "report.json", "manifest.json"]
        weights = [node.value for node in small_net().nodes if node.value is not None and node.value.nbytes >= 1024]
        assert archive.getinfo("weights").file_size <= sum(w.nbytes for w in weights) + 64
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["inputs"] == [["x", "float32[1, 3, 8, 8]"]]
    assert manifest["devices"] == ["onnxruntime"]


def test_names_duplicates_and_the_report_travel(tmp_path):
    x = pt.variable("x", "float32", (2, 2))
    unused = pt.variable("unused", "int64", (3,))
    y = pt.op("Relu", x, name="y")
    graph = pt.Graph([y, y, x], [x, unused], name="odd", output_names=["a", "b", "c"])
    model = compiled("reference", graph)
    model.export(tmp_path / "net.partita")
    again = pt.import_model(tmp_path / "net.partita")
    assert [node.name for node in again.graph.inputs] == ["x", "unused"]
    assert again.graph.output_names == ("a", "b", "c")
    assert again.report.why("y") == "y is on reference"
    data = np.array([[1, -2], [3, -4]], np.float32)
    outputs = again(data, np.zeros(3, np.int64))
    np.testing.assert_array_equal(outputs["b"], np.maximum(data, 0))
    np.testing.assert_array_equal(outputs["c"], data)
    assert again.profile(data, np.zeros(3, np.int64)).rows


@pytest.mark.parametrize("devices", ["onnxruntime", "openvino", "cpu", "reference"])
@pytest.mark.parametrize("bodies", [True, False])
def test_an_imported_model_can_be_exported_again(devices, bodies, tmp_path):
    model = compiled(devices)
    model.export(tmp_path / "one.partita", bodies=bodies)
    pt.import_model(tmp_path / "one.partita").export(tmp_path / "two.partita")
    x = inputs_of(model.graph)
    np.testing.assert_array_equal(pt.import_model(tmp_path / "two.partita")(x)[0], model(x)[0])


def test_another_library_version_is_refused_or_compiled_anew(tmp_path, monkeypatch):
    model = compiled("cpu")
    model.export(tmp_path / "net.partita")
    kind = type(accelerator("cpu"))
    real = kind.identity
    monkeypatch.setattr(kind, "identity", lambda self, config: {**real(self, config), "library": "apache-tvm 9.9"})
    differs = r"'cpu_0' does not fit device 'cpu' here: .*compiled by apache-tvm 0.*here is apache-tvm 9.9"
    with pytest.raises(pt.AcceleratorError, match=differs) as caught:
        pt.import_model(tmp_path / "net.partita")
    assert "recompile=True" in caught.value.remedy
    x = inputs_of(model.graph)
    for recompile in (True, "reference"):
        again = pt.import_model(tmp_path / "net.partita", recompile=recompile)
        np.testing.assert_allclose(again(x)[0], model(x)[0], rtol=1e-4)
        assert "recompiled: cpu_0 on" in str(again.report)


def test_missing_processor_features_are_named(tmp_path, monkeypatch):
    model = compiled("cpu")
    model.export(tmp_path / "net.partita", bodies=False)
    kind = type(accelerator("cpu"))
    real = kind.identity
    older = {"target": "i486", "features": "x87"}
    monkeypatch.setattr(kind, "identity", lambda self, config: {**real(self, config), **older})
    with pytest.raises(pt.AcceleratorError, match=r"the processor here \(i486\) lacks .*"):
        pt.import_model(tmp_path / "net.partita")
    with pytest.raises(pt.AcceleratorError, match="cannot be recompiled .*: it was exported without its body"):
        pt.import_model(tmp_path / "net.partita", recompile=True)


class Rare(Small):
    name = "rare"
    travels_as_body = True


def test_a_missing_device_is_named(tmp_path):
    pt.register_accelerator(Rare)
    try:
        pt.compile(small_net(), "rare").export(tmp_path / "net.partita")
    finally:
        pt.unregister_accelerator("rare")
    with pytest.raises(pt.AcceleratorError, match="device 'rare' cannot be used here: there is no device 'rare'"):
        pt.import_model(tmp_path / "net.partita")
    again = pt.import_model(tmp_path / "net.partita", recompile="reference")
    assert again.properties.devices == ("reference",)


def test_a_device_without_its_package_says_what_to_install(tmp_path):
    class Lacking(Rare):
        def __init__(self) -> None:
            raise AcceleratorUnavailable("the package rare cannot be imported", remedy="pip install rare-driver")

    try:
        pt.register_accelerator(Rare)
        pt.compile(small_net(), "rare").export(tmp_path / "net.partita")
        pt.register_accelerator(Lacking, replace=True)
        with pytest.raises(pt.AcceleratorError, match=r"the package rare cannot be imported \(pip install rare-driver\)"):
            pt.import_model(tmp_path / "net.partita")
    finally:
        pt.unregister_accelerator("rare")


def test_a_failed_export_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.partita"
    path.write_bytes(b"old")
    with device("plain"), pytest.raises(pt.RunError, match="Ran cannot be exported"):
        pt.compile(small_net(), "plain").export(path)
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir() if item.is_file()] == ["net.partita"]


@pytest.mark.parametrize("devices", ["openvino", "cpu"])
def test_a_model_without_bodies_is_measured_all_the_same(devices, tmp_path):
    compiled(devices).export(tmp_path / "net.partita", bodies=False)
    again = pt.import_model(tmp_path / "net.partita")
    assert any(row.status == "EXECUTED" for row in again.profile(inputs_of(small_net())).rows)
    if devices == "cpu":
        kernels = again.kernels()
        assert [kernel.schedule for kernel in kernels] == [kernel.schedule for kernel in compiled(devices).kernels()]
        with pytest.raises(pt.AcceleratorError, match="its kernels cannot be shown: it was exported without its body"):
            kernels[0].text


def test_what_is_no_file_is_neither_replaced_nor_read(tmp_path):
    model, pipe = compiled("reference"), tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/null"):
        with pytest.raises(pt.PartitaError, match="the file cannot be written: it is not a file but a device or a pipe"):
            model.export(path)
        assert not os.path.isfile(path)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(pt.PartitaError, match="the package cannot be read: it is not a file"):
            pt.import_model(path)
    for path, why in (("", "it has no name"), ("a\0b", "its name contains a null character"), (tmp_path, "it is a directory")):
        with pytest.raises(pt.PartitaError, match=why):
            model.export(path)


def test_a_link_stays_and_leads_to_the_new_file(tmp_path):
    model, there = compiled("reference"), tmp_path / "net.partita"
    (tmp_path / "latest").symlink_to(there)
    model.export(tmp_path / "latest")
    model.export(os.fsencode(tmp_path / "latest"))
    assert (tmp_path / "latest").is_symlink() and not there.is_symlink()
    assert pt.import_model(os.fsencode(there)).properties.devices == ("reference",)


def test_a_configuration_that_cannot_be_is_not_blamed_on_the_file(tmp_path):
    compiled("cpu").export(tmp_path / "net.partita")
    for number in ("x", -1, 1.5, None):
        with pytest.raises(pt.BadConfig, match="device 'cpu': NUM_THREADS cannot be"):
            pt.import_model(tmp_path / "net.partita", config={"NUM_THREADS": number})
        with pytest.raises(pt.BadConfig, match="device 'cpu': NUM_THREADS cannot be"):
            pt.compile(small_net(), "cpu", {"NUM_THREADS": number})


def test_a_value_that_the_importer_says_counts_even_if_it_is_the_default(tmp_path):
    pt.compile(small_net(), "reference", config={"PERF_COUNT": True}).export(tmp_path / "net.partita")
    said = [{}, {"PERF_COUNT": False}, {"KEY_PERF_COUNT": False}, {"reference": {"PERF_COUNT": False}}]
    models = [pt.import_model(tmp_path / "net.partita", config=config) for config in said]
    assert [model.units[0].config["PERF_COUNT"] for model in models] == [True, False, False, False]


def test_without_a_place_for_temporary_files_nothing_is_imported(tmp_path, monkeypatch):
    compiled("cpu").export(tmp_path / "net.partita")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(pt.PartitaError, match=r"net.partita, import_ of device 'cpu': it cannot be imported: .*No such file"):
        pt.import_model(tmp_path / "net.partita")


def test_lists_dictionaries_and_numbers_of_numpy_travel_with_the_configuration(tmp_path):
    keys = {"AXES": Key((1,)), "TABLE": Key(None), "SCALE": Key(1.0), "HOOK": Key(None), "DEFAULT": Key(object())}
    given = {"AXES": [np.int64(2), (3, 4)], "TABLE": {"a": {"b": [np.float32(0.5), None]}}, "SCALE": np.float64(2.5)}
    with device("keyed", config_keys=keys, travels_as_body=True):
        pt.compile(small_net(), "keyed", config=given).export(tmp_path / "net.partita")
        config = pt.import_model(tmp_path / "net.partita").units[0].config
        assert [config["AXES"], config["TABLE"], config["SCALE"]] == [[2, [3, 4]], {"a": {"b": [0.5, None]}}, 2.5]
        with pytest.raises(pt.PartitaError, match="the value of HOOK cannot be written into a file: <built-in function print>"):
            pt.compile(small_net(), "keyed", config={"HOOK": print}).export(tmp_path / "again.partita")
        arrays = [np.zeros(2000), np.eye(1, 2000)[0], np.full(2000, 1e-12)]
        model = pt.compile(small_net(), "keyed", config={"TABLE": arrays[0]})
        with pytest.raises(pt.PartitaError, match="the value of TABLE cannot be written into a file"):
            model.export(tmp_path / "again.partita")
        configs = [model.units[0].config | {"TABLE": array} for array in arrays]
        assert len({make_key(accelerator("keyed"), small_net(), config).digest for config in configs}) == 3
    assert not (tmp_path / "again.partita").exists()


class Exporting(Ran):
    def export(self):
        return b"code"


def test_what_nothing_could_read_is_not_exported(tmp_path):
    with device("deaf", subgraph_type=Exporting):
        model = pt.compile(small_net(), "deaf")
        with pytest.raises(pt.NotSupported, match="defines no import_ to read the export\n  Define import_"):
            model.export(tmp_path / "net.partita")


def test_an_import_gets_the_body_before_transform(tmp_path):
    seen = []

    def transform(self, graph):
        return pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.Pattern("Conv", "Relu"), "fused"))

    def compile_noted(self, graph, config):
        seen.append([node.name for node in graph.nodes if node.is_op])
        return Exporting(graph)

    def import_(self, data, graph, config):
        seen.append([node.name for node in graph.nodes if node.is_op])
        return compile_noted(self, self.configured(config).transform(graph), config)

    with device("fusing", transform=transform, compile=compile_noted, import_=import_):
        pt.compile(small_net(), "fusing").export(tmp_path / "net.partita")
        pt.import_model(tmp_path / "net.partita")
    assert seen[0] == seen[2] == ["fused_0", "mean", "matmul", "soft"]
    assert seen[1] == ["conv", "relu", "mean", "matmul", "soft"]


def test_a_device_that_cannot_run_here_is_not_compiled_for_again(tmp_path):
    def away(self, config):
        return "no card here"

    def misfit(self, identity, config):
        return "for another card"

    hooks = {"misfit": misfit, "import_": lambda self, data, graph, config: Exporting(graph)}
    with device("card", subgraph_type=Exporting, **hooks):
        pt.compile(small_net(), "card").export(tmp_path / "net.partita")
    with device("card", subgraph_type=Exporting, why_not_here=away, **hooks):
        with pytest.raises(pt.AcceleratorError, match="for another card.*: card: no card here\n  Import with recompile='cpu'"):
            pt.import_model(tmp_path / "net.partita", recompile=True)
        again = pt.import_model(tmp_path / "net.partita", recompile="HETERO:card,reference")
        assert again.properties.devices == ("reference",)
