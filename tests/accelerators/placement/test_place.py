"""Placements by cost: planted devices whose best placement is known, limits, rules, what-ifs, and locked plans."""

from __future__ import annotations

import functools
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import partita as pt
from benchmarks.models.any_size import bert
from partita.accelerators.placement.device_bytes import bytes_of, cuts_to_fit, projected, running_calls
from partita.accelerators.placement.locked import LockedPlan
from partita.accelerators.precision import place as place_module
from partita.accelerators.precision.measured_costs import op_alone

SIZE = 64

SVG = "http://www.w3.org/2000/svg"

SLEEPS = {
    "left": {"Relu": 0.001, "Tanh": 0.012, "Exp": 0.012, "Neg": 0.001},
    "right": {"Relu": 0.004, "Tanh": 0.004, "Neg": 0.004},
}
"""The seconds that each planted device sleeps in an op; it runs no others."""


class Sleeping(pt.CompiledSubgraph):
    def __init__(self, graph: pt.Graph, device: str) -> None:
        self._model = pt.accelerator("reference").compile(graph, {})
        self._seconds = sum(SLEEPS[device][str(node.op)] for node in graph.nodes if node.is_op)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        time.sleep(self._seconds)
        return self._model.run(inputs, out)


class Planted(pt.Accelerator):
    def resource(self, device_id: str | None) -> str | None:
        return self.name

    def supports(self, node: Any, graph: pt.Graph) -> bool | str:
        return node.op in SLEEPS[self.name] or f"{self.name} has no {node.op}"

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        return Sleeping(graph, self.name)


class Left(Planted):
    name = "left"


class Right(Planted):
    name = "right"


@pytest.fixture(autouse=True)
def planted() -> Iterator[None]:
    for device in (Left, Right):
        pt.register_accelerator(device)
    yield
    for device in (Left, Right):
        pt.unregister_accelerator(device.name)


def law(node: Any, device: str) -> float | None:
    seconds = SLEEPS[device].get(node.op)
    return None if seconds is None else 1e6 * seconds


def chain(*ops: str) -> pt.Graph:
    value: Any = pt.variable("x", "float32", (SIZE,))
    for i, op in enumerate(ops):
        value = pt.op(op, value, name=f"{op.lower()}{i}")
    return pt.Graph([value], name="chain", output_names=["y"])


def costed(graph: pt.Graph, launch: float = 1000.0) -> pt.Costs:
    times = {d: {n.name: us for n in graph.nodes if n.is_op and (us := law(n, d)) is not None} for d in SLEEPS}
    over = pt.HandOver(launch, 1e9)
    return pt.Costs(times, {("left", "right"): over, ("right", "left"): over})


def test_best_placement_of_a_known_law_is_found_and_its_time_is_as_predicted() -> None:
    graph = chain("Relu", "Tanh", "Tanh", "Relu", "Relu")
    placement = pt.place(graph, "HETERO:left,right", costs=costed(graph))
    assert list(placement.values()) == ["left", "right", "right", "left", "left"]
    assert placement.certificate.predicted_us == placement.certificate.bound_us == pytest.approx(13_000, abs=1)
    assert placement.certificate.priority_us == 27_000
    assert [(one.name, one.source, one.destination) for one in placement.certificate.cut] == [
        ("relu0", "left", "right"), ("tanh2", "right", "left"),
    ]
    model, x = pt.compile(graph, plan=placement), np.linspace(-1, 1, SIZE, dtype=np.float32)
    np.testing.assert_allclose(model(x)[0], np.maximum(np.tanh(np.tanh(np.maximum(x, 0))), 0), rtol=1e-6)
    slept = 1e6 * sum(unit.compiled._seconds for unit in model.units)
    assert slept + 2 * 1000 == pytest.approx(placement.certificate.predicted_us, abs=1)


def test_dear_hand_overs_keep_all_on_one_device() -> None:
    graph = chain("Relu", "Tanh", "Tanh", "Relu", "Relu")
    assert set(pt.place(graph, "HETERO:left,right", costs=costed(graph, 1e6)).values()) == {"right"}


