"""`pt.compile_many`: models compiled by several processes, which fill the cache."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.mapping.many import without_folders
from tests.close import is_close


def graph(size: int) -> pt.Graph:
    x = pt.variable("x", "float32", (1, size))
    weights = pt.constant(np.random.default_rng(size).standard_normal((size, 8)).astype("float32"))
    return pt.Graph([pt.op("Relu", pt.op("MatMul", x, weights, name="product"), name="relu")], name=f"model{size}")


def test_the_models_come_in_order_and_from_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tvm")
    caplog.set_level(logging.INFO, "partita.cache")
    config = {"cpu": {"NUM_THREADS": 1, "CACHE_DIR": str(tmp_path)}}
    models = pt.compile_many([graph(4), graph(6), graph(4)], "HETERO:cpu,reference", config, workers=2)
    assert [model.graph.name for model in models] == ["model4", "model6", "model4"]
    for model, size in zip(models, (4, 6, 4), strict=True):
        x = np.ones((1, size), np.float32)
        assert is_close(model(x)[0], pt.compile(graph(size), "reference")(x)[0])
    lines = [record.getMessage() for record in caplog.records if record.name == "partita.cache"]
    assert len(lines) == 3 and all("read from the cache" in line for line in lines)


def test_a_file_may_stand_for_a_model(tmp_path: Path) -> None:
    pt.save(graph(4), tmp_path / "model.onnx")
    (model,) = pt.compile_many([tmp_path / "model.onnx"], "reference", executor="serial")
    assert model(np.zeros((1, 4), np.float32))[0].shape == (1, 8)


def test_what_one_cannot_compile_is_said_as_compile_says_it() -> None:
    x = pt.variable("x", "float32", (2,))
    odd = pt.Graph([pt.op("NoSuchOp", x, name="odd", domain="mine")])
    with pytest.raises(pt.PartitaError, match="odd"):
        pt.compile_many([odd], "reference", executor="serial")


def test_a_process_that_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(pt.CompileError, match=r"model 'model4': the process that compiled it ended \(exit status 1\)"):
        pt.compile_many([graph(4)], "reference")


def test_what_cannot_be_asked_for_is_an_error() -> None:
    with pytest.raises(pt.BadConfig, match="there is no executor 'threads'\n  Use one of processes, ray, serial"):
        pt.compile_many([], executor="threads")
    with pytest.raises(pt.BadConfig, match="compile_many: workers cannot be 'two'\n  Give a whole number from 1 on"):
        pt.compile_many([], "cpu", workers="two")  # type: ignore[arg-type]
    with pytest.raises(pt.BadConfig, match="compile_many: config: it cannot be told to another process"):
        pt.compile_many([graph(4)], "cpu", {"PROGRESS": print})
    circular: dict[str, Any] = {}
    circular["cpu"] = circular
    for executor in ("processes", "ray"):
        with pytest.raises(pt.BadConfig, match="compile_many: config: it cannot be told to another process"):
            pt.compile_many([graph(4)], "reference", circular, executor=executor)
    others: list[Any] = [5, None, "model.onnx", graph(4)]
    for other in others:
        with pytest.raises(pt.BadConfig, match=f"compile_many: models are a list, not {type(other).__name__}\n  Write"):
            pt.compile_many(other, "reference")
    with pytest.raises(pt.AcceleratorError, match="device 5: it is neither a string nor a list of names"):
        pt.compile_many([graph(4)], others[0])


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is here")
def test_without_ray_the_error_names_the_extra() -> None:
    with pytest.raises(pt.MissingDependency, match=r"partita\[ray\]"):
        pt.compile_many([graph(4)], "reference", executor="ray")


def test_workers_are_told_no_folder_of_this_machine() -> None:
    config = {"cpu": {"CACHE_DIR": "here", "NUM_THREADS": 1}, "KEY_CACHE_DIR": "there"}
    assert without_folders(config) == {"cpu": {"NUM_THREADS": 1}}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None or find_spec("tvm") is None, reason="needs Ray and TVM")
def test_what_a_cluster_compiles_comes_back_as_entries_of_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import ray

    caplog.set_level(logging.INFO, "partita.cache")
    config = {"cpu": {"NUM_THREADS": 1, "CACHE_DIR": str(tmp_path)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        models = pt.compile_many([graph(4), graph(6), graph(4)], "HETERO:cpu,reference", config, executor="ray", workers=2)
    finally:
        ray.shutdown()
    for model, size in zip(models, (4, 6, 4), strict=True):
        x = np.ones((1, size), np.float32)
        assert is_close(model(x)[0], pt.compile(graph(size), "reference")(x)[0])
    lines = [record.getMessage() for record in caplog.records if record.name == "partita.cache"]
    assert len(lines) == 3 and all("read from the cache" in line for line in lines)
