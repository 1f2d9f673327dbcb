"""The child process of a device, which `isolation/process.py` starts."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.arrays.layout import HOST, array_layout
from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.compile_now import compile_now, run_laid_out
from partita.accelerators.process.memory import Description, Packing, SharedMemory, described, described_graph
from partita.accelerators.process.messages import config_of
from partita.accelerators.process.serving import serve
from partita.graph.graph import Graph
from partita.graph.types import Array
from partita.passes.python_child import own_folder_last


@attrs.frozen(slots=True, eq=False)
class _Loaded:
    """A subgraph compiled in this child."""

    compiled: CompiledSubgraph
    layouts: Sequence[tuple[Any, tuple[int, ...]] | None]
    """The dtype and shape of each output of static size."""


class _Server:
    """The device, and its compiled subgraphs."""

    def __init__(self, requests: SharedMemory, replies: SharedMemory) -> None:
        self.requests = requests
        self.replies = replies
        self._device: Accelerator | None = None
        self._loaded: dict[int, _Loaded] = {}
        self._numbers = count()

    def answer(self, question: Mapping[str, Any]) -> Any:
        """Answers a request; the first one creates the device."""
        for number in question["drop"]:
            self._loaded.pop(number, None)
        if self._device is None:
            self._device = _device_of(question)
            return None
        actions: dict[str, Callable[[Mapping[str, Any], Accelerator], Any]] = {
            "query": self._query, "compile": self._compile, "import": self._import,
            "run": self._run, "rename": self._rename, "export": self._export, "memory": self._memory,
        }
        return actions[question["do"]](question, self._device)

    def _query(self, question: Mapping[str, Any], device: Accelerator) -> Any:
        graph = described_graph(question["graph"], self.requests)
        return dict(device.configured(_config(question, device)).query(graph))

    def _compile(self, question: Mapping[str, Any], device: Accelerator) -> int:
        graph = described_graph(question["graph"], self.requests)
        return self._kept(compile_now(device, graph, _config(question, device)), graph, question)

    def _import(self, question: Mapping[str, Any], device: Accelerator) -> int:
        graph = described_graph(question["graph"], self.requests)
        data = described(question["data"], self.requests)
        weights = tuple(array.copy() for array in described(question["weights"], self.requests))
        more = (weights,) if weights else ()
        return self._kept(device.import_(data, graph, _config(question, device), *more), graph, question)

    def _kept(self, compiled: CompiledSubgraph, graph: Graph, question: Mapping[str, Any]) -> int:
        if question["names"]:
            compiled.rename_nodes(question["names"])
        number = next(self._numbers)
        self._loaded[number] = _Loaded(compiled, [array_layout(entry.type) for entry in graph.outputs])
        return number

    def _run(self, question: Mapping[str, Any], device: Accelerator) -> Any:
        """Runs a subgraph. Outputs go to the shared memory of replies; those of static size may be written there directly."""
        compiled, packing = self._loaded[question["subgraph"]].compiled, Packing()
        inputs = [described(value, self.requests) for value in question["inputs"]]
        if compiled.memory == HOST:
            rooms = self._rooms(self._loaded[question["subgraph"]].layouts, packing)
            results: Any = run_laid_out(compiled, inputs, [None if room is None else room[1] for room in rooms])
        else:
            rooms = []
            results = compiled.run([compiled.upload(value) for value in inputs])
        if not isinstance(results, (list, tuple)):
            raise AcceleratorError(f"it returned {type(results).__name__}, not a list of outputs")
        values = results if compiled.memory == HOST else [compiled.download(value) for value in results]
        outputs = [
            room[0] if room is not None and value is room[1] else packing.describe(value)
            for value, room in zip_longest(values, rooms[: len(values)])
        ]
        packing.write(self.replies)
        return {"outputs": outputs, "rows": [attrs.asdict(row) for row in compiled.profile_rows()]}

    def _rooms(self, layouts: Sequence[Any], packing: Packing) -> list[tuple[Description, Array] | None]:
        """The description of each output of static size, and an array in the shared memory of replies."""
        listed: list[tuple[Description, Array] | None] = []
        rooms = [None if layout is None else packing.room(*layout) for layout in layouts]
        self.replies.reserve(packing.end)
        for room in rooms:
            listed.append(None if room is None else (room, described(room, self.replies)))
        return listed

    def _rename(self, question: Mapping[str, Any], device: Accelerator) -> None:
        self._loaded[question["subgraph"]].compiled.rename_nodes(question["names"])

    def _export(self, question: Mapping[str, Any], device: Accelerator) -> Any:
        compiled, packing = self._loaded[question["subgraph"]].compiled, Packing()
        weights = list(compiled.export_weights())
        exported = {"data": packing.describe(bytes(compiled.export())), "weights": packing.describe(weights)}
        try:
            packing.write(self.replies)
        except OSError as error:
            raise NotSupported(f"there is no room for what was compiled: {error}") from error
        return exported

    @staticmethod
    def _memory(question: Mapping[str, Any], device: Accelerator) -> int:
        """The bytes in use on the device, up to a constant, or by this process if the device works in the host's memory."""
        gc.collect()
        free = device.free_bytes(question["device_id"])
        return _anonymous_bytes() if free is None else -free


def _anonymous_bytes() -> int:
    """The memory of this process that belongs to no file, once it has returned what it does not use to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise NotSupported("this system does not report the memory of a process")


def _config(question: Mapping[str, Any], device: Accelerator) -> dict[str, Any]:
    """The configuration without ISOLATE, which has taken effect already."""
    config = config_of(question["config"])
    return config if device.isolates_itself else {**config, "ISOLATE": False}


def _device_of(origin: Mapping[str, Any]) -> Accelerator:
    """An instance of the device's class, found where the parent's Origin says."""
    sys.path += origin["folders"]
    own_folder_last()
    if origin["path"]:
        spec = importlib.util.spec_from_file_location("__partita_main__", origin["path"])
        assert spec is not None and spec.loader is not None
        module = sys.modules["__partita_main__"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(origin["module"])
    device: Accelerator = attrgetter(origin["name"])(module)()
    return device


if __name__ == "__main__":
    serve(lambda requests, replies: _Server(requests, replies).answer)