@pytest.mark.parametrize("seed", range(12))
def test_no_other_placement_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = chain(*rng.choice(["Relu", "Tanh", "Neg", "Exp"], 7).tolist())
    costs = costed(graph, float(rng.integers(0, 6000)))
    placement = pt.place(graph, "HETERO:left,right", costs=costs)

    def cost(labels: Sequence[str]) -> float:
        pairs = list(zip(placement, labels))
        if any(name not in costs.times[label] for name, label in pairs):
            return float("inf")
        own = sum(costs.times[label][name] for name, label in pairs)
        over = costs.hand_over("left", "right")
        assert over is not None
        return own + sum(over.us(4 * SIZE) for a, b in itertools.pairwise(labels) if a != b)

    least = min(map(cost, itertools.product(("left", "right"), repeat=7)))
    assert placement.certificate.predicted_us == pytest.approx(least)
    assert cost(list(placement.values())) == pytest.approx(least)
    assert placement.certificate.gap == 0


def test_rules_are_obeyed() -> None:
    graph = chain("Relu", "Tanh", "Neg")
    placement = pt.place(
        graph, "HETERO:left,right", costs=costed(graph, 0), pin={"tanh1": "left"}, forbid={"Neg": "left"}
    )
    assert dict(placement) == {"relu0": "left", "tanh1": "left", "neg2": "right"}
    assert "pin 'tanh1'" in placement.why("tanh1")


def test_placement_says_why_an_op_left_the_preferred_device() -> None:
    graph = chain("Relu", "Tanh", "Tanh")
    placement = pt.place(graph, "HETERO:left,right", costs=costed(graph))
    assert "the total cost is lower elsewhere" in placement.why("tanh1")
    assert "proven to be optimal; by priority 25,000.0 µs" in str(placement)


