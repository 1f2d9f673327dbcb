"""What was fused and what was not, why a subgraph was compiled, and where the time went."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.second_level import RefusedFusion, SecondLevel
from tests.graphs.small_models import convolutions

pytest.importorskip("tvm")


@pytest.fixture(scope="module")
def model() -> pt.CompiledModel:
    return pt.compile(convolutions(), "cpu", {"CACHE_DIR": "off"})


def level_of(model: pt.CompiledModel) -> SecondLevel:
    (level,) = model.fusions.values()
    return level


def test_the_kernels_are_those_that_the_model_has(model: pt.CompiledModel) -> None:
    level = level_of(model)
    assert [kernel.nodes for kernel in level.kernels] == [kernel.nodes for kernel in model.kernels()]
    assert [kernel.nodes for kernel in level.fused][:2] == [("first", "relu_0"), ("second", "relu_1", "add_0")]
    assert level.to_dict()["kernels"][0]["nodes"] == ("first", "relu_0")


def test_each_edge_between_two_kernels_has_a_reason(model: pt.CompiledModel) -> None:
    level, graph = level_of(model), model.units[0].body
    home = {name: kernel.name for kernel in level.kernels for name in kernel.nodes}
    refused = {(one.producer, one.consumer) for one in level.refused}
    for node in graph.nodes:
        for entry in node.reads if node.is_op else ():
            pair = entry.node.name, node.name
            if set(pair) <= home.keys() and home[pair[0]] != home[pair[1]]:
                assert pair in refused
    assert RefusedFusion("maxpool_0", "add_0", "cycle", "joining would close a cycle through 'second'") in level.refused


def test_one_op_is_explained_alone(model: pt.CompiledModel) -> None:
    level = level_of(model)
    assert level.explain("maxpool_0").split("\n")[0] == "maxpool_0 is in kernel conv_1 (maxpool_0)"
    assert "select_output(relu_0, maxpool_0) of 'conv' said no" in level.explain("relu_0")
    assert level.explain("flatten_0").startswith("flatten_0 needs no kernel: it moves nothing")
    with pytest.raises(pt.PartitaError, match="no kernel computes 'relu_9'"):
        level.explain("relu_9")


def test_no_reason_differs_between_two_processes(model: pt.CompiledModel) -> None:
    assert " at 0x" not in str(level_of(model))


def test_the_report_says_where_the_time_of_compiling_went(model: pt.CompiledModel) -> None:
    (row,) = model.report.subgraphs
    assert row.story is not None and not row.story.from_cache
    assert [work.nodes for work in row.story.kernels] == [kernel.nodes for kernel in model.kernels()]
    assert model.report.compiling().startswith("cpu_0 on cpu: compiled in ")
    assert "because there is no cache\n" in model.report.compiling()
    assert model.report.to_dict()["subgraphs"][0]["story"]["kernels"][0]["kernel"] == "conv_0"


def test_what_comes_from_the_cache_still_says_why_it_was_compiled_and_how_long_each_kernel_took(tmp_path: Path) -> None:
    first = pt.compile(convolutions(), "cpu", {"CACHE_DIR": str(tmp_path)}).report.subgraphs[0].story
    second = pt.compile(convolutions(), "cpu", {"CACHE_DIR": str(tmp_path)}).report.subgraphs[0].story
    assert first is not None and second is not None
    assert (first.from_cache, second.from_cache) == (False, True)
    assert (first.because, first.seconds, first.kernels) == (second.because, second.seconds, second.kernels)
    assert str(second).startswith("read from the cache; was compiled in ")
    third = pt.compile(convolutions(), "cpu", {"CACHE_DIR": str(tmp_path), "NUM_THREADS": 3}).report.subgraphs[0]
    assert third.why.startswith("target: threads ") and third.why.endswith(" became threads 3")
    assert not third.story.from_cache  # type: ignore[union-attr]


def test_what_has_no_body_or_no_sizes_has_no_fusions(model: pt.CompiledModel, tmp_path: Path) -> None:
    model.export(tmp_path / "net.partita", bodies=False)
    assert pt.import_model(tmp_path / "net.partita").fusions == {}
    x = pt.variable("x", "float32", ("n", 4))
    graph = pt.Graph([pt.op("Neg", pt.op("Exp", x, name="exp"), name="neg")], name="sized")
    sized = pt.compile(graph, "cpu", {"CACHE_DIR": "off"})
    sized(np.ones((2, 4), np.float32))
    assert sized.fusions == {}
    assert sized.report.compiling().startswith("cpu_0 on cpu: ready in ")


def test_fusions_of_an_imported_model_are_those_of_the_exported_one(model: pt.CompiledModel, tmp_path: Path) -> None:
    model.export(tmp_path / "net.partita")
    assert pt.import_model(tmp_path / "net.partita").fusions == model.fusions
