"""Among several devices, those that cannot run here are skipped at once, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators import register_accelerator, unregister_accelerator
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import Small, device

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
X = np.ones((2, 3), np.float32)


def no_driver(self) -> None:
    raise pt.AcceleratorUnavailable("the driver is not loaded", where="device 'gamma'", remedy="Load it")


def no_card(self, config):
    return None if config["LEVEL"] == 7 else "there is no card here; LEVEL 7 compiles for one elsewhere"


@pytest.fixture(params=["driver", "card"])
def gamma(request):
    """A device whose driver is missing, then one that compiles and finds no card; -> why."""
    members = {"__init__": no_driver} if request.param == "driver" else {"why_not_here": no_card}
    reason = "the driver is not loaded" if request.param == "driver" else no_card(None, {"LEVEL": 1})
    if request.param == "driver":
        register_accelerator(type("Gamma", (Small,), {"name": "gamma", **members}))
        yield reason
        unregister_accelerator("gamma")
    else:
        with device("gamma", **members):
            yield reason


def test_the_next_device_runs_its_ops(gamma, beta) -> None:
    model = pt.compile(NET, "HETERO:gamma,beta")
    assert np.allclose(model(X)[0], np.e) and model.properties.devices == ("beta",)
    assert model.report.notes == (f"skipped: gamma: {gamma}",)
    assert model.report.why("a") == f"a (Relu) is on beta\n  not on gamma: {gamma}"
    assert str(model.report).count("skipped") == 1


def test_a_query_says_the_same(gamma, beta) -> None:
    placement = pt.query(NET, "HETERO:gamma,beta")
    assert dict(placement) == {"a": "beta", "y": "beta"} and placement.refusals("a") == {"gamma": gamma}


def test_its_configuration_may_stay(gamma, beta) -> None:
    assert pt.compile(NET, "HETERO:gamma,beta", {"gamma": {"LEVEL": 3}}).properties.devices == ("beta",)


def test_it_is_an_error_where_every_device_has_to_be_here(gamma, beta) -> None:
    with pytest.raises(pt.AcceleratorUnavailable, match=gamma.partition(";")[0]):
        pt.compile(NET, "HETERO:gamma,beta", strict=True)
    with pytest.raises(pt.AcceleratorUnavailable, match=r"(?s)gamma cannot run here.*Every device has to be here"):
        pt.compile(NET, "HETERO:gamma,beta", {"HETERO": {"STRICT": True}})


def test_what_is_forced_onto_it_is_an_error(gamma, beta) -> None:
    with pytest.raises(pt.NotSupported, match="pin 'a' puts it on 'gamma', which does not run it"):
        pt.compile(NET, "HETERO:gamma,beta", pin={"a": "gamma"})
    by_hand = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x) @gamma\n y = Exp(a) @beta }")
    with pytest.raises(pt.NotSupported, match="its affinity puts it on 'gamma'"):
        pt.compile(by_hand, "HETERO:gamma,beta")


def test_several_models_are_made_on_those_that_are_here(gamma, beta) -> None:
    model = pt.compile(NET, "MULTI:gamma,beta")
    assert model.properties.devices == ("beta",)


def test_isolation_does_not_look_for_it(gamma, beta) -> None:
    assert pt.compile(NET, "HETERO:gamma,beta", {"gamma": {"ISOLATE": True}}).properties.devices == ("beta",)


def test_it_starts_at_once_without_it(gamma, beta) -> None:
    model = pt.compile(NET, "HETERO:gamma,beta", {"HETERO": {"START": "now", "START_WITH": "reference"}})
    assert model.wait(100).properties.devices == ("beta",)


def starting(with_: str, **others: dict[str, object]) -> dict[str, dict[str, object]]:
    return {"HETERO": {"START": "now", "START_WITH": with_}, **others}


def test_it_cannot_be_what_answers_first(beta) -> None:
    with device("gamma", why_not_here=no_card):
        with pytest.raises(pt.AcceleratorUnavailable) as found:
            pt.compile(NET, "beta", starting("gamma"))
        assert str(found.value) == (
            "START_WITH 'gamma' in the config of HETERO: it cannot run here: there is no card here; LEVEL 7 compiles for one "
            "elsewhere\n  Name another device, or leave START_WITH out."
        )
        for first in ("beta", "HETERO:gamma,beta"):
            assert pt.compile(NET, "beta", starting(first)).wait(100).properties.devices == ("beta",)
        model = pt.compile(NET, "HETERO:gamma,beta", starting("gamma", gamma={"LEVEL": 7}))
        assert model.wait(100).properties.devices == ("gamma",)


def test_what_answers_first_has_the_threads_of_what_is_compiled_and_is_measured_as_it_is() -> None:
    keys = {"LEVEL": 1, "NUM_THREADS": 0}
    cases: list[tuple[str, dict[str, dict[str, object]], tuple[int, int, bool]]] = [
        ("alpha", {}, (1, 0, False)),
        ("alpha", {"alpha": {"LEVEL": 5, "NUM_THREADS": 3}}, (1, 3, False)),
        ("alpha", {"alpha": {"PERF_COUNT": True}}, (1, 0, True)),
        ("HETERO:alpha,first", {"first": {"LEVEL": 4}, "alpha": {"NUM_THREADS": 2}}, (4, 0, False)),
        ("HETERO:alpha,first", {"first": {"LEVEL": 4}, "alpha": {"PERF_COUNT": True}}, (4, 0, True)),
    ]
    for devices, config, wanted in cases:
        with device("alpha", config_keys=keys), device("first", config_keys=keys) as first:
            pt.compile(NET, devices, starting("first", **config)).wait(100)
            assert [(seen["LEVEL"], seen["NUM_THREADS"], seen["PERF_COUNT"]) for seen in first.configs] == [wanted], config


def test_none_of_them_is_here() -> None:
    why = r"(?s)gamma cannot run here.*delta cannot run here.*Name a device"
    with (
        device("gamma", why_not_here=no_card),
        device("delta", why_not_here=no_card),
        pytest.raises(pt.AcceleratorUnavailable, match=why),
    ):
        pt.compile(NET, "HETERO:gamma,delta")


def test_named_alone_it_compiles() -> None:
    with device("gamma", why_not_here=no_card):
        assert pt.compile(NET, "gamma").properties.devices == ("gamma",)


def test_asked_for_elsewhere_it_compiles(beta) -> None:
    with device("gamma", why_not_here=no_card):
        assert pt.compile(NET, "HETERO:gamma,beta", {"gamma": {"LEVEL": 7}}).properties.devices == ("gamma",)


def test_a_graph_for_a_gpu_where_there_is_none_goes_to_the_next() -> None:
    cuda = pytest.importorskip("partita.accelerators.tvm.cuda")
    if cuda.gpu_arch() is not None:
        pytest.skip("there is a GPU here")
    placement = pt.query(NET, "HETERO:cuda,reference")
    assert dict(placement) == {"a": "reference", "y": "reference"}
    assert "cuda" in placement.refusals("a")