@pytest.mark.parametrize("seed", range(8))
def test_what_ifs_equal_placements_that_know(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    graph = chain(*rng.choice(["Relu", "Tanh", "Neg", "Exp"], 8).tolist(), "Exp")
    costs = costed(graph, float(rng.integers(0, 3000)))
    placement = pt.place(graph, "HETERO:left,right", costs=costs)
    faster = placement.what_if(speed={"right": 3.0})
    times = {**costs.times, "right": {name: us / 3 for name, us in costs.times["right"].items()}}
    again = pt.place(graph, "HETERO:left,right", costs=pt.Costs(times, costs.hand_overs))
    assert (dict(faster), faster.certificate) == (dict(again), again.certificate)
    alone = placement.what_if(without="right")
    assert (set(alone.values()), alone.certificate.predicted_us) == ({"left"}, placement.certificate.priority_us)
    wishes = placement.wishes()
    monkeypatch.setitem(SLEEPS["right"], "Exp", 0.012)
    knowing = pt.place(graph, "HETERO:left,right", costs=costed(graph, costs.hand_overs["left", "right"].launch_us))
    gain = placement.certificate.predicted_us - knowing.certificate.predicted_us
    assert [wish.gain_us for wish in wishes] == ([pytest.approx(gain)] if gain > 0 else [])
    assert all((wish.op, wish.device) == ("Exp", "right") for wish in wishes)


def test_what_if_without_the_only_device_is_refused() -> None:
    graph = chain("Exp")
    with pytest.raises(pt.NotSupported, match="no other device runs exp0"):
        pt.place(graph, "HETERO:left,right", costs=law).what_if(without="left")


def test_missing_time_is_an_error_that_names_it() -> None:
    graph = chain("Relu", "Tanh")
    with pytest.raises(pt.AcceleratorError, match=r"no time of 'tanh1' \(Tanh\) on left, right"):
        pt.place(graph, "HETERO:left,right", costs={"left": {"relu0": 1.0}})
    with pytest.raises(pt.AcceleratorError, match="the time of 'relu0' on 'left' is -1"):
        pt.place(graph, "HETERO:left,right", costs={"left": {"relu0": -1}})


def test_costs_are_saved_and_loaded(tmp_path: Path) -> None:
    costs = costed(chain("Relu", "Exp"))
    costs.save(tmp_path / "costs.json")
    assert pt.Costs.load(tmp_path / "costs.json") == costs
    assert "left to right: 1,000.0 µs" in str(costs)
    costs.plot(tmp_path / "costs.svg")
    picture = ElementTree.parse(tmp_path / "costs.svg").getroot()
    said = [text.text for text in picture.iter(f"{{{SVG}}}title")]
    assert said == ["relu0: 1,000.0 µs", "exp1: 12,000.0 µs", "relu0: 4,000.0 µs", *["launch: 1,000.0 µs"] * 2]
    first, second, third, *_ = [float(bar.get("width", 0)) for bar in picture.iter(f"{{{SVG}}}rect")]
    assert second == pytest.approx(12 * first, rel=0.01) and third == pytest.approx(4 * first, rel=0.01)
    many = pt.Costs({"left": {"large": 5.0, **{f"op{i}": 0.001 for i in range(5000)}}}).to_svg()
    assert "<title>large: 5.0 µs" in many and "<title>5,000 narrow bars: 5.0 µs" in many
    assert "right to left: 1,000.0 µs" in costs.to_svg() and pt.Costs({}).to_svg().endswith("</svg>\n")
    with pytest.raises(pt.AcceleratorError, match="it has no 'partita_costs'"):
        pt.Costs.from_json("{}")


# -- limits -----------------------------------------------------------------------------------------------


class Small(pt.Accelerator):
    """Runs everything op by op, and counts the bytes that it holds: copies of weights, and arrays while they are needed."""

    name = "small"
    engine = "reference"
    held: dict[int, np.ndarray] = {}
    values = 0

    def supports(self, node: Any, graph: pt.Graph) -> bool | str:
        return True

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        Small.held.update({id(node.value): node.value.copy() for node in graph.nodes if node.value is not None})
        return OpByOp(graph)

    @classmethod
    def weights(cls) -> int:
        return sum(array.nbytes for array in cls.held.values())


class OpByOp(pt.CompiledSubgraph):
    """Runs the ops of a graph one after the other, and drops each array behind its last reader."""

    def __init__(self, graph: pt.Graph) -> None:
        self.graph = graph
        engine = pt.accelerator(Small.engine)
        config = {key: engine.get_config(key) for key in engine.get_metric("SUPPORTED_CONFIG_KEYS")}
        self.steps = [(node, engine.compile(op_alone(node, graph), config)) for node in graph.nodes if node.is_op]
        self.last = {entry: i for i, (node, _) in enumerate(self.steps) for entry in node.reads}
        self.last.update(dict.fromkeys(graph.outputs, len(self.steps)))

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        live = {node[0]: np.array(value) for node, value in zip(self.graph.inputs, inputs)}
        for i, (node, step) in enumerate(self.steps):
            reads = [live[entry] for entry in dict.fromkeys(node.reads) if entry.node.value is None]
            live.update(zip(node.outputs, step.run(reads)))
            Small.values = max(Small.values, sum(array.nbytes for array in live.values()))
            live = {entry: array for entry, array in live.items() if entry.node.is_variable or self.last.get(entry, 0) > i}
        return [live[entry] for entry in self.graph.outputs]


@pytest.fixture
def small() -> Iterator[type[Small]]:
    pt.register_accelerator(Small)
    Small.engine, Small.held, Small.values = "reference", {}, 0
    yield Small
    pt.unregister_accelerator("small")


def layers(count: int, width: int) -> pt.Graph:
    value: Any = pt.variable("x", "float32", (1, width))
    for i in range(count):
        weight = pt.constant(np.full((width, width), 1 / width, np.float32), name=f"w{i}")
        value = pt.op("Relu", pt.op("MatMul", value, weight, name=f"product{i}"), name=f"relu{i}")
    return pt.Graph([value], name="layers", output_names=["y"])


def run_within(graph: pt.Graph, limit: int, engine: str, *inputs: np.ndarray) -> pt.CompiledModel:
    """Places the graph on the small device within the limit, runs it, and compares its outputs and bytes with what they should
    be."""
    Small.engine = engine
    placement = pt.place(graph, f"HETERO:small,{engine}", limit={"small": limit})
    projected = placement.bytes["small"]
    assert 0.9 * limit < projected.total <= limit
    model = pt.compile(graph, plan=placement)
    outputs, expected = model(*inputs), pt.compile(graph, engine)(*inputs)
    for ours, theirs in zip(outputs, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4 * np.abs(theirs).max())
    assert Small.weights() == projected.weights
    assert Small.weights() + Small.values == pytest.approx(projected.total, rel=0.05)
    return model


def test_a_large_model_fits_a_small_device_as_projected(small: type[Small]) -> None:
    model = run_within(layers(30, 64), 400_000, "reference", np.ones((1, 64), np.float32))  # 480 KiB
    assert len(model.units) == 2


@pytest.mark.slow
def test_whole_models_fit_a_device_of_100_megabytes_as_projected(small: type[Small]) -> None:
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    run_within(pt.load("zoo:vgg19"), 10**8, "onnxruntime", rng.standard_normal((1, 3, 224, 224), np.float32))
    Small.held, Small.values = {}, 0
    sizes = {f"{name}_ids": (1, 128) for name in ("input", "mask", "type")}
    graph = pt.apply_pass(bert(), "InferShape", shapes=sizes)
    ids = rng.integers(0, 30522, (1, 128))
    run_within(graph, 10**8, "onnxruntime", ids, np.ones((1, 128), np.int64), np.zeros((1, 128), np.int64))


def test_subgraphs_of_a_placement_are_capped(small: type[Small], tmp_path: Path) -> None:
    graph = layers(4, 16)
    placement = pt.place(graph, "small", max_nodes=3)
    placement.lock(tmp_path / "plan.json")
    for plan in (placement, tmp_path / "plan.json"):
        assert [len(unit.ops) for unit in pt.compile(graph, plan=plan).units] == [3, 3, 2]
    (tmp_path / "plan.json").write_text((tmp_path / "plan.json").read_text().replace('"max_nodes": 3', '"max_nodes": 0'))
    with pytest.raises(pt.ReadError, match="its max_nodes is 0"):
        LockedPlan.load(tmp_path / "plan.json")
    with pytest.raises(pt.AcceleratorError, match="option max_nodes: 0 is not a count"):
        pt.place(graph, "small", max_nodes=0)


def narrow(name: str) -> pt.Graph:
    """A large value, a small one, and a large one again."""
    x, shape = pt.variable("x", "float32", (1, 64, 8, 8)), pt.constant(np.array([1, 64, 8, 8]), name="shape")
    first = pt.op("GlobalMaxPool", x, name="first")
    return pt.Graph([pt.op("GlobalMaxPool", pt.op("Expand", first, shape, name="expand"), name="last")], name=name)


def test_subgraphs_are_cut_where_values_have_to_be_freed(small: type[Small], tmp_path: Path) -> None:
    """A subgraph holds its input of 16 KiB to its end; cut in two, it has that freed before the other one is made."""
    graph = narrow("narrow")
    assert (free := pt.place(graph, "small")).cuts == () and free.bytes["small"].values == 2 * 16384 + 256
    placement = pt.place(graph, "HETERO:small,reference", limit={"small": 20_000})
    assert set(placement.values()) == {"small"} and placement.cuts == ("expand",) and placement.certificate.gap == 0
    assert placement.bytes["small"].values == 16384 + 512 and placement.to_dict()["cuts"] == ["expand"]
    assert "1 cut inside subgraphs, so that values are freed earlier" in str(placement)
    placement.lock(tmp_path / "plan.json")
    given = np.linspace(-1, 1, 4096, dtype=np.float32).reshape(1, 64, 8, 8)
    for plan in (placement, tmp_path / "plan.json"):
        model = pt.compile(graph, plan=plan)
        assert [unit.ops for unit in model.units] == [("first",), ("expand", "last")]
        np.testing.assert_array_equal(model(given)[0], given.max(axis=(2, 3), keepdims=True))
    (tmp_path / "plan.json").write_text((tmp_path / "plan.json").read_text().replace('"expand"\n ]', '"gone"\n ]'))
    with pytest.raises(pt.ReadError, match="'gone' is where a subgraph is cut, and none of its nodes"):
        LockedPlan.load(tmp_path / "plan.json")


def test_bytes_on_a_single_device_are_those_of_its_subgraphs() -> None:
    """A single device has the fewest calls, in which unconnected ops share one."""
    whole = narrow("two")
    y = pt.variable("y", "float32", (1, 64, 8, 8))
    graph = pt.Graph([whole.outputs[0], pt.op("GlobalMaxPool", y, name="other")], inputs=[*whole.inputs, y])
    placement = pt.place(graph, "reference", limit={"reference": 30_000})
    calls = running_calls(pt.compile(graph, plan=placement).graph)
    assert max(call.bytes for call in calls) == placement.bytes["reference"].values <= 30_000


def test_many_inputs_of_one_subgraph_are_freed(small: type[Small]) -> None:
    """A sum of 150 inputs, of which each is read by one op: halving it again and again takes eight rounds."""
    inputs = [pt.variable(f"x{i}", "float32", (256,)) for i in range(150)]
    graph = pt.apply_pass(pt.Graph([functools.reduce(lambda total, one: pt.op("Add", total, one), inputs)]), "InferShape")
    where = {node.name: "small" for node in graph.nodes if node.is_op}
    cuts = cuts_to_fit(graph, where, None, (), {"small": 6 * 1024})
    assert projected(graph, where, ["small"], cuts=cuts)["small"].values <= 6 * 1024


@pytest.mark.slow
def test_cuts_bring_a_model_near_the_bound() -> None:
    """Without them the gaps are 11 % and 12 %."""
    graph = pt.load("zoo:squeezenet")
    bytes_of = {label: held.total for label, held in pt.place(graph, "HETERO:onnxruntime,reference").bytes.items()}
    for share, most in ((0.95, 0.0), (0.5, 0.04)):
        limit = {"onnxruntime": int(share * bytes_of["onnxruntime"])}
        placement = pt.place(graph, "HETERO:onnxruntime,reference", limit=limit)
        assert placement.bytes["onnxruntime"].total <= limit["onnxruntime"]
        assert placement.certificate.gap <= most and placement.cuts


def attention_cache() -> pt.Graph:
    """Keys of earlier tokens, joined with those of new ones."""
    past, new = pt.variable("past", "float32", (1, 2, "past", 8)), pt.variable("new", "float32", (1, 2, 1, 8))
    joined = pt.op("Concat", past, new, name="joined", axis=2)
    return pt.Graph([pt.op("Relu", new, name="relu"), joined], name="cached", output_names=["y", "present"])


def test_caches_of_a_decoder_count(small: type[Small]) -> None:
    graph = attention_cache()
    placement = pt.place(graph, "HETERO:small,reference", longest=100)
    assert placement.bytes["small"].caches == 2 * 100 * 8 * 4
    assert "6.2 KiB of caches" in str(placement)
    assert pt.place(graph, "HETERO:small,reference").bytes["small"].caches == 2 * 1024 * 8 * 4
    limited = pt.place(graph, "HETERO:small,reference", limit={"small": 4096}, longest=100)
    assert limited["joined"] == "reference" and limited["relu"] == "small"
    with pytest.raises(pt.AcceleratorError, match=r"small lacks .* of [\d.]+ KiB .*6.2 KiB of caches"):
        pt.place(graph, "small", limit={"small": 4096}, longest=100)


def test_a_placement_leaves_room_for_measured_workspaces(small: type[Small], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, asked = layers(8, 64), []  # of 16 KiB each

    def weights_and(device: Any, bodies: Sequence[pt.Graph], config: object) -> int:
        asked.append(device.label)
        return 30_000 + sum(node.value.nbytes for body in bodies for node in body.nodes if node.value is not None)

    monkeypatch.setattr(place_module, "measured_bytes", weights_and)
    limit, off = {"small": 110_000}, {device: {"CACHE_DIR": "off"} for device in ("small", "reference")}
    assert pt.place(graph, "HETERO:small,reference", limit=limit).bytes["small"].weights == 6 * 64 * 64 * 4
    placement = pt.place(graph, "HETERO:small,reference", limit=limit, measure_bytes=True, config=off)
    assert sorted(asked) == ["reference"] * 2 + ["small"] * 2
    held = placement.bytes["small"]
    assert held.weights == 4 * 64 * 64 * 4 and held.total <= 110_000
    assert held.workspace == 30_000 - held.values == 29_232
    assert placement.measured_bytes["small"] == held.total == 30_000 + held.weights
    with pytest.raises(pt.AcceleratorError, match=r"small lacks .* of workspace\)"):
        pt.place(graph, "small", limit={"small": 150_000}, measure_bytes=True, config={"CACHE_DIR": "off"})
    monkeypatch.setattr(place_module, "measured_bytes", lambda device, bodies, config: 10**6 + 100)
    with pytest.raises(pt.AcceleratorError, match="no placement whose measured bytes fit .* small lacks 100 B of 976.7 KiB"):
        pt.place(graph, "HETERO:small,reference", limit={"small": 10**6}, measure_bytes=True, config=off)


@pytest.mark.slow
def test_what_is_measured_keeps_within_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graph = layers(8, 512)  # of a mebibyte each
    free = pt.place(graph, "HETERO:onnxruntime,reference", measure_bytes=True)
    real, held = free.measured_bytes["onnxruntime"], free.bytes["onnxruntime"]
    assert held.total <= real + 8192 and real < 3 * held.total  # inputs are not counted
    assert f"measured {real >> 20}." in str(free)
    assert pt.place(graph, "HETERO:onnxruntime,reference", measure_bytes=True).measured_bytes == free.measured_bytes
    limit = {"onnxruntime": int(0.7 * real)}
    fits = pt.place(graph, "HETERO:onnxruntime,reference", limit=limit, measure_bytes=True)
    assert fits.measured_bytes["onnxruntime"] <= limit["onnxruntime"] and set(fits.values()) == {"onnxruntime", "reference"}
    with pytest.raises(pt.AcceleratorError, match="no placement within the limits|whose measured bytes fit"):
        pt.place(graph, "onnxruntime", limit=limit, measure_bytes=True)


def test_a_weight_that_two_ops_read_counts_once(small: type[Small]) -> None:
    x, weight = pt.variable("x", "float32", (1, 256)), pt.constant(np.ones((256, 256), np.float32), name="w")
    first = pt.op("MatMul", x, weight, name="first")
    graph = pt.Graph([pt.op("MatMul", first, weight, name="second")], output_names=["y"])
    placement = pt.place(graph, "HETERO:small,reference", limit={"small": "300KB"})
    assert placement.bytes["small"].weights == 256 * 256 * 4
    assert set(placement.values()) == {"small"}


@pytest.mark.parametrize("seed", range(6))
def test_limits_are_kept_on_three_devices(seed: int, small: type[Small]) -> None:
    rng = np.random.default_rng(seed)
    graph = layers(int(rng.integers(2, 12)), 64)
    limits = {"small": int(rng.integers(10_000, 150_000)), "left": int(rng.integers(5_000, 100_000))}
    placement = pt.place(graph, "HETERO:left,small,reference", limit=limits)
    assert all(held.total <= placement.limits[label] for label, held in placement.bytes.items())


def test_error_says_what_lacks_where_and_what_would_fit(small: type[Small]) -> None:
    graph = layers(4, 256)
    with pytest.raises(pt.AcceleratorError, match=r"small lacks [\d.]+ KiB of 1.0 MiB.*\n.*limit=\{'small': (\d+)\}") as caught:
        pt.place(graph, "small", limit={"small": "500KiB"})
    needed = int(str(caught.value).partition("'small': ")[2].partition("}")[0])
    assert pt.place(graph, "small", limit={"small": needed}).bytes["small"].total == needed


def test_even_spreads_the_weights(small: type[Small]) -> None:
    placement = pt.place(layers(8, 256), "HETERO:small,reference", even=True)
    assert [held.weights for held in placement.bytes.values()] == [4 * 256 * 256 * 4] * 2


def test_free_memory_is_a_limit() -> None:
    placement = pt.place(layers(2, 16), "reference", limit="free")
    assert 0 < placement.limits["reference"] < float("inf")


@pytest.mark.parametrize("text, size", [("22GiB", 22 << 30), ("1.5 kb", 1500), ("7", 7), (12, 12), (np.int64(9), 9)])
def test_amounts_of_memory(text: str | int, size: int) -> None:
    assert bytes_of(text, "cpu") == size


@pytest.mark.parametrize("text", ["much", "-1MB", "", True, "nan", "1_0KB", "\uff11KB", "1GGiB", 10**400, float("inf")])
def test_other_amounts_are_refused(text: Any) -> None:
    with pytest.raises(pt.AcceleratorError, match=r"limit\['cpu'\].*is not an amount of memory"):
        bytes_of(text, "cpu")


# -- locked plans ------------------------------------------------------------------------------------------


def test_locked_plan_compiles_the_same(tmp_path: Path) -> None:
    graph = chain("Relu", "Tanh", "Tanh", "Relu")
    placement = pt.place(graph, "HETERO:left,right", costs=costed(graph))
    path, again = tmp_path / "plan.json", tmp_path / "again.json"
    placement.lock(path)
    pt.place(graph, "HETERO:left,right", costs=costed(graph)).lock(again)
    assert path.read_bytes() == again.read_bytes()
    model = pt.compile(graph, plan=path)
    assert {name: unit.device.label for unit in model.units for name in unit.ops} == dict(placement)


def test_locked_plan_of_a_graph_with_calls_that_were_inlined(tmp_path: Path) -> None:
    graph = chain("Relu", "Exp", "Tanh")
    called = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.Pattern("Exp", "Tanh"), name="mine"))
    placement = pt.query(called, "HETERO:right,left", forbid={"Exp": "right", "Tanh": "left"})
    assert placement.inlined
    placement.lock(tmp_path / "plan.json")
    model = pt.compile(called, plan=tmp_path / "plan.json")
    assert {name: unit.device.label for unit in model.units for name in unit.ops} == dict(placement)


