"""Work of the engines' devices before and after an engine runs, with imitated engines: which files go to onnxruntime
unread, which integers are small, the models of subgraphs, profiles, ports, options, devices of providers and their differences.

`python -m tests.accelerators.devices.kept_engines` writes the file that `test_kept_engines.py` compares with anew."""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from onnx import ModelProto, TensorProto, helper

import partita as pt
from partita.accelerators.engines import model as models
from partita.accelerators.engines.model import Aside, EngineModel, engine_model, model_from_bytes
from partita.accelerators.engines.onnxruntime import plugins, session
from partita.accelerators.engines.onnxruntime.device import OnnxRuntimeAccelerator
from partita.accelerators.engines.onnxruntime.guarding import guard
from partita.accelerators.engines.onnxruntime.session_options import quiet_options, set_running
from partita.accelerators.engines.onnxruntime.session_options import reason as reason_of_onnxruntime
from partita.accelerators.engines.onnxruntime.taking import why_not
from partita.accelerators.engines.onnxruntime.whole_session import WholeSession
from partita.accelerators.engines.openvino import requests
from partita.accelerators.engines.openvino.device import OpenVinoAccelerator, _turned
from partita.accelerators.engines.openvino.profile import Times, owners_of_layers, rows_of
from partita.accelerators.engines.openvino.requests import reason as reason_of_openvino
from partita.accelerators.engines.probing import PROBED, found_nothing
from partita.accelerators.engines.trials import Trials, unknown_input
from partita.accelerators.interface.accelerator import Accelerator
from tests.accelerators.devices.engine_files import cut, file, free, least, small
from tests.kept import lines_of, sum_of, told, write_kept

KEPT = Path(__file__).with_name("kept_engines.txt")

COUNTS = {
    "file": 60, "cut": 12, "small": 60, "least": 50, "model": 40, "ports": 40, "layers": 30, "run": 30, "whole": 40,
    "guarded": 30, "providers": 40, "taken": 40, "options": 8, "trials": 12, "devices": 20, "reasons": 1, "read": 20,
}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]


# -- models of engines ---------------------------------------------------------------------------------

def _following(rng: random.Random, y: Any, x: Any, n: Any) -> Any:
    """An op after another, whose constants are small or large."""
    image = pt.op("Unsqueeze", y, pt.constant(np.array([0])))
    return rng.choice((
        lambda: pt.op("MatMul", y, pt.constant(np.eye(4, dtype=np.float32))), lambda: pt.op("Neg", y),
        lambda: pt.op("MatMul", y, pt.constant(np.ones((4, 400), np.float32)[:, :4])), lambda: pt.op("ReduceMean", y, keepdims=1),
        lambda: pt.op("MaxPool", image, kernel_shape=[2], pads=[1, 1]), lambda: pt.op("GlobalMaxPool", image),
        lambda: pt.op("Add", y, pt.constant(np.arange(4, dtype=np.float32)[None])), lambda: pt.op("Gather", y, n),
        lambda: pt.op("Where", pt.op("Greater", y, x), y, x),
        lambda: pt.op("Add", y, pt.constant(np.ones((1024, 4), np.float32))),
    ))()


def drawn_graph(rng: random.Random) -> pt.Graph:
    """A graph with constants of several sizes and types, a body, and ops that are probed."""
    x, n = pt.variable("x", "float32", ("n", 4)), pt.variable("n", "int64", (1,))
    y: Any = pt.op("Mul", x, pt.constant(np.full(4, 0.5, np.float32)), name="a.b")
    for _ in range(rng.randint(1, 3)):
        y = _following(rng, y, x, n)
    graph = pt.Graph([y, *[x] * (rng.random() < 0.1)], [x, n], "drawn", opsets={"": rng.choice((13, 17, 21))})
    return pt.apply_pass(graph, "InferShape", verify=False, strict=False)


def _read_again(data: bytes, graph: pt.Graph) -> str:
    read = model_from_bytes(data, graph)
    return f"{read.inputs} {read.outputs} {read.probes} {len(read.nodes)}"


