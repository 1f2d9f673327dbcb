"""Drawn packages, and processes that run what is in them."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from partita.accelerators.interface.device_list import parse_devices
from partita.accelerators.interface.isolation import child, isolated_device
from partita.accelerators.precision import place
from partita.accelerators.process import background
from partita.accelerators.process.memory import SharedMemory
from partita.accelerators.runtime.package import container
from tests.accelerators.hetero.small_devices import Ran, RanOnDevice, device
from tests.kept import told
from tests.partition.kept_partitions import graph_of


class Exported(Ran):
    """A subgraph whose code is a text."""

    def export(self) -> bytes:
        return b"the code"

    def export_weights(self) -> Sequence[Any]:
        return (np.ones(3, np.float32),)

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)


# -- packages ------------------------------------------------------------------------------------------

def changed_units(rng: random.Random, manifest: dict[str, Any]) -> str:
    """Changes one thing in a manifest, and tells which."""
    unit = rng.choice(manifest["units"])
    own = rng.choice([one for one in manifest["units"] if one["code"] is not None] or [unit])
    changes: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "device": lambda: unit.update(device="gone"),
        "identity": lambda: own["identity"].update(library="old"),
        "config": lambda: unit["config"].update(LEVEL="x", DEVICE_ID="7"),
        "file": lambda: unit["config"].update(CACHE_DIR="/there"),
        "no body": lambda: own.update(whole=False),
        "no code": lambda: own.update(code=None),
        "other body": lambda: unit.update(body=manifest["units"][-1]["body"]),
        "code": lambda: own.update(code="nowhere"),
        "name": lambda: unit.pop("name"),
        "settings": lambda: manifest["settings"].update(requests="many"),
        "units": lambda: manifest.update(units=3),
        "weights": lambda: own.update(weights=[[10**9, "float32", [3]]]),
        "dtype": lambda: own.update(weights=[[0, "nothing", [3]]]),
        "less": lambda: manifest.pop(rng.choice(sorted(manifest))),
        "code for all": lambda: unit.update(code=manifest["units"][0]["body"]),
        "no identity": lambda: own.update(identity={}),
        "no body and identity": lambda: own.update(whole=False, identity={"library": "x"}),
    }
    how = rng.choice([*changes])
    changes[how]()
    return how


def _total(model: pt.CompiledModel, inputs: Sequence[Any]) -> str:
    """The sum of what a model computes."""
    return f"{sum(float(np.abs(one).sum()) for one in model(*inputs)):.4g}"


def packaged(rng: random.Random) -> Iterator[str]:
    """A model from a file, of which one thing is another, on devices that are there or not."""
    def imported(self: Any, data: bytes, graph: pt.Graph, config: Any, weights: Any) -> Any:
        if bytes(data) != b"the code" or len(weights) != 1:
            raise pt.PartitaError("it is other code")
        return Exported(graph)

    kinds: dict[str, Any] = {
        "compile": lambda self, graph, config: Exported(graph), "import_": imported,
        "identity": lambda self, config: {"library": "lib 1", "target": "llvm"},
    }
    graph = pt.apply_pass(graph_of(rng), "InferShape")
    ops = sorted({str(node.op) for node in graph.nodes if node.is_op})
    x = [np.full((3, 3), 0.5, np.float32) for _ in graph.inputs]
    with (
        tempfile.TemporaryDirectory() as name, device("keeps", " ".join(rng.sample(ops, rng.randint(1, len(ops)))), **kinds),
        device("other", travels_as_body=True), warnings.catch_warnings(action="ignore"),
    ):
        path, again = Path(name) / "net.partita", Path(name) / "again.partita"
        model = pt.compile(graph, "HETERO:keeps,other")
        key = rng.choice((None, b"k" * 8))
        yield told(model.export, path, key=key, bodies=rng.random() < 0.8).replace(name, "")
        for wrong in (None, b"", b"w" * 8, "text", key):
            yield told(lambda given: len(pt.import_model(path, key=given).units), wrong)[:300].replace(name, "")
        data = path.read_bytes()
        for damage in (data[:-1], data + b"x", data[:40] + b"?" + data[41:], b""):
            again.write_bytes(damage)
            yield told(pt.import_model, again)[:200].replace(name, "")
        package = container.Package(path, key)
        for _ in range(4):
            manifest = json.loads(json.dumps(package.manifest))
            members = manifest.pop("members")
            how = changed_units(rng, manifest)
            with container.writing(again) as writer:
                for member in members:
                    if member != container.MANIFEST:
                        writer.add(member, bytes(package.member(member)))
                writer.finish(manifest, None)
            recompile = rng.choice((False, False, True, "other", "keeps", ["gone"]))
            try:
                found = pt.import_model(again, recompile=recompile)
            except pt.PartitaError as error:
                yield f"{how} {recompile} {type(error).__name__}: {error}"[:500].replace(name, "")
            else:
                units = [(unit.name, unit.device.label, unit.recompiled, dict(unit.identity or {})) for unit in found.units]
                notes = str(list(found.report.notes)).replace(name, "")
                yield f"{how} {recompile} {units} {notes} {told(_total, found, x)[:99]}"
        yield told(package.member, "none").replace(name, "")
        yield f"{model.units[0].name} {_total(model, x)}"


# -- processes -----------------------------------------------------------------------------------------

class Beside:
    """A child of a device, in this process: messages go through JSON, arrays through memory."""

    name = "the child"

    def __init__(self, accelerator: Any) -> None:
        self.requests, self.replies, self.dropped = SharedMemory(), SharedMemory(), deque[int]()
        self.server = child._Server(self.requests, self.replies)
        self.server._device = accelerator
        self.asked_for: list[str] = []

    def asked(self, question: Mapping[str, Any], packing: Any, task: Any) -> Any:
        self.asked_for.append(question["do"])
        packing.write(self.requests)
        message = {**question, "drop": [self.dropped.popleft() for _ in range(len(self.dropped))]}
        return json.loads(json.dumps(self.server.answer(json.loads(json.dumps(message)))))


class Process:
    """A process of a device, whose children are in this one."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator, self.now = accelerator, Beside(accelerator)

    @contextlib.contextmanager
    def child(self) -> Iterator[Beside]:
        yield self.now

    def end(self) -> None:
        self.now.asked_for.append("ended")