def test_locked_plan_of_another_graph_is_refused(tmp_path: Path) -> None:
    pt.place(chain("Relu", "Tanh"), "HETERO:left,right").lock(tmp_path / "plan.json")
    with pytest.raises(pt.AcceleratorError, match="it lacks tanh1"):
        pt.compile(chain("Relu"), plan=tmp_path / "plan.json")
    with pytest.raises(pt.AcceleratorError, match="it also has neg2"):
        pt.compile(chain("Relu", "Tanh", "Neg"), plan=tmp_path / "plan.json")
    with pytest.raises(pt.AcceleratorError, match="pin, forbid, optimize and min_subgraph_size have no meaning"):
        pt.compile(chain("Relu", "Tanh"), plan=tmp_path / "plan.json", pin={"relu0": "left"})
    with pytest.raises(pt.ReadError, match="no plan can be read"):
        pt.compile(chain("Relu"), plan=tmp_path / "none.json")


BROKEN_PLANS: list[tuple[Any, str]] = [
    (lambda plan: plan["nodes"]["tanh1"].update(device="npu"), "nodes.tanh1.device is 'npu', which is none of its devices"),
    (lambda plan: plan["nodes"]["tanh1"].update(device=""), "nodes.tanh1.device is '', which is none of its devices"),
    (lambda plan: plan.update(devices=["right"]), "nodes.relu0.device is 'left'"),
    (lambda plan: plan.update(computed=["no"]), "'no' is computed, and none of its nodes"),
]


