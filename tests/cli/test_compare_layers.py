"""`partita compare`: two models layer by layer."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.by_layer import Side, compare_layers
from partita.cli.main import make_parser
from tests.cli.conftest import Command
from tests.graphs.small_models import convolutions, inputs_of, sensitive
from tests.insight.small_devices import device_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def product(factor: float, name: str = "y") -> pt.Graph:
    x = pt.variable("x", "float32", (2, 2))
    first = pt.op("MatMul", x, pt.constant(np.eye(2, dtype=np.float32) * np.float32(factor)), name="first")
    return pt.Graph([pt.op("Relu", first, name="second")], [x], "product", output_names=[name])


def test_values_match_by_name_and_outputs_come_last() -> None:
    x = np.array([[1, -2], [3, 4]], np.float32)
    first, output = compare_layers(Side(product(1.5), "reference"), Side(product(1.0), "reference"), {"x": x})
    assert (first.name, first.op, first.is_output) == ("first", "MatMul", False)
    assert (output.name, output.op, output.is_output) == ("y", "Relu", True)
    assert (output.absolute, output.relative, output.cosine) == pytest.approx((2.0, 0.5, 1.0))


def test_values_turned_round_have_a_cosine_of_minus_one() -> None:
    x = np.array([[1, -2], [3, 4]], np.float32)
    first, _ = compare_layers(Side(product(-1.0), "reference"), Side(product(1.0), "reference"), {"x": x})
    assert first.cosine == pytest.approx(-1.0)


def test_nan_on_one_side_is_infinitely_far() -> None:
    x = np.array([[np.inf, 1], [3, 4]], np.float32)
    first, _ = compare_layers(Side(product(0.0), "reference"), Side(product(1.0), "reference"), {"x": x})
    assert first.absolute == first.relative == np.inf


def test_a_quantized_model_against_its_own(partita: Command) -> None:
    graph = convolutions()
    pt.save(graph, "model.onnx")
    plan = pt.choose_precision(graph, inputs_of(graph), 0.1, "reference", win="memory")
    pt.save(plan.apply(graph), "lowered.onnx")
    np.save("x.npy", inputs_of(graph)[0])
    command = "compare lowered.onnx model.onnx --devices reference --input x.npy"
    done = partita(f"{command} --tolerance 0.1")
    assert done.status == 0
    assert "A, lowered.onnx on reference, against B, model.onnx on reference: " in " ".join(done.out.split())
    layers = {layer["name"]: layer for layer in partita(f"{command} --tolerance 0.1 --json").json["layers"]}
    assert {"first", "second", "third", "scores"} <= layers.keys()
    assert 0 < layers["second"]["relative"] < 0.1
    assert layers["second"]["cosine"] > 0.99
    assert [name for name, layer in layers.items() if layer["is_output"]] == ["scores"]
    done = partita(f"{command} --tolerance 1e-6 --outputs-only")
    assert done.status == 1
    assert "output, more than 1e-06" in done.out
    assert "second" not in done.out


def test_a_value_that_one_model_quantizes_counts_as_its_readers_see_it() -> None:
    """onnxruntime's quantizer leaves out a Relu below which bytes saturate: what the product made was compared with it."""
    x, scale, point = pt.variable("x", "float32", (2, 2)), pt.constant(np.float32(0.5)), pt.constant(np.uint8(0))
    plain = pt.op("Relu", pt.op("MatMul", x, pt.constant(-np.eye(2, dtype="f"))), name="first")
    product = pt.op("MatMul", x, pt.constant(-np.eye(2, dtype="f")), name="first")
    numbers = pt.op("DequantizeLinear", pt.op("QuantizeLinear", product, scale, point), scale, point, name="read")
    graphs = [pt.Graph([pt.op("Neg", value, name="y")], [x]) for value in (plain, numbers)]
    given = {"x": np.array([[1.1, -2], [3, -4]], np.float32)}
    first, output = compare_layers(Side(graphs[0], "reference"), Side(graphs[1], "reference"), given)
    assert (first.name, first.absolute, output.absolute) == ("first", 0, 0)
    same, *_ = compare_layers(Side(graphs[1], "reference"), Side(graphs[1], "reference"), given)
    assert same.ranges[0] == pytest.approx((-3, 4)), "where both quantize it, it is what it is"


def test_models_that_read_something_else(partita: Command) -> None:
    pt.save(product(1.0), "a.onnx")
    x = pt.variable("z", "float32", (2, 2))
    pt.save(pt.Graph([pt.op("Relu", x, name="y")]), "b.onnx")
    done = partita("compare a.onnx b.onnx --devices reference")
    assert done.status == 1
    assert "it reads 'z', which a.onnx lacks" in done.err


