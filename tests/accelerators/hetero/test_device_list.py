"""Device strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita.accelerators import AcceleratorError, AcceleratorUnavailable, UnknownDevice
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.interface.settings import read_config
from tests.accelerators.hetero.small_devices import device


def labels(text) -> list[str]:
    return [item.label for item in parse_devices(text)]


def test_one_device_and_several(alpha, beta):
    assert labels("alpha") == ["alpha"]
    assert labels("HETERO:alpha,beta") == labels(" hetero: alpha , beta") == labels(["alpha", "beta"]) == ["alpha", "beta"]


def test_what_follows_the_dot_is_the_device_id(alpha):
    (result,) = parse_devices("alpha.GPU.0")
    assert (result.label, result.accelerator.name, result.device_id) == ("alpha.GPU.0", "alpha", "GPU.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alhpa", "there is no device 'alhpa'\n  Did you mean 'alpha'"),
        ("HETERO:beta,alhpa", "there is no device 'alhpa'\n  Did you mean 'alpha'"),
        ("Alpha", "there is no device 'Alpha'\n  Did you mean 'alpha'?"),
        ("alpha.", "there is no device 'alpha.'\n  A DEVICE_ID follows the dot; write 'alpha'"),
        ("alpha,beta", "Several devices are written HETERO:first,second"),
        ("MULTI:alpha,beta", "there is no device 'MULTI:alpha,beta'"),
    ],
)
def test_unknown_devices(alpha, beta, text, message):
    with pytest.raises(UnknownDevice) as caught:
        parse_devices(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "HETERO", "HETERO:", "HETERO:,", []])
def test_no_device_at_all(text):
    with pytest.raises(AcceleratorError, match="no device is named"):
        parse_devices(text)


@pytest.mark.parametrize("wanted", [5, b"reference", ["reference", 5]])
def test_what_names_no_devices(wanted):
    with pytest.raises(AcceleratorError, match="it is neither a string nor a list of names"):
        parse_devices(wanted)


def test_a_device_named_twice(alpha):
    with pytest.raises(AcceleratorError, match="'alpha' is named twice"):
        parse_devices("HETERO:alpha,alpha")


def test_a_device_that_cannot_be_used_says_why():
    def no_driver(self):
        raise AcceleratorUnavailable("the driver is not loaded", where="device 'gamma'", remedy="Load it with modprobe gamma")

    with pytest.raises(AcceleratorUnavailable, match="the driver is not loaded\n  Load it with modprobe gamma"):  # noqa: SIM117
        with device("gamma", __init__=no_driver):
            parse_devices("gamma")


def test_the_settings_for_one_of_the_devices(tmp_path: Path) -> None:
    """Graphs are drawn once, for the first device."""
    devices = parse_devices("HETERO:reference,cpu")
    config = read_config({"HETERO": {"HETERO_DUMP_GRAPH_DOT": tmp_path, "NUM_REQUESTS": 3}, "cpu": {"NUM_THREADS": 2}}, devices)
    first, second = (config.of(device, first) for device, first in zip(devices, (True, False)))
    assert first.hetero == config.hetero and first.hetero.dot_folder == tmp_path
    assert second.hetero.dot_folder is None and second.hetero.requests == 3
    assert list(first.by_device) == ["reference"] and second.by_device == {"cpu": config.by_device["cpu"]}
    assert second.by_device["cpu"]["NUM_THREADS"] == 2