def test_plans_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    graph, path = chain("Relu", "Tanh"), tmp_path / "plan.json"
    for broken, cause in BROKEN_PLANS:
        pt.place(graph, "HETERO:left,right").lock(path)
        plan = json.loads(path.read_text())
        broken(plan)
        path.write_text(json.dumps(plan))
        with pytest.raises(pt.ReadError, match=cause):
            LockedPlan.load(path)


DIFFERENCES: list[tuple[Any, str]] = [
    (lambda plan: plan["nodes"]["tanh1"].update(types=["float32[3]"]),
     "! tanh1 (Tanh): it made float32[3], and makes float32[64]"),
    (lambda plan: plan.update(computed=["tanh1"]), "! tanh1 (Tanh): it was computed while compiling, and is not"),
    (lambda plan: plan.update(inlined=[["call"]]), "- call: it was a call that was inlined, and the graph has none"),
    (lambda plan: plan["nodes"]["tanh1"].update(op="Exp"), "! tanh1: it was Exp, and is Tanh"),
    (lambda plan: plan["nodes"].pop("tanh1"), "+ tanh1 (Tanh): the plan lacks it"),
    (lambda plan: plan["nodes"].update(more=plan["nodes"]["tanh1"]), "- more (Tanh on left): the graph lacks it"),
    (lambda plan: plan["nodes"]["tanh1"].update(types=["float32[n]"]), ""),
]


