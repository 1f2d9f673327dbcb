"""Defines what an accelerator is: the class that a plugin derives from, and the class that its `compile` returns."""

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
from partita.accelerators.errors import BadConfig, NotSupported, UnknownKey, is_ours, names_hooks
from partita.accelerators.interface.compile_story import CompileStory, KernelWork
from partita.accelerators.interface.keys import Key, cache_folder, declared, flag, one_of, seconds, text
from partita.accelerators.interface.second_level import SecondLevel
from partita.accelerators.interface.turns import Turn
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.partition.property import SubgraphProperty

COPY = "Copy"
"""The layer type of a copy between the host and a device."""


@attrs.frozen(slots=True)
class ProfileRow:
    """The time of one node (or of one fused kernel, or of a copy) in a run."""

    node: str
    """The node's name; of a fused kernel the first node's; of a copy "input 0", "output 1" and so on, as the body counts them."""
    layer_type: str
    """Its op; COPY for a copy."""
    status: str
    """EXECUTED, NOT_RUN or OPTIMIZED_OUT."""
    real_us: float
    """Microseconds on the clock."""
    cpu_us: float
    """Microseconds of processor time."""
    exec_type: str
    """The name of the kernel or the implementation that ran it."""
    types: str = ""
    """The element types of what it read and stored, where the device tells them."""


@attrs.frozen(slots=True)
class TunedKernel:
    """The result of tuning one kernel."""

    kernel: str
    """Its name."""
    before_us: float
    """Microseconds as it was."""
    after_us: float
    """Microseconds as it is now."""
    tried: int
    """How many variants were measured."""
    choices: Mapping[str, str]
    """The variant that replaced the earlier choice; empty if that choice is the best."""


class CompiledSubgraph:
    """One body, ready to run on its device. The executor calls `run` from one thread at a time unless `concurrent` is set."""

    memory: str = "host"
    """The memory that its arrays are in: "host" means numpy arrays; anything else needs `upload` and `download`."""
    alignment: int = 1
    """The executor copies host arrays whose address is no multiple of this, or that are not C-contiguous; where it is more than
    16, those that are read-only too."""
    concurrent: bool = False
    """May several threads call `run` at once?"""
    overlaps: bool = False
    """Does its device work on its own, so that a run may be asked for part by part, in a `turn`?"""
    notes: Sequence[str] = ()
    """What the compile report tells of it, such as the precision that the device chose."""
    work: Sequence[KernelWork] = ()
    """What each kernel took to compile, where the device tells."""
    story: CompileStory | None = None
    """Why it was compiled, and where the time went; None where that is not known."""

    def __init_subclass__(cls, **options: Any) -> None:
        """The errors of the class's hooks name them."""
        super().__init_subclass__(**options)
        names_hooks(cls, _HOOKS_OF_SUBGRAPHS, lambda self: type(self).__name__)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The body's outputs for these inputs, both in the body's order.

        `out` holds for each output an array to write to, or None; the array returned is the one that counts. No later run may
        write to it, and none to the inputs. Dtypes and sizes are those that the body states. On a device that `keeps_arrays`
        an output may be asked for ON_DEVICE: in a new array in the device's memory."""
        raise NotSupported(f"{type(self).__name__} does not define run", remedy="Define run(inputs, out=None)")

    def turn(self, waits: bool = True) -> Turn | None:
        """The next turn to run it; None if another caller has its turn and that is not to be waited for."""
        raise NotSupported(f"{type(self).__name__} does not define turn", remedy="Define it, or leave overlaps at False")

    def takes(self, array: DeviceArray) -> bool:
        """May `run` be given this array on a device, to read as an input or to write an output to? False: it gets host arrays."""
        return False

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """The host array in this device's memory."""
        return array

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """The device's value as a host array."""
        return value

    def profile_rows(self) -> Sequence[ProfileRow]:
        """The rows of the last run, where the device was compiled with PERF_COUNT; empty if it cannot tell."""
        return ()

    def another(self) -> CompiledSubgraph | None:
        """The same compiled code once more, to run at the same time as this; None if runs of it take turns."""
        return None

    def measured(self) -> CompiledSubgraph | None:
        """The same compiled code once more, which tells its rows after each run as with PERF_COUNT; None if the device has to
        compile the subgraph for that."""
        return None

    def let_go(self) -> None:
        """Free the memory that its runs have left: the model is closed, or other sizes are kept. Should it run again, it takes
        that anew."""

    def kernels(self) -> Sequence[Any]:
        """The kernels, to look at; empty if the device does not show them."""
        return ()

    def export(self) -> bytes:
        """The compiled form, to be read back by the accelerator's `import_`."""
        remedy = "Define export(), and import_ of its accelerator; or set the accelerator's travels_as_body"
        raise NotSupported(f"{type(self).__name__} cannot be exported", remedy=remedy)

    def export_weights(self) -> Sequence[np.ndarray[Any, Any]]:
        """The arrays that belong to it and that `export` leaves out: they travel and are cached apart, equal ones once."""
        return ()

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        """Give its nodes other names than when it was compiled, for the names in profiles."""