def model(rng: random.Random) -> Iterator[str]:
    """The model of a subgraph, its names, its bytes, and what is read from these."""
    graph = drawn_graph(rng)
    newest = rng.choice(({}, {"": 13}, {"": 18}))
    try:
        made = engine_model(graph, newest, rng.choice(((), PROBED)))
    except pt.PartitaError as error:
        yield str(error)
        return
    proto = made.proto
    yield f"{[f'{node.name} {node.op_type} {list(node.input)} {list(node.output)}' for node in proto.graph.node]}"
    yield f"{made.inputs} {made.outputs} {made.probes} {[one.version for one in proto.opset_import]}"
    yield f"{[(name, array.shape) for name, array in made.weights.items()]} {[tensor.name for tensor in proto.graph.initializer]}"
    yield str([dim.dim_param for item in proto.graph.value_info for dim in item.type.tensor_type.shape.dim])
    names = ("n0", "v0", "y0", "n1", "n99", "n0_x", "n0/x", "n00", "xn0", "v1 more", "n")
    yield str([node and node.name for node in map(made.node_of, names)])
    yield made.in_own_words("n0 and n1, n9 and xn0: n01")
    data = made.complete()
    other = ModelProto.FromString(data)
    yield sum_of(re.sub(r"producer_version: .*|ir_version: .*", "", str(other)))
    change = rng.randrange(7)
    if change == 1:
        other.graph.input[0].name = "q"
    elif change == 2:
        other.graph.output.add().name = rng.choice(("z0", "z1"))
    elif change == 3:
        other.graph.output.append(helper.make_tensor_value_info("z0", rng.choice((1, 7)), [2]))
    elif change == 4:
        other.graph.initializer.add(name="far", data_location=1)
    elif change == 5:
        other.graph.initializer.add(name="far").external_data.add(key="location", value="f")
    changed = other.SerializeToString() if change != 6 else data[: len(data) // 2] + b"\xff"
    yield f"{change} {told(_read_again, changed, graph)}"
    with tempfile.TemporaryDirectory() as folder:
        path = made.write(Path(folder))
        files = sorted(one.name for one in Path(folder).iterdir())
        yield f"{files} {sum_of(Path(folder, models.LOCATION).read_bytes())} {path.name}"
    aside = Aside()
    arrays = [np.zeros(rng.choice((15, 16, 17, 33)), np.float32) for _ in range(3)]
    yield str([aside.add(array) for array in (*arrays, arrays[0])])
    yield str(_turned(graph))[-300:]
    yield str([found_nothing(sizes) for sizes in ([], [np.array([2, 0])], [np.array([1]), np.array([2])], [np.array([0])])])


class Port:
    """An input or output of an engine, or a connection of two layers."""

    def __init__(self, name: str, shape: Any = (2,), dynamic: bool = False, others: Sequence[Any] = ()) -> None:
        self.name, self.shape, self.others, self.names = name, shape, others, {name}
        self.partial_shape = SimpleNamespace(is_dynamic=dynamic)

    def get_node(self) -> Any:
        return SimpleNamespace(get_friendly_name=lambda: self.name)

    def get_target_inputs(self) -> Sequence[Any]:
        return self.others

    def get_source_output(self) -> Any:
        return self


def ports(rng: random.Random) -> Iterator[str]:
    """The numbers of inputs by their names, the outputs that are bound, and arrays that may be."""
    count = rng.randint(1, 4)
    names = [f"x{i}" for i in range(count)]
    rng.shuffle(names)
    names = [name if rng.random() < 0.8 else rng.choice(("p3", "x", "xy", "y1")) for name in names[: rng.randint(1, count)]]
    yield f"{names} {count} " + told(requests._numbers, [Port(name) for name in names], count)
    kind = pt.TensorType(rng.choice(("float32", "uint8")), (2,))
    for size in (16383, 16384, 65535, 65536):
        yield f"{kind.dtype} {size} {requests._large_static(Port('y', (size,)), kind)}"
    yield str([requests._large_static(Port("y", (65536,), True), kind), requests._large_static(Port("y", (65536,)), None)])
    raw = np.zeros(4096, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    for offset in (0, 32, 64, 68):
        array = raw[start + offset : start + offset + 96].view(np.float32).reshape(4, 6)
        array.setflags(write=rng.random() < 0.7)
        asked = rng.choice((((4, 6), np.dtype("f4")), ((4, 6), np.dtype("i4")), ((6, 4), np.dtype("f4"))))
        yield f"{offset} {array.flags.writeable} {asked} {requests._fits(rng.choice((array, array, array.T)), *asked)}"
    made = requests.aligned((3, 5), np.dtype("f4"), boundary := rng.choice((16, 64, 256)))
    yield f"{made.shape} {made.dtype} {made.ctypes.data % boundary}"
    yield str([requests._plain(np.zeros(1, code)).dtype.str for code in "lqLQfbi"])


class Engine:
    """Requests that add one to their inputs."""

    def __init__(self, sizes: Sequence[int], probes: int, fails: bool) -> None:
        self.inputs = [Port("x0")]
        self.outputs = [Port(f"y{i}", (size,)) for i, size in enumerate(sizes)] + [Port(f"z{i}", (1,)) for i in range(probes)]
        self.sizes, self.probes, self.fails = sizes, probes, fails
        self.set: list[str] = []

    def Tensor(self, array: Any, shared_memory: bool) -> Any:
        return SimpleNamespace(data=array, shared=shared_memory)

    def create_infer_request(self) -> Engine:
        self.made: dict[int, Any] = {}
        self.bound: dict[int, Any] = {}
        self.set.append("request")
        return self

    def set_input_tensor(self, number: int, tensor: Any) -> None:
        self.set.append(f"in {number} {tensor.shared}")
        self.given = tensor.data

    def set_output_tensor(self, number: int, tensor: Any) -> None:
        self.set.append(f"out {number} {tensor.shared}")
        self.bound[number] = tensor.data

    def infer(self) -> None:
        if self.fails:
            raise RuntimeError("Check 'it' failed\nthe op n0 is wrong")
        for i, size in enumerate(self.sizes):
            self.made[i] = np.full(size, self.given.reshape(-1)[0] + 1 + i, np.float32)
            if i in self.bound:
                self.bound[i][...] = self.made[i]
        for i in range(self.probes):
            self.made[len(self.sizes) + i] = np.array([2 - i])

    def get_output_tensor(self, number: int) -> Any:
        return SimpleNamespace(data=self.bound.get(number, self.made[number]))

    def get_property(self, name: str) -> str:
        return "1"

    @property
    def profiling_info(self) -> Sequence[Any]:
        return [info("n0", "EXECUTED", 5.0, 4.0)]

    def get_runtime_model(self) -> Any:
        return SimpleNamespace(get_ordered_ops=list)


def info(name: str, status: str, real: float, cpu: float) -> Any:
    return SimpleNamespace(node_name=name, node_type="Kind", status=f"Status.{status}", exec_type="kernel",
                           real_time=timedelta(microseconds=real), cpu_time=timedelta(microseconds=cpu))


def run(rng: random.Random) -> Iterator[str]:
    """Runs of imitated requests: what is set, which arrays come back, and rows."""
    sizes = [rng.choice((4, 16384, 16385)) for _ in range(rng.randint(1, 2))]
    x = pt.variable("x", "float32", (2,))
    types = [pt.TensorType("float32", (size,)) for size in sizes]
    outputs = [pt.op("Relu", x, name=f"op{i}").evolve(output_types=(kind,)) for i, kind in enumerate(types)]
    graph = pt.Graph(outputs, [x], "body")
    probes = rng.choice((0, 0, 1, 2))
    engine = Engine(sizes if rng.random() < 0.9 else [], probes, rng.random() < 0.15)
    made = EngineModel(None, {}, ("x0",), tuple(f"y{i}" for i in range(len(sizes))), tuple(outputs))
    try:
        compiled = requests.CompiledRequests(engine, engine, made, graph, rng.random() < 0.5, lambda: b"own")
    except pt.PartitaError as error:
        yield str(error)
        return
    yield f"{compiled.export()!r} {len(compiled.profile_rows())}"
    given = np.ones(2, np.float32)
    for _ in range(3):
        outs: Any = [rng.choice((None, requests.aligned((size,), np.dtype("f4")), np.zeros(3, "f4"))) for size in sizes]
        given = rng.choice((given, given, given + 1))
        engine.set.clear()
        try:
            results = compiled.run([given], rng.choice((None, outs)))
            same = [any(result is out for out in outs) for result in results]
            yield f"{engine.set} {[(result.shape, float(result.reshape(-1)[0])) for result in results]} {same}"
        except pt.PartitaError as error:
            yield str(error)
    yield str(compiled.profile_rows())


class Layer:
    """A layer of a compiled model."""

    def __init__(self, name: str, made_of: str | None, reads: Sequence[str], readers: Sequence[str]) -> None:
        self.name, self.made_of, self.reads, self.readers = name, made_of, reads, readers

    def get_friendly_name(self) -> str:
        return self.name

    def get_rt_info(self) -> Mapping[str, Any]:
        return {} if self.made_of is None else {"originalLayersNames": SimpleNamespace(value=self.made_of)}

    def outputs(self) -> Sequence[Any]:
        return [Port(self.name, others=[Port(reader) for reader in self.readers])]

    def inputs(self) -> Sequence[Any]:
        return [Port(read) for read in self.reads]


def layers(rng: random.Random) -> Iterator[str]:
    """The nodes of layers, and the rows of a profile of several runs."""
    x = pt.variable("x", "float32", (2,))
    nodes: list[Any] = [pt.op("Relu", x, name="first")]
    nodes += [pt.op("Neg", nodes[0], name="second")]
    graph = pt.Graph([nodes[1]], [x], "body")
    made = engine_model(pt.apply_pass(graph, "InferShape"), {})
    names = ["x0", "n0", "n1", "y0", "reorder", "convert", "n0.part", "extra"]
    rng.shuffle(names)
    chain = names[: rng.randint(3, 7)]
    listed = [
        Layer(name, rng.choice((None, "n0,n1", "n1", "nothing", "")), chain[max(0, i - 1) : i], chain[i + 1 : i + 2])
        for i, name in enumerate(chain)
    ]
    compiled = SimpleNamespace(get_runtime_model=lambda: SimpleNamespace(get_ordered_ops=lambda: listed))
    owners = owners_of_layers(compiled, made, graph)
    yield f"{chain} {sorted((name, node.name) for name, node in owners.items())}"
    times, total = Times(), {name: [0.0, 0.0] for name in chain}
    for number in range(rng.choice((1, 2, 3, 16, 17, 18, 19))):
        for name in chain:
            for i in (0, 1):
                total[name][i] += rng.randint(1, 9) * 100.0
        infos = [info(name, rng.choice(("EXECUTED", "EXECUTED", "NOT_RUN", "OPTIMIZED_OUT")),
                      *(round(sums / (number + 1)) for sums in total[name])) for name in chain[: rng.randint(1, 9)]]
        times = times.after(infos)
        if number in (0, 1, 2, 15, 16, 17, 18):
            rows = rows_of(infos, times, owners, rng.choice((made, made, EngineModel(None, {}, (), (), ()))))
            yield str([(row.node, row.layer_type, row.status, round(row.real_us, 3), round(row.cpu_us, 3)) for row in rows])


# -- onnxruntime ---------------------------------------------------------------------------------------

def whole(rng: random.Random) -> Iterator[str]:
    """Calls of a session for a whole file, and which of them it answers."""
    kinds = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(double)", "tensor(float16)")
    shapes: Any = ((2, 3), ("n", 3), (None, 3), (), ("n",), ("n", "n"))

    def item(name: str) -> Any:
        kind = rng.choice(kinds) if rng.random() > 0.03 else "tensor(string)"
        return SimpleNamespace(name=name, type=kind, shape=rng.choice(shapes))

    inputs = [item(name) for name in ("a", "b")[: rng.randint(1, 2)]]
    outputs = [item(name) for name in rng.choice((("y",), ("y", "z"), ("y", "y")))]

    def array(item: Any, wrong: float = 0.15) -> Any:
        sizes = {"n": rng.choice((3, 3, 3, 2)), None: 3}
        shape = [sizes.get(dim, dim) for dim in item.shape]
        dtype = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(bool)": "?", "tensor(double)": "f8"}.get(item.type, "f2")
        made = np.zeros(shape, dtype)
        if rng.random() < wrong:
            made = rng.choice((
                made.T[..., None], made.astype("u1"), made[None][:0], made.reshape(-1), made.tolist(), np.float32(1),
            ))
        elif rng.random() < 0.1 and made.ndim == 2:
            raw = np.zeros(made.nbytes + 72, "u1")
            start = -raw.__array_interface__["data"][0] % 16
            made = raw[start + 8 : start + 8 + made.nbytes].view(dtype).reshape(shape)
        return made

    def answer(_: Any, given: Any) -> Any:
        if rng.random() < 0.1:
            raise RuntimeError("it fails")
        return [array(one, 0.05) for one in outputs]

    try:
        one = WholeSession(SimpleNamespace(get_inputs=lambda: inputs, get_outputs=lambda: outputs, run=answer))
    except KeyError as error:
        yield str(error)
        return
    for _ in range(6):
        arrays = [array(item) for item in inputs]
        named = dict(zip("ab", arrays))
        args, keywords = rng.choice((
            (arrays, {}), ([], named), ([named], {}), ([named], {"a": arrays[0]}), (arrays[:1], dict(list(named.items())[1:])),
            ([*arrays, arrays[0]], {}), ([], {**named, "c": arrays[0]}),
            ([dict(list(named.items())[:1])], dict(list(named.items())[1:])),
        ))
        found = one.outputs(args, keywords)
        yield f"{len(args)} {[*keywords]} {None if found is None else [(value.dtype, value.shape) for value in found]}"
    one.close()
    yield str((one._session, len(one._inside)))


def guarded(rng: random.Random) -> Iterator[str]:
    """A model whose TopK, Compress and left out outputs are guarded."""
    nodes = []
    for number in range(rng.randint(1, 3)):
        op, inputs, options = rng.choice((
            ("TopK", ["x", "k"], {}), ("TopK", ["x", "c"], {}), ("TopK", ["x", "w"], {}), ("TopK", ["x"], {"k": 2}),
            ("Compress", ["x", "flags"], {}), ("Compress", ["x", "flags"], {"axis": 0}), ("Split", ["x"], {"num_outputs": 3}),
            ("Split", ["x"], {}), ("BatchNormalization", ["x"] * 5, {"training_mode": 1}), ("BatchNormalization", ["x"] * 5, {}),
            ("GroupQueryAttention", ["x", "x", "x", "past"], {}), ("GroupQueryAttention", ["x", "x", "x", ""], {}),
            ("GroupQueryAttention", ["x", "x", "x"], {}), ("Relu", ["x"], {"num_outputs": 3}),
        ))
        outputs = [name if rng.random() < 0.7 else "" for name in (f"a{number}", f"b{number}")[: rng.randint(1, 2)]]
        name = rng.choice((f"node{number}", "")) if outputs[0] else f"node{number}"
        nodes.append(helper.make_node(op, inputs, outputs, name, domain=rng.choice(("", "", "", "mine")), **options))  # type: ignore[arg-type]
    constant = helper.make_node("Constant", [], ["c"], "c", value=helper.make_tensor("", 7, [1], [2]))
    if rng.random() < 0.3:
        bodies = {"then_branch": helper.make_graph(nodes, "then", [], []), "else_branch": helper.make_graph([], "else", [], [])}
        nodes = [helper.make_node("If", ["flags"], ["r"], "if", **bodies)]  # type: ignore[arg-type]
    weight = helper.make_tensor("w", TensorProto.INT64, [1], [2])
    proto = helper.make_model(helper.make_graph([constant, *nodes], "g", [], [], [weight]))
    guard(proto)
    yield str(re.sub(r"\s+", " ", str(proto.graph.node)))


class Offered:
    """A device that a provider offers."""

    def __init__(self, ep_name: str, ep_vendor: str, ep_metadata: Mapping[str, str], device: Any, number: int) -> None:
        self.ep_name, self.ep_vendor, self.ep_metadata, self.device, self.number = ep_name, ep_vendor, ep_metadata, device, number

    def __repr__(self) -> str:
        return f"{self.ep_name} {self.number}"


def provider(rng: random.Random, number: int) -> Any:
    name = rng.choice(("MineEP", "MineEP", "OtherEP", "CPUExecutionProvider"))
    data = {"version": "1.2"} if rng.random() < 0.7 else {}
    if name != "CPUExecutionProvider":
        data["library_path"] = "/there/mine.so" if name == "MineEP" else "/there/other.so"
    device = SimpleNamespace(type=f"HW.{rng.choice(('CPU', 'GPU', 'NPU'))}", vendor=rng.choice(("Some", "Else")))
    return Offered(name, "Vendor", data, device, number)


def providers(rng: random.Random) -> Iterator[str]:
    """The devices of providers in libraries, and why there is none."""
    known = [provider(rng, number) for number in range(rng.randint(0, 4))]
    registered: list[tuple[str, str]] = []

    def register(name: str, library: str) -> None:
        registered.append((name, library))
        if rng.random() < 0.3:
            raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : no such file")

    engine = SimpleNamespace(get_ep_devices=lambda: known, register_execution_provider_library=register)
    library = rng.choice((None, "/there/mine.so", "/there/third.so"))
    with mock.patch.object(plugins, "_registered", set[str]()), mock.patch.object(plugins, "_failures", dict[str, str]()), \
            mock.patch.object(plugins.metadata, "distributions", lambda: [
                SimpleNamespace(metadata={"Name": name}) for name in ("onnxruntime_EP_third", "numpy", "onnxruntime-ep-mine")]):
        one = plugins.Provider(rng.choice(("MineEP", "OtherEP", "ThirdEP")), library, rng.choice(("0", "1", "GPU", "NPU")), ())
        for _ in range(2):
            yield told(one.devices, engine)
        yield f"{registered} {sorted(plugins._registered)} {plugins._failures} {[plugins.is_registered(each) for each in known]}"
        yield str([*plugins.listed(engine)])
    config = {
        "EP_NAME": rng.choice((None, "MineEP")), "EP_LIBRARY": rng.choice((None, "/there/mine.so")),
        "EP_PACKAGE": rng.choice((None, "json", "nothing_of_that_name")), "EP_DEVICE": "0",
        "EP_OPTIONS": rng.choice(({}, {"level": 3})),
    }
    yield told(plugins.check_together, config, "here")
    yield told(plugins.provider_of, config)
    for value in (None, "a.b", "a-b", "", 3, "1a", Path("x"), "/there/mine.so"):
        yield f"{value!r} {told(plugins.package_name, value)} {told(plugins.library_path, value)}".replace(os.getcwd(), "")


def taken(rng: random.Random) -> Iterator[str]:
    """The differences of nodes that a provider does not take from those that it takes."""
    def drawn() -> Any:
        kind = pt.TensorType(rng.choice(("float32", "float16")), rng.choice(((2, 3), ("n", 3), (2,), None)))
        x = pt.variable("x", type=kind) if rng.random() < 0.8 else pt.constant(np.ones(2, "f"))
        domain = rng.choice(("", "", "", "", "mine", "com.microsoft"))
        op = rng.choice(("Relu", "Relu", "Elu", "Softmax", "Gelu", "Inverse"))
        options = {"axis": rng.choice((1, 2))} if rng.random() < 0.4 else {}
        return free(op, x, *[None] * (rng.random() < 0.1), domain=domain, **options)

    others = [drawn() for _ in range(rng.randint(0, 4))]
    for _ in range(3):
        yield why_not(drawn(), others, "MineEP")


def options(rng: random.Random) -> Iterator[str]:
    """The options of sessions."""
    entries: list[Any] = []

    def made() -> Any:
        return SimpleNamespace(add_session_config_entry=lambda *entry: entries.append(entry))

    levels = SimpleNamespace(**{f"ORT_{name}": name for name in ("ENABLE_ALL", "ENABLE_EXTENDED", "ENABLE_BASIC", "DISABLE_ALL")})
    modes = SimpleNamespace(ORT_PARALLEL="both")
    engine = SimpleNamespace(SessionOptions=made, GraphOptimizationLevel=levels, ExecutionMode=modes)
    for shares in (False, True):
        one = quiet_options(engine, shares_threads=shares)
        level, threads, between = rng.choice(("all", "extended", "basic", "off")), rng.choice((None, 0, 3)), rng.choice((1, 2))
        set_running(one, engine, level=level, threads=threads, between=between, spinning=rng.random() < 0.5)
        del one.add_session_config_entry
        yield f"{level} {threads} {between} {vars(one)} {entries}"


def trials(rng: random.Random) -> Iterator[str]:
    """The nodes that an engine is asked about, and their inputs."""
    asked: list[str] = []

    def attempt(alone: pt.Graph) -> bool | str:
        (node,) = [node for node in alone.nodes if node.is_op]
        constant = [None if entry is None else entry.node.is_constant for entry in node.inputs]
        asked.append(f"{[(one.name, str(one[0].type)) for one in alone.inputs]} {constant}")
        return rng.choice((True, "no"))

    one = Trials(attempt, rng.choice((256, 512)))
    names = ("x",)
    for _ in range(10):
        x = pt.variable(rng.choice(names), rng.choice(("float32", "int8")), rng.choice(((2, 3), (4, 3), ("n", 3), (2,))))
        w = pt.constant(np.full(rng.choice((2, 64, 65, 127, 128, 129)), rng.choice((0.5, 1.5)), np.float32))
        text = pt.constant(np.array(rng.choice((["a"], ["b"] * 99)), object))
        others, attributes = rng.choice(([w], [w], [None, w], [], [text])), rng.choice(({}, {"a": 1}, {"a": np.ones(2)}))
        node = free(rng.choice(("Add", "Mul")), x, *others, **attributes)
        answer = one.answer(node, pt.Graph([node], opsets={"": rng.choice((17, 18))}))
        yield f"{answer} {len(one.known)} {asked}"
        asked.clear()
    with mock.patch("partita.accelerators.engines.trials.LIMIT", 2):
        small = Trials(lambda alone: True)
        for number in range(4):
            node = pt.op("Relu", pt.variable("x", "float32", (2,) * number))
            small.answer(node, pt.Graph([node]))
            yield str(len(small.known))
    kinds = (None, pt.TensorType("float32"), pt.SequenceType(pt.TensorType("float32")), pt.SequenceType(None),  # type: ignore[arg-type]
             pt.SequenceType(pt.SequenceType(pt.TensorType("int8"))))
    yield str([unknown_input(pt.op("Relu", pt.variable("x", type=kind))) for kind in kinds])


def devices(rng: random.Random) -> Iterator[str]:
    """The devices that onnxruntime and openvino list, and ids that are theirs."""
    one: Any = OnnxRuntimeAccelerator.__new__(OnnxRuntimeAccelerator)
    known = [provider(rng, number) for number in range(rng.randint(0, 4))]
    names = rng.sample(("CPUExecutionProvider", "MineEP", "AzureExecutionProvider", "FarEP"), rng.randint(1, 3))
    listed: dict[str, Any] = {"get_ep_devices": lambda: known} if rng.random() < 0.8 else {}
    one._engine = SimpleNamespace(get_available_providers=lambda: names, __version__="1.2", **listed)
    with mock.patch.object(plugins, "_registered", {"/there/mine.so"} if rng.random() < 0.5 else set()):
        yield f"{one._device_ids()} {[sorted(one._counted(of_plugins=every).items()) for every in (True, False)]}"
        with mock.patch.object(Accelerator, "check_device_id", lambda self, number: Path(f"/nowhere/{number}").stat()):
            yield str([told(one.check_device_id, number) for number in ("0", "1", "2", "x")])
    for value in ("CPUExecutionProvider", "FarEP", ["MineEP", "CPUExecutionProvider"], ("x",), 3):
        yield told(one._provider, value)
    config = {"PROVIDER": rng.choice(("MineEP", ["MineEP", "CPUExecutionProvider"], "CPUExecutionProvider")),
              "PROVIDER_OPTIONS": rng.choice(({}, {"a": 1}, {"device_id": "7"})), "DEVICE_ID": rng.choice(("0", "1"))}
    yield f"{config} {one._providers(config)} {one.labelled('MineEP')} {one.labelled('3')}"
    other: Any = OpenVinoAccelerator.__new__(OpenVinoAccelerator)
    other._core = SimpleNamespace(
        available_devices=rng.sample(("CPU", "GPU", "GPU.0", "GPU.1", "NPU"), rng.randint(1, 4)),
        get_property=lambda device, name: rng.choice((["DYNAMIC_QUANTIZATION_GROUP_SIZE"], [])),
    )
    yield f"{other._core.available_devices} {[other._own_name(name) for name in ('CPU', 'GPU', 'GPU.0', 'GPU.1', 'NPU.0', 'X')]}"
    config = {"PRECISION": "f32", "PERFORMANCE_HINT": "LATENCY", "PERF_COUNT": False, "DEVICE_ID": "CPU",
              "NUM_THREADS": rng.choice((0, 3)), "NUM_STREAMS": rng.choice((0, 2)),
              "CACHE_DIR": rng.choice((None, "", "off", "NONE", "here", True)),
              "PROPERTIES": rng.choice(({}, {"NUM_STREAMS": "9"}))}
    yield str(other._properties(config))


def reasons(rng: random.Random) -> Iterator[str]:
    """Errors of engines in one line."""
    for text in ("[ONNXRuntimeError] : 1 : FAIL : no\n  such : op", "[ONNXRuntimeError] : 1", "plain : text\nin two", ""):
        yield reason_of_onnxruntime(RuntimeError(text))
    for text in ("Exception from src/a.cpp:3:\nCheck 'x' failed at y:\nit is wrong\n\n", "Summary\n", "one\ntwo"):
        yield reason_of_openvino(RuntimeError(text))


def read(rng: random.Random) -> Iterator[str]:
    """The rows of profiles that onnxruntime wrote, the optimizers that are disabled, and types that are not numpy's."""
    given = [pt.variable(name, "float32", (2,)) for name in "xy"]
    nodes = [pt.op("Relu", given[0], name="first"), pt.op("Neg", given[1], name="second")]
    graph = pt.apply_pass(pt.Graph(nodes, name="g"), "InferShape")
    made = engine_model(graph, {})
    events: list[dict[str, Any]] = [{"name": "session_initialization", "ts": 0, "dur": 5}]
    for number in range(rng.randint(0, 3)):
        start = 100 * number
        events.append({"name": "model_run", "ts": start, "dur": 50})
        for name in ("n0", "n1", "extra"):
            at = start + rng.choice((-1, 0, 1, 49, 50, 51))
            ending = rng.choice(("_kernel_time", "_kernel_time", "_before"))
            events.append({"cat": rng.choice(("Node", "Node", "Api")), "name": f"{name}{ending}", "ts": at,
                           "dur": number + 2, "args": rng.choice(({}, {"provider": "Mine", "op_name": "Relu"}))})
    events.append({"ts": 3})
    rng.shuffle(events[1:])
    yield str([str(row) for row in session._rows_of_last_run(json.dumps(events), made)])
    kind = rng.choice(("uint8", "int8", "int32"))
    x = pt.variable("x", kind, (2, 4))
    scale = pt.constant(np.float32(0.5))
    moved: Any = pt.op("DequantizeLinear", x, scale, *([pt.constant(np.array(0, kind))] if rng.random() < 0.5 else []))
    for _ in range(rng.randint(0, 2)):
        moved = free(rng.choice(("Identity", "Cast", "Relu", "Transpose", "Reshape", "Add", "MaxPool")), moved, name=f"m{_}")
    body = pt.Graph([moved], name="b")
    yield f"{kind} {[node.op for node in body.nodes]} {session._wrong_optimizers(body)}"
    names = (None, "float32", "bfloat16", "int4", "float8_e4m3fn", "string", "bool", "float16")
    yield str([session._is_narrow(one) for one in (*names, *map(np.dtype, ("U3", "f8", "c8", "V2", "O")))])
    targets = [None, np.zeros(2**18 - 1, "f4"), np.zeros(2**18, "f4"), np.zeros((512, 1024), "f4").T, np.zeros(2**17, object)]
    fixed = np.zeros(2**18, "f4")
    fixed.setflags(write=False)
    yield str([session._takes(target) for target in (*targets, fixed)])


KINDS: Mapping[str, Callable[[random.Random], Iterator[str]]] = {
    "file": file, "cut": cut, "small": small, "least": least, "model": model, "ports": ports, "layers": layers, "run": run,
    "whole": whole, "guarded": guarded, "providers": providers, "taken": taken, "options": options, "trials": trials,
    "devices": devices, "reasons": reasons, "read": read,
}


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    return lines_of(KINDS, "engines", subject)


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