def test_differences_from_a_plan(tmp_path: Path) -> None:
    graph, path = chain("Relu", "Tanh"), tmp_path / "plan.json"
    for changed, difference in DIFFERENCES:
        pt.place(graph, "HETERO:left,right").lock(path)
        plan = json.loads(path.read_text())
        changed(plan)
        path.write_text(json.dumps(plan))
        assert LockedPlan.load(path).differences(graph) == ([difference] if difference else [])


def test_differences_of_a_graph_with_calls_that_were_inlined(tmp_path: Path) -> None:
    graph = chain("Relu", "Exp", "Tanh")
    called = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.Pattern("Exp", "Tanh"), name="mine"))
    pt.query(called, "HETERO:right,left", forbid={"Exp": "right", "Tanh": "left"}).lock(tmp_path / "plan.json")
    plan = LockedPlan.load(tmp_path / "plan.json")
    assert plan.inlined == (("mine_0",),)
    assert plan.differences(called) == []
    assert plan.differences(graph) == ["- mine_0: it was a call that was inlined, and the graph has none"]


def test_compiling_by_a_plan_for_other_sizes_is_refused(tmp_path: Path) -> None:
    graph, path = chain("Relu", "Tanh"), tmp_path / "plan.json"
    pt.place(graph, "HETERO:left,right").lock(path)
    path.write_text(path.read_text().replace("float32[64]", "float32[32]"))
    with pytest.raises(pt.AcceleratorError, match=r"'relu0' made float32\[32\], and makes float32\[64\]"):
        pt.compile(graph, plan=path)


