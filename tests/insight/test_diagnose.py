"""From a wrong output to the node that makes it: planted faults, and what devices do wrong otherwise."""

from __future__ import annotations

import math
import select
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import partita as pt
from partita.accelerators.process import messages
from partita.accelerators.runtime.profile import timeline_svg
from partita.compare import Difference
from partita.graph.interpret import evaluate_node
from partita.graph.pictures.layered import layered_svg
from partita.insight.cutting import Cutter
from partita.insight.diagnosis import Fault
from tests.graphs.small_models import Weights, convolutions, inputs_of, transformer
from tests.insight.crashing import HANGS, Crashing, Hanging
from tests.insight.planting import KINDS, Plant, faulty, plant_at, sites
from tests.insight.small_devices import device_of


def typed(graph: pt.Graph) -> pt.Graph:
    return pt.apply_pass(graph, "InferShape")


def plants(graph: pt.Graph, kind: str) -> list[Plant]:
    return [plant for node in sites(graph) if (plant := plant_at(node, kind, graph)) is not None]


def is_within_bound(fault: pt.Fault) -> bool:
    return fault.tries <= math.log2(fault.among) + 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [convolutions, transformer])
@pytest.mark.thinned(2)
def test_each_planted_fault_is_found(make: Any, kind: str) -> None:
    graph = typed(make())
    for plant in plants(graph, kind):
        with faulty("reference", plant) as device:
            diagnosis = pt.diagnose(graph, device)
        if all(output.ok for output in diagnosis.outputs) and diagnosis.fault is None:
            continue  # what comes after it takes the error away
        assert set(diagnosis.nodes) == plant.nodes, str(diagnosis)
        assert is_within_bound(diagnosis.fault), str(diagnosis)


@pytest.mark.parametrize("before", range(6))
def test_a_pair_is_found_in_time_whichever_of_two_values_is_wrong_in_it(before: int) -> None:
    value: Any = pt.variable("x", "float32", (4,))
    for _ in range(before):
        value = pt.op("Tanh", value)
    sides = [pt.op(op, value, name=op.lower()) for op in ("Sin", "Cos")]
    value = pt.op("Add", *sides, name="join")
    for _ in range(7 - before):
        value = pt.op("Neg", value)
    graph = typed(pt.Graph([value], name="diamond"))
    for producer in ("sin", "cos"):
        with faulty("reference", Plant("fused", "join", producer)) as device:
            diagnosis = pt.diagnose(graph, device)
        assert set(diagnosis.nodes) == {"join", producer}
        assert is_within_bound(diagnosis.fault), str(diagnosis)


def masked(least: float) -> pt.Graph:
    """Scores with a mask, and the chances that are made of them."""
    kept = np.array([[True, True, True, False]] * 3)
    value: Any = pt.variable("x", "float32", (3, 4))
    for op, name in (("Neg", "neg"), ("Exp", "exp"), ("Tanh", "tanh"), ("Sin", "sin"), ("Cos", "scores")):
        value = pt.op(op, value, name=name)
    value = pt.op("Add", value, pt.constant(np.where(kept, 0, least).astype(np.float32)), name="masked")
    return typed(pt.Graph([pt.op("Neg", pt.op("Softmax", value, name="chances"), name="y")], name="masked"))