_HOOKS_OF_SUBGRAPHS: Mapping[str, tuple[type, ...]] = {
    "export": (bytes, bytearray, memoryview), "export_weights": (list, tuple), "profile_rows": (list, tuple, NoneType),
    "measured": (CompiledSubgraph, NoneType), "another": (CompiledSubgraph, NoneType), "let_go": (), "rename_nodes": (),
    "kernels": (list, tuple),
}
"""Those of a compiled subgraph."""


class AnySize(ABC):
    """A subgraph with dynamic sizes that is compiled once for all of them."""

    compiled: CompiledSubgraph
    """The kernels, which read host arrays."""
    notes: Sequence[str] = ()
    """What the compile report tells of the sizes that the kernels take."""

    @abstractmethod
    def given(self, shapes: tuple[tuple[int, ...], ...], inputs: Sequence[Any]) -> Sequence[Any] | None:
        """What the kernels read in a call with inputs of these sizes; None where they do not take them."""

    def is_empty(self, shapes: tuple[tuple[int, ...], ...]) -> bool:
        """True where a dimension of these sizes is 0, and little is to be computed beside it."""
        return False


Query = Callable[[Any, Graph], Mapping[str, bool | str]]

CompileStatic = Callable[[Graph], CompiledSubgraph]
"""Compiles a graph, or finds it in the cache."""