BEYOND = [float("nan"), float("inf"), -1, "3", None, True, 10**400, 1e308, 1 + 2j, np.ones(2)]

WRONG_COSTS: list[tuple[Any, str]] = [
    *[(lambda us=us: pt.Costs({"left": {"relu0": us}}), "the time of 'relu0' on 'left' is") for us in BEYOND],
    *[(lambda us=us: pt.HandOver(us), "the launch_us of a hand-over is") for us in BEYOND],
    *[(lambda rate=rate: pt.HandOver(1, rate), "the bytes_per_us of a hand-over are") for rate in [0, 1e-320, *BEYOND]],
    (lambda: pt.Costs(5), "they are not a table of times: 5"),
    (lambda: pt.Costs({"left": 5}), "they are not a table of times"),
    (lambda: pt.Costs({1: {2: 3}}), "1 and 2 are not two names"),
    (lambda: pt.Costs({}, 5), "they are not a table of hand-overs: 5"),
    (lambda: pt.Costs({}, {("left", "right"): 5}), "the hand-over from 'left' to 'right' is 5"),
    (lambda: pt.Costs({}, {"left": pt.HandOver()}), "nothing is handed over along 'left'"),
    (lambda: pt.Costs({}, {("left", "left"): pt.HandOver()}), r"nothing is handed over along \('left', 'left'\)"),
    (lambda: pt.Costs.from_json(None), "this is not JSON"),
    (lambda: pt.Costs.load(5), "Costs.load: 5 is not a path"),
    (lambda: pt.Costs.load("a\0b"), "no costs can be read from it"),
]


