"""The accelerator: the ops that openvino supports, and its configuration."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from partita.accelerators.engines.lost_nan import EXACT, KEY, loses_nan
from partita.accelerators.engines.model import EngineModel, engine_model, too_new
from partita.accelerators.engines.openvino import quirks
from partita.accelerators.engines.openvino.requests import CompiledRequests, reason
from partita.accelerators.engines.openvino.small_integers import SmallIntegers
from partita.accelerators.engines.probing import PROBED
from partita.accelerators.engines.trials import Trials, unknown_input
from partita.accelerators.errors import AcceleratorError, AcceleratorUnavailable, CompileError
from partita.accelerators.interface.accelerator import PRECISIONS, Accelerator, CompiledSubgraph
from partita.accelerators.interface.cache_words import OFF
from partita.accelerators.interface.keys import Key, count, mapping, one_of, text
from partita.accelerators.interface.query import Support, judged_inside, query_by_op
from partita.accelerators.interface.stub_body import is_skeleton
from partita.accelerators.process.forking import Guard
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.bodies import everywhere
from partita.passes.infer import with_missing_types

NEWEST = {"": 21, "ai.onnx.ml": 3}
"""The opset that the engine's ONNX reader implements.

It accepts newer opsets and reads their ops as the older ones."""

FILES_FROM = 1 << 26
"""Size in bytes from which the engine maps the weights from a file: passed in memory, they exist three times."""

_HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")


_GROUP_SIZE = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
"""Number of elements that openvino rounds to bytes with one scale when it multiplies them by 4-bit or 8-bit weights. 0 disables
the rounding, since nobody requested it."""


class OpenVinoAccelerator(Accelerator):
    """Runs the ops that openvino converts and has a kernel for.

    DEVICE_ID chooses its device: CPU, GPU, NPU, GPU.1, …"""

    name = "openvino"
    reads_views = True
    config_keys: ClassVar[Mapping[str, Any]] = {
        "DEVICE_ID": Key("CPU", text),
        "PRECISION": Key("f32", one_of(*PRECISIONS)),
        "NUM_THREADS": Key(0, count),
        "NAN": KEY,
        "PERFORMANCE_HINT": Key("LATENCY", one_of(*_HINTS)),
        "NUM_STREAMS": Key(0, count),
        "PROPERTIES": Key({}, mapping, names_files=True),
    }

    def __init__(self) -> None:
        super().__init__()
        try:
            self._engine: Any = _import_openvino()
        except ImportError as error:
            raise AcceleratorUnavailable(
                f"the package 'openvino' cannot be imported: {error}",
                where="device 'openvino'",
                remedy="Install it with: pip install 'partita[openvino]'",
            ) from None
        self._core: Any = _load_core(self._engine)
        self._trials = Trials(self._attempt, constants_up_to=1 << 20)
        self._extended = False
        self._guard = Guard()
        if not self._core.available_devices:
            raise AcceleratorUnavailable("openvino finds no device here", where="device 'openvino'")

    def query(self, graph: Graph) -> Support:
        """Tries each kind of op once on the engine itself; known wrong results are refused."""
        shown = with_missing_types(graph)
        small, given = SmallIntegers(shown), frozenset(shown.inputs)

        def within(node: Node, inside: Graph) -> str | None:
            return self._within(node, inside, small, given)

        def judge(node: Node, inside: Graph) -> bool | str:
            return self._judge(node, inside, within)

        return query_by_op(shown, judge)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Compiles the body, read by the engine's ONNX frontend, for its device."""
        properties = self._properties(config)
        model = engine_model(_turned(graph), {}, PROBED)

        def built(cached: bool) -> Any:
            chosen = {key: value for key, value in properties.items() if cached or key != "CACHE_DIR"}
            try:
                return self._core.compile_model(self._read(model), self._own_name(config["DEVICE_ID"]), chosen)
            except RuntimeError as error:
                raise CompileError(
                    model.in_own_words(reason(error)), where=f"device 'openvino', subgraph {graph.name!r}"
                ) from None

        compiled, exported = built(True), None
        if "CACHE_DIR" in properties and compiled.get_property("LOADED_FROM_CACHE"):
            exported = lambda: built(False).export_model().getvalue()  # noqa: E731
        return CompiledRequests(self._engine, compiled, model, graph, config["PERF_COUNT"], exported)

    def import_(self, data: bytes | memoryview, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Imports the engine's own compiled form."""
        try:
            compiled = self._core.import_model(self._shared(data), self._own_name(config["DEVICE_ID"]), self._properties(config))
        except RuntimeError as error:
            raise AcceleratorError(
                f"openvino does not read the exported subgraph: {reason(error)}",
                where=f"device 'openvino', subgraph {graph.name!r}",
                remedy="Compile the model again",
            ) from None
        model = EngineModel(None, {}, (), (), ()) if is_skeleton(graph) else engine_model(_turned(graph), {}, PROBED)
        return CompiledRequests(self._engine, compiled, model, graph, config["PERF_COUNT"], partial(bytes, data))

    def _shared(self, data: bytes | memoryview) -> Any:
        """A tensor on writable data, which the engine reads in place; it would copy bytes."""
        array = np.frombuffer(data, np.uint8)
        return self._engine.Tensor(array, shared_memory=True) if array.flags.writeable else data

    def add_extension(self, extension: Any) -> None:
        """Adds an openvino extension: an object, a class or a list of objects, or the path of a library of them."""
        listed = extension if isinstance(extension, list) else [extension]
        kinds = (self._engine.Extension, str, Path)
        if not all(isinstance(one, kinds) or (isinstance(one, type) and issubclass(one, self._engine.Op)) for one in listed):
            raise AcceleratorError(
                f"an extension is one of openvino's, or the path of a library of them, not {type(extension).__name__}",
                where="device 'openvino'",
                remedy="Give an openvino.Extension, a class derived from openvino.Op, or a path",
            )
        try:
            self._core.add_extension(extension)
        except (RuntimeError, TypeError) as error:
            raise AcceleratorError(reason(error), where="add_extension of device 'openvino'") from None
        self._trials = Trials(self._attempt, constants_up_to=1 << 20)
        self._extended = True

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """The engine's answers; None with extensions, because they change the answers."""
        return None if self._extended else self._trials.known

    def metrics(self) -> dict[str, Any]:
        """openvino's devices, and the capabilities of the configured one."""
        device = self._own_name(self._config["DEVICE_ID"])
        title = self._core.get_property(device, "FULL_DEVICE_NAME").strip()
        return {
            "AVAILABLE_DEVICES": list(self._core.available_devices),
            "FULL_DEVICE_NAME": f"openvino {self._version} ({title})",
            "OPTIMIZATION_CAPABILITIES": list(self._core.get_property(device, "OPTIMIZATION_CAPABILITIES")),
        }

    def identity(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """The engine's version and its device."""
        device = self._own_name(config["DEVICE_ID"])
        return {"library": f"openvino {self._version}", "device": str(self._core.get_property(device, "FULL_DEVICE_NAME"))}

    @property
    def _version(self) -> str:
        return str(self._engine.__version__.split("-")[0])

    # -- supported ops -----------------------------------------------------------------------------------

    def _judge(self, node: Node, graph: Graph, within: Callable[[Node, Graph], str | None]) -> bool | str:
        refused = (
            unknown_input(node)
            or within(node, graph)
            or judged_inside(node, lambda inner, body: within(inner, body) or True)
        )
        return refused or self._trials.answer(node, graph)

    def _within(self, node: Node, graph: Graph, small: SmallIntegers, given: frozenset[Node]) -> str | None:
        return (
            quirks.refused(node, graph, given)
            or too_new(node, graph.opsets, NEWEST, "openvino's ONNX reader")
            or small.refused(node)
            or (loses_nan(node, graph, quirks.LOSES_NAN, self.name) if self._config["NAN"] == EXACT else None)
        )

    def _attempt(self, alone: Graph) -> bool | str:
        """True if a model of this op alone compiles, else the error."""
        device = self._own_name(self._config["DEVICE_ID"])
        properties = {"INFERENCE_NUM_THREADS": 1} if device == "CPU" else {}
        try:
            model = self._core.read_model(engine_model(_turned(alone), {}).complete())
            with self._guard.lock:
                self._core.compile_model(model, device, properties)
        except RuntimeError as error:
            return f"openvino: {reason(error)}"
        return True

    # -- configuration -----------------------------------------------------------------------------------

    def check_device_id(self, device_id: str) -> None:
        """Checks the id. The first of several devices may be named by its kind alone, and a single one also with its number:

        GPU is GPU.0."""
        if self._own_name(device_id) not in self._core.available_devices:
            super().check_device_id(device_id)

    def resource(self, device_id: str | None) -> str | None:
        """None for the processor."""
        name = self._own_name(device_id or self._config["DEVICE_ID"])
        return None if name.startswith("CPU") else f"{self.name}.{name}"

    def _own_name(self, device_id: str) -> str:
        """The engine's own name of a device: the kind alone for a single one, with numbers for several."""
        names = (device_id, f"{device_id}.0", device_id.removesuffix(".0"))
        return next((name for name in names if name in self._core.available_devices), device_id)

    def _properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        threads, streams = config["NUM_THREADS"], config["NUM_STREAMS"]
        properties = {
            "INFERENCE_PRECISION_HINT": config["PRECISION"],
            "PERFORMANCE_HINT": config["PERFORMANCE_HINT"],
            "PERF_COUNT": config["PERF_COUNT"],
        }
        if _GROUP_SIZE in self._core.get_property(self._own_name(config["DEVICE_ID"]), "SUPPORTED_PROPERTIES"):
            properties[_GROUP_SIZE] = "0"
        if threads:
            properties["INFERENCE_NUM_THREADS"] = threads
        if streams:
            properties["NUM_STREAMS"] = str(streams)
        if str(config["CACHE_DIR"] or "").upper() not in OFF:
            properties["CACHE_DIR"] = str(config["CACHE_DIR"])
            # otherwise the exported form would lack the weights, and could not be imported
            properties["CACHE_MODE"] = "OPTIMIZE_SPEED"
        return {**properties, **config["PROPERTIES"]}

    def _read(self, model: EngineModel) -> Any:
        """The engine's model; large ones are passed through temporary files."""
        if sum(array.nbytes for array in model.weights.values()) < FILES_FROM:
            return self._core.read_model(model.complete())
        with tempfile.TemporaryDirectory(prefix="partita-openvino-") as folder:
            return self._core.read_model(str(model.write(Path(folder))))


_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def _turned(graph: Graph) -> Graph:
    """The graph with a > b written as b < a, and a >= b as b <= a, in bodies too.

    openvino computes a > b as "not a <= b", which is true if one of them is NaN; its a < b is false there,
    as specified. Names and types are unchanged."""
    return everywhere(graph, lambda inner: rewrite(inner, _turn))


def _turn(node: Node, rewriter: Rewriter) -> None:
    op = None if node.domain or node.attrs else _TURNED.get(node.op or "")
    rebuilt = rewriter.rebuilt(node)
    rewriter.keep(node, rebuilt if op is None else rebuilt.evolve(op=op, inputs=rebuilt.inputs[::-1]))


_guard = Guard()


def _import_openvino() -> Any:
    """The package openvino.

    Its import would report itself over the network; with the telemetry package hidden it uses its own stub."""
    with _guard.lock:
        if "openvino" in sys.modules:
            return sys.modules["openvino"]
        hidden: dict[str, ModuleType | None] = {"openvino_telemetry": sys.modules.get("openvino_telemetry")}
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        try:
            import openvino

            return openvino
        finally:
            for name, module in hidden.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module


def _load_core(engine: Any) -> Any:
    """A Core with its plugins loaded, by a thread that ends after that.

    The CPU plugin gives the thread that loads it a signal stack, and unmaps that when the last user of the
    plugin releases it (in openvino 2026): on a thread that lives on, the next signal would run on memory of others."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_load, engine).result()


def _load(engine: Any) -> Any:
    core = engine.Core()
    core.available_devices  # noqa: B018
    return core
