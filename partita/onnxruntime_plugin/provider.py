"""The execution provider: what onnxruntime calls, as Python objects.

onnxruntime holds the addresses of C structures. Each belongs to a `Factory` (one per registration), a `Provider` (one per
session) or a `Compute` (one per fused subgraph), found by that address. The library's functions jump to the callbacks at the end
of this file. An exception becomes a status with its message."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import attrs

from partita import __version__
from partita.accelerators.compiling import compile as compiled
from partita.accelerators.engines.onnxruntime.taking import asking
from partita.accelerators.placement.placing import query
from partita.accelerators.process.exit_barrier import at_a_device
from partita.graph.errors import PartitaError
from partita.graph.formatting import counted, error_in_words
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.node import Node
from partita.graph.ops.schemas import spec_of
from partita.onnxruntime_plugin import context
from partita.onnxruntime_plugin.api import COMPUTE, CPU, FACTORY, FAILED, PROVIDER, Api, FusionOptions, structure
from partita.onnxruntime_plugin.api import VERSION as API_VERSION
from partita.onnxruntime_plugin.compute import Compute
from partita.onnxruntime_plugin.library import NAME, VENDOR, VERSION, Library
from partita.onnxruntime_plugin.options import ProviderOptions
from partita.onnxruntime_plugin.read_graph import CONTEXT, GraphReader, ReadGraph
from partita.partition import ContainOpSelector, SubgraphProperty, SubgraphSelector, plan

MOST_QUERIES = 4
"""The number of times that the subgraphs are planned anew because a device refuses a node of one of them by itself."""


@attrs.frozen(eq=False)
class Plugin:
    """A library, and what the providers that it makes run on."""

    name: str
    """The provider's name in onnxruntime."""
    options: ProviderOptions
    """Devices and configuration, which a session's own options override."""
    library: Library = attrs.field(factory=Library)
    """The library; registering it calls `create`."""

    def __attrs_post_init__(self) -> None:
        create = _callback(self._create, c_char_p, _P, _P, _PP, c_size_t, POINTER(c_size_t))
        _create_callbacks.append(create)
        self.library.connect({"CreateEpFactories": _address(create), **_callbacks()})

    def _create(self, name: bytes, base: int, log: int, factories: Any, room: int, count: Any) -> int:
        """CreateEpFactories: one factory."""
        try:
            api = Api(base)
        except PartitaError as error:
            return _old_status(base, str(error))
        try:
            self.library.connect({}, api.create_status)
            factories[0], count[0] = Factory(self, api).address, 1
        except BaseException as error:  # noqa: BLE001  no exception may enter onnxruntime
            return _status(api, error)
        return 0


class Factory:
    """OrtEpFactory: makes a provider for each session."""

    def __init__(self, plugin: Plugin, api: Api) -> None:
        self.plugin = plugin
        self.api = api
        self._texts = [ctypes.create_string_buffer(text.encode()) for text in (plugin.name, "Partita", __version__)]
        self.texts = {
            offset: ctypes.addressof(text) for offset, text in zip((NAME, VENDOR, VERSION), self._texts, strict=True)
        }
        """The addresses of the provider's name, vendor and version, by their offsets."""
        self._memory = structure(FACTORY, plugin.library.functions, self.texts)
        self.address = _kept(self, self._memory)
        """The address of its structure."""

    def devices(self, devices: Any, count: int, found: Any, room: int, number: Any) -> None:
        """GetSupportedDevices: the first processor, since Partita's devices exchange arrays in its memory."""
        number[0] = 0
        hardware = next((one for one in devices[:count] if self.api.HardwareDevice_Type(one) == CPU), None)
        if hardware is not None and room > 0:
            metadata = c_void_p()
            self.api.CreateKeyValuePairs(byref(metadata))
            try:
                self.api.AddKeyValuePair(metadata, b"devices", self.plugin.options.devices.encode())
                device = c_void_p()
                self.api.CreateEpDevice(self.address, hardware, metadata, None, byref(device))
            finally:
                self.api.ReleaseKeyValuePairs(metadata)
            found[0], number[0] = device.value, 1

    def create_provider(self, devices: int, metadata: int, count: int, options: int, log: int, created: Any) -> None:
        """CreateEp: a provider with the options of its session."""
        pairs = c_void_p()
        self.api.GetSessionOptionsConfigEntries(options, byref(pairs))
        try:
            entries = self.api.pairs(pairs.value or 0)
        finally:
            self.api.ReleaseKeyValuePairs(pairs)
        created[0] = Provider(self, entries).address

    def validate(self, devices: int, count: int, info: bytes, answer: Any) -> None:
        """ValidateCompiledModelCompatibilityInfo."""
        answer[0] = context.compatibility((info or b"").decode(errors="replace"), self.plugin.options)