def test_wrong_costs_are_refused() -> None:
    for made, cause in WRONG_COSTS:
        with pytest.raises(pt.PartitaError, match=cause):
            made()


def test_costs_of_numpy_and_of_any_text_are_saved(tmp_path: Path) -> None:
    over = pt.HandOver(np.int64(3), np.float32(4))
    costs = pt.Costs({"left": {"relu0": np.float32(2)}}, {("left", "right"): over}, "\ud800")
    costs.save(tmp_path / "costs.json")
    assert pt.Costs.load(tmp_path / "costs.json") == costs


WRONG_WHAT_IFS: list[tuple[dict[str, Any], str]] = [
    ({"support": 5}, "option support: 5 is not a table"),
    ({"support": {"Exp": 5}}, r"option support\['Exp'\]: 5 names no devices"),
    ({"support": {"Exp": [5]}}, "a device is named by a string, not by 5"),
    ({"speed": 5}, "option speed: 5 is not a table"),
    ({"speed": {"left": 0}}, "the speed of 'left' is 0"),
    ({"speed": {"left": 1e-320}}, "the time of 'relu0' on 'left' is inf"),
    ({"without": 5}, "option without: 5 names no devices"),
]


def test_wrong_what_ifs_are_refused() -> None:
    placement = pt.place(chain("Relu", "Tanh"), "HETERO:left,right")
    for options, cause in WRONG_WHAT_IFS:
        with pytest.raises(pt.PartitaError, match=cause):
            placement.what_if(**options)


def test_what_if_keeps_other_limits() -> None:
    placement = pt.place(chain("Relu", "Tanh"), "HETERO:left,right", limit={"left": 2000})
    assert placement.what_if(limit={"right": "1KB"}).limits == {"left": 2000, "right": 1000}
    assert placement.what_if(limit={"left": None}).limits == {"left": math.inf, "right": math.inf}


def test_placement_whose_priority_lacks_a_time_is_printed() -> None:
    graph = chain("Relu", "Tanh")
    placement = pt.place(graph, "HETERO:left,right", costs={"left": {"relu0": 1.0}, "right": {"relu0": 1.0, "tanh1": 1.0}})
    assert json.loads(json.dumps(placement.to_dict(), allow_nan=False))["certificate"]["priority_us"] is None
    assert "by priority" not in str(placement)


@pytest.mark.slow
def test_hundreds_of_what_ifs_equal_placements_that_know() -> None:
    for seed in range(125):
        rng = np.random.default_rng(seed)
        graph = chain(*rng.choice(["Relu", "Tanh", "Neg"], 8).tolist())
        costs, limit = costed(graph, float(rng.integers(0, 3000))), {"right": int(rng.integers(300, 2000))}
        placement = pt.place(graph, "HETERO:left,right", costs=costs)
        factor = float(rng.uniform(0.2, 5))
        times = {**costs.times, "left": {name: us / factor for name, us in costs.times["left"].items()}}
        pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"speed": {"left": factor}}, {"costs": pt.Costs(times, costs.hand_overs)}),
            ({"limit": limit}, {"costs": costs, "limit": limit}),
            ({"without": "left"}, {"costs": costs, "pin": {".*": "right"}}),
            ({"speed": {"left": factor}, "limit": limit}, {"costs": pt.Costs(times, costs.hand_overs), "limit": limit}),
        ]
        for asked, known in pairs:
            if_so, again = placement.what_if(**asked), pt.place(graph, "HETERO:left,right", **known)
            assert dict(if_so) == dict(again) and if_so.bytes == again.bytes, (seed, asked)
            assert if_so.certificate.predicted_us == pytest.approx(again.certificate.predicted_us)
