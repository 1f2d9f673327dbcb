"""The device and the precision of each op, chosen together."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any
from weakref import ref

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import NotSupported
from partita.accelerators.precision.device_plan import on_devices
from partita.accelerators.precision.op_costs import Measuring
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.precision.priced_devices import Prices, priced
from tests.graphs.small_models import convolutions, inputs_of, sensitive

SLOW = Prices({"Conv": 400.0, "Gemm": 400.0, "MatMul": 400.0})
QUICK_CONVOLUTIONS = Prices({"Conv": 100.0, "Gemm": 4000.0, "MatMul": 4000.0}, {"Conv": 90.0})
GOOD_AT_INTEGERS = Prices({"Conv": 300.0, "Gemm": 300.0, "MatMul": 300.0}, {"Conv": 30.0, "Gemm": 30.0, "MatMul": 30.0})


def chosen(graph: pt.Graph, devices: str, tolerance: float = 0.1, **options: Any) -> pt.PrecisionPlan:
    return pt.choose_precision(graph, inputs_of(graph), tolerance, devices, **options)


def test_each_op_runs_where_it_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        plan = chosen(convolutions(), devices, precisions=())
        assert {name: plan.placement[name] for name in plan} == {
            "first": "quick", "second": "quick", "third": "quick", "scores": "slow"
        }
        assert plan.placement.keys() == {node.name for node in convolutions().nodes if node.is_op}
        assert plan.why("scores").splitlines()[1:] == ["  on slow: 400.0 µs in float32", "  on quick: 4,000.0 µs in float32"]
        model = pt.compile(plan.apply(convolutions()), devices)
        assert {unit.device.label for unit in model.units} == {"slow", "quick"}
        assert any("which is the choice" in line for line in str(plan).splitlines())


def test_a_whole_model_that_lost_is_not_held_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """All candidates were held until the last one was measured."""
    models: list[ref[pt.CompiledModel]] = []
    most, real = [0], Measuring.lowered

    def lowered(self: Measuring, *args: Any) -> pt.CompiledModel:
        model = real(self, *args)
        gc.collect()
        models.append(ref(model))
        most[0] = max(most[0], sum(one() is not None for one in models))
        return model

    monkeypatch.setattr(Measuring, "lowered", lowered)
    with priced(monkeypatch, slow=SLOW, other=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        plan = chosen(sensitive(), devices, 0.05)
    assert len(models) > 3 and most == [2]
    assert sum("which is the choice" in line for line in str(plan).splitlines()) == 1


def test_a_precision_is_chosen_with_the_device_that_is_good_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sensitive()
    with priced(monkeypatch, plain=Prices({"MatMul": 100.0}), integers=GOOD_AT_INTEGERS) as devices:
        plan = chosen(graph, devices, 0.05)
        assert dict(plan) == {"steady": "int8", "delicate": "float32"}
        assert plan.placement["steady"] == "integers" and plan.placement["delicate"] == "plain"
        row = next(row for row in plan.rows if row.node == "steady")
        assert row.gains == {"int8": 70.0}, "against float32 on the device that is fastest at that"
        lowered = plan.apply(graph)
        assert [node.affinity for node in lowered.nodes if node.op == "DequantizeLinear"] == ["integers"] * 2
        first = inputs_of(graph)[0]
        answer, wanted = (pt.compile(g, devices)(first)[0] for g in (lowered, graph))
        assert np.abs(answer - wanted).max() <= 0.05 * np.abs(wanted).max()


def test_crossing_between_devices_has_to_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    little = Prices({"Conv": 399.0, "Gemm": 410.0})
    with priced(monkeypatch, slow=SLOW, little=little) as devices:
        assert set(chosen(convolutions(), devices, precisions=()).placement.values()) == {"slow"}


def test_ops_that_a_device_refuses_lie_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    picky = Prices({"Conv": 5.0, "Gemm": 5.0}, refused={"Gemm": "no Gemm is known here"})
    with priced(monkeypatch, slow=SLOW, picky=picky) as devices:
        plan = chosen(convolutions(), f"{devices},reference", precisions=())
        assert plan.placement["scores"] == "slow" and plan.placement["first"] == "picky"
        assert "  not on picky: no Gemm is known here" in plan.why("scores")


def test_a_device_that_tells_one_time_for_all_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Prices({"Conv": 4.0, "Gemm": 4.0}, fused=True)
    monkeypatch.setattr("partita.accelerators.runtime.profile.perf_counter_ns", lambda: 0)
    with priced(monkeypatch, slow=SLOW, whole=whole) as devices:
        plan = chosen(convolutions(), devices, precisions=())
    assert set(plan.placement.values()) == {"whole"}


def test_what_is_pinned_stays_and_is_given_on(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        plan = chosen(graph, devices, precisions=(), pin={"fir.*": "slow"})
        assert plan.placement["first"] == "slow" and plan.placement["second"] == "quick"
        assert plan.pinned == {"first": "slow"}
        plan.place("third", "slow")
        assert plan.error is None and plan.pinned == {"first": "slow", "third": "slow"}
        again = chosen(graph, devices, precisions=(), pin=plan.pinned, forbid={"Gemm": "slow"})
        assert again.placement["scores"] == "quick" and "not on slow: forbid 'Gemm'" in again.why("scores")
        assert again.placement["third"] == "slow" and again.error is not None


def test_a_plan_of_devices_is_kept_as_text_and_applied_to_another_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        plan = chosen(convolutions(), devices)
        copy = pt.PrecisionPlan.from_json(plan.to_json())
        assert copy.to_json() == plan.to_json() and str(copy) == str(plan)
        graph = convolutions(batch=5)
        lowered = copy.apply(graph)
        assert lowered.inputs[0][0].type == pt.TensorType("float32", (5, 3, 12, 12))
        assert {node.affinity for node in lowered.nodes if node.is_op} == {"slow", "quick"}


def test_a_changed_plan_that_no_longer_fits_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    picky = Prices({"Conv": 5.0}, refused={"Gemm": "no Gemm is known here"})
    graph = convolutions()
    with priced(monkeypatch, slow=SLOW, picky=picky) as devices:
        plan = chosen(graph, devices, precisions=())
        with pytest.raises(pt.UnknownDevice, match=r"plan.place\('first'\): 'fast' is none of the devices asked for"):
            plan.place("first", "fast")
        with pytest.raises(pt.PartitaError, match="there is no op 'frist'"):
            plan.place("frist", "slow")
        plan.place("scores", "picky")
        cause = "the plan puts it on 'picky', which does not run it: no Gemm is known here"
        with pytest.raises(pt.NotSupported, match=cause) as error:
            plan.apply(graph)
        assert error.value.remedy is not None and "slow would run it" in error.value.remedy
        text = plan.to_json()
    with pytest.raises(pt.PartitaError, match="'slow'"):
        pt.PrecisionPlan.from_json(text).apply(graph)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda placed: placed["placement"].update(first="nowhere"), "'nowhere' is none of the devices asked for"),
        (lambda placed: placed["placement"].update(odd="slow"), "the plan gives 'odd' a device, and the graph has no such op"),
        (lambda placed: placed.update(devices=3), "this is not a precision plan"),
        (lambda placed: placed.update(times={"first": 3}), "this is not a precision plan"),
        (lambda placed: placed.pop("by_hand"), "this is not a precision plan"),
    ],
)
def test_a_plan_of_devices_of_a_stranger_is_one_error(change: Any, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        content = json.loads(chosen(graph, devices, precisions=()).to_json())
        change(content["placed"])
        with pytest.raises(pt.PartitaError, match=cause):
            pt.PrecisionPlan.from_json(json.dumps(content)).apply(graph)


@pytest.mark.parametrize(
    ("options", "reason"), [({"win": "memory"}, "devices are chosen by time"), ({}, "only one device is open")]
)
def test_where_devices_are_not_open_a_pin_is_an_error(options: dict[str, Any], reason: str) -> None:
    device = "HETERO:onnxruntime,reference" if not options else "HETERO:cpu,onnxruntime"
    with pytest.raises(pt.PartitaError, match=f"pin has no meaning: {reason}"):
        chosen(convolutions(), device, pin={"first": "reference"}, **options)


def test_a_placement_that_a_device_refuses_in_the_end_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        asked = Measuring.lowered

        def lowered(self: Measuring, precisions: Any, placement: Any) -> Any:
            if placement is not None and "quick" in placement.values():
                raise pt.NotSupported("the neighbour is missing")
            return asked(self, precisions, placement)

        monkeypatch.setattr(Measuring, "lowered", lowered)
        plan = chosen(graph, devices)
        assert set(plan.placement.values()) == {"slow"} and plan.error is not None and plan.error <= 0.1
        assert "on quick" in str(plan) and "cannot be compiled: the neighbour is missing" in str(plan)


def test_a_plan_without_devices_gives_none() -> None:
    plan = chosen(convolutions(), "reference", win="memory")
    assert plan.placement == {} and plan.pinned == {}
    with pytest.raises(pt.PartitaError, match="the plan says nothing of devices"):
        plan.place("first", "cpu")


def test_bytes_pass_between_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    with priced(monkeypatch, slow=SLOW, quick=QUICK_CONVOLUTIONS) as devices:
        plan = chosen(graph, devices, 1.0, lock={".*": "int8"}, pin={"second": "slow", "first": "quick", "third": "quick"})
        model = pt.compile(plan.apply(graph), devices)
        read = [entry.type.dtype for unit in model.units if "second" in unit.ops for entry in (n[0] for n in unit.body.inputs)]  # type: ignore[union-attr]
        assert "uint8" in read


def test_another_process_applies_the_plan(tmp_path: Any) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    pt.save(sensitive(), tmp_path / "model.onnx")
    graph = pt.load(tmp_path / "model.onnx")
    plan = chosen(graph, "HETERO:onnxruntime,openvino,reference", 0.05)
    (tmp_path / "plan.json").write_text(plan.to_json(), "utf-8")
    np.save(tmp_path / "x.npy", inputs_of(graph)[0])
    code = (
        "import sys, numpy as np, partita as pt\n"
        "g = pt.PrecisionPlan.from_json(open('plan.json', encoding='utf-8').read()).apply(pt.load('model.onnx'))\n"
        "print([(n.name, n.affinity) for n in g.nodes if n.is_op])\n"
        "print(pt.compile(g, 'HETERO:onnxruntime,openvino,reference')(np.load('x.npy'))[0].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    placed, shape = done.stdout.splitlines()
    assert placed == str([(n.name, n.affinity) for n in plan.apply(graph).nodes if n.is_op]) and shape == "(4, 8)"


def test_an_op_that_lowering_added_goes_to_the_first_device_that_runs_it() -> None:
    x = pt.variable("x", "float32", (2, 3))
    half = pt.op("Cast", pt.op("Relu", x, name="kept").evolve(affinity="first"), to=10, name="cast").evolve(affinity="first")
    rest = pt.op("Relu", pt.op("Neg", half, name="other"), name="free")
    graph = pt.apply_pass(pt.Graph([rest], [x]), "InferShape")
    with device("first", "Relu"), device("second", "Cast Neg"), device("third", "Cast Neg Exp"):
        placed = on_devices(graph, ["first", "second", "third"])
        assert {node.name: node.affinity for node in placed.nodes if node.is_op} == {
            "kept": "first", "cast": "second", "other": "second", "free": "first"
        }
        lost = pt.apply_pass(pt.Graph([pt.op("Exp", x, name="exp").evolve(affinity="first")], [x]), "InferShape")
        with pytest.raises(NotSupported, match="the plan puts it on 'first', which does not run it") as error:
            on_devices(lost, ["first", "second", "third"])
        assert "third would run it" in str(error.value) and "node 'exp' (Exp in float32)" in str(error.value)
        unknown = pt.apply_pass(pt.Graph([pt.op("Sin", x, name="sin").evolve(affinity="first")], [x]), "InferShape")
        with pytest.raises(NotSupported, match="none of the plan's devices runs it"):
            on_devices(unknown, ["first", "second", "third"])