def _completed(compile: Callable[[Any, Graph, Mapping[str, Any]], CompiledSubgraph]) -> Any:
    """The method, which is given a value for each key: whoever calls it may name a few."""

    @functools.wraps(compile)
    def completed(self: Accelerator, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        full = config if self._config.keys() <= config.keys() else self.full_config(config)
        handed = [graph]
        del graph  # The method alone holds it, and may drop its weights.
        return compile(self, handed.pop(), full)

    return completed


def _where_it_is_asked_for(query: Query) -> Query:
    """The method, which a child process runs if the device's own configuration says ISOLATE."""

    @functools.wraps(query)
    def asked(self: Accelerator, graph: Graph) -> Mapping[str, bool | str]:
        # upward: who asks directly is answered so too
        from partita.accelerators.isolation import in_its_place

        device = in_its_place(self, self._config)
        return query(self, graph) if device is self else device.query(graph)

    return asked


def _checked(query: Query) -> Query:
    """The method of a plugin, whose answers are what they have to be."""

    @functools.wraps(query)
    def checked(self: Accelerator, graph: Graph) -> Mapping[str, bool | str]:
        from partita.accelerators.interface.query import checked_answers

        return checked_answers(query(self, graph), graph, f"query of device {self.name!r}")

    return checked


_HOOKS: Mapping[str, tuple[type, ...]] = {
    "transform": (Graph,), "import_": (CompiledSubgraph,), "identity": (Mapping,), "meaning": (Mapping,), "metrics": (Mapping,),
    "misfit": (str, NoneType), "why_not_here": (str, NoneType), "why_no_export": (str, NoneType), "may_cache": (bool, np.bool_),
    "second_level": (), "tune": (), "any_size": (), "query": (), "supports": (), "stages": (Iterable,),
}
"""The hooks whose errors name them here, with what they return; those of `compile` and `run` are named where these are called."""


class Accelerator:
    """A device, or a library, that runs subgraphs. Derive from it, say what you support, and register the class.

    The constructor raises AcceleratorUnavailable, with the reason, where the device cannot be used."""

    name: ClassVar[str] = ""
    """The device's name, as in "HETERO:name,cpu"."""

    config_keys: ClassVar[Mapping[str, Any]] = {}
    """The configuration keys that it knows: each a `Key`, which says what its values may be, or a plain default, for which any
    value will do. All devices know DEVICE_ID, PERF_COUNT, CACHE_DIR, ISOLATE and ISOLATE_SECONDS. A device that computes in other
    precisions than the model's own offers PRECISION by naming it here."""

    dynamic_shapes: ClassVar[bool] = True
    """Does `compile` take subgraphs whose sizes are not known? If not, it gets one for each size, when that size first comes."""

    parallel_compile: ClassVar[bool] = True
    """May `compile` run on several threads at once?"""

    appends_caches: ClassVar[bool] = False
    """Has it a kernel for attention to a cache that is appended to (`cached_attention.py`)? Then sessions copy none."""

    travels_as_body: ClassVar[bool] = False
    """Is the ONNX body all that a compiled subgraph needs, since compiling it takes no longer than reading it?"""

    reads_views: ClassVar[bool] = False
    """May `import_` get a view of the file's memory, to which it may write, instead of bytes?

    It need not copy the bytes then.
    """

    last_resort: ClassVar[bool] = False
    """Does it run nearly everything, and slowly? A call that another device takes in part is inlined rather than given to it."""

    compile_refuses: ClassVar[bool] = False
    """Does `compile` itself raise for each op that `supports` refuses? Else, where `transform` rewrites the graph, a subgraph is
    asked about once more as it was cut: what `transform` merges may have been cut apart."""

    loses_nothing: ClassVar[bool] = False
    """True if `transform` leaves out no op but those that it has computed, or that other ops take in. Else a chain of ops that
    vanishes, and that no other op can have taken in, is not supported."""

    isolates_itself: ClassVar[bool] = False
    """True for a device that isolates itself; others run in a child process under ISOLATE (`accelerators/isolation`)."""

    keeps_arrays: ClassVar[bool] = False
    """Has it memory of its own that arrays are put into (`to_device`), and in which its subgraphs leave outputs ON_DEVICE?"""

    _supports_takes_config: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Find out once if `supports` has a third argument; a `query` of the class's own obeys ISOLATE too, its
        `compile` is given a value for each key, and the errors of its hooks name them."""
        super().__init_subclass__(**options)
        if "query" in cls.__dict__:
            query = cls.__dict__["query"]
            cls.query = _where_it_is_asked_for(query if is_ours(cls) else _checked(query))  # type: ignore[method-assign]
        if "compile" in cls.__dict__:
            cls.compile = _completed(cls.__dict__["compile"])  # type: ignore[method-assign]
        names_hooks(cls, _HOOKS, lambda self: f"device {self.name!r}")
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = [parameter for parameter in inspect.signature(cls.supports).parameters.values() if parameter.kind in kinds]
        cls._supports_takes_config = len(named) > len(("self", "node", "graph"))

    def __init__(self) -> None:
        self._config: dict[str, Any] = {name: key.default for name, key in self.keys().items()}

    # -- graphs ------------------------------------------------------------------------------------------

    def transform(self, graph: Graph) -> Graph:
        """The graph made friendlier to the device (other ops, fused ops); by default as it is."""
        return graph

    def stages(self, graph: Graph) -> Iterable[Graph]:
        """The graphs that `transform` makes step by step, of which the last is its result; `query` goes back from each
        to the one before.

        Say more than one where a step removes nodes next to nodes that another step replaces.
        """
        return (self.transform(graph),)

    def any_size(self, graph: Graph, config: Mapping[str, Any], compile_static: CompileStatic) -> AnySize | str | None:
        """The graph, which has dynamic sizes, compiled once for all of them, or in words why not; None from a device that has no
        such kernels. It is asked where `dynamic_shapes` is False, and hands what it compiles to `compile_static`, which looks
        into the cache first."""
        return None

    def supports(self, node: Any, graph: Graph) -> bool | str:
        """True if the device runs this node of the (transformed) graph, else the reason why not.

        While a user's configuration is asked about, `get_config` tells its values here, in `transform` and in `query`. A class
        may also define `supports(node, graph, config)`: it is given a value for each key."""
        raise NotSupported(f"{type(self).__name__} does not define supports or query", remedy="Define supports(node, graph)")

    def says(self, node: Any, graph: Graph) -> object:
        """The answer of `supports` under the accelerator's own configuration."""
        supports: Callable[..., object] = self.supports
        return supports(node, graph, dict(self._config)) if self._supports_takes_config else supports(node, graph)

    @_where_it_is_asked_for
    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """For each op node of the graph, by its original name: True, or the reason why the device does not run it.

        Runs `transform` on a copy; an original node is supported if every node that came of it is. An original node of
        which no new node came is refused.
        """
        from partita.accelerators.interface.query import query_through_transform, with_own_nodes

        return query_through_transform(self, with_own_nodes(graph))

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """The (transformed) subgraph, ready to run. `config` holds a value for each key: what the caller gave, else the
        accelerator's own."""
        raise NotSupported(f"{type(self).__name__} does not define compile", remedy="Define compile(graph, config)")

    def why_not_here(self, config: Mapping[str, Any]) -> str | None:
        """Why what is compiled with this configuration cannot run on this machine; None if it can. Among several devices such a
        one is passed over."""
        return None

    def why_no_export(self) -> str | None:
        """Why what it compiles here can be neither exported nor cached, though it runs; None if it can. It is asked before a
        compilation whose only purpose is the file."""
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Make the bytes that `CompiledSubgraph.export` returned ready to run again; `graph` is its body, for its
        types.

        If `export_weights` gave arrays, they come as a fourth argument. The body may have been left behind: then `graph` is one
        node between its inputs and outputs."""
        raise NotSupported(f"device {self.name!r} cannot import compiled subgraphs")

    def may_cache(self, graph: Graph) -> bool:
        """May what `compile` makes of this subgraph be kept in the cache of compiled subgraphs, to be read by `import_`?"""
        return False

    def identity(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """The things that a compiled subgraph depends on beside its body and configuration: "library" and its version,
        the target, ...
        """
        return {}

    def meaning(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration by what it means to compiled code: two ways to write the same come to the same, and what `identity`
        tells may be left out. It is part of the key in the cache."""
        return config

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """Why a subgraph that was compiled with this `identity` cannot run here, in words that say what differs; None
        if it can.
        """
        here = self.identity(config)
        differing = [key for key in {**identity, **here} if identity.get(key) != here.get(key)]
        differences = [f"{key} is {here.get(key) or 'none'} here, and was {identity.get(key) or 'none'}" for key in differing]
        return "; ".join(differences) or None

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """Answers of `supports` that were found by trying and hold for as long as `identity` is the same: they are kept on disk,
        and the answers of other processes are added. None if there is nothing to keep."""
        return None

    def second_level(self, graph: Graph, config: Mapping[str, Any]) -> SecondLevel | None:
        """How `compile` would fuse the ops of the subgraph, and what it leaves apart and why; nothing is compiled. None if the
        device does not show it."""
        return None

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Find out by measuring how the kernels of a subgraph are best made, until `time.monotonic()` reaches the deadline, and
        keep it for later compilations; `shown` is called with each kernel that is done. The default: there is no choice."""

    def subgraph_property(self) -> SubgraphProperty:
        """The property whose node hooks HETERO uses for this device's groups, and that its backend consists of."""
        from partita.accelerators.interface.device_property import DeviceProperty

        return DeviceProperty(self)

    def add_extension(self, extension: Any) -> None:
        """Teach the device a custom op."""
        raise NotSupported(f"device {self.name!r} takes no extensions", remedy="Register the op with register_op for `reference`")

    # -- configuration and metrics -----------------------------------------------------------------------

    def keys(self) -> dict[str, Key]:
        """All its configuration keys, with those that every device has."""
        return {**_COMMON_KEYS, **declared(self.config_keys, _COMMON_KEYS)}

    def set_config(self, values: Mapping[str, Any]) -> None:
        """Change the accelerator's own configuration, or nothing of it where a value is wrong; a `KEY_` prefix is accepted."""
        self._config.update(self.checked_config(values))

    def get_config(self, key: str) -> Any:
        """The accelerator's own value for a key."""
        return self._config[self._known(key, self._config, "configuration key", self._offered())]

    def checked_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values under plain key names, each as the device reads it. An unknown key is an error that lists the known ones;
        a value that its key cannot have is one too."""
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
        """BadConfig, listing those that there are, if it is not among AVAILABLE_DEVICES. A device without metrics of its own has
        not said which there are."""
        silent = type(self).metrics is Accelerator.metrics or "AVAILABLE_DEVICES" not in self._metric_list("SUPPORTED_METRICS")
        if silent or device_id == str(self.keys()["DEVICE_ID"].default):
            return
        known = [str(known) for known in self._metric_list("AVAILABLE_DEVICES")]
        Key("0", one_of(*known)).read("DEVICE_ID", device_id, f"device {self.name!r}")

    def _check_precision(self, precision: str, at: Mapping[str, Any], where: str) -> None:
        """The device has to be capable of any other precision than f32, and to offer the choice; values of its own, such as
        "fast", it knows itself."""
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
        """A value for every key: the given ones over the accelerator's own."""
        return {**self._config, **self.checked_config(values)}

    def configured(self, values: Mapping[str, Any]) -> Self:
        """A copy of the accelerator with these values, as `full_config` returns them, in place of its own: its `get_config` tells
        them. The accelerator itself, if nothing differs. The copy shares all else that the accelerator holds."""
        own = {**self._config, **values}
        with suppress(ValueError):  # Arrays among the values cannot be compared so.
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
        OPTIMIZATION_CAPABILITIES, or one of the device's own; as it is with `config`, such as another DEVICE_ID."""
        metrics = dict(self.configured(self.checked_config(config or {})).metrics())
        metrics.setdefault("SUPPORTED_CONFIG_KEYS", self._offered())
        metrics.setdefault("SUPPORTED_METRICS", sorted([*metrics, "SUPPORTED_METRICS"]))
        return metrics[self._known(key, metrics, "metric", sorted(metrics), ("METRIC_KEY_", "METRIC_"))]

    def metrics(self) -> dict[str, Any]:
        """The values of the metrics; a plugin adds its own."""
        return {"AVAILABLE_DEVICES": ["0"], "FULL_DEVICE_NAME": self.name, "OPTIMIZATION_CAPABILITIES": ["FP32"]}

    def _offered(self) -> list[str]:
        """The keys that do something here: PRECISION only where the device says so."""
        return sorted(name for name, key in self.keys().items() if key is not _COMMON_KEYS["PRECISION"])

    def _known(
        self, key: str, known: Mapping[str, Any], what: str, listed: Sequence[str], prefixes: tuple[str, ...] = ("KEY_",)
    ) -> str:
        """The key without its prefix; one that is not known is an error with the list."""
        for prefix in ("", *prefixes) if isinstance(key, str) else ():
            if key.startswith(prefix) and key.removeprefix(prefix) in known:
                return key.removeprefix(prefix)
        raise UnknownKey(
            f"device {self.name!r} has no {what} {key!r}",
            remedy=f"{did_you_mean(str(key), listed) or ''} It has {', '.join(listed)}".strip(),
        )


PRECISIONS = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
"""The values of PRECISION, each with the capability that a device must list."""

_COMMON_KEYS = {
    "DEVICE_ID": Key("0", text),
    "PERF_COUNT": Key(False, flag),
    "PRECISION": Key("f32", one_of(*PRECISIONS)),
    "CACHE_DIR": Key(None, cache_folder, names_files=True),
    "ISOLATE": Key(False, flag, names_files=True),
    "ISOLATE_SECONDS": Key(60.0, seconds, names_files=True),
}
