"""Defines an accelerator: the class that a plugin derives from, and the class that its `compile` returns."""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, ClassVar, Self

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.errors import BadConfig, NotSupported, Returns, UnknownKey, is_ours, names_hooks
from partita.accelerators.interface.compile_story import CompileStory, KernelWork
from partita.accelerators.interface.device_property import DeviceProperty
from partita.accelerators.interface.habits import meant_key
from partita.accelerators.interface.keys import Key, cache_folder, declared, flag, one_of, seconds, text
from partita.accelerators.interface.query import checked_answers, query_through_transform, with_own_nodes
from partita.accelerators.interface.second_level import SecondLevel
from partita.graph.graph import Graph
from partita.partition.property import SubgraphProperty


class Turn(ABC):
    """One run of a subgraph in separate steps, so that its device and others work at the same time.

    It lasts from `send` or `begin` until it is finished or given up, or an error ends it.
    Nobody else runs the subgraph meanwhile."""

    @abstractmethod
    def send(self, number: int, array: Any) -> None:
        """Sends the input of this number to the device. The array's contents may change only once the turn is over."""

    @abstractmethod
    def begin(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> None:
        """Starts the device with all inputs. The inputs and the arrays of `out` must not be changed until the turn is over."""

    @abstractmethod
    def finish(self) -> Sequence[Any]:
        """Waits for the device and returns the outputs."""

    @abstractmethod
    def give_up(self) -> None:
        """Ends the turn without a result, once the device has stopped. The turn may be over already."""


COPY = "Copy"
"""The layer type of a copy between the host and a device."""


EXECUTED, NOT_RUN, OPTIMIZED_OUT = "EXECUTED", "NOT_RUN", "OPTIMIZED_OUT"
"""The states of a node after a run."""


@attrs.frozen(slots=True)
class ProfileRow:
    """The time of one node (or of one fused kernel, or of a copy) in a run."""

    node: str
    """The node's name; of a fused kernel the first node's; of a copy "input 0", "output 1" and so on, in the body's order."""
    layer_type: str
    """Its op; COPY for a copy."""
    status: str
    """EXECUTED, NOT_RUN or OPTIMIZED_OUT."""
    real_us: float
    """Wall time in microseconds."""
    cpu_us: float
    """Processor time in microseconds."""
    exec_type: str
    """The name of the kernel or implementation that ran it."""
    types: str = ""
    """The element types that it read and wrote, if the device reports them."""


@attrs.frozen(slots=True)
class TunedKernel:
    """The result of tuning one kernel."""

    kernel: str
    """Its name."""
    before_us: float
    """Microseconds before tuning."""
    after_us: float
    """Microseconds after tuning."""
    tried: int
    """Number of variants that were measured."""
    choices: Mapping[str, str]
    """The variant that replaced the earlier choice; empty if that choice is the best."""


class CompiledSubgraph:
    """One body, ready to run on its device. The executor calls `run` from one thread at a time unless `concurrent` is set."""

    memory: str = "host"
    """The memory of its arrays: "host" means numpy arrays; anything else needs `upload` and `download`."""
    alignment: int = 1
    """The executor copies host arrays whose address is not a multiple of this, or that are not C-contiguous; above 16 also
    read-only arrays."""
    concurrent: bool = False
    """True if several threads may call `run` at once."""
    overlaps: bool = False
    """True if its device works asynchronously, so that a run can be requested part by part, in a `turn`."""
    notes: Sequence[str] = ()
    """Lines about it for the compile report, such as the precision that the device chose."""
    work: Sequence[KernelWork] = ()
    """The compile time of each kernel, if the device reports it."""
    story: CompileStory | None = None
    """Why it was compiled, and where the time went; None if unknown."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Makes errors of the class's hooks name the hook."""
        super().__init_subclass__(**options)
        names_hooks(cls, SUBGRAPH_HOOKS, lambda self: type(self).__name__)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The body's outputs for these inputs, both in the body's order.

        `out` holds for each output an array to write to, or None; the returned array is authoritative. No later run may write
        to it, and no run to the inputs. Dtypes and sizes are those that the body declares. On a device that `keeps_arrays`
        `out` may hold ON_DEVICE, which requests a new array in the device's memory."""
        raise NotSupported(f"{type(self).__name__} does not define run", remedy="Define run(inputs, out=None)")

    def turn(self, waits: bool = True) -> Turn | None:
        """The next turn to run it; None if another caller has the turn and `waits` is False."""
        raise NotSupported(f"{type(self).__name__} does not define turn", remedy="Define it, or leave overlaps at False")

    def takes(self, array: DeviceArray) -> bool:
        """True if `run` accepts this device array as an input or an output. If False, it gets host arrays."""
        return False

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """The host array in this device's memory."""
        return array

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """The device's value as a host array."""
        return value

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of the last run, if compiled with PERF_COUNT; empty if the device cannot report them."""
        return ()

    def another(self) -> CompiledSubgraph | None:
        """Another instance of the same compiled code, to run concurrently with this one; None if its runs are serialized."""
        return None

    def native(self, inputs: Sequence[Any]) -> tuple[CompiledSubgraph, Sequence[Any]] | None:
        """The subgraph whose machine code computes the outputs for inputs of these sizes without Python, and the arrays that it
        reads for that, the inputs first; None if there is none."""
        return None

    def measured(self) -> CompiledSubgraph | None:
        """Another instance of the same compiled code, which reports rows after each run as with PERF_COUNT; None if the device
        has to compile the subgraph for that."""
        return None

    def let_go(self) -> None:
        """Frees the memory that its runs have kept, since the model is closed or other sizes are kept. A later run allocates it
        again."""

    def kernels(self) -> Sequence[Any]:
        """The kernels, for inspection; empty if the device does not show them."""
        return ()

    def export(self) -> bytes:
        """The compiled form, which the accelerator's `import_` reads."""
        remedy = "Define export(), and import_ of its accelerator; or set the accelerator's travels_as_body"
        raise NotSupported(f"{type(self).__name__} cannot be exported", remedy=remedy)

    def export_weights(self) -> Sequence[np.ndarray[Any, Any]]:
        """The arrays that `export` leaves out: they are exported and cached separately, equal ones once."""
        return ()

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        """Replaces the node names of its compilation, for the names in profiles."""


SUBGRAPH_HOOKS: Mapping[str, Returns] = {
    "export": Returns((bytes, bytearray, memoryview)),
    "export_weights": Returns((list, tuple), np.ndarray),
    "profile_rows": Returns((list, tuple, NoneType)),
    "measured": Returns((CompiledSubgraph, NoneType)),
    "another": Returns((CompiledSubgraph, NoneType)),
    "let_go": Returns(),
    "rename_nodes": Returns(),
    "kernels": Returns((list, tuple)),
}
"""The hooks of a compiled subgraph, with the types that they return."""


class AnySize(ABC):
    """A subgraph with dynamic sizes that is compiled once for all of them."""

    compiled: CompiledSubgraph
    """The kernels, which read host arrays."""
    notes: Sequence[str] = ()
    """Lines for the compile report about the sizes that the kernels accept."""

    @abstractmethod
    def given(self, shapes: tuple[tuple[int, ...], ...], inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The arrays that the kernels read in a call with inputs of these sizes; None if they do not accept the sizes."""

    def is_empty(self, shapes: tuple[tuple[int, ...], ...]) -> bool:
        """True if a dimension of these sizes is 0 and the rest takes little computation."""
        return False


Query = Callable[[Any, Graph], Mapping[str, bool | str]]

CompileStatic = Callable[[Graph], CompiledSubgraph]
"""Compiles a graph, or finds it in the cache."""


def _completed(compile: Callable[[Any, Graph, Mapping[str, Any]], CompiledSubgraph]) -> Any:
    """The method, wrapped so that its `config` has a value for each key: callers may give only some."""

    @functools.wraps(compile)
    def completed(self: Accelerator, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        full = config if self._config.keys() <= config.keys() else self.full_config(config)
        handed = [graph]
        del graph  # Only the method holds the graph now, so it may drop the weights.
        return compile(self, handed.pop(), full)

    return completed


def _where_it_is_asked_for(query: Query) -> Query:
    """The method, run in a child process if the device's own configuration sets ISOLATE."""

    @functools.wraps(query)
    def asked(self: Accelerator, graph: Graph) -> Mapping[str, bool | str]:
        from partita.accelerators.interface.isolation import in_its_place  # upward: a direct call obeys ISOLATE too

        device = in_its_place(self, self._config)
        return query(self, graph) if device is self else device.query(graph)

    return asked


def _checked(query: Query) -> Query:
    """A plugin's method with its answers checked."""

    @functools.wraps(query)
    def checked(self: Accelerator, graph: Graph) -> Mapping[str, bool | str]:
        return checked_answers(query(self, graph), graph, f"query of device {self.name!r}")

    return checked


HOOKS: Mapping[str, Returns] = {
    "transform": Returns((Graph,)),
    "import_": Returns((CompiledSubgraph,)),
    "identity": Returns((Mapping,), str, (str, int, float, NoneType)),
    "meaning": Returns((Mapping,), str),
    "metrics": Returns((Mapping,), str),
    "misfit": Returns((str, NoneType)),
    "why_not_here": Returns((str, NoneType)),
    "why_no_export": Returns((str, NoneType)),
    "may_cache": Returns((bool, np.bool_)),
    "stages": Returns((Iterable,)),
    "free_bytes": Returns((int, np.integer, NoneType)),
    "resource": Returns((str, NoneType)),
    **dict.fromkeys(("second_level", "tune", "any_size", "query", "supports"), Returns()),
}
"""The hooks of an accelerator whose errors name them here, with the types that they return. Callers of `compile` and `run` name
those."""


class Accelerator:
    """A device, or a library, that runs subgraphs. Derive from it, define what it supports, and register the class.

    The constructor raises AcceleratorUnavailable, with the reason, if the device cannot be used."""

    name: ClassVar[str] = ""
    """The device's name, as in "HETERO:name,cpu"."""

    config_keys: ClassVar[Mapping[str, Any]] = {}
    """Its configuration keys: each a `Key`, which checks its values, or a plain default, which permits any value. All devices
    have DEVICE_ID, PERF_COUNT, CACHE_DIR, ISOLATE and ISOLATE_SECONDS. A device that can compute in other precisions than the
    model's offers PRECISION by listing it here."""

    dynamic_shapes: ClassVar[bool] = True
    """True if `compile` accepts subgraphs with dynamic sizes. If not, it gets one for each size, when that size first occurs."""

    parallel_compile: ClassVar[bool] = True
    """True if `compile` may run on several threads at once."""

    appends_caches: ClassVar[bool] = False
    """True if it has a kernel for attention to a cache that is appended to (`cached_attention.py`). Then sessions copy none."""

    travels_as_body: ClassVar[bool] = False
    """True if a compiled subgraph needs only its ONNX body, since compiling it takes no longer than reading it."""

    reads_views: ClassVar[bool] = False
    """True if `import_` may get a writable view of the file's memory instead of bytes.

    This saves it a copy of the bytes."""

    last_resort: ClassVar[bool] = False
    """True if it runs nearly everything, and slowly. A call that another device supports in part is inlined instead."""

    compile_refuses: ClassVar[bool] = False
    """True if `compile` itself raises for each op that `supports` refuses. Else, if `transform` rewrites the graph, each subgraph
    is queried again after partitioning: nodes that `transform` merges may have been separated."""

    loses_nothing: ClassVar[bool] = False
    """True if `transform` drops only ops that it has computed or that other ops absorb. Else a chain of ops that vanishes, and
    that no other op can have absorbed, is not supported."""

    isolates_itself: ClassVar[bool] = False
    """True for a device that runs in its own process; others run in a child process under ISOLATE (`interface/isolation`)."""

    keeps_arrays: ClassVar[bool] = False
    """True if it has memory of its own for arrays (`to_device`), where its subgraphs leave outputs that are ON_DEVICE."""

    _supports_takes_config: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Finds out once if `supports` has a third argument. Wraps the class's own `query`, which then obeys ISOLATE, its
        `compile`, which gets a value for each key, and its hooks, whose errors then name them."""
        super().__init_subclass__(**options)
        if "query" in cls.__dict__:
            query = cls.__dict__["query"]
            cls.query = _where_it_is_asked_for(query if is_ours(cls) else _checked(query))  # type: ignore[method-assign]
        if "compile" in cls.__dict__:
            cls.compile = _completed(cls.__dict__["compile"])  # type: ignore[method-assign]
        names_hooks(cls, HOOKS, lambda self: f"device {self.name!r}")
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = [parameter for parameter in inspect.signature(cls.supports).parameters.values() if parameter.kind in kinds]
        cls._supports_takes_config = len(named) > len(("self", "node", "graph"))

    def __init__(self) -> None:
        self._config: dict[str, Any] = {name: key.default for name, key in self.keys().items()}

    # -- graphs ------------------------------------------------------------------------------------------

    def transform(self, graph: Graph) -> Graph:
        """The graph rewritten for the device (other ops, fused ops); unchanged by default."""
        return graph

    def stages(self, graph: Graph) -> Iterable[Graph]:
        """The graphs after each step of `transform`, the last being its result; `query` carries answers back from each to the
        one before.

        Yield more than one if a step removes nodes next to nodes that another step replaces."""
        return (self.transform(graph),)

    def any_size(self, graph: Graph, config: Mapping[str, Any], compile_static: CompileStatic) -> AnySize | str | None:
        """The graph with dynamic sizes, compiled once for all sizes, or the reason why not; None from a device without such
        kernels. Called if `dynamic_shapes` is False. It passes graphs to `compile_static`, which looks into the cache first."""
        return None

    def supports(self, node: Any, graph: Graph) -> bool | str:
        """True if the device runs this node of the (transformed) graph, else the reason why not.

        During a query with a user's configuration, `get_config` returns its values here, in `transform` and in `query`. A class
        may also define `supports(node, graph, config)`, whose config has a value for each key."""
        raise NotSupported(f"{type(self).__name__} does not define supports or query", remedy="Define supports(node, graph)")

    def says(self, node: Any, graph: Graph) -> object:
        """The answer of `supports` with the accelerator's own configuration."""
        supports: Callable[..., object] = self.supports
        return supports(node, graph, dict(self._config)) if self._supports_takes_config else supports(node, graph)

    @_where_it_is_asked_for
    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """For each op node of the graph, by its original name: True, or the reason why the device does not run it.

        Runs `transform` on a copy; an original node is supported if every node that it became is. An original node that
        became none is refused."""
        return query_through_transform(self, with_own_nodes(graph))

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """The (transformed) subgraph, ready to run. `config` has a value for each key: the caller's, else the accelerator's
        own."""
        raise NotSupported(f"{type(self).__name__} does not define compile", remedy="Define compile(graph, config)")

    def why_not_here(self, config: Mapping[str, Any]) -> str | None:
        """The reason why code compiled with this configuration cannot run on this machine; None if it can. Among several devices
        such a one is skipped."""
        return None

    def why_no_export(self) -> str | None:
        """The reason why its compiled code can be neither exported nor cached; None if it can."""
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Restores a subgraph from the bytes that `CompiledSubgraph.export` returned. `graph` is its body before `transform`, so
        that an import is quick: `self.configured(config).transform(graph)` returns what `compile` got.

        Arrays of `export_weights` are passed as a fourth argument. If the body was left out, `graph` is a single node between
        its inputs and outputs."""
        raise NotSupported(f"device {self.name!r} cannot import compiled subgraphs")

    def may_cache(self, graph: Graph) -> bool:
        """True if the compiled subgraph may be kept in the cache, from which `import_` reads it."""
        return False

    def identity(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """Everything that a compiled subgraph depends on besides its body and configuration: "library" and its version, the
        target, ..."""
        return {}

    def meaning(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration in canonical form, as part of the cache key: equivalent values become equal, and values covered by
        `identity` may be left out."""
        return config

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The reason why a subgraph that was compiled with this `identity` cannot run here, naming the differences; None if it
        can."""
        here = self.identity(config)
        differing = [key for key in {**identity, **here} if identity.get(key) != here.get(key)]
        differences = [f"{key} is {here.get(key) or 'none'} here, and was {identity.get(key) or 'none'}" for key in differing]
        return "; ".join(differences) or None

    def free_bytes(self, device_id: str | None) -> int | None:
        """The free bytes of the device's own memory; None if it works in the host's."""
        return None

    def resource(self, device_id: str | None) -> str | None:
        """The name of what the device's runs keep busy; None if these are the host's cores. Devices of one resource gain nothing
        from working at the same time."""
        return None if self.free_bytes(device_id) is None else f"{self.name}.{device_id or 0}"

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """Answers of `supports` that were found by trial and hold as long as `identity` is the same: they are kept on disk, and
        answers of other processes are added. None if there is nothing to keep."""
        return None

    def second_level(self, graph: Graph, config: Mapping[str, Any]) -> SecondLevel | None:
        """The kernels into which `compile` would fuse the ops of the subgraph, and the reasons for ops left apart; nothing is
        compiled. None if the device does not show it."""
        return None

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Measures variants of a subgraph's kernels until `time.monotonic()` reaches the deadline, and keeps the best for later
        compilations; calls `shown` with each finished kernel. By default there is nothing to tune."""

    def subgraph_property(self) -> SubgraphProperty:
        """The property of which this device's backend consists; HETERO uses its node hooks for the device's groups."""
        return DeviceProperty(self)

    def add_extension(self, extension: Any) -> None:
        """Adds a custom op to the device."""
        raise NotSupported(f"device {self.name!r} takes no extensions", remedy="Register the op with register_op for `reference`")

    # -- configuration and metrics -----------------------------------------------------------------------

    def keys(self) -> dict[str, Key]:
        """All its configuration keys, including those of every device."""
        return {**COMMON_KEYS, **declared(self.config_keys, COMMON_KEYS)}

    def set_config(self, values: Mapping[str, Any]) -> None:
        """Changes the accelerator's own configuration, or nothing if a value is invalid; a `KEY_` prefix is accepted."""
        self._config.update(self.checked_config(values))

    def get_config(self, key: str) -> Any:
        """The accelerator's own value for a key."""
        return self._config[self._known(key, self._config, "configuration key", self._offered())]

    def checked_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values under plain key names, as their keys parse them. An unknown key is an error that lists the known ones; an
        invalid value is one too."""
        keys = self.keys()
        if not isinstance(values, Mapping):
            cause = f"it is a dictionary by key, not {values!r:.80}"
            raise BadConfig(cause, where=f"config of device {self.name!r}", remedy='Write {"PERF_COUNT": True}')
        plain = {self._known(key, keys, "configuration key", self._offered()): value for key, value in values.items()}
        where = f"config of device {self.name!r}"
        checked = {name: keys[name].read(name, value, where) for name, value in plain.items()}
        if "DEVICE_ID" in checked:
            self.check_device_id(checked["DEVICE_ID"])
        if "PRECISION" in checked:
            at = {"DEVICE_ID": checked["DEVICE_ID"]} if "DEVICE_ID" in checked else {}
            self._check_precision(checked["PRECISION"], at, where)
        return checked

    def check_device_id(self, device_id: str) -> None:
        """Raises BadConfig, listing the valid ids, if it is not among AVAILABLE_DEVICES. A device without metrics of its own has
        declared none."""
        silent = type(self).metrics is Accelerator.metrics or "AVAILABLE_DEVICES" not in self._metric_list("SUPPORTED_METRICS")
        if silent or device_id == str(self.keys()["DEVICE_ID"].default):
            return
        known = [str(known) for known in self._metric_list("AVAILABLE_DEVICES")]
        Key("0", one_of(*known)).read("DEVICE_ID", device_id, f"device {self.name!r}")

    def _check_precision(self, precision: str, at: Mapping[str, Any], where: str) -> None:
        """Raises unless the device supports the precision and offers PRECISION. f32 is always valid; values of its own, such as
        "fast", are checked by the device."""
        if precision == "f32" or precision not in PRECISIONS:
            return
        able = self._metric_list("OPTIMIZATION_CAPABILITIES", at)
        if PRECISIONS[precision] not in able:
            raise NotSupported(
                f"the device cannot compute in {precision}",
                where=where,
                remedy=f"Its capabilities are {', '.join(able)}; leave PRECISION at f32, or choose another device",
            )
        if "PRECISION" not in self._offered():
            raise NotSupported(
                f"the device does not compute in {precision}: it computes in the types of the model",
                where=where,
                remedy=f"Leave PRECISION at f32, and give it a model in {precision}, or choose another device",
            )

    def _metric_list(self, metric: str, at: Mapping[str, Any] | None = None) -> list[Any]:
        """A metric that is a list."""
        return list(self.get_metric(metric, at) if at else self.get_metric(metric))

    def full_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A value for every key: the given ones, else the accelerator's own."""
        return {**self._config, **self.checked_config(values)}

    def configured(self, values: Mapping[str, Any]) -> Self:
        """A copy of the accelerator with these values, as `full_config` returns them, as its own configuration. The accelerator
        itself, if nothing differs. The copy shares everything else."""
        own = {**self._config, **values}
        with suppress(ValueError):  # arrays among the values cannot be compared this way
            if own == self._config:
                return self
        configured = copy.copy(self)
        configured._config = own
        return configured

    def to_device(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        """A copy of the array in the device's memory, where its models read and write it."""
        raise NotSupported(
            f"device {self.name!r} takes arrays of the host alone", where="to_device", remedy="Give its models the array itself"
        )

    def get_metric(self, key: str, config: Mapping[str, Any] | None = None) -> Any:
        """The value of a metric: AVAILABLE_DEVICES, FULL_DEVICE_NAME, SUPPORTED_METRICS, SUPPORTED_CONFIG_KEYS,
        OPTIMIZATION_CAPABILITIES, or one of the device's own. `config` selects, for example, another DEVICE_ID."""
        metrics = dict(self.configured(self.checked_config(config or {})).metrics())
        metrics.setdefault("SUPPORTED_CONFIG_KEYS", self._offered())
        metrics.setdefault("SUPPORTED_METRICS", sorted([*metrics, "SUPPORTED_METRICS"]))
        return metrics[self._known(key, metrics, "metric", sorted(metrics), ("METRIC_KEY_", "METRIC_"))]

    def metrics(self) -> dict[str, Any]:
        """The values of the metrics; a plugin adds its own."""
        return {"AVAILABLE_DEVICES": ["0"], "FULL_DEVICE_NAME": self.name, "OPTIMIZATION_CAPABILITIES": ["FP32"]}

    def labelled(self, part: str) -> Mapping[str, Any]:
        """The values of keys for which the part of a label after its first dot stands. A configuration may replace all but
        DEVICE_ID."""
        return {"DEVICE_ID": part}

    def beneath(self) -> Sequence[tuple[str, bool, str]]:
        """Further devices, which `devices` lists: each with its name, which follows its accelerator's and a dot, and True and its
        description, or False and the reason why it cannot be used."""
        return ()

    def _offered(self) -> list[str]:
        """The keys that have an effect here: PRECISION only if the device lists it."""
        return sorted(name for name, key in self.keys().items() if key is not COMMON_KEYS["PRECISION"])

    def _known(
        self, key: str, known: Mapping[str, Any], what: str, listed: Sequence[str], prefixes: tuple[str, ...] = ("KEY_",)
    ) -> str:
        """The key without its prefix; an unknown key is an error that lists the known ones."""
        for prefix in ("", *prefixes) if isinstance(key, str) else ():
            if key.startswith(prefix) and key.removeprefix(prefix) in known:
                return key.removeprefix(prefix)
        raise UnknownKey(
            f"device {self.name!r} has no {what} {key!r}",
            remedy=f"{meant_key(str(key), listed) or ''} It has {', '.join(listed)}".strip(),
        )


PRECISIONS = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
"""The values of PRECISION, each with the capability that a device must list."""

COMMON_KEYS = {
    "DEVICE_ID": Key("0", text),
    "PERF_COUNT": Key(False, flag),
    "PRECISION": Key("f32", one_of(*PRECISIONS)),
    "CACHE_DIR": Key(None, cache_folder, names_files=True),
    "ISOLATE": Key(False, flag, names_files=True),
    "ISOLATE_SECONDS": Key(60.0, seconds, names_files=True),
}
