"""The accelerator: the ops that onnxruntime supports, and its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Any, ClassVar

from partita.accelerators.engines.lost_nan import EXACT, KEY, loses_nan
from partita.accelerators.engines.lower_bounds import Sizes, least_sizes
from partita.accelerators.engines.model import EngineModel, engine_model, model_from_bytes, too_new
from partita.accelerators.engines.onnxruntime import quirks
from partita.accelerators.engines.onnxruntime.guarding import guard
from partita.accelerators.engines.onnxruntime.plugins import (
    Provider,
    check_together,
    is_registered,
    library_path,
    listed,
    package_name,
    provider_of,
)
from partita.accelerators.engines.onnxruntime.session import CompiledSession, session_of
from partita.accelerators.engines.onnxruntime.session_options import CPU, LEVELS, quiet_options, reason, set_running
from partita.accelerators.engines.onnxruntime.taking import LARGE, TakenNodes, providers_of, why_not
from partita.accelerators.engines.trials import Trials, unknown_input
from partita.accelerators.errors import AcceleratorError, AcceleratorUnavailable, CompileError
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.isolation import in_its_place
from partita.accelerators.interface.keys import Key, chosen, count, flag, mapping, one_of, optional, text
from partita.accelerators.interface.query import Support, judged_inside, query_by_op
from partita.graph.build import op, variable
from partita.graph.cached_property import lazy
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.passes.infer import with_missing_types

_COPY = Graph([op("Identity", variable("x", "float32", (1,)))])
"""A graph for a provider in another process, which answers, or whose failure is the reason why it cannot be used."""


class OnnxRuntimeAccelerator(Accelerator):
    """Runs the ops for which onnxruntime has a kernel. It computes in the types of the model."""

    name = "onnxruntime"
    travels_as_body = True
    config_keys: ClassVar[Mapping[str, Any]] = {
        "PROVIDER_OPTIONS": Key({}, mapping, names_files=True),
        "NAN": KEY,
        "NUM_THREADS": Key(0, count),
        "INTER_OP_THREADS": Key(1, count),
        "ALLOW_SPINNING": Key(True, flag),
        "SHARED_THREADS": Key(False, flag),
        "GRAPH_OPTIMIZATION": Key("all", one_of(*LEVELS)),
        "EP_LIBRARY": Key(None, library_path, names_files=True),
        "EP_PACKAGE": Key(None, package_name, names_files=True),
        "EP_NAME": Key(None, optional(text)),
        "EP_DEVICE": Key("0", text),
        "EP_OPTIONS": Key({}, mapping, names_files=True),
    }

    _shared: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise AcceleratorUnavailable(
                f"the package 'onnxruntime' cannot be imported: {error}",
                where="device 'onnxruntime'",
                remedy="Install it with: pip install 'partita[onnxruntime]'",
            ) from None
        self._engine: Any = onnxruntime
        self._trials = Trials(self._attempt)
        self._of_providers: dict[Provider, Trials] = {}
        self._libraries: list[str] = []

    def keys(self) -> dict[str, Key]:
        """All keys. PROVIDER is one of the providers that this onnxruntime was built with, or a list of some."""
        return {**super().keys(), "PROVIDER": Key(CPU, self._provider)}

    def _provider(self, value: Any) -> list[str] | str:
        available = self._engine.get_available_providers()
        return [chosen(name, available) for name in value] if isinstance(value, (list, tuple)) else chosen(value, available)

    def full_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A value for every key; the keys of a provider must fit each other."""
        config = super().full_config(values)
        check_together(config, f"config of device {self.name!r}")
        return config

    def why_not_here(self, config: Mapping[str, Any]) -> str | None:
        """The reason why the configured provider cannot be used. One under ISOLATE is loaded in its own process only."""
        try:
            provider = provider_of(config)
            if provider is None:
                return None
            device = in_its_place(self, config)
            if device is self:
                provider.devices(self._engine)
            else:
                device.configured(config).query(_COPY)
        except AcceleratorError as error:
            return f"{error.cause} ({error.remedy})"
        return None

    def labelled(self, part: str) -> Mapping[str, Any]:
        """A number is that of a device; anything else is the name of a provider."""
        return super().labelled(part) if part.isdigit() else {"EP_NAME": part}

    def beneath(self) -> list[tuple[str, bool, str]]:
        """The providers that onnxruntime loads from libraries."""
        return list(listed(self._engine))

    def query(self, graph: Graph) -> Support:
        """Tries each kind of op once on the engine itself; a provider is asked about the whole graph."""
        shown = with_missing_types(graph)
        provider = provider_of(self._config)
        if provider is not None:
            return self._ask(provider, shown)
        least = cache(lambda: least_sizes(shown, resized=True))
        return query_by_op(shown, lambda node, inside: self._judge(node, inside, least))

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Creates a session that runs the body."""
        model = self._model(graph) if provider_of(config) is None else engine_model(graph, self._newest)
        return self._compiled(model, graph, config)

    def _ask(self, provider: Provider, graph: Graph) -> Support:
        """The provider's answers about the graph, and about each kind of node alone that it leaves to others there: some take all
        nodes or none."""
        trials = self._of_providers.setdefault(provider, Trials(lambda alone: self._taken(alone, provider).only(), LARGE))
        whole = self._taken(graph, provider)
        taken = [node for node in graph.nodes if node.name in whole.names]

        def judge(node: Node, inside: Graph) -> bool | str:
            refused = self._unknowable(node, inside)
            if refused or node.name in whole.names:
                return refused or True
            alone = trials.answer(node, inside)
            return alone if alone is True else f"{why_not(node, taken, provider.name)}; {alone}"

        return query_by_op(graph, judge)

    def _unknowable(self, node: Node, graph: Graph) -> str | None:
        """The reason why onnxruntime must not be asked, or cannot be."""
        if node.op == "EPContext":
            return quirks.refused(node, graph)
        return too_new(node, graph.opsets, self._newest, f"onnxruntime {self._engine.__version__}") or unknown_input(node)

    def _taken(self, graph: Graph, provider: Provider) -> TakenNodes:
        """The nodes that the provider takes if all others stay with onnxruntime."""
        if quirks.brings_code(graph):
            return TakenNodes(frozenset(), quirks.BRINGS_CODE)
        options = self._options()
        options.graph_optimization_level = self._engine.GraphOptimizationLevel.ORT_DISABLE_ALL
        provider.use(options, self._engine)
        try:
            model = engine_model(graph, self._newest)
            session = session_of(self._engine, model, graph, options, None)
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            return TakenNodes(frozenset(), f"onnxruntime: {reason(error)}")
        owners = providers_of(session, model)
        return TakenNodes(frozenset(node.name for node, owner in owners.items() if owner == provider.name), None)

    def _model(self, graph: Graph) -> EngineModel:
        model = engine_model(graph, self._newest, quirks.MEANS_OF_NOTHING)
        guard(model.proto)
        return model

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """A session of the exported ONNX model."""
        try:
            model = model_from_bytes(data, graph)
        except ValueError as error:
            raise AcceleratorError(
                f"the exported subgraph cannot be read: {error}",
                where=f"device 'onnxruntime', subgraph {graph.name!r}",
                remedy="Compile the model again",
            ) from None
        return self._compiled(model, graph, config)

    def _compiled(self, model: EngineModel, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        if quirks.brings_code(graph):
            raise CompileError(quirks.BRINGS_CODE, where=f"device 'onnxruntime', subgraph {graph.name!r}")
        make = self._session_maker(model, graph, config)
        try:
            return CompiledSession(model, graph, make, config["PERF_COUNT"])
        except AcceleratorError:
            raise
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            raise CompileError(
                model.in_own_words(reason(error)), where=f"device 'onnxruntime', subgraph {graph.name!r}"
            ) from None

    def add_extension(self, extension: Any) -> None:
        """Registers a shared library of custom ops, by its path."""
        if not isinstance(extension, str):
            raise AcceleratorError(
                f"an extension is the path of a library of custom ops, not {type(extension).__name__}",
                where="device 'onnxruntime'",
                remedy="Give the path of a shared library, as a string",
            )
        options = self._engine.SessionOptions()
        try:
            options.register_custom_ops_library(extension)
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            raise AcceleratorError(reason(error), where=f"extension {extension!r} of device 'onnxruntime'") from None
        self._libraries.append(extension)
        self._trials = Trials(self._attempt)

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """The engine's answers; None with extensions, because they change the answers."""
        return None if self._libraries else self._trials.known

    def metrics(self) -> dict[str, Any]:
        """The execution providers, their devices, and the newest supported opset."""
        providers = list(self._engine.get_available_providers())
        return {
            "AVAILABLE_DEVICES": self._device_ids(),
            "PROVIDERS": providers,
            "FULL_DEVICE_NAME": f"onnxruntime {self._engine.__version__} ({', '.join(providers)})",
            "OPTIMIZATION_CAPABILITIES": ["FP32", "FP64", "INT8"],
            "NEWEST_OPSET": self._newest[""],
        }

    def _device_ids(self) -> list[str]:
        """The numbers of the devices, up to the maximum of any provider that onnxruntime was built with.

        The processor is one device, and each GPU is one."""
        return [str(number) for number in range(max(self._counted(of_plugins=False).values(), default=1))]

    def _counted(self, *, of_plugins: bool) -> Counter[str]:
        """The number of devices of each provider, as far as this version of onnxruntime reports it."""
        known = self._engine.get_ep_devices() if hasattr(self._engine, "get_ep_devices") else ()
        return Counter(device.ep_name for device in known if of_plugins or not is_registered(device))

    def check_device_id(self, device_id: str) -> None:
        """Skips the check if onnxruntime does not list the devices of a provider, which then checks the number itself, in a
        session."""
        untold = set(self._engine.get_available_providers()) - {*self._counted(of_plugins=True), CPU, "AzureExecutionProvider"}
        if not (untold and device_id.isdigit()):
            super().check_device_id(device_id)

    def identity(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """The engine's version."""
        provider = provider_of(config)
        named = {} if provider is None else {"provider": f"{provider.name}, device {provider.device}"}
        return {"library": f"onnxruntime {self._engine.__version__}", **named}

    # -- supported ops -----------------------------------------------------------------------------------

    def _judge(self, node: Node, graph: Graph, least: Callable[[], Mapping[NodeEntry, Sizes]]) -> bool | str:
        refused = (
            self._hazard(node, graph)
            or quirks.dies_of_nothing(node, least)
            or self._unknowable(node, graph)
            or judged_inside(node, self._within)
        )
        return refused or self._trials.answer(node, graph)

    def _within(self, node: Node, graph: Graph) -> bool | str:
        """Judges an op inside a body, as far as the trial of the whole node does not cover it."""
        known = self._hazard(node, graph) or quirks.dies_of_nothing(node, dict)
        return known or too_new(node, graph.opsets, self._newest, "onnxruntime") or True

    def _hazard(self, node: Node, graph: Graph) -> str | None:
        lost = loses_nan(node, graph, quirks.LOSES_NAN, self.name) if self._config["NAN"] == EXACT else None
        return quirks.refused(node, graph) or lost

    def _attempt(self, alone: Graph) -> bool | str:
        """True if a session of this op alone can be created, else the error."""
        options = self._options()
        options.graph_optimization_level = self._engine.GraphOptimizationLevel.ORT_DISABLE_ALL
        if not OnnxRuntimeAccelerator._shared:
            options.intra_op_num_threads = 1
        try:
            self._engine.InferenceSession(self._model(alone).complete(), options, providers=[CPU])
        except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
            return f"onnxruntime: {reason(error)}"
        return True

    @lazy
    def _newest(self) -> dict[str, int]:
        """The newest supported version of each domain."""
        from onnx.defs import get_all_schemas, onnx_opset_version

        domains = {"" if schema.domain == "ai.onnx" else schema.domain for schema in get_all_schemas()}
        return {domain: self._newest_of(domain, onnx_opset_version() if not domain else 9) for domain in domains}

    def _newest_of(self, domain: str, version: int) -> int:
        from onnx.helper import make_empty_tensor_value_info, make_graph, make_model, make_node, make_opsetid

        nodes = [make_node("Identity", ["x"], ["y"])]
        value = make_empty_tensor_value_info("x")
        value.type.tensor_type.elem_type = 1
        result = make_empty_tensor_value_info("y")
        body = make_graph(nodes, "probe", [value], [result])
        while version > 1:
            imports = [make_opsetid(domain, version)] + ([make_opsetid("", 13)] if domain else [])
            try:
                model = make_model(body, opset_imports=imports, ir_version=8)
                self._engine.InferenceSession(model.SerializeToString(), self._options(), providers=[CPU])
                return version
            except Exception:  # noqa: BLE001  this version is not supported
                version -= 1
        return version

    # -- sessions ----------------------------------------------------------------------------------------

    def _options(self) -> Any:
        options = quiet_options(self._engine, shares_threads=OnnxRuntimeAccelerator._shared)
        for library in self._libraries:
            options.register_custom_ops_library(library)
        return options

    def _session_maker(self, model: EngineModel, graph: Graph, config: Mapping[str, Any]) -> Any:
        """A function that creates a session of the model, given the prefix of a profile's file or None."""
        level = config["GRAPH_OPTIMIZATION"]
        threads, between, spinning = config["NUM_THREADS"], config["INTER_OP_THREADS"], config["ALLOW_SPINNING"]
        shared = OnnxRuntimeAccelerator._shared or (config["SHARED_THREADS"] and self._share_threads(threads))
        provider = provider_of(config)
        providers = self._providers(config) if provider is None else None
        level = level if provider is None else "off"  # the provider gets the nodes that it was asked about

        def make(profile: str | None) -> Any:
            options = self._options()
            set_running(
                options, self._engine, level=level, threads=None if shared else threads, between=between, spinning=spinning
            )
            if profile is not None:
                options.enable_profiling = True
                options.profile_file_prefix = profile
            if provider is None:
                return session_of(self._engine, model, graph, options, providers)
            provider.use(options, self._engine)
            session = session_of(self._engine, model, graph, options, None)
            self._check_taken(session, model, provider, graph)
            return session

        return make

    @staticmethod
    def _check_taken(session: Any, model: EngineModel, provider: Provider, graph: Graph) -> None:
        """Raises CompileError if the provider leaves nodes of the subgraph to others: they would run elsewhere, and nobody would
        know."""
        left = [node for node, owner in providers_of(session, model).items() if owner != provider.name]
        if left:
            names = ", ".join(repr(node.name) for node in left[:4]) + (", ..." if len(left) > 4 else "")
            cause = f"in this subgraph {provider.name} does not take {names}, which it takes in the model or alone"
            raise CompileError(cause, where=f"device 'onnxruntime', subgraph {graph.name!r}")

    def _share_threads(self, threads: int) -> bool:
        """Switches to one thread pool for all sessions.

        The pool belongs to the whole process: afterwards no session may have its own."""
        if not OnnxRuntimeAccelerator._shared:
            try:
                self._engine.set_global_thread_pool_sizes(threads, 1)
            except Exception as error:
                if "already been created" not in str(error):
                    raise
            OnnxRuntimeAccelerator._shared = True
        return True

    def _providers(self, config: Mapping[str, Any]) -> list[Any]:
        wanted = config["PROVIDER"]
        names = wanted if isinstance(wanted, list) else [wanted]
        options = dict(config["PROVIDER_OPTIONS"])
        if config["DEVICE_ID"] != "0":
            options.setdefault("device_id", config["DEVICE_ID"])
        return [name if name == CPU or not options else (name, options) for name in names]