@pytest.mark.parametrize("least", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_a_mask_hides_no_fault_before_it(least: float) -> None:
    """The numbers of a mask are so large that an error of the scores beside them is nothing."""
    graph = masked(least)
    for plant in [*plants(graph, "off"), *plants(graph, "fused")]:
        with faulty("reference", plant) as device:
            diagnosis = pt.diagnose(graph, device, tolerance=1e-4)
        assert set(diagnosis.nodes) == plant.nodes, str(diagnosis)
        assert is_within_bound(diagnosis.fault), str(diagnosis)


def test_a_border_behind_a_mask_hides_no_fault() -> None:
    graph = masked(-1e9)
    with faulty("reference", Plant("off", "scores")) as device:
        for node in graph.nodes:
            if node.is_op:
                node.affinity = "reference" if node.name in ("chances", "y") else device
        diagnosis = pt.diagnose(graph, f"HETERO:{device},reference")
    assert diagnosis.nodes == ("scores",)
    assert [layer.relative for layer in diagnosis.subgraphs[0].layers] == [pytest.approx(0.01, rel=1e-3)]


def test_the_report_names_the_node_its_error_and_the_compilations() -> None:
    with faulty("reference", Plant("off", "second")) as device:
        diagnosis = pt.diagnose(convolutions(), device)
    assert repr(diagnosis) == "<Diagnosis of 'convolutions': second>"
    lines = str(diagnosis).split("\n")
    assert lines[0] == "convolutions on faulty_reference against reference"
    assert "  second (Conv) on faulty_reference: wrong numbers" in lines
    assert lines[-1] == "    found in faulty_reference_0 (11 ops) by 5 compilations"
    (layer,) = diagnosis.fault.layers
    assert layer.relative == pytest.approx(0.01, rel=1e-3)
    assert layer.cosine == pytest.approx(1)
    assert layer.ranges[0][1] == pytest.approx(1.01 * layer.ranges[1][1])
    assert "second" in {inner.name for inner in diagnosis.inside}
    assert '<title>second (Conv): 1.0e-02</title>' in diagnosis.to_svg()
    assert diagnosis.to_dict()["fault"]["nodes"] == ("second",)


def test_an_error_of_an_earlier_subgraph_does_not_reach_a_later_one() -> None:
    """The model's output is far off since the first convolution is; what is on the other device is right."""
    with faulty("reference", Plant("off", "first")) as device:
        diagnosis = pt.diagnose(convolutions(), f"HETERO:{device},onnxruntime", tolerance=1e-4)
        assert diagnosis.nodes == ("first",)
        graph = typed(convolutions())
        for node in graph.nodes:
            if node.is_op:
                node.affinity = "onnxruntime" if node.name == "first" else device
        diagnosis = pt.diagnose(graph, f"HETERO:{device},onnxruntime", tolerance=1e-4)
    assert diagnosis.ok
    assert str(diagnosis).endswith("2 subgraphs are right on the trusted run's inputs\nnothing is to blame")


def test_a_fault_for_one_size_alone_of_a_model_of_any_size() -> None:
    x = pt.variable("x", "float32", ("n", 4))
    graph = pt.Graph([pt.op("Neg", pt.op("Exp", x, name="exp"), name="neg")], name="sized")
    small, large = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    with device_of(lambda node, inputs: [np.exp(inputs[0]) * (1.01 if len(inputs[0]) == 3 else 1)], "Exp") as device:
        assert pt.diagnose(graph, device, small).ok
        diagnosis = pt.diagnose(graph, device, [small, large])
    assert diagnosis.nodes == ("exp",)
    assert diagnosis.notes == ("1 call before it is right",)


def test_two_runs_that_differ() -> None:
    calls: list[int] = []

    def drifting(node: pt.Node, inputs: Any) -> Any:
        calls.append(0)
        return [np.tanh(inputs[0]) + np.float32(1e-6 * len(calls))]

    with device_of(drifting, "Gelu") as device:
        diagnosis = pt.diagnose(transformer(), device)
    assert diagnosis.fault.ops == ("Gelu",)
    assert diagnosis.fault.kind == "not deterministic"
    assert diagnosis.fault.message == "two runs on the same inputs differ"


def test_each_part_runs_as_often_as_is_asked_for() -> None:
    calls: list[int] = []

    def drifting(node: pt.Node, inputs: Any) -> Any:
        calls.append(0)
        return [np.tanh(inputs[0]) + np.float32(1e-6 * len(calls))]

    graph = pt.Graph([pt.op("Tanh", pt.variable("x", "float32", (4,)), name="t")])
    counts = []
    with device_of(drifting, "Tanh") as device:
        for runs in (1, 2, 3):
            calls.clear()
            diagnosis = pt.diagnose(graph, device, runs=runs)
            assert (diagnosis.fault is None) == (runs == 1)
            counts.append(len(calls))
    assert counts == [2, 3, 4]


def test_what_raises_and_what_returns_other_sizes() -> None:
    def failing(node: pt.Node, inputs: Any) -> Any:
        raise RuntimeError("the register file is on fire")

    for kernel, message in (
        (failing, "RuntimeError: the register file is on fire"),
        (lambda node, inputs: [np.zeros((1, 2), np.float32)], "it returned sizes [1, 2] for output 'softmax_0', which is "),
    ):
        with device_of(kernel, "Softmax") as device:
            diagnosis = pt.diagnose(transformer(), device)
        assert diagnosis.fault.ops == ("Softmax",)
        assert diagnosis.fault.kind == "fails while it runs"
        assert diagnosis.fault.message.startswith(message)
        assert diagnosis.outputs == ()


def test_what_does_not_compile() -> None:
    with device_of(None, "Gelu") as device:
        diagnosis = pt.diagnose(transformer(), f"HETERO:{device},reference")
    assert (diagnosis.fault.ops, diagnosis.fault.kind) == (("Gelu",), "does not compile")
    assert diagnosis.fault.message == "ValueError: no kernel for Gelu"
    with device_of(None, "Gelu") as device:
        assert pt.diagnose(transformer(), device).fault.ops == ("Gelu",)


def test_a_device_that_changes_its_inputs_is_the_one_to_blame() -> None:
    def overwriting(node: pt.Node, inputs: Any) -> Any:
        inputs[0] *= 0
        return [inputs[0].copy()]

    with device_of(overwriting, "Relu") as device:
        diagnosis = pt.diagnose(convolutions(), device)
    assert diagnosis.fault.ops == ("Relu",)


def test_the_first_nan_of_the_model_itself_is_a_note() -> None:
    x = pt.variable("x", "float32", (3,))
    graph = pt.Graph([pt.op("Exp", pt.op("Log", pt.op("Neg", x, name="neg"), name="log"), name="exp")], name="odd")
    diagnosis = pt.diagnose(graph, "onnxruntime", np.ones(3, np.float32))
    assert diagnosis.ok
    assert diagnosis.notes == ("log (Log) makes the first NaN of the trusted run",)


def test_a_number_too_large_for_float16() -> None:
    x = pt.variable("x", "float32", (3,))
    graph = pt.Graph([pt.op("Sqrt", pt.op("Mul", x, x, name="square"), name="root")], name="large")

    def half(node: pt.Node, inputs: Any) -> Any:
        with np.errstate(over="ignore"):
            return [(inputs[0].astype(np.float16) * inputs[1].astype(np.float16)).astype(np.float32)]

    with device_of(half, "Mul", {"PRECISION": pt.accelerator("cpu").keys()["PRECISION"]}) as device:
        diagnosis = pt.diagnose(graph, device, np.full(3, 1000, np.float32), config={"PRECISION": "fast"})
    assert (diagnosis.nodes, diagnosis.fault.kind) == (("square",), "infinity")
    assert diagnosis.fault.message == "numbers as large as 1e+06 come to it or from it, and float16 ends at 65504"


def test_a_device_against_itself_in_another_precision() -> None:
    diagnosis = pt.diagnose(transformer(), "cpu", config={"PRECISION": "bf16"}, against="cpu", tolerance=1e-4)
    assert diagnosis.fault.ops == ("MatMul",)
    assert pt.diagnose(transformer(), "cpu", config={"PRECISION": "bf16"}, against="cpu").ok


def test_small_errors_that_add_up_are_not_laid_on_a_node() -> None:
    x = pt.variable("x", "float32", (4,))
    value: Any = x
    for i in range(12):
        value = pt.op("Mul", value, pt.constant(np.float32(1), name=f"one{i}"), name=f"mul{i}")
    graph = pt.Graph([value], name="chain")
    with device_of(lambda node, inputs: [inputs[0] * inputs[1] * np.float32(1.0001)], "Mul") as device:
        diagnosis = pt.diagnose(graph, device, np.ones(4, np.float32), tolerance=1e-3)
    assert len(diagnosis.nodes) > 8
    assert diagnosis.fault.message == "no smaller group is wrong by itself: small errors of many ops may add up"


def quantized(device: str) -> tuple[pt.Graph, np.ndarray]:
    """A float model with its products as integers between QuantizeLinear and DequantizeLinear, and ops of floats behind them."""
    graph, array = transformer(), inputs_of(transformer())[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pt.choose_precision(graph, array, 1.0, device, win="memory").apply(graph), array


def test_a_step_of_an_integer_is_no_error_whatever_tolerance_is_given() -> None:
    """A device that rounds halves the other way; the fault was laid on it."""

    def away(node: Any, inputs: Any) -> Any:
        scaled = np.float64(inputs[0]) / inputs[1] + (np.float64(inputs[2]) if len(inputs) > 2 else 0)
        rounded = np.rint(scaled)
        flipped = np.where(np.arange(scaled.size).reshape(scaled.shape) % 50 == 7, rounded + 1, rounded)
        limits = np.iinfo(inputs[2].dtype)
        return [flipped.clip(limits.min, limits.max).astype(inputs[2].dtype)]

    graph, array = quantized("reference")
    with device_of(away, "QuantizeLinear") as device:
        for tolerance in (None, 1e-3):
            assert pt.diagnose(graph, device, array, tolerance=tolerance).fault is None, tolerance


@pytest.mark.parametrize("op", ["Gelu", "Softmax", "LayerNormalization", "Add"])
@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_one_in_a_hundred_is_found_in_a_quantized_model(op: str, tolerance: float | None) -> None:
    """Two in a hundred are allowed behind a QuantizeLinear, and the fault hid there."""

    def off(node: Any, inputs: Any) -> Any:
        return [value * value.dtype.type(1.01) for value in evaluate_node(node, inputs, graph.opsets)]

    graph, array = quantized("reference")
    with device_of(off, op) as device:
        diagnosis = pt.diagnose(graph, device, array, tolerance=tolerance)
    assert diagnosis.fault is not None and diagnosis.fault.ops == (op,)
    assert diagnosis.fault.kind == "wrong numbers" and not diagnosis.ok
    assert any(check.kind == "wrong numbers" for check in diagnosis.subgraphs)


@pytest.mark.parametrize("output", [np.nan, 2e33])
def test_what_is_far_off_is_not_said_to_be_small_errors(output: float) -> None:
    difference = Difference("y", np.inf if np.isnan(output) else output, (0,), False)
    diagnosis = pt.Diagnosis("m", "d", "reference", (difference,), (), None)
    assert "no subgraph is wrong by itself: y is too far off for small errors that add up" in str(diagnosis)
    near = pt.Diagnosis("m", "d", "reference", (Difference("y", 0.002, (0,), False),), (), None)
    assert "no subgraph is wrong by itself: small errors add up" in str(near)


def test_ops_of_one_value_that_are_wrong_only_together_are_found_soon() -> None:
    """A device that merges products of one value."""
    x = pt.variable("x", "float32", (4, 16))
    before = [pt.op("Tanh", x, name="first")]
    before += [pt.op("Tanh", before[-1], name=f"more{i}") for i in range(20)]
    weights = Weights(3)
    names = ["query", *(f"keys{i}" for i in range(10)), "values"]
    value: Any = pt.op("Concat", *(pt.op("MatMul", before[-1], weights(16, 16, fan_in=16), name=name) for name in names), axis=1)
    for i in range(20):
        value = pt.op("Tanh", value, name=f"after{i}")
    with faulty("reference", Plant("fused", "values", "query")) as device:
        diagnosis = pt.diagnose(pt.Graph([value], name="siblings"), device)
    assert diagnosis.fault is not None and set(diagnosis.nodes) == {"query", "values"}
    assert diagnosis.fault.tries <= 18, diagnosis.fault.tries


@pytest.mark.parametrize("node", ["shaped", "rest", "row", "last"])
def test_on_cpu_at_any_size_a_fault_is_laid_on_one_op(node: str) -> None:
    """Sizes that a cut is given are those of the trusted run: nothing that read a computed size could be compiled by itself."""
    pytest.importorskip("tvm")
    x = pt.variable("x", "float32", ("n", "t", 8))
    first = pt.op("Tanh", pt.op("Exp", x, name="large"), name="first")
    sizes = pt.op("Concat", pt.op("Shape", first, end=2), pt.constant(np.array([2, 4])), axis=0, name="sizes")
    shaped = pt.op("Reshape", first, sizes, name="shaped")
    rest = pt.op("Mod", shaped, pt.constant(np.float32(0.3)), name="rest", fmod=1)
    row = pt.op("Gather", rest, pt.constant(np.array([1, 0])), axis=2, name="row")
    last = pt.op("Relu", pt.op("Sin", row, name="sine"), name="last")
    array = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    with faulty("cpu", Plant("off", node)) as device:
        diagnosis = pt.diagnose(pt.Graph([last], [x], name="any"), device, array)
    assert diagnosis.nodes == (node,), str(diagnosis)


def test_a_compiled_model_and_its_own_devices() -> None:
    with faulty("reference", Plant("off", "third")) as device:
        model = pt.compile(convolutions(), device)
        assert pt.diagnose(model, against="onnxruntime").nodes == ("third",)
        with pytest.raises(pt.AcceleratorError, match="a compiled model has its devices already"):
            pt.diagnose(model, device)


def test_a_cut_is_convex_and_runs_by_itself() -> None:
    cutter = Cutter(typed(transformer()))
    number = {node.name: i for i, node in enumerate(cutter.ops)}
    assert cutter.closed([number["query"], number["mixed"]]) > {number["query"], number["mixed"]}
    cut = cutter.cut([number["keys"], number["keys"] + 1])
    assert cut.ops[0].name == "keys"
    assert [entry.name for entry in cut.reads] == ["layernormalization_0"]


def test_a_crash_is_found_by_child_processes() -> None:
    pt.register_accelerator(Crashing)
    try:
        diagnosis = pt.diagnose(convolutions(), Crashing.name, isolate=True)
    finally:
        pt.unregister_accelerator(Crashing.name)
    assert diagnosis.fault.ops == ("GlobalAveragePool",)
    assert "SIGABRT" in diagnosis.fault.message


@pytest.fixture
def limit_is_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a child that hangs is over as soon as it says that it does, whatever its limit is."""
    hangs = tmp_path / "hangs"
    monkeypatch.setenv(HANGS, str(hangs))
    receive = messages.receive

    def impatient(socket: Any, seconds: float, ended: int | None) -> Any:
        while not select.select([socket], [], [], 0.01)[0]:
            if hangs.exists():
                hangs.unlink()
                raise TimeoutError
        return receive(socket, seconds, ended)

    monkeypatch.setattr(messages, "receive", impatient)


@pytest.mark.usefixtures("limit_is_over_at_once")
def test_a_hang_is_found_by_child_processes() -> None:
    pt.register_accelerator(Hanging)
    try:
        diagnosis = pt.diagnose(convolutions(), Hanging.name, isolate=True, config={"ISOLATE_SECONDS": 300.0})
    finally:
        pt.unregister_accelerator(Hanging.name)
    assert (diagnosis.fault.ops, diagnosis.fault.kind) == (("GlobalAveragePool",), "fails while it runs")
    assert "it took more than 300 s while it ran" in diagnosis.fault.message


def with_functions() -> pt.Graph:
    """Two calls of a function whose second op is an Exp."""
    inner = pt.variable("a", "float32", (4, 8))
    body = pt.Graph([pt.op("Exp", pt.op("Tanh", inner, name="tanh"), name="exp")], name="F")
    x = pt.variable("x", "float32", (4, 8))
    first = pt.call(body, name="one").evolve(inputs=(x[0],))
    return pt.Graph([pt.call(body, name="two").evolve(inputs=(first[0],))], name="functions")


def test_a_fault_inside_a_function_is_found_there() -> None:
    with device_of(lambda node, inputs: [np.exp(inputs[0]) * np.float32(1.05)], "Exp") as device:
        diagnosis = pt.diagnose(with_functions(), device)
    assert (diagnosis.fault.ops, diagnosis.fault.kind) == (("Exp",), "wrong numbers")


def test_random_numbers_are_not_compared_and_a_note_says_so() -> None:
    x = pt.variable("x", "float32", (4,))
    graph = pt.Graph([pt.op("Add", x, pt.op("RandomNormalLike", x, name="noise"), name="add")], name="noisy")
    diagnosis = pt.diagnose(graph, "onnxruntime")
    assert diagnosis.ok
    assert diagnosis.notes == ("onnxruntime_0: it draws random numbers, which are not compared",)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"inputs": []}, "inputs has no call"),
        ({"runs": 0}, "runs is 0"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
    ],
)
def test_what_cannot_be_asked_for(options: Any, cause: str) -> None:
    with pytest.raises(pt.BadConfig, match=f"diagnose: {cause}"):
        pt.diagnose(convolutions(), "reference", **options)


def test_of_two_faults_the_first_is_named_and_then_the_second() -> None:
    x = pt.variable("x", "float32", (4, 8))
    graph = pt.Graph([pt.op("Exp", pt.op("Relu", pt.op("Exp", x, name="a"), name="b"), name="c")], name="two")
    spoilt = {"a", "c"}

    def kernel(node: pt.Node, inputs: Any) -> Any:
        return [np.exp(inputs[0]) * np.float32(1.05 if node.name in spoilt else 1)]

    with device_of(kernel, "Exp") as device:
        assert pt.diagnose(graph, device).nodes == ("a",)
        spoilt.remove("a")
        assert pt.diagnose(graph, device).nodes == ("c",)


def test_with_tolerance_0_integers_and_empty_arrays_are_right() -> None:
    x, empty = pt.variable("x", "int32", (3, 4)), pt.variable("e", "float32", (0, 4))
    square = pt.op("Mul", pt.op("Add", x, x, name="add"), x, name="mul")
    graph = pt.Graph([square, pt.op("Relu", empty, name="relu")], name="ints")
    assert pt.diagnose(graph, "onnxruntime", tolerance=0).ok
    with device_of(lambda node, inputs: [inputs[0] + inputs[1] + 1], "Add") as device:
        assert pt.diagnose(graph, device, tolerance=0).nodes == ("add",)


@pytest.mark.slow
def test_a_chain_of_five_thousand_ops() -> None:
    x = pt.variable("x", "float32", (4,))
    value: Any = x
    for i in range(5000):
        value = pt.op("Add", value, x, name=f"n{i}")

    def kernel(node: pt.Node, inputs: Any) -> Any:
        return [inputs[0] + inputs[1] + np.float32(0.5 if node.name == "n3210" else 0)]

    with device_of(kernel, "Add") as device:
        diagnosis = pt.diagnose(pt.Graph([value], name="adds"), device, tolerance=1e-5, runs=1)
    assert diagnosis.nodes == ("n3210",)
    assert is_within_bound(diagnosis.fault)


def test_what_did_not_change_is_the_same_machine_code_to_the_byte() -> None:
    """A kernel that stands in two cuts is compiled once: its object file is the same object."""
    pytest.importorskip("tvm")
    cutter = Cutter(typed(convolutions()))
    device = pt.accelerator("cpu")
    config = device.full_config({"CACHE_DIR": "off"})
    compiled = [device.compile(cutter.cut(range(size)).graph, config) for size in (6, 9)]
    codes = [
        {kernel.name: kernel._origin().built.code for kernel in one.kernels() if kernel.nodes == ("first", "relu_0")}
        for one in compiled
    ]
    assert codes[0] and [id(code) for code in codes[0].values()] == [id(code) for code in codes[1].values()]
    assert [work.is_shared for work in compiled[1].work][:2] == [True, True]


def test_of_a_model_on_several_devices_one_is_diagnosed() -> None:
    model = pt.compile(convolutions(), "MULTI:reference,onnxruntime")
    with pytest.raises(pt.AcceleratorError, match="diagnose: it has one model for each of reference, onnxruntime"):
        pt.diagnose(model)
    assert pt.diagnose(model.models["onnxruntime"]).ok  # type: ignore[attr-defined]


def test_names_that_look_like_markup_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    x = pt.variable("x", "float32", (2,))
    graph = pt.Graph([pt.op("Exp", x, name="[bold]exp[/red]")], name="net[/b]", output_names=["y[dim]"])
    with faulty("reference", Plant("off", "[bold]exp[/red]")) as device:
        pt.diagnose(graph, device).print()
    printed = "".join(capsys.readouterr().out.split())
    assert "net[/b]onfaulty_referenceagainstreference" in printed
    assert "[bold]exp[/red](Exp)onfaulty_reference:wrongnumbers" in printed


@pytest.mark.parametrize("name", ["\0", "\x1b[31m", "\uffff", "<a>&"])
def test_pictures_of_any_names_are_xml(name: str) -> None:
    graph = typed(pt.Graph([pt.op("Exp", pt.variable("x", "float32", (2,)), name=name)], name=name, output_names=["y"]))
    with faulty("reference", Plant("off", name)) as device:
        diagnosis = pt.diagnose(graph, device)
    for picture in (diagnosis.to_svg(), timeline_svg(pt.compile(graph, "reference").profile()), layered_svg(graph)):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize(
    ("count", "end"), [(1, "op_0 (Relu) on d:0: it is wrong"), (8, "op_7 (Relu) on d:0"), (9, "(Relu) and 1 more on d:0")]
)
def test_a_fault_names_eight_nodes_at_most(count: int, end: str) -> None:
    nodes, target = tuple(f"op_{i}" for i in range(count)), pt.compile(transformer(), "reference").units[0].device
    fault = Fault("s", "d:0", nodes, ("Relu",) * count, "it is wrong", "", (), 3, 20, transformer(), (), (), target, {})
    first, last = str(fault).splitlines()
    assert end in first and first.count("(Relu)") == min(count, 8) and first.endswith(": it is wrong") is (count == 1)
    assert last == "  found in s (20 ops) by 3 compilations"