class Provider:
    """OrtEp: chooses and compiles the subgraphs of one session."""

    def __init__(self, factory: Factory, entries: Mapping[str, str]) -> None:
        self.factory = factory
        self.api = factory.api
        self.name = factory.plugin.name
        """Its name in onnxruntime."""
        self.options = factory.plugin.options.of_session(self.name, entries)
        self.writes_context = entries.get("ep.context_enable") == "1"
        """True if the session writes a model of compiled subgraphs."""
        self._told = asking.reasons
        self._info = ctypes.create_string_buffer(b"")
        self._memory = structure(PROVIDER, factory.plugin.library.functions, factory.texts)
        self.address = _kept(self, self._memory)
        """The address of its structure."""

    # -- choosing --------------------------------------------------------------------------------------------

    def capability(self, graph: int, info: int) -> None:
        """GetCapability: the subgraphs of a graph, or of a body whose node is not taken as a whole."""
        reader = GraphReader(self.api, keeps=False)
        parent = self.api.pointer("Graph_GetParentNode", graph)
        if parent and self._stays(reader, parent, reader.opsets(graph)):
            return
        read = reader.read(graph)
        for node in read.nodes.values():
            if self._holds_ours(reader, node):
                self._fuse(info, [node])
        chosen = self._chosen(read)
        for names in chosen:
            self._fuse(info, [read.nodes[name] for name in names])
        for name, reason in self._reasons.items():
            logger("onnxruntime").debug("%s stays with onnxruntime: %s", name, reason)
            if self._told is not None and name in read.nodes:
                self._told.setdefault(self.name, {})[reader.name(read.nodes[name])] = reason
        counts = sum(map(len, chosen)), counted(len(read.nodes), "op"), counted(len(chosen), "subgraph")
        logger("onnxruntime").info("%s: %s takes %d of %s in %s", read.graph.name, self.name, *counts)

    def _stays(self, reader: GraphReader, node: int, opsets: Mapping[str, int]) -> bool:
        """True if the bodies of a node stay as they are: a device runs it with them, or onnxruntime replaces it by its function,
        as a SequenceMap, and would not know a fused node in there."""
        domain, op = reader.op(node)
        spec = spec_of(op, domain, opsets.get(domain, 1))
        return spec is None or spec.has_function or bool(self._supported(reader.read_node(node, opsets)))

    def _holds_ours(self, reader: GraphReader, node: int) -> bool:
        if reader.op(node) != CONTEXT or self.api.text("Node_GetEpName", node):
            return False
        source = next((reader.raw(one) for one in reader.attributes(node) if one.name == "source" and one.kind == "STRING"), b"")
        return source == context.SOURCE

    def _supported(self, read: ReadGraph) -> set[str]:
        """The names of the ops that some device runs. The reasons for the others are kept."""
        placement = query(read.graph, self.options.devices, config=self.options.config, partial=True)
        self._reasons = {**_joined(placement.unsupported), **read.refused}
        return {name for name in placement if name in read.nodes and name not in read.refused and not placement.is_refused(name)}

    def _chosen(self, read: ReadGraph) -> list[tuple[str, ...]]:
        """The ops of each subgraph: convex, and without a cycle over all of them."""
        names = self._supported(read)
        for _ in range(MOST_QUERIES):
            planned = plan(read.graph, subgraph_property=_Named(names))
            partitioned = planned.apply(read.graph)
            refused: dict[str, str] = {}
            for group in planned.groups:
                refused.update(self._refused_alone(partitioned, group.name))
            if not refused:
                return [group.nodes for group in planned.groups]
            names -= {*refused}
            self._reasons.update({name: f"in its subgraph {reason}" for name, reason in refused.items()})
        self._reasons.update(dict.fromkeys(names, f"in {MOST_QUERIES} plans a device refused some op of a subgraph"))
        return []

    def _refused_alone(self, partitioned: Graph, name: str) -> dict[str, str]:
        """The ops that no device runs in their subgraph as it stands alone, with the reasons."""
        body = partitioned[name].subgraph
        assert body is not None
        placement = query(body, self.options.devices, config=self.options.config, partial=True)
        return _joined(placement.unsupported)

    def _fuse(self, info: int, nodes: Sequence[int]) -> None:
        options = FusionOptions(API_VERSION, True)
        self.api.EpGraphSupportInfo_AddNodesToFuse(info, (c_void_p * len(nodes))(*nodes), len(nodes), byref(options))

    # -- compiling -------------------------------------------------------------------------------------------

    def compile(self, graphs: Any, fused: Any, count: int, computes: Any, contexts: Any) -> None:
        """Compile: a model for each fused subgraph."""
        reader = GraphReader(self.api, keeps=True)
        for i in range(count):
            if self._told is not None:
                computes[i] = Unbuilt(self.api, self.factory.plugin.library).address
                continue
            compute = self._compute(reader, graphs[i], fused[i])
            computes[i] = compute.address = _kept(compute, compute.memory)
            if self.writes_context and contexts:
                contexts[i] = context.node_of(self.api, compute.model, reader, fused[i], self.options.key)

    def _compute(self, reader: GraphReader, graph: int, fused: int) -> Compute:
        api, memory = self.api, structure(COMPUTE, self.factory.plugin.library.functions)
        inputs, outputs = (reader.value_names(what, fused) for what in ("Node_GetInputs", "Node_GetOutputs"))
        node, *more = api.pointers("Graph_GetNodes", graph)
        if node and not more and reader.op(node) == CONTEXT:
            model = context.model_in(reader, node, self.options)
            context.check_types(reader, node, model)
            read, written = (reader.value_names(what, node) for what in ("Node_GetInputs", "Node_GetOutputs"))
            return Compute(api, model, memory, [inputs.index(name) for name in read], [written.index(name) for name in outputs])
        given, asked = ([value for value in api.pointers(what, fused) if value] for what in ("Node_GetInputs", "Node_GetOutputs"))
        body = reader.read(graph, reader.name(fused), given, asked).graph
        model = compiled(body, self.options.devices, self.options.config)
        return Compute(api, model, memory, range(len(given)), range(len(asked)))

    def compatibility(self, graph: int) -> int:
        """GetCompiledModelCompatibilityInfo: a text, which onnxruntime copies."""
        self._info = ctypes.create_string_buffer(context.information(self.options).encode())
        return ctypes.addressof(self._info)

    def release_computes(self, computes: Any, count: int) -> None:
        """ReleaseNodeComputeInfos."""
        for address in computes[:count]:
            compute = _objects.pop(address, None)
            if isinstance(compute, Compute):
                compute.model.close()