def test_a_model_against_itself_is_the_same(partita: Command) -> None:
    pt.save(sensitive(), "model.onnx")
    result = partita("compare model.onnx model.onnx --devices reference --json").json
    assert result["ok"]
    assert all(layer["absolute"] == 0 for layer in result["layers"])


def test_one_model_on_two_devices(partita: Command) -> None:
    pt.save(convolutions(), "model.onnx")
    done = partita("compare model.onnx --devices onnxruntime --other-devices reference --json")
    assert done.status == 0, done.err
    assert done.json["sides"] == {"A": "model.onnx on onnxruntime", "B": "model.onnx on reference"}
    assert {"first", "scores"} <= {layer["name"] for layer in done.json["layers"]}
    with device_of(lambda node, inputs: [np.abs(inputs[0])], "Relu") as device:
        wrong = partita(f"compare model.onnx --devices {device} --other-devices reference --outputs-only --json")
    assert wrong.status == 1
    assert [layer["name"] for layer in wrong.json["layers"]] == ["scores"]


def test_an_export_against_the_model_that_it_was_made_from(partita: Command) -> None:
    pt.save(convolutions(), "model.onnx")
    pt.compile(convolutions(), "reference").export("model.partita")
    done = partita("compare model.partita model.onnx --other-devices reference --json")
    assert done.status == 0, done.err
    assert [(layer["name"], layer["absolute"]) for layer in done.json["layers"]] == [("scores", 0.0)]


def test_an_output_that_only_one_side_has_is_a_difference(partita: Command) -> None:
    graph = convolutions()
    pt.save(graph, "model.onnx")
    more = graph.evolve(outputs=[*graph.outputs, graph["third"][0]], output_names=["scores", "inner"])
    pt.save(more, "more.onnx")
    done = partita("compare more.onnx model.onnx --devices reference")
    assert done.status == 1
    assert "only A has 1 output: inner" in done.err


def test_layers_say_what_their_kernels_read_and_store(partita: Command) -> None:
    pytest.importorskip("tvm")
    x, eye = pt.variable("x", "float32", (4, 32)), pt.constant(np.eye(32, dtype=np.float32))
    first = pt.op("MatMul", x, eye, name="first")
    pt.save(pt.Graph([pt.op("MatMul", first, eye, name="second")], [x]), "layers.onnx")
    done = partita("compare layers.onnx --devices cpu --config PRECISION=bf16 --other-devices reference --tolerance 0.02 --json")
    types = {layer["name"]: layer["types"] for layer in done.json["layers"]}
    assert types["first"][0].startswith("bfloat16") and types["second"] == ["bfloat16 -> float32", ""]
    shown = partita("compare layers.onnx --devices cpu --config PRECISION=bf16 --other-devices reference --tolerance 0.02").out
    assert "kernel of A" in shown and "kernel of B" not in shown


def test_outputs_of_other_names_match_by_position_and_the_first_that_is_off_is_said(partita: Command) -> None:
    x = pt.variable("x", "float32", (2, 3))

    def model(name: str, factor: float) -> pt.Graph:
        middle = pt.op("Mul", x, pt.constant(np.float32(factor)), name="middle")
        outputs = [pt.op("Exp", x, name=f"{name}_a"), pt.op("Tanh", middle, name=f"{name}_b")]
        return pt.Graph(outputs, [x], name=name, output_names=[f"{name}_first", f"{name}_second"])

    pt.save(model("one", 1.0), "one.onnx")
    pt.save(model("two", 1.0), "two.onnx")
    pt.save(model("three", 1.2), "three.onnx")
    for more in ("", " --outputs-only"):
        same = partita(f"compare one.onnx two.onnx --devices reference{more} --json")
        assert same.status == 0 and same.json["lone"] == [] and same.json["first_off"] is None
        assert {layer["name"] for layer in same.json["layers"] if layer["is_output"]} == {"one_first", "one_second"}
        other = partita(f"compare one.onnx three.onnx --devices reference{more} --json")
        assert other.status == 1 and other.json["first_off"] == ("one_second" if more else "middle")
    done = partita("compare one.onnx three.onnx --devices reference")
    assert "the first value that is off: middle (Mul), 0.17" in done.out


def test_every_verb_takes_a_plugin(partita: Command) -> None:
    Path("device.py").write_text("""
import partita as pt
class Mine(pt.Accelerator):
    name = "mine_of_a_file"
    def supports(self, node, graph): return True
    def compile(self, graph, config): raise NotImplementedError
pt.register_accelerator(Mine, replace=True)
""")
    try:
        done = partita("devices --plugin device.py")
        assert done.status == 0 and "mine_of_a_file" in done.out
        parser = make_parser()
        (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        assert not [name for name, verb in verbs.choices.items() if "--plugin" not in verb.format_help()]
    finally:
        pt.unregister_accelerator("mine_of_a_file")
