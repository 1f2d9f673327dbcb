"""Which models there are, where their files lie, and what they are fed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np

from benchmarks.models.own import OWN
from benchmarks.models.zoo import zoo_model
from partita.graph.graph import Graph

FROM_TORCH = ("bert", "vit", "gpt2")
"""Exported by torch from `transformers` configurations."""

ZOO = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512",
)
"""The light models inside the `onnx` package, their weights drawn anew."""

NAMES = (*ZOO, *FROM_TORCH, *OWN)

RECIPE = 1
"""Part of each file's name: one more whenever a recipe changes, so that no old file is taken for a new one."""


@attrs.frozen
class Model:
    """A model's file."""

    name: str
    """One of `NAMES`."""
    batch: int
    """The first size of every input."""
    path: Path
    """The ONNX file."""

    def inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random values for the model's inputs."""
        return read_inputs(self.path, seed)


def cache_folder() -> Path:
    """Where models are kept: $PARTITA_BENCH_CACHE, or `partita-bench` in the user's cache folder."""
    named = os.environ.get("PARTITA_BENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(base) / "partita-bench"


def model(name: str, batch: int = 1) -> Model:
    """The model of that name and batch; its file is made if it is not there yet."""
    folder = cache_folder() / "models"
    path = folder / f"{name}-{batch}-r{RECIPE}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}.part.onnx")
        try:
            _maker(name)(batch, aside)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    return Model(name, batch, path)


def _maker(name: str) -> Callable[[int, Path], None]:
    """The function that writes the model of that name."""
    if name in FROM_TORCH:
        return lambda batch, path: _export(name, batch, path)
    return lambda batch, path: _save(zoo_model(name, batch) if name in ZOO else OWN[name](batch), path)


def _save(graph: Graph, path: Path) -> None:
    import partita as pt

    pt.save(graph, path)


def _export(name: str, batch: int, path: Path) -> None:
    """Export in the environment that has torch."""
    from benchmarks.venvs import TORCH, run_module

    run_module(TORCH, "benchmarks.models.transformer", [name, str(batch), str(path)])


def read_inputs(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays for a model's inputs: noise for numbers, tokens for ids, mostly ones for a mask, zeros for segment ids."""
    import onnx

    proto = onnx.load(path, load_external_data=False)
    random = np.random.default_rng(seed)
    return {value.name: _array(value, random) for value in proto.graph.input}


def _array(value: object, random: np.random.Generator) -> np.ndarray:
    from onnx import ValueInfoProto, helper

    assert isinstance(value, ValueInfoProto)
    kind = value.type.tensor_type
    shape = tuple(d.dim_value for d in kind.shape.dim)
    if np.issubdtype(helper.tensor_dtype_to_np_dtype(kind.elem_type), np.floating):
        return random.standard_normal(shape, np.float32)
    if "mask" in value.name:
        mask = np.ones(shape, np.int64)
        mask[:, -shape[1] // 8 :] = 0
        return mask
    return random.integers(0, 2 if "type" in value.name else 20_000, shape)


def check(case_model: Model) -> str:
    """Show that the model computes: finite outputs that differ from element to element and from input to input."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(case_model.path, options, providers=["CPUExecutionProvider"])
    first, second = (session.run(None, case_model.inputs(seed)) for seed in (0, 1))
    said = []
    for one, other in zip(first, second, strict=True):
        largest, deviation = np.abs(one).max(), one.std()
        change = np.abs(one - other).max() / largest
        said.append(f"largest output {largest:.3g}, deviation {deviation:.3g}, another input changes it by {change:.2g}")
        if not (np.isfinite(one).all() and deviation > 0 and change > 1e-2):
            raise ValueError(f"{case_model.path} computes nothing worth comparing: {said[-1]}")
    return "; ".join(said)