class Unbuilt:
    """OrtNodeComputeInfo in a session that is only asked."""

    def __init__(self, api: Api, library: Library) -> None:
        self.api = api
        self._memory = structure(COMPUTE, library.functions)
        self.address = _kept(self, self._memory)
        """The address of its structure."""

    def run(self, context: int) -> None:
        """Compute: an error."""
        raise PartitaError("the session was made to be asked only", where="provider of Partita's", remedy="Make another session")


def _joined(refusals: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The reasons of all devices in one text, by node."""
    return {
        name: "; ".join(f"{device}: {why}" for device, why in of_devices.items()) for name, of_devices in refusals.items()
    }


class _Named(SubgraphProperty):
    """Groups the nodes with these names."""

    name = "fused"

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def create_subgraph_selector(self) -> SubgraphSelector:
        names = self._names

        def has_name(node: Node) -> bool:
            return node.name in names

        return ContainOpSelector(has_name)


# -- callbacks ---------------------------------------------------------------------------------------------

_objects: dict[int, Any] = {}
"""The objects that onnxruntime holds, by the addresses of their structures."""

# A session may outlive this module while the interpreter ends, and still reads its structures.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_objects))


def _kept(owner: Any, memory: Any) -> int:
    """The address of an object's structure; the object is kept until onnxruntime releases it."""
    address = ctypes.addressof(memory)
    _objects[address] = owner
    return address


def _status(api: Api, error: BaseException) -> int:
    """A status with the text of an error. An interrupt reaches the program too, once onnxruntime has returned."""
    text = str(error) if isinstance(error, PartitaError) else error_in_words(error)
    return api.status(text) | isinstance(error, KeyboardInterrupt)


def _old_status(base: int, message: str) -> int:
    """A status of an onnxruntime whose API is too old for `Api`."""
    get_api = ctypes.PYFUNCTYPE(c_void_p, ctypes.c_uint32)(c_void_p.from_address(base).value or 0)
    create = ctypes.PYFUNCTYPE(c_void_p, c_int, c_char_p)(c_void_p.from_address(get_api(1)).value or 0)
    return int(create(FAILED, message.encode()))


def _callback(function: Any, *arguments: Any) -> Any:
    """A callback that writes the status of a function with these arguments; see `library.py`."""
    spare = (c_void_p,) * (7 - len(arguments))
    count = len(arguments)

    def call(*given: Any) -> None:
        given[7][0] = function(*given[:count])

    return ctypes.CFUNCTYPE(None, *arguments, *spare, POINTER(ctypes.c_int64))(call)


def _with_status(method: str, *arguments: Any) -> Any:
    """A callback for a method of the object at the first argument, whose exceptions become a status."""

    def run(address: int, *given: Any) -> int:
        subject = _objects[address]
        try:
            with at_a_device():
                getattr(subject, method)(*given)
        except BaseException as error:  # noqa: BLE001  no exception may enter onnxruntime
            return _status(subject.api, error)
        return 0

    return _callback(run, c_void_p, *arguments)


def _release(address: int, released: int) -> None:
    _objects.pop(released, None)


def _release_factory(address: int) -> None:
    _objects.pop(address, None)


def _release_computes(address: int, computes: Any, count: int) -> None:
    _objects[address].release_computes(computes, count)


def _compute(address: int, state: int, call: int, a: int, b: int, c: int, d: int, status: Any) -> None:
    subject = _objects[address]
    try:
        subject.run(call)
        status[0] = 0
    except BaseException as error:  # noqa: BLE001  no exception may enter onnxruntime
        status[0] = _status(subject.api, error)


def _compatibility(address: int, graph: int) -> int:
    try:
        return int(_objects[address].compatibility(graph))
    except BaseException as error:  # noqa: BLE001  no exception may enter onnxruntime, which takes no status here
        logger("onnxruntime").warning("the model says nothing of what it depends on: %s", error_in_words(error))
        return 0


_P, _PP = c_void_p, POINTER(c_void_p)

_create_callbacks: list[Any] = []
"""The callbacks of all plugins, which stay until the process ends."""

_SHARED: Mapping[str, Any] = {
    "devices": _with_status("devices", _PP, c_size_t, _PP, c_size_t, POINTER(c_size_t)),
    "create_provider": _with_status("create_provider", _P, _P, c_size_t, _P, _P, _PP),
    "validate": _with_status("validate", _P, c_size_t, c_char_p, POINTER(c_int)),
    "capability": _with_status("capability", _P, _P),
    "compile": _with_status("compile", _PP, _PP, c_size_t, _PP, _PP),
    "compute": ctypes.CFUNCTYPE(None, _P, _P, _P, _P, _P, _P, _P, POINTER(ctypes.c_int64))(_compute),
    "release_provider": ctypes.CFUNCTYPE(None, _P, _P)(_release),
    "ReleaseEpFactory": ctypes.CFUNCTYPE(_P, _P)(_release_factory),
    "release_computes": ctypes.CFUNCTYPE(None, _P, _PP, c_size_t)(_release_computes),
    "compatibility": ctypes.CFUNCTYPE(_P, _P, _P)(_compatibility),
}
"""The callbacks that all libraries share."""


def _address(callback: Any) -> int:
    return int(ctypes.cast(callback, c_void_p).value or 0)


def _callbacks() -> dict[str, int]:
    return {name: _address(callback) for name, callback in _SHARED.items()}
