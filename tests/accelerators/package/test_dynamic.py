"""Sizes that vary: BERT with any number of tokens on the TVM device, against onnxruntime; what is compiled and what is not."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import partita as pt
from partita.accelerators.building import specialized
from partita.accelerators.building.specialized import KEPT, SpecializedSubgraph
from partita.accelerators.interface.registry import accelerator
from partita.graph.rewrite import rewrite
from partita.graph.types import TensorType, dtype_name
from tests.graphs.networks import dynamic_net, inputs_of

BERT = Path(__file__).parents[2] / "data" / "torch" / "bert_dynamic.onnx"


def longer_bert(tokens):
    """The small BERT with more positions than it was trained with."""
    grown = {
        "embeddings.position_embeddings.weight": np.random.default_rng(5).standard_normal((tokens, 32), np.float32) / 8,
        "embeddings.position_ids": np.arange(tokens)[None],
        "expand": np.zeros((1, tokens), np.int64),
    }

    def visit(node, rewriter):
        value = grown.get(node.name) if node.is_constant else None
        if value is not None:
            value_type = TensorType(dtype_name(value.dtype), value.shape)
            rewriter.keep(node, node.evolve(value=value, output_types=(value_type,)))
        else:
            rewriter.keep(node)

    return rewrite(pt.load(BERT), visit)


def check_lengths(graph, devices, lengths, tmp_path, forbid=None):
    engine = pytest.importorskip("onnxruntime")
    for name in devices.removeprefix("HETERO:").split(","):
        try:
            accelerator(name)
        except pt.AcceleratorUnavailable as error:
            pytest.skip(str(error))
    pt.save(graph, tmp_path / "bert.onnx")
    session = engine.InferenceSession(tmp_path / "bert.onnx")
    model = pt.compile(graph, devices, forbid=forbid)
    random = np.random.default_rng(0)
    seen, times = set(), []
    for n in lengths:
        feed = {"input_ids": random.integers(0, 20, (1, n)), "attention_mask": np.ones((1, n), np.int64)}
        seen.add(n)
        start = time.perf_counter()
        outputs = model(feed)
        times.append(time.perf_counter() - start)
        for a, b in zip(outputs, session.run(None, feed), strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max(), f"{n} tokens"
    print(f"{devices}: {len(seen)} lengths in {sum(times):.1f} s, slowest {max(times):.2f} s, median {np.median(times):.4f} s")
    specialized_units = [unit.compiled for unit in model.units if isinstance(unit.compiled, SpecializedSubgraph)]
    by_size = [item for item in specialized_units if item.any_size is None]
    assert all(len(item.sizes) == min(len(seen), KEPT) for item in by_size)
    assert all(not item.sizes for item in specialized_units if item.any_size is not None)
    return model


def test_bert_with_two_lengths(tmp_path):
    model = check_lengths(pt.load(BERT), "cpu", [5, 2, 5], tmp_path)
    assert len(model.units) == 1, "the symbolic graph is cut once"
    lengths = {kernel.body.outputs[0].type.shape[1] for kernel in model.kernels() if kernel.body.outputs[0].type.rank == 3}
    assert lengths == {"s1"}, "the kernels are for any length"


MIXES = [
    ("cpu", None), ("onnxruntime", None), ("HETERO:openvino,reference", None),
    ("HETERO:cpu,onnxruntime", {"LayerNormalization": "cpu"}),
    ("HETERO:openvino,cpu", {"Softmax": "openvino"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("devices, forbid", MIXES)
def test_bert_with_1_to_128_tokens_in_random_order(devices, forbid, tmp_path):
    lengths = np.random.default_rng(1).permutation(np.arange(1, 129)).tolist()
    check_lengths(longer_bert(128), devices, lengths, tmp_path, forbid)


class Slow(pt.Accelerator):
    """Compiles for one size, and takes its time."""

    name = "slow"
    dynamic_shapes = False
    compiled: ClassVar[list] = []

    def supports(self, node, graph):
        return True

    def compile(self, graph, config):
        time.sleep(0.03)
        self.compiled.append(graph.inputs[0][0].type.shape[0])
        return accelerator("reference").compile(graph, {"PERF_COUNT": False})


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(specialized, "LONG", 0.02)
    Slow.compiled.clear()
    pt.register_accelerator(Slow)
    yield Slow
    pt.unregister_accelerator("slow")


def test_a_size_that_varies_with_every_call_is_not_compiled_with_every_call(slow):
    graph = dynamic_net()
    model, wanted = pt.compile(graph, "slow"), pt.compile(graph, "reference")
    sizes = [*range(1, 101), 3, 3]
    for n in sizes:
        x = inputs_of(graph, n=n)
        np.testing.assert_array_equal(model(x)[0], wanted(x)[0])
    subgraph = model.units[0].compiled
    assert slow.compiled == list(range(1, KEPT + 1)), "the first sizes are compiled when they first come"
    assert len(subgraph.sizes) == KEPT and subgraph.sizes[-1] == ((3, 16),)
    assert subgraph.stood_in == 100 - KEPT


def test_a_size_that_comes_often_is_compiled_in_the_end(slow, monkeypatch):
    graph = dynamic_net()
    model = pt.compile(graph, "slow")
    for n in range(1, KEPT + 1):
        model(inputs_of(graph, n=n))
    x, calls = inputs_of(graph, n=50), 0
    while 50 not in slow.compiled:
        model(x)
        calls += 1
        assert calls < 100_000
    assert calls > 1, "not at the first call"
    assert ((50, 16),) in model.units[0].compiled.sizes
    assert ((1, 16),) not in model.units[0].compiled.sizes, "the one not used for longest went"


def test_what_compiles_fast_is_compiled_for_every_size(slow, monkeypatch):
    monkeypatch.setattr(specialized, "LONG", 10.0)
    model = pt.compile(dynamic_net(), "slow")
    for n in range(1, 12):
        model(inputs_of(model.graph, n=n))
    assert slow.compiled == list(range(1, 12))


def test_the_next_device_of_hetero_stands_in(slow):
    pytest.importorskip("onnxruntime")
    graph = dynamic_net()
    model = pt.compile(graph, "HETERO:slow,onnxruntime", config={"slow": {"PERF_COUNT": True}})
    for n in range(1, KEPT + 2):
        model(inputs_of(graph, n=n))
    subgraph = model.units[0].compiled
    assert subgraph.stood_in == 1
    assert {row.exec_type for row in model.profile().rows if row.status == "EXECUTED"} == {"CPUExecutionProvider"}


class Fussy(Slow):
    """Compiles even sizes only."""

    name = "fussy"

    def compile(self, graph, config):
        if graph.inputs[0][0].type.shape[0] % 2:
            raise pt.CompileError("odd sizes are beyond it")
        return super().compile(graph, config)


@pytest.fixture
def fussy(slow):
    pt.register_accelerator(Fussy)
    yield
    pt.unregister_accelerator("fussy")


def test_a_size_that_does_not_compile_is_served_and_takes_no_place(fussy, slow):
    graph = dynamic_net()
    model, wanted = pt.compile(graph, "fussy"), pt.compile(graph, "reference")
    for n in range(2, 2 * KEPT + 2, 2):
        model(inputs_of(graph, n=n))
    sizes = model.units[0].compiled.sizes
    for n in (3, 5, 3, 3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(model(inputs_of(graph, n=n))[0], wanted(inputs_of(graph, n=n))[0])
    assert model.units[0].compiled.sizes == sizes and model.units[0].compiled.stood_in == 4
    assert not caught, "said once for a size"
    model = pt.compile(graph, "fussy")
    with pytest.warns(UserWarning, match=r"does not compile for \[3, 16\] and runs otherwise: odd sizes are beyond it"):
        model(inputs_of(graph, n=3))
    assert model.units[0].compiled.sizes == ()


def test_sizes_that_do_not_go_together_are_one_clear_error():
    try:
        accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))
    a, b = pt.variable("a", "float32", ("N", 4)), pt.variable("b", "float32", ("M", 4))
    model = pt.compile(pt.Graph([pt.op("Add", a, b, name="sum")]), "cpu")
    model(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32))
    with pytest.raises(pt.InputError, match=r"'sum' \(Add\): the sizes of the operands do not go together: 2 and 3"):
        model(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))
    assert model.units[0].compiled.sizes == (), "sizes that go together are compiled once for all"


def test_an_imported_model_has_the_same_stand_in(slow, tmp_path):
    pytest.importorskip("onnxruntime")
    graph = dynamic_net()
    pt.compile(graph, "HETERO:slow,onnxruntime").export(tmp_path / "net.partita")
    model = pt.import_model(tmp_path / "net.partita", config={"PERF_COUNT": True})
    for n in range(1, KEPT + 2):
        model(inputs_of(graph, n=n))
    assert model.units[0].compiled.stood_in == 1
    assert {row.exec_type for row in model.profile().rows if row.status == "EXECUTED"} == {"CPUExecutionProvider"}

def test_kernels_for_any_size_travel(tmp_path, monkeypatch):
    """A package of a model that was compiled once for any size runs without a compiler."""
    x = pt.variable("x", "float32", ("N", 24))
    weight = np.random.default_rng(3).standard_normal((24, 32)).astype(np.float32)
    model = pt.compile(pt.Graph([pt.op("Softmax", pt.op("MatMul", x, pt.constant(weight)))]), "cpu")
    model.export(tmp_path / "net.partita")

    def compiles(*_: object) -> None:
        raise AssertionError("it is compiled again")

    monkeypatch.setattr("partita.accelerators.building.units.compile_cached", compiles)
    imported = pt.import_model(tmp_path / "net.partita")
    for rows in (1, 7, 64):
        given = np.random.default_rng(3).standard_normal((rows, 24)).astype(np.float32)
        np.testing.assert_array_equal(imported(given)[0], model(given)[0])
    (unit,) = imported.units
    assert unit.compiled.sizes == () and "compiled once for any size" in unit.compiled.notes


def test_kernels_for_any_size_that_do_not_fit_are_refused_or_compiled_again(tmp_path, monkeypatch):
    x = pt.variable("x", "float32", ("N", 24))
    model = pt.compile(pt.Graph([pt.op("Tanh", x)]), "cpu")
    model.export(tmp_path / "net.partita")
    misfit = "partita.accelerators.tvm.device.TvmAccelerator.misfit"
    read = "partita.accelerators.runtime.package.unpacking._Importing.read"
    monkeypatch.setattr(misfit, lambda *_: "it was compiled for another processor")
    monkeypatch.setattr(read, lambda *_: pytest.fail("code for another processor is loaded"))
    with pytest.raises(pt.PartitaError, match="does not fit device 'cpu' here: it was compiled for another processor"):
        pt.import_model(tmp_path / "net.partita")
    imported = pt.import_model(tmp_path / "net.partita", recompile=True)
    given = np.random.default_rng(3).standard_normal((3, 24)).astype(np.float32)
    np.testing.assert_array_equal(imported(given)[0], model(given)[0])
