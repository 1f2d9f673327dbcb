"""What becomes of a damaged model that can still be read: its types, the devices' answers, and what running it comes to.

Everything is a right result or one PartitaError. A model is a program, and may go on for ever: `reference`, which runs any, runs
it in a child process with a few seconds for it (ISOLATE), and no more memory than this process has. `cpu` compiles and runs in
this process: if it crashes, the mutator's child does, which is seen."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from partita.graph.graph import Graph
from partita.graph.types import TensorType, numpy_dtype
from tests.fuzz.models.stability import difference, expected

LARGEST = 1 << 16
"""Inputs of more elements are not made: they are the caller's own."""

SECONDS = 4.0
"""A device has so long for one question."""

CONFIG: dict[str, Any] = {
    "reference": {"ISOLATE": True, "ISOLATE_SECONDS": SECONDS},
    "cpu": {"CACHE_DIR": "off", "NUM_THREADS": 1},
}
"""The configuration of each device."""


def read_typed(folder: Path) -> None:
    """Types are inferred twice, as `InferShape` and as `compile` do; the devices that need no compiler are asked."""
    graph = pt.load(folder / "m.onnx")
    typed = pt.apply_pass(graph, "InferShape")
    with_checks = pt.apply_pass(graph, "InferShape", check_declared=True, strict=False)
    assert [entry.name for entry in typed.outputs] == [entry.name for entry in with_checks.outputs]
    answers = pt.accelerator("reference").query(typed)
    assert all(answer is True or isinstance(answer, str) for answer in answers.values())


def read_and_run(folder: Path) -> None:
    """Compiled for and run on `reference`: what comes out has the types that were inferred, which the executor checks."""
    ran_on(pt.load(folder / "m.onnx"), "reference")


def read_and_compile(folder: Path) -> None:
    """Run the model on `cpu`, with `reference` for what `cpu` does not take; its numbers are the reference's."""
    graph = pt.load(folder / "m.onnx")
    ran = ran_on(graph, "reference")
    if ran is None:
        return
    feeds, right = ran
    compiled = ran_on(graph, "HETERO:cpu,reference")
    assert compiled is not None
    if all(map(is_same, compiled[1], right)):
        return
    for entry, item, wanted in zip(graph.outputs, compiled[1], expected(graph, feeds), strict=True):
        wrong = difference(item, wanted)
        assert wrong is None, f"{entry.name} of {entry.node.op}: {wrong}"


def is_same(outcome: Any, right: Any) -> bool:
    """Are they equal to the last bit, or equal sequences?"""
    if not isinstance(right, np.ndarray):
        return not isinstance(outcome, np.ndarray) and str(outcome) == str(right)
    return isinstance(outcome, np.ndarray) and outcome.dtype == right.dtype and outcome.tolist() == right.tolist()


def ran_on(graph: Graph, devices: str) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Inputs of our own and what the model makes of them; None where it wants inputs that we do not make."""
    with pt.compile(graph, devices, {name: CONFIG[name] for name in devices.removeprefix("HETERO:").split(",")}) as model:
        feeds = feeds_of(model.graph)
        return None if feeds is None else (feeds, list(model(*feeds)))


def feeds_of(graph: Graph) -> list[Any] | None:
    """Small numbers for each input; None where one is large, or no tensor."""
    rng = np.random.default_rng(7)
    feeds = []
    for node in graph.inputs:
        kind = node[0].type
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        shape = [dim if isinstance(dim, int) else 2 for dim in kind.shape]
        if np.prod([float(dim) for dim in shape]) > LARGEST:
            return None
        if kind.dtype == "string":
            feeds.append(np.full(shape, "word", object))
        elif kind.dtype in ("float16", "float32", "float64", "bfloat16"):
            feeds.append(rng.standard_normal(shape).astype(numpy_dtype(kind.dtype)))
        else:
            feeds.append(rng.integers(0, 2, shape).astype(numpy_dtype(kind.dtype)))
    return feeds


# -- packages with machine code ----------------------------------------------------------------------------

KEY = b"the key of the mutator's packages"


@cache
def code_packages() -> tuple[Mapping[str, bytes], ...]:
    """Models compiled for `cpu`: one sealed by its checksum alone, one signed."""
    from tests.graphs.networks import small_net

    listed = []
    with tempfile.TemporaryDirectory() as folder, pt.compile(small_net(), "cpu", config={"CACHE_DIR": "off"}) as model:
        for name, key in (("sealed.partita", None), ("signed.partita", KEY)):
            model.export(Path(folder) / name, key=key)
            listed.append({name: (Path(folder) / name).read_bytes()})
    return tuple(listed)


def signed_by_another(members: Mapping[str, bytes], content: Mapping[str, Any], key: bytes | None) -> bytes:
    """A package of these members, under a seal that is right, and a signature that is not."""
    from partita.accelerators.runtime.package.container import PackageWriter

    file = io.BytesIO()
    writer = PackageWriter(file)
    for name, body in members.items():
        writer.add(name, body)
    writer.finish({str(name): value for name, value in content.items() if name != "members"}, key)
    return file.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    """The members of a package."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_code(folder: Path) -> None:
    """A package that was changed is refused before anything of it is loaded."""
    (path,) = folder.iterdir()
    whole = {sha256(data).digest() for files in code_packages() for data in files.values()}
    key = KEY if path.name.startswith("signed") else None
    if sha256(path.read_bytes()).digest() in whole:
        return  # The change has changed nothing.
    with nothing_is_loaded():
        pt.import_model(path, key=key).close()
    raise AssertionError("a package that was changed is imported")


@contextmanager
def nothing_is_loaded() -> Iterator[None]:
    """Inside, to hand code to `cpu` is a failure."""
    from partita.accelerators.tvm.device import TvmAccelerator

    def loaded(*arguments: object) -> None:
        raise AssertionError("code of a package that was changed is loaded")

    with mock.patch.object(TvmAccelerator, "import_", loaded):
        yield
