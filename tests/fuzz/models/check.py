"""A model on a device, or changed by a pass, against the reference."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.verify import verify
from tests.fuzz.models.builder import Case
from tests.fuzz.models.stability import Expected, difference, expected

DEVICES = ("onnxruntime", "openvino", "cpu")
"""Devices of which each has to do what the reference does."""

OPS_TO_TAKE = (
    "Add Mul Relu Conv MatMul Transpose Reshape Sigmoid Concat Cast Neg Max Where Slice Gather".split()
)


@attrs.frozen
class Finding:
    """Something is wrong."""

    setting: str
    """What was done with the model."""
    what: str
    """"differs", "refused", "raised", "crashed" or "hung"."""
    detail: str
    """The difference in words."""


Run = Callable[[Graph, Sequence[Any], int], Sequence[Any]]
"""A graph and its inputs to its outputs, and a number that decides what is random in it."""


def on_device(device: str, **keys: Any) -> Run:
    """The device with the reference behind it. Models are so small that onnxruntime's threads would only wait for each other."""
    config = {device: {**keys, **({"NUM_THREADS": 1} if device == "onnxruntime" else {})}}

    def run(graph: Graph, feeds: Sequence[Any], seed: int) -> Sequence[Any]:
        with pt.compile(graph, f"HETERO:{device},reference", config=config) as model:
            return list(model(*feeds))

    return run


def scattered(graph: Graph, feeds: Sequence[Any], seed: int) -> Sequence[Any]:
    """The outputs with each node on any device that takes it: some preferred devices are forbidden to some nodes."""
    order = random.Random(seed).sample(DEVICES, 3)
    names = [node.name for node in graph.nodes if node.is_op]
    forbidden = {
        name: [d for d in order if random.Random(f"{seed} {name} {d}").random() < 0.4] for name in names
    }
    where = f"HETERO:{','.join(order)},reference"
    with pt.compile(
        graph, where, forbid={name: chosen for name, chosen in forbidden.items() if chosen}
    ) as model:
        return list(model(*feeds))


def passed(graph: Graph, feeds: Sequence[Any], seed: int) -> Sequence[Any]:
    """Optimized."""
    return interpret(pt.optimize(graph), feeds)


def partitioned(graph: Graph, feeds: Sequence[Any], seed: int) -> Sequence[Any]:
    """The outputs after some ops were gathered into calls, saved as local functions, and read again."""
    rng = random.Random(seed)
    wanted = set(rng.sample(OPS_TO_TAKE, 6)) | {
        node.op for node in graph.nodes if node.is_op and rng.random() < 0.5
    }
    growth = rng.choice(("walk", "largest", "seed", "waves"))
    selector = pt.ContainOpSelector(wanted)
    result = pt.apply_pass(
        graph, "PartitionGraph", subgraph_property=pt.PatternProperty(selector), growth=growth
    )
    verify(result)
    return interpret(reread(result), feeds)


def reread(graph: Graph) -> Graph:
    """Written as ONNX and read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        pt.save(graph, path)
        return pt.load(path)


def through_files(graph: Graph, feeds: Sequence[Any], seed: int) -> Sequence[Any]:
    """Written as ONNX and as text, and read back from each."""
    again = reread(graph)
    assert str(pt.parse(str(again))) == str(again), "the text form reads back as another graph"
    return interpret(pt.parse(str(again)), feeds)


SETTINGS: dict[str, Run] = {
    **{device: on_device(device) for device in DEVICES},
    **{f"{device}-nan": on_device(device, NAN="exact") for device in ("onnxruntime", "openvino")},
    "scattered": scattered,
    "passes": passed,
    "partitioned": partitioned,
    "files": through_files,
}
"""The ways in which a model is run."""


def wanted_of(case: Case) -> list[Expected]:
    """What every setting has to return."""
    return expected(case.graph, case.feeds)


def check(case: Case, setting: str, seed: int, wanted: Sequence[Expected] | None = None) -> Finding | None:
    """The first thing that is wrong with the model in this setting."""
    wanted = wanted_of(case) if wanted is None else wanted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = SETTINGS[setting](case.graph, case.feeds, seed)
        except PartitaError as error:
            return Finding(setting, "refused", f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what the fuzzer looks for)
            return Finding(setting, "raised", f"{type(error).__name__}: {error}")
    for entry, value, right in zip(case.graph.outputs, result, wanted, strict=True):
        wrong = difference(value, right)
        if wrong is not None:
            return Finding(setting, "differs", f"{entry.name} of {entry.node.op}: {wrong}")
    return None
