"""A placed model as a chain of stages: run one after the other, in any form, they give the bytes of the whole model."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime.package.stages import FORMS
from tests.accelerators.hetero.random_accelerators import random_graph
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.package.triton_stand_in import Repository

HETERO = "HETERO:onnxruntime,reference"


def run_chain(chain, call, given):
    """The outputs of the model; `call` runs a stage, a row of stages.json, on arrays by name."""
    values = dict(given)
    for stage in chain["stages"]:
        outputs = call(stage, {one["name"]: values[one["value"]] for one in stage["inputs"]})
        values.update({one["value"]: outputs[one["name"]] for one in stage["outputs"]})
    return {one["name"]: values[one["value"]] for one in chain["outputs"]}


def run_packages(folder: Path, given):
    """The outputs by the exported stages."""
    chain = json.loads((folder / "stages.json").read_text("utf-8"))
    return run_chain(chain, lambda stage, arrays: pt.import_model(folder / stage["file"])(arrays), given)


def run_onnx(folder: Path, given):
    """The outputs by onnxruntime alone."""
    import onnxruntime

    def call(stage, arrays):
        session = onnxruntime.InferenceSession(folder / stage["file"])
        return dict(zip([one.name for one in session.get_outputs()], session.run(None, arrays), strict=True))

    return run_chain(json.loads((folder / "stages.json").read_text("utf-8")), call, given)


def run_triton(folder: Path, given):
    """The outputs of the ensemble, by the stand-in of Triton."""
    repository = Repository(folder)
    (whole,) = set(repository.configs) - set(repository.models)
    outputs = repository.infer(whole, {name: np.atleast_1d(array) for name, array in given.items()})
    repository.close()
    return outputs


RUNS = {"partita": run_packages, "onnx": run_onnx, "triton": run_triton}


def skipping():
    """A value that is read two stages later, and by the caller, and one that is returned under another name."""
    x = pt.variable("x", "float32", (2, 3))
    hidden = pt.op("Relu", x, name="hidden")
    soft = pt.op("Softmax", hidden, name="soft")
    total = pt.op("Add", pt.op("Mul", soft, hidden, name="mul"), hidden, name="total")
    return pt.Graph([total, hidden], name="a chain/of 3", output_names=["y", "hidden"])


def scalars():
    """Values of rank 0, of several types, and an input that two stages read."""
    x, k = pt.variable("x", "float64", ()), pt.variable("k", "int64", ())
    low = pt.op("Less", pt.op("Sqrt", x, name="root"), pt.constant(np.float64(2)), name="low")
    few = pt.op("Less", k, pt.constant(np.int64(7)), name="few")
    return pt.Graph([pt.op("And", low, few, name="both")], [x, k], name="scalars")


def any_rows():
    x = pt.variable("x", "float32", ("N", 4))
    w = pt.constant(np.eye(4, dtype=np.float32) * 3, name="w")
    return pt.Graph([pt.op("Exp", pt.op("MatMul", pt.op("Tanh", x, name="tanh"), w, name="product"), name="exp")], name="rows")


def passing():
    """Outputs that are an input, a constant, and one value twice."""
    x, unread = pt.variable("x", "float32", (2,)), pt.variable("unread", "float32", (1,))
    y, c = pt.op("Neg", x, name="neg"), pt.constant(np.array([1, 2], np.int32), name="c")
    return pt.Graph([y, x, c, y], [x, unread], name="passing", output_names=["y", "same", "c", "again"])


def without_ops():
    x = pt.variable("x", "float32", (2,))
    return pt.Graph([x, pt.constant(np.array([5.0]), name="c")], name="", output_names=["y", "c"])


CASES = [
    # graph, ops of the reference, devices of the stages, forms
    (skipping, {"Softmax"}, ["onnxruntime", "reference", "onnxruntime"], ["partita", "triton"]),
    (skipping, set(), ["onnxruntime"], ["partita", "onnx", "triton"]),
    (scalars, {"And"}, ["onnxruntime", "reference"], ["partita", "triton"]),
    (any_rows, {"MatMul"}, ["onnxruntime", "reference", "onnxruntime"], ["partita", "triton"]),
    (passing, set(), ["onnxruntime"], ["partita", "onnx"]),
    (without_ops, set(), ["host"], ["partita", "onnx"]),
]


@pytest.mark.parametrize("make, others, devices, forms", CASES)
def test_stages_give_the_bytes_of_the_whole_model(make, others, devices, forms, tmp_path):
    pytest.importorskip("onnxruntime")
    graph = make()
    model = pt.compile(graph, HETERO, forbid=dict.fromkeys(others, "onnxruntime"))
    stages = model.stages()
    assert [stage.device for stage in stages] == devices
    given = dict(zip([node.name for node in graph.inputs], model.example_inputs(size=3), strict=True))
    wanted = model(given)
    for form in forms:
        stages.save(tmp_path / form, form)
        outputs = RUNS[form](tmp_path / form, given)
        for name in graph.output_names:
            assert np.asarray(outputs[name]).tobytes() == np.asarray(wanted[name]).tobytes(), (form, name)


def test_random_placements_of_random_graphs():
    with device("one"), device("two"):
        for seed in range(25):
            draw = random.Random(seed)
            placement = pt.query(random_graph(draw), "HETERO:one,two")
            for name in placement:
                placement[name] = draw.choice(("one", "two"))
            model = pt.compile(placement.apply(placement.graph), "HETERO:one,two")
            stages = model.stages(pt.Costs({}))
            assert all(a.device != b.device for a, b in pairwise(stages))
            x = np.float32([draw.uniform(-2, 2) for _ in range(4)])
            values = {"x": x}
            for stage in stages:
                outputs = stage.model({one.name: values[one.value] for one in stage.inputs})
                values.update({one.value: outputs[one.name] for one in stage.outputs})
            assert [values[one.value].tobytes() for one in stages.outputs] == [y.tobytes() for y in model(x)], seed


def test_borders_have_sources_types_and_bytes(tmp_path):
    stages = pt.compile(skipping(), HETERO, forbid={"Softmax": "onnxruntime"}).stages(pt.Costs({}))
    stages.save(tmp_path)
    chain = json.loads((tmp_path / "stages.json").read_text("utf-8"))
    assert [chain[key] for key in ("partita_stages", "form", "model", "times")] == [1, "partita", "a chain/of 3", "given"]
    first, second, third = chain["stages"]
    assert [first["file"], first["ops"], third["ops"]] == ["a_chain_of_3_0.partita", 1, 2]
    row = {"name": "hidden", "value": "hidden", "source": "a_chain_of_3_0", "type": "float32[2, 3]", "bytes": 24}
    assert first["outputs"] == second["inputs"] == [row]
    assert {one["value"]: one["source"] for one in third["inputs"]} == {"hidden": "a_chain_of_3_0", "soft": "a_chain_of_3_1"}
    assert chain["inputs"] == first["inputs"] == [{**row, "name": "x", "value": "x", "source": None}]
    assert chain["outputs"] == [{**row, "name": "y", "value": "total", "source": "a_chain_of_3_2"}, row]
    assert str(stages[1]) == "a_chain_of_3_1 on reference: 1 op: hidden (24 B) -> soft (24 B)"
    rows = pt.compile(any_rows(), "reference").stages()
    assert [(str(one.type), one.bytes) for one in rows.inputs] == [("float32[N, 4]", None)]


def test_times_are_those_of_the_costs_or_of_a_profile():
    model = pt.compile(skipping(), HETERO, forbid={"Softmax": "onnxruntime"})
    times = {"onnxruntime": {"hidden": 3.0, "mul": 5.0, "total": 7.0}, "reference": {"hidden": 1.0}}
    assert [stage.predicted_us for stage in model.stages(pt.Costs(times))] == [3.0, None, 12.0]
    profile = model.profile(np.ones((2, 3), np.float32))
    stages = model.stages(profile)
    assert stages.times == "measured with the inputs given" and model.stages().times == "measured with inputs made up"
    assert sum(stage.predicted_us for stage in stages) == pytest.approx(profile.total_us)


def test_a_call_that_was_placed_whole_has_its_own_time():
    x = pt.variable("x", "float32", (2,))
    g = pt.apply_pass(pt.Graph([pt.op("Relu", pt.op("Neg", x, name="neg"), name="relu")], name="net"), "InferShape")
    g = pt.apply_pass(g, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.Pattern("Neg", "Relu"), "mine"))
    (name,) = [node.name for node in g.nodes if node.is_op]
    stages = pt.compile(g, "reference").stages(pt.Costs({"reference": {name: 4.0}}))
    assert [stage.predicted_us for stage in stages] == [4.0]


def test_a_signed_stage_needs_the_key(tmp_path):
    stages = pt.compile(skipping(), "reference").stages(pt.Costs({}))
    stages.save(tmp_path, key=b"a secret")
    assert pt.import_model(tmp_path / "a_chain_of_3_0.partita", key=b"a secret").graph.output_names == ("hidden", "total")
    with pytest.raises(pt.PartitaError, match="another key"):
        pt.import_model(tmp_path / "a_chain_of_3_0.partita", key=b"another")


def test_an_error_of_a_stage_is_a_response_of_triton(tmp_path):
    pt.compile(any_rows(), "reference").stages(pt.Costs({})).save(tmp_path, "triton")
    with pytest.raises(Exception, match="'x'.*float32"):
        Repository(tmp_path).infer("rows_0", {"x": np.ones((2, 4), np.int8)})


def test_the_configuration_is_what_triton_reads(tmp_path):
    service = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    model = pt.compile(skipping(), HETERO, forbid={"Softmax": "onnxruntime"})
    model.stages().save(tmp_path, "triton")
    read = {
        path.parent.name: text_format.Parse(path.read_text("utf-8"), service.ModelConfig())
        for path in tmp_path.glob("*/config.pbtxt")
    }
    assert {name: config.name for name, config in read.items()} == dict(zip(read, read))
    assert [step.model_name for step in read["a_chain_of_3"].ensemble_scheduling.step] == [f"a_chain_of_3_{i}" for i in range(3)]
    assert dict(read["a_chain_of_3"].ensemble_scheduling.step[2].output_map) == {"total": "y"}
    assert [(one.name, list(one.dims)) for one in read["a_chain_of_3_0"].input] == [("x", [2, 3])]


def of_type(dtype):
    x = pt.variable("x", dtype, (2,))
    return pt.Graph([pt.op("Identity", x, name="y")], name="net")


def twice_named():
    x = pt.variable("x", "float32", (2,))
    inner = pt.op("Neg", x, name="y")
    return pt.Graph([pt.op("Relu", inner, name="relu")], name="net", output_names=["x"])


@pytest.mark.parametrize("graph, arguments, error", [
    (skipping, {"form": "onxx"}, r"option form: there is no form 'onxx'\n  Did you mean 'onnx'"),
    (skipping, {"form": "onnx", "key": b"k"}, "ONNX files are not signed"),
    (skipping, {"form": "triton", "key": b"k"}, "Triton's models verify no signature"),
    (passing, {"form": "triton"}, "output 'same' is an input of the model, and an ensemble"),
    (lambda: of_type("string"), {"form": "triton"}, r"'x' is string\[2\], which Triton's Python backend does not hand over"),
    (lambda: of_type("bfloat16"), {"form": "triton"}, r"'x' is bfloat16\[2\], which"),
    (twice_named, {"form": "triton"}, "output 'x' has the name of another value"),
])
def test_what_has_no_such_form_is_refused(graph, arguments, error, tmp_path):
    stages = pt.compile(graph(), "reference").stages(pt.Costs({}))
    with pytest.raises(pt.PartitaError, match=error):
        stages.save(tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    stages = pt.compile(skipping(), "reference").stages(pt.Costs({}))
    for form in FORMS:
        with pytest.raises(pt.PartitaError, match="the folder cannot be created: (File exists|Not a directory)"):
            stages.save(tmp_path / "file", form)
    (tmp_path / "a_chain_of_3").write_text("")
    with pytest.raises(pt.PartitaError, match="the folder cannot be created"):
        stages.save(tmp_path, "triton")


def test_models_without_stages_are_refused():
    with device("one"), device("two"), pytest.raises(pt.NotSupported, match="not cut into stages\n  Compile it for HETERO"):
        pt.compile(skipping(), "MULTI:one,two").stages()
    with pytest.raises(pt.PartitaError, match="option times: 7 has no times of a model"):
        pt.compile(skipping(), "reference").stages(7)