def in_child(rng: random.Random) -> Iterator[str]:
    """A device whose work a child does: what is sent, what comes back, and a new child in its place."""
    x = pt.variable("x", "float32", rng.choice(((2, 3), ("n", 3))))
    node: Any = pt.op(rng.choice(("Relu", "Neg")), pt.op("Add", x, pt.constant(np.ones(3, np.float32))), name="last")
    outputs = [node, pt.op("Exp", node, name="more")][: rng.randint(1, 2)]
    graph = pt.apply_pass(pt.Graph(outputs, [x], "body"), "InferShape")
    kind = rng.choice((Ran, RanOnDevice, Exported, Exported))
    members: dict[str, Any] = {"subgraph_type": kind, "compile": lambda self, graph, config: kind(graph)}
    members["import_"] = lambda self, data, graph, config, *weights: kind(graph)
    if rng.random() < 0.2:
        members["free_bytes"] = lambda self, number: 1000 - len(process.now.asked_for)
    with device("mine", rng.choice((None, "Relu Add Exp")), **members) as accelerator:
        process: Any = Process(accelerator)
        apart: Any = copy.copy(accelerator)
        apart.__class__ = isolated_device._class(type(accelerator))
        apart.process = process
        yield told(apart.query, graph)
        config = accelerator.full_config({"ISOLATE": True})
        compiled = apart.compile(graph, config)
        for _ in range(4):
            given = np.full((2, 3), rng.choice((0.5, -2.0)), np.float32)
            out: Any = rng.choice((None, [np.zeros((2, 3), np.float32)], [None, None], [np.zeros((4, 3), np.float32)] * 2))
            try:
                results = compiled.run([given], out)
            except pt.PartitaError as error:
                yield f"{type(error).__name__}: {error}"
            else:
                same = [out is not None and any(one is each for each in out) for one in results]
                yield f"{[shown_array(one) for one in results]} {same} {len(compiled.profile_rows())}"
            if rng.random() < 0.3:
                process.now = Beside(accelerator)
            if rng.random() < 0.4:
                yield told(compiled.rename_nodes, {"last": "renamed"}) + f" {compiled._names}"
        yield f"{told(compiled.export)} {told(compiled.export_weights)}"[:300]
        again = told(apart.import_, graph=graph, data=b"data", config=config, weights=(np.ones(2, np.float32),))
        yield f"{again.partition(' object')[0]} {process.now.asked_for}"
        yield f"{len(process.now.server._loaded)} {list(process.now.dropped)}"
        del compiled
        yield f"{list(process.now.dropped)}"
        held = iter(rng.choice(((100, 160), (160, 100))))
        with (
            mock.patch.object(place, "DeviceProcess", lambda origin: Process(accelerator)),
            mock.patch.object(place, "origin_of", lambda name, kind: None),
            mock.patch.object(place, "isolated", lambda one: apart),
            mock.patch.object(child, "_anonymous_bytes", lambda: next(held)),
            mock.patch.object(child, "gc", SimpleNamespace(collect=lambda: None)),
        ):
            static = pt.apply_pass(pt.Graph([pt.op("Relu", pt.variable("s", "float32", (2, 3)))]), "InferShape")
            (one,) = parse_devices("mine")
            yield told(place.measured_bytes, one, rng.choice(([graph, static], [static])), config)
            yield f"{apart.process.now.asked_for}"


def shown_array(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}{[round(float(one), 3) for one in array.reshape(-1)[:3]]}"


def pace(rng: random.Random) -> Iterator[str]:
    """Pauses between calls, and the interval in which threads take turns, by a clock that goes as drawn."""
    now, used, slept = [0.0], [0.0], list[float]()
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: used[0], sleep=slept.append)
    with mock.patch.object(background, "time", clock), mock.patch.object(background, "usable_cores", lambda: 4):
        one = background.CallPace()
        for _ in range(8):
            start = one.start()
            took = rng.choice((0.001, 0.001, 0.0016, 0.002, 0.0001))
            now[0] += took
            used[0] += took * rng.choice((1.9, 2.0, 2.1, 4.0))
            one.end(start)
            now[0] += rng.choice((0.0, 0.0, 0.0004, 0.01))
        yield f"{[f'{one:.6f}' for one in slept]} {one._shortest:.4f}"
    interval = [0.005]
    fakes = SimpleNamespace(
        getswitchinterval=lambda: interval[0], setswitchinterval=lambda new: interval.__setitem__(0, int(new * 1e6) / 1e6),
    )
    with mock.patch.object(background, "sys", fakes):
        turns_taken = background.ShortTurns()
        for _ in range(8):
            how = rng.choice(("in", "in", "out", "renew", "set"))
            if how == "in":
                turns_taken.__enter__()
            elif how == "out":
                turns_taken.__exit__()
            elif how == "renew":
                turns_taken.renew()
            else:
                interval[0] = rng.choice((0.005, 0.0001, 0.01))
            yield f"{how} {interval[0]} {turns_taken.are_on} {turns_taken._inside}"
