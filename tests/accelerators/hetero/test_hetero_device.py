"""`accelerator("HETERO")`: configured, asked and measured like a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import partita as pt
from partita.accelerators.interface import registry
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import alternating


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test sets holds for that test."""
    with monkeypatch.context() as patch:
        patch.setitem(registry._instances, "HETERO", registry._instance_of("HETERO", registry._WHOLE))
        yield


def test_pictures_are_switched_on_once_for_all(alpha, beta, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pt.accelerator("HETERO").set_config({"KEY_HETERO_DUMP_GRAPH_DOT": "YES"})
    pt.compile(alternating(), "HETERO:alpha,beta")
    assert sorted(path.name for path in Path().iterdir()) == ["hetero_affinity_chain.dot", "hetero_subgraphs_chain.dot"]
    for path in Path().iterdir():
        path.unlink()
    pt.compile(alternating(), "HETERO:alpha,beta", {"HETERO": {"HETERO_DUMP_GRAPH_DOT": "NO"}})
    assert not list(Path().iterdir()), "what compile is given wins"


def test_strict_is_a_default_too(beta):
    with device("weak", "Relu Exp", breaks="Relu"):
        assert pt.compile(alternating(), "HETERO:weak,beta").report.moves
        pt.accelerator("HETERO").set_config({"STRICT": True})
        with pytest.raises(pt.CompileError, match="cannot compile Relu"):
            pt.compile(alternating(), "HETERO:weak,beta")
        assert pt.compile(alternating(), "HETERO:weak,beta", {"HETERO": {"STRICT": False}}).report.moves


def test_the_devices_for_whoever_names_none(alpha, beta):
    hetero = pt.accelerator("HETERO")
    with pytest.raises(pt.AcceleratorError, match="no device is named"):
        pt.compile(alternating(), "HETERO")
    for value in ("alpha, beta", ["alpha", "beta"], "HETERO:alpha,beta"):
        hetero.set_config({"TARGET_FALLBACK": value})
        assert hetero.get_config("TARGET_FALLBACK") == "alpha,beta"
    assert pt.compile(alternating(), "HETERO").properties.devices == ("alpha", "beta")
    assert set(pt.query(alternating()).values()) == {"alpha", "beta"}
    placement = hetero.query(alternating())
    assert dict(placement) == {"a": "alpha", "b": "beta", "c": "alpha", "d": "beta"}
    assert "alpha has no Softmax" in placement.why("b")
    assert hetero.get_metric("FULL_DEVICE_NAME") == "HETERO:alpha,beta"
    assert {"alpha", "beta", "reference"} <= set(hetero.get_metric("AVAILABLE_DEVICES"))
    assert hetero.get_metric("OPTIMIZATION_CAPABILITIES") == ["FP32"]
    assert "HETERO" not in hetero.get_metric("AVAILABLE_DEVICES") and "HETERO" not in pt.list_backends()
    hetero.set_config({"TARGET_FALLBACK": None})
    with pytest.raises(pt.AcceleratorError, match="no device is named"):
        pt.compile(alternating(), "HETERO")


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"STRICT": "perhaps"}, pt.BadConfig, "'HETERO': STRICT cannot be 'perhaps'\n  Give True or False"),
        ({"NUM_REQUESTS": 0}, pt.BadConfig, "NUM_REQUESTS cannot be 0\n  Give a whole number from 1 on"),
        ({"PARALLEL": "x"}, pt.BadConfig, 'PARALLEL cannot be \'x\'\n  Give True, False or "AUTO"'),
        ({"HETERO_DUMP_GRAPH_DOT": 3}, pt.BadConfig, "HETERO_DUMP_GRAPH_DOT cannot be 3\n  Give a folder, True or False"),
        ({"TARGET_FALLBACK": "alhpa"}, pt.UnknownDevice, "there is no device 'alhpa'\n  Did you mean 'alpha'"),
        ({"TARGET_FALLBACK": "reference.4"}, pt.BadConfig, "DEVICE_ID cannot be '4'\n  It can be 0"),
        ({"STRCT": 1}, pt.UnknownKey, "no configuration key 'STRCT'\n  Did you mean 'STRICT', 'START'? It has CAPSULES, HETERO_"),
    ],
)
def test_what_it_cannot_be_told(alpha, values, error, message):
    with pytest.raises(error) as caught:
        pt.accelerator("HETERO").set_config({"QUEUE_SIZE": 7, **values})
    assert message in str(caught.value)
    assert pt.accelerator("HETERO").get_config("QUEUE_SIZE") is None


def test_what_it_is_not():
    hetero = pt.accelerator("HETERO")
    with pytest.raises(pt.NotSupported, match=r"HETERO takes no extensions\n  Add it to a device"):
        hetero.add_extension(object())
    with pytest.raises(pt.NotSupported, match=r'HETERO runs no subgraph itself\n  Write compile\(graph, "HETERO:'):
        hetero.compile(alternating(), {})
    with pytest.raises(pt.UnknownDevice, match=r"HETERO is not a device: it stands for several\n  Write HETERO:first,second"):
        pt.compile(alternating(), ["HETERO", "reference"])
    for nested in ("AUTO:AUTO:cpu", "HETERO:auto:cpu,reference", "AUTO:HETERO:cpu,reference", "MULTI:HETERO:cpu"):
        with pytest.raises(pt.UnknownDevice, match="is not a device of a list\n  HETERO:, MULTI: and AUTO: stand once, before"):
            pt.compile(alternating(), nested)
    with pytest.raises(pt.UnknownKey, match="HETERO has no configuration key 'TARGET_FALLBACK'"):
        pt.compile(alternating(), "reference", {"HETERO": {"TARGET_FALLBACK": "cpu"}})
