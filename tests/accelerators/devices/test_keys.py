"""Configuration keys and options: every value is checked where it is set, on every device."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.keys import BadValue, Key
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import one_op

X = np.array([-1, 2], np.float32)
SHIPPED = ["cpu", "cuda", "onnxruntime", "opencl", "openvino", "reference"]

relu = functools.partial(one_op, "Relu", ("float32", (2,)), name="relu")


def usable(name: str) -> Accelerator:
    try:
        return accelerator(name)
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PRECISION", "banana"), ("PRECISION", ["f32"]), ("PERF_COUNT", "maybe"), ("PERF_COUNT", 2), ("CACHE_DIR", 3.5),
        ("CACHE_DIR", []), ("DEVICE_ID", "nowhere"), ("DEVICE_ID", None), ("DEVICE_ID", 7),
    ],
)
def test_a_value_that_no_device_can_have(name: str, key: str, value: Any) -> None:
    result = usable(name)
    before = result.get_config(key)
    message = rf"device '{name}': {key} cannot be {re.escape(repr(value))}\n  \w"
    if key == "DEVICE_ID" and isinstance(value, int):
        message = message.replace("be 7", "be '7'")
    if key == "CACHE_DIR":
        message = f'CACHE_DIR: it is a folder, or "off", not {re.escape(repr(value))}'
    for attempt in (
        lambda: result.set_config({"PERF_COUNT": True, key: value}),
        lambda: pt.compile(relu(), name, config={key: value}),
    ):
        with pytest.raises(pt.BadConfig, match=message):
            attempt()
    assert result.get_config(key) == before and result.get_config("PERF_COUNT") is False


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_of_every_device_has_a_check(name: str) -> None:
    assert [key for key, declared in usable(name).keys().items() if declared.check is None] == []


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(n, "NUM_THREADS", value) for n in ("cpu", "onnxruntime", "openvino") for value in ("x", -1, 1025, 1.5, True, None, "²")]
    + [
        ("cpu", "ISOLATE", "perhaps"), ("cpu", "PROGRESS", 3), ("cpu", "ISOLATE_SECONDS", "0"),
        ("onnxruntime", "PROVIDER", "NoProvider"), ("onnxruntime", "PROVIDER", ["NoProvider"]), ("onnxruntime", "PROVIDER", 5),
        ("onnxruntime", "PROVIDER_OPTIONS", "x"), ("onnxruntime", "INTER_OP_THREADS", "two"),
        ("onnxruntime", "ALLOW_SPINNING", []), ("onnxruntime", "SHARED_THREADS", "often"),
        ("onnxruntime", "GRAPH_OPTIMIZATION", "al"), ("openvino", "PERFORMANCE_HINT", "FAST"),
        ("openvino", "NUM_STREAMS", "x"), ("openvino", "NAN", "yes"),
        ("onnxruntime", "NAN", True), ("openvino", "PROPERTIES", [1]),
    ],
)
def test_a_value_of_a_device_s_own_key(name: str, key: str, value: Any) -> None:
    result = usable(name)
    for attempt in (lambda: result.set_config({key: value}), lambda: pt.compile(relu(), name, config={key: value})):
        with pytest.raises(pt.BadConfig, match=rf"device '{name}': {key} cannot be {re.escape(repr(value))}"):
            attempt()


def test_values_come_as_the_device_reads_them() -> None:
    result = accelerator("cpu") if "cpu" in _usable_names() else None
    if result is None:
        pytest.skip("no TVM here")
    config = result.full_config({"NUM_THREADS": "2", "KEY_PERF_COUNT": "YES", "DEVICE_ID": 0, "ISOLATE_SECONDS": "3"})
    assert (config["NUM_THREADS"], config["PERF_COUNT"], config["DEVICE_ID"], config["ISOLATE_SECONDS"]) == (2, True, "0", 3.0)


@pytest.mark.parametrize(
    ("label", "there"),
    [("cpu.3", "0"), ("onnxruntime.5", "0"), ("reference.1", "0"), ("openvino.CPPU", "CPU"), ("openvino.CPU.7", "CPU")],
)
def test_a_device_that_is_not_there(label: str, there: str) -> None:
    usable(label.partition(".")[0])
    name, _, number = label.partition(".")
    for attempt in (
        lambda: pt.compile(relu(), label),
        lambda: pt.query(relu(), f"HETERO:{label},reference"),
        lambda: pt.compile(relu(), name, config={"DEVICE_ID": number}),
    ):
        with pytest.raises(pt.BadConfig, match=rf"device '{name}': DEVICE_ID cannot be '{number}'\n.*It can be {there}"):
            attempt()
    assert there in accelerator(name).get_metric("AVAILABLE_DEVICES")
    pt.compile(relu(), f"{name}.{there}")(X)


def test_a_plugin_lists_its_devices() -> None:
    two = {"metrics": lambda self: {**Accelerator.metrics(self), "AVAILABLE_DEVICES": ["0", "1"]}}
    with device("pair", **two) as plugin:
        pt.compile(relu(), "pair.1")(X)
        assert plugin.configs[-1]["DEVICE_ID"] == "1"
        with pytest.raises(pt.BadConfig, match=r"device 'pair': DEVICE_ID cannot be '2'\n  It can be 0, 1"):
            pt.compile(relu(), "pair.2")
        pt.compile(relu(), "pair.1", config={"DEVICE_ID": 1})
        for config in ({"DEVICE_ID": "0"}, {"pair": {"KEY_DEVICE_ID": 0}}, {"pair.1": {"DEVICE_ID": "0"}}):
            with pytest.raises(pt.BadConfig, match=r"of 'pair.1': (KEY_)?DEVICE_ID is another one than the device asked for"):
                pt.compile(relu(), "pair.1", config=config)
    with device("silent"):
        pt.compile(relu(), "silent.17")(X)


def test_precision_is_offered_where_it_does_something() -> None:
    offering = [name for name in _usable_names() if "PRECISION" in accelerator(name).get_metric("SUPPORTED_CONFIG_KEYS")]
    assert set(offering) <= {"openvino", "cpu", "cuda"} and "reference" not in offering
    for name in set(_usable_names()) - set(offering):
        pt.compile(relu(), name, config={"PRECISION": "f32"})
        with pytest.raises(pt.NotSupported, match=rf"config of device '{name}': the device (cannot|does not) compute in bf16"):
            accelerator(name).set_config({"PRECISION": "bf16"})
    with pytest.raises(
        pt.NotSupported, match=r"'reference': the device does not compute in f16: it computes in the types of the model\n  Leave"
    ):
        pt.compile(relu(), "reference", config={"PRECISION": "f16"})


def test_a_plugin_that_offers_precisions_gets_them() -> None:
    able = {"metrics": lambda self: {**Accelerator.metrics(self), "OPTIMIZATION_CAPABILITIES": ["FP32", "FP16"]}}
    with device("half", config_keys={"PRECISION": "f32"}, **able) as plugin:
        pt.compile(relu(), "half", config={"PRECISION": "f16"})
        assert plugin.configs[-1]["PRECISION"] == "f16"
        with pytest.raises(pt.NotSupported, match=r"the device cannot compute in bf16\n  Its capabilities are FP32, FP16"):
            pt.compile(relu(), "half", config={"PRECISION": "bf16"})
        with pytest.raises(pt.BadConfig, match="PRECISION cannot be 'banana'\n  It can be f32, f16, bf16"):
            plugin.set_config({"PRECISION": "banana"})
    with device("whole", **able), pytest.raises(pt.NotSupported, match="it computes in the types of the model"):
        pt.compile(relu(), "whole", config={"PRECISION": "f16"})


def _even(value: Any) -> int:
    if value % 2:
        raise BadValue("Give an even number")
    return int(value)


def test_a_plugin_declares_its_keys_or_leaves_them_plain() -> None:
    keys = {"SCALE": Key(1.0, float), "EVEN": Key(2, _even), "PLAIN": 5, "DEVICE_ID": "left"}
    with device("keyed", config_keys=keys) as plugin:
        plugin.set_config({"SCALE": "2.5", "PLAIN": object})
        assert (plugin.get_config("SCALE"), plugin.get_config("PLAIN"), plugin.get_config("DEVICE_ID")) == (2.5, object, "left")
        with pytest.raises(pt.BadConfig, match="device 'keyed': SCALE cannot be 'x': could not convert string to float"):
            pt.compile(relu(), "keyed", config={"SCALE": "x"})
        with pytest.raises(pt.BadConfig, match="EVEN cannot be 3\n  Give an even number"):
            plugin.set_config({"EVEN": 3})
        with pytest.raises(pt.BadConfig, match="EVEN cannot be 'x': not all arguments converted"):
            plugin.set_config({"EVEN": "x"})
        with pytest.raises(pt.BadConfig, match="DEVICE_ID cannot be 1.5\n  Give a string"):
            plugin.set_config({"DEVICE_ID": 1.5})
        files = {name for name, key in plugin.keys().items() if key.names_files}
    assert files == {"PLAIN", "CACHE_DIR", "ISOLATE", "ISOLATE_SECONDS"}


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("extension", [object(), 5, None, b"x", [object()]])
def test_what_is_no_extension_is_a_clear_error(name: str, extension: Any) -> None:
    message = {
        "cpu": "an extension is a TvmExtension, not",
        "cuda": "an extension is a TvmExtension, not",
        "opencl": "an extension is a TvmExtension, not",
        "onnxruntime": "device 'onnxruntime': an extension is the path of a library of custom ops, not",
        "openvino": "device 'openvino': an extension is one of openvino's, or the path of a library of them, not",
        "reference": "device 'reference' takes no extensions",
    }
    with pytest.raises(pt.AcceleratorError, match=rf"{message[name]}.*\n  \w"):
        usable(name).add_extension(extension)


def test_extensions_may_be_a_list_of_paths() -> None:
    device = usable("openvino")
    for extension in ("no_such.so", ["no_such.so"], [Path("no_such.so")]):
        with pytest.raises(pt.AcceleratorError, match="add_extension of device 'openvino'"):
            device.add_extension(extension)


# -- options of a device's backend ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_typo_in_an_option_of_a_device_s_backend(name: str) -> None:
    usable(name)
    with pytest.raises(pt.PartitaError, match=r"there is no option 'min_subgrph_size'.*\n  Did you mean 'min_subgraph_size'"):
        pt.optimize_for(relu(), name, min_subgrph_size=3)
    assert not any(node.is_call for node in pt.optimize_for(relu(), name, min_subgraph_size=3).nodes)


def test_an_accelerator_s_property_says_which_options_it_takes() -> None:
    from partita.accelerators.interface.device_property import DeviceProperty

    seen: list[Any] = []

    class Listed(DeviceProperty):
        options = ("tile",)

        def pre_partition(self, graph: pt.Graph, options: Any) -> None:
            super().pre_partition(graph, options)
            seen.append(dict(options))

    class Own(DeviceProperty):
        def pre_partition(self, graph: pt.Graph, options: Any) -> None:
            super().pre_partition(graph, options)
            seen.append(dict(options))

    with device("listed", subgraph_property=lambda self: Listed(self)):
        pt.optimize_for(relu(), "listed", tile=4)
        with pytest.raises(pt.PartitaError, match=r"there is no option 'tyle'.*\n  Did you mean 'tile'\?"):
            pt.optimize_for(relu(), "listed", tyle=4)
    with device("own", subgraph_property=lambda self: Own(self)):
        pt.optimize_for(relu(), "own", anything=1)
    assert seen == [{"tile": 4}, {"anything": 1}]


def _usable_names() -> list[str]:
    return [info.name for info in pt.devices() if info.usable and info.name in SHIPPED]


def test_a_precision_is_held_against_the_device_that_is_asked_for() -> None:
    def metrics(self: Accelerator) -> dict[str, Any]:
        able = ["FP32", "FP16"] if self.get_config("DEVICE_ID") == "1" else ["FP32"]
        return {**Accelerator.metrics(self), "AVAILABLE_DEVICES": ["0", "1"], "OPTIMIZATION_CAPABILITIES": able}

    with device("uneven", metrics=metrics, config_keys={"PRECISION": "f32"}) as plugin:
        pt.compile(relu(), "uneven.1", config={"PRECISION": "f16"})
        plugin.full_config({"DEVICE_ID": "1", "PRECISION": "f16"})
        with pytest.raises(pt.NotSupported, match="the device cannot compute in f16"):
            pt.compile(relu(), "uneven.0", config={"PRECISION": "f16"})


@pytest.mark.parametrize("values", [5, [("PERF_COUNT", True)], "PERF_COUNT"])
def test_a_configuration_that_is_no_dictionary(values: Any) -> None:
    with pytest.raises(pt.BadConfig, match="config of device 'reference': it is a dictionary by key, not"):
        accelerator("reference").set_config(values)


def test_metrics_that_tell_no_devices() -> None:
    with device("brief", metrics=lambda self: {"FULL_DEVICE_NAME": "brief"}) as plugin:
        pt.compile(relu(), "brief.3")(X)
        assert plugin.configs[-1]["DEVICE_ID"] == "3"


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({}, {}),
        ({"DEVICE_ID": "3"}, {"device_id": "3"}),
        ({"DEVICE_ID": "3", "PROVIDER_OPTIONS": {"device_id": "4"}}, {"device_id": "4"}),
        ({"PROVIDER_OPTIONS": {"a": "b"}}, {"a": "b"}),
    ],
)
def test_the_device_of_a_provider_is_one_of_its_options(config: dict[str, Any], options: dict[str, str]) -> None:
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    full = {"PROVIDER": names, "PROVIDER_OPTIONS": {}, "DEVICE_ID": "0", **config}
    providers = usable("onnxruntime")._providers(full)  # type: ignore[attr-defined]
    assert providers == [(names[0], options) if options else names[0], names[1]]


def test_providers_whose_devices_onnxruntime_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    result = usable("onnxruntime")
    engine: Any = result._engine  # type: ignore[attr-defined]
    monkeypatch.setattr(engine, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    result.check_device_id("3")
    with pytest.raises(pt.BadConfig, match="DEVICE_ID cannot be 'x'\n  It can be 0"):
        result.check_device_id("x")
    monkeypatch.delattr(engine, "get_ep_devices", raising=False)
    assert result.get_metric("AVAILABLE_DEVICES") == ["0"]
    monkeypatch.setattr(engine, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(pt.BadConfig, match="DEVICE_ID cannot be '3'\n  It can be 0"):
        result.check_device_id("3")
