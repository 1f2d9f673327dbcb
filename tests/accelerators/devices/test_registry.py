"""Devices by name, their metrics and configuration: the error paths."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import partita as pt
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.registry import accelerator, device_names


class Toy(Accelerator):
    name = "toy"
    config_keys = {"SPEED": 3}


@pytest.fixture
def toy() -> Iterator[Accelerator]:
    pt.register_accelerator(Toy)
    yield accelerator("toy")
    pt.unregister_accelerator("toy")


def test_an_unknown_device_suggests_the_near_one() -> None:
    with pytest.raises(pt.UnknownDevice, match=r"there is no device 'referense'\s+Did you mean 'reference'\?"):
        accelerator("referense")


def test_a_taken_name_needs_replace(toy: Accelerator) -> None:
    with pytest.raises(pt.AcceleratorError, match=r"there is a device 'toy' already\s+Choose another name, or pass replace=True"):
        pt.register_accelerator(Toy)
    pt.register_accelerator(Toy, replace=True)


def test_a_name_is_a_word() -> None:
    with pytest.raises(pt.AcceleratorError, match=r"letters, digits, '-' and '_', not 'a,b'\s+Set the class attribute name"):
        pt.register_accelerator(type("Odd", (Accelerator,), {"name": "a,b"}))


def test_only_what_was_registered_is_forgotten() -> None:
    with pytest.raises(pt.UnknownDevice, match="no device 'reference' was registered by call"):
        pt.unregister_accelerator("reference")


def test_unknown_key_lists_the_known_ones(toy: Accelerator) -> None:
    with pytest.raises(pt.UnknownKey, match=r"has no configuration key 'SPED'\s+Did you mean 'SPEED'\? It has .*SPEED"):
        toy.set_config({"SPED": 4})
    with pytest.raises(pt.UnknownKey, match="no configuration key 'NOPE'"):
        toy.get_config("NOPE")


def test_a_key_may_have_its_prefix(toy: Accelerator) -> None:
    toy.set_config({"KEY_SPEED": 5})
    assert toy.get_config("SPEED") == toy.get_config("KEY_SPEED") == 5
    assert toy.full_config({"SPEED": 7})["SPEED"] == 7, "what compile is given wins"


def test_unknown_metric_lists_the_known_ones(toy: Accelerator) -> None:
    with pytest.raises(pt.UnknownKey, match=r"device 'toy' has no metric 'FULL_NAME'.*\s.*FULL_DEVICE_NAME"):
        toy.get_metric("FULL_NAME")


@pytest.mark.parametrize("name", ["reference", "onnxruntime", "openvino"])
def test_the_metrics_that_every_device_has(name: str) -> None:
    if name != "reference":
        pytest.importorskip(name, reason=f"the extra [{name}] is not installed")
    device = accelerator(name)
    keys = {"AVAILABLE_DEVICES", "FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES", "SUPPORTED_CONFIG_KEYS", "SUPPORTED_METRICS"}
    assert keys <= set(device.get_metric("SUPPORTED_METRICS"))
    assert {"DEVICE_ID", "PERF_COUNT"} <= set(device.get_metric("METRIC_KEY_SUPPORTED_CONFIG_KEYS"))
    assert device.get_metric("AVAILABLE_DEVICES")
    assert name in device.get_metric("FULL_DEVICE_NAME") or name == "reference"


def test_extensions_are_refused_by_default(toy: Accelerator) -> None:
    with pytest.raises(pt.NotSupported, match=r"device 'toy' takes no extensions\s+Register the op with register_op"):
        toy.add_extension("lib.so")


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_without_the_package_the_device_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.accelerators.interface import registry

    pytest.importorskip(name, reason=f"the extra [{name}] is not installed")
    monkeypatch.setattr(registry, "_instances", {})
    monkeypatch.setitem(sys.modules, name, None)
    if name == "openvino":
        monkeypatch.setattr("partita.accelerators.engines.openvino.device._import_openvino", _missing)
    with pytest.raises(pt.AcceleratorUnavailable, match=rf"cannot be imported.*\s+Install it with: pip install .*{name}"):
        accelerator(name)
    listed = {device.name: device for device in pt.devices()}
    assert not listed[name].usable
    assert listed["reference"].usable


def _missing() -> None:
    raise ImportError("No module named 'openvino'")


def test_each_device_is_a_backend(toy: Accelerator) -> None:
    assert set(device_names()) <= set(pt.list_backends())
    g = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2,)), name="r")])
    assert [n.name for n in pt.apply_pass(g, "PartitionGraph", backend="reference").nodes if n.is_call] == ["reference_0"]
