"""Names that users of other runtimes type from habit, with Partita's own for them: what the remedies of errors suggest."""

from __future__ import annotations

from collections.abc import Collection

from partita.graph.errors import did_you_mean

DEVICES: dict[str, tuple[str, ...]] = {
    "gpu": ("cuda", "opencl"), "nvidia": ("cuda",), "tensorrt": ("cuda",),
    "host": ("cpu",), "llvm": ("cpu",), "tvm": ("cpu", "cuda"),
    "ort": ("onnxruntime",), "onnx": ("onnxruntime",), "ov": ("openvino",), "numpy": ("reference",),
}
"""The devices by other programs' names for them, in lower case."""

PROVIDER = "ExecutionProvider"
"""The end of the name of each execution provider of onnxruntime."""

KEYS: dict[str, str] = {
    "inference_precision_hint": "PRECISION", "intra_op_num_threads": "NUM_THREADS", "inference_num_threads": "NUM_THREADS",
    "inter_op_num_threads": "INTER_OP_THREADS", "graph_optimization_level": "GRAPH_OPTIMIZATION",
    "enable_profiling": "PERF_COUNT", "providers": "PROVIDER",
}
"""The keys by other programs' names for them, in lower case."""

REGISTER = "Register a device of your own first: pt.register_accelerator(ItsClass), or --plugin FILE.py on the command line"
"""The remedy for a device that a plugin would have registered."""

_CALL = "Call the model: outputs = m({name: array, ...}), then outputs[0] or outputs[name]"
_BIND = "m(x, out=array) writes to an array of yours, and m(x, out='device') leaves the outputs on the GPU"
_INPUTS = "m.properties.inputs are its inputs: pairs of a name and a type"
_PROFILE = "m.profile(inputs) runs it, and returns a row for each node"
_START = "m.start(inputs) starts a call, and .result() waits for its outputs"

METHODS: dict[str, str] = {
    **dict.fromkeys(("run", "infer", "predict", "forward", "infer_new_request"), _CALL),
    **dict.fromkeys(("run_async", "start_async", "create_infer_request"), _START),
    **dict.fromkeys(("run_with_iobinding", "io_binding", "run_with_ort_values"), _BIND),
    **dict.fromkeys(("set_tensor", "set_input_tensor", "get_tensor", "get_output_tensor"), _CALL),
    **dict.fromkeys(("get_inputs", "inputs", "input", "input_names"), _INPUTS),
    **dict.fromkeys(("get_outputs", "outputs", "output", "output_names"), _INPUTS.replace("input", "output")),
    **dict.fromkeys(("get_profiling_info", "profiling_info", "end_profiling", "get_perf_counts"), _PROFILE),
    **dict.fromkeys(("get_providers", "execution_devices"), "m.properties.devices are its devices"),
    **dict.fromkeys(("set_property", "set_providers", "to", "cuda", "cpu"), "Compile it anew: pt.compile(g, devices, config)"),
    "get_runtime_model": "m.graph is the partitioned graph, and m.report says what runs where",
    "reshape": "Load the model with other sizes, and compile it again: pt.load(path, shapes={...})",
    "set_callback": "m.start(inputs).add_done_callback(function)",
    "release_memory": "m.close() frees what its runs have kept",
    "save": "m.export(path) writes the compiled model, and pt.save(g, path) a graph as ONNX",
    **dict.fromkeys(("state_dict", "parameters"), "The graph holds the weights: pt.save(g, path) writes it as ONNX"),
    **dict.fromkeys(("half", "bfloat16", "float"), "Compile it with another precision: config={'PRECISION': 'f16'}"),
    **dict.fromkeys(("eval", "train"), "A compiled model only infers: call it"),
    "get_property": "m.properties has them as attributes, like m.properties.optimal_requests",
    "export_model": "m.export(path) writes it, and pt.import_model(path) reads it",
    **dict.fromkeys(("benchmark", "bench"), "pt.bench(m, vs=devices) measures it beside others"),
}
"""Remedies by the names of methods that compiled models of other programs have."""

_SELECT = "A graph is cut by a property, which has a selector: pt.SubgraphProperty, docs/selectors.md"

NAMES: dict[str, str] = {
    "InferenceSession": "pt.compile(pt.load('net.onnx'), devices) makes a model, which is called with arrays",
    "SessionOptions": "Options are config of pt.compile, like {'NUM_THREADS': 2}",
    **dict.fromkeys(("get_available_providers", "available_devices"), "pt.devices() lists the devices"),
    **dict.fromkeys(("get_device", "list_devices"), "pt.devices() lists the devices"),
    **dict.fromkeys(("OrtValue", "Tensor", "nd"), "Models take and return NumPy arrays; pt.to_device copies one to a GPU"),
    "Core": "pt.load(path) reads a model, pt.compile(g, devices) compiles it, and pt.devices() lists the devices",
    **dict.fromkeys(("read_model", "load_model", "load_checkpoint", "from_onnx", "from_mxnet"), "pt.load(path) reads a model"),
    **dict.fromkeys(("run", "infer"), "model = pt.compile(g, devices), then model(inputs)"),
    "convert_model": "pt.load(path) reads ONNX, and pt.from_torch(module, inputs) a torch module",
    **dict.fromkeys(("compile_model", "build"), "pt.compile(g, devices) compiles a graph"),
    "query_model": "pt.query(g, devices) returns the placement",
    **dict.fromkeys(("AsyncInferQueue", "InferRequest"), f"{_START}; NUM_REQUESTS is how many run at once"),
    **dict.fromkeys(("save_model", "serialize", "export"), "pt.save(g, path) writes ONNX, and m.export(path) a compiled model"),
    "PrePostProcessor": "Preprocessing is ops of the graph, or NumPy before the call",
    **dict.fromkeys(("trace", "script"), "pt.from_torch(module, inputs) makes a graph of a torch module"),
    **dict.fromkeys(("register_pattern_table", "register_subgraph_backend", "register_subgraph_property"), _SELECT),
    "register_backend": "pt.register_property(name, MyProperty) registers one, and pt.register_accelerator(MyDevice) a device",
    **dict.fromkeys(("is_op", "wildcard", "dpl"), "A pattern is a chain of ops: pt.Pattern('Conv', 'Relu?'), docs/selectors.md"),
    **dict.fromkeys(("relax", "relay", "sym"), "Graphs have ONNX's ops: pt.load(path), or pt.variable and pt.op"),
    **dict.fromkeys(("var", "Variable", "placeholder"), "pt.variable(name, 'float32', shape) makes an input of a graph"),
    "partition_for": "pt.apply_pass(g, 'PartitionGraph', backend=...) cuts a graph",
}
"""Remedies by the names of functions and classes that the modules of other programs have."""

_SIZES = "Sizes that vary are symbols of the graph: pt.from_torch(module, inputs, dynamic_shapes={'x': {0: 'batch'}})"

OPTIONS: dict[str, str] = {
    **{name: f"It is a key of the devices: config={{{key!r}: value}}" for name, key in KEYS.items()},
    "num_threads": "It is a key of the devices: config={'NUM_THREADS': value}",
    **dict.fromkeys(("dynamic", "dynamic_shapes", "dynamic_axes"), _SIZES),
    **dict.fromkeys(("inputs", "example_input", "args"), "It is example_inputs, for a torch module"),
    **dict.fromkeys(("providers", "device_name", "devices", "target"), "It is device: 'HETERO:first,second'"),
    **dict.fromkeys(("options", "provider_options", "sess_options"), "It is config, a dictionary by device"),
    **dict.fromkeys(("enabled_precisions", "precision"), "It is a key of the devices: config={'PRECISION': 'f16'}"),
    **dict.fromkeys(("mode", "fullgraph"), "torch.compile(module, backend='partita') is torch's own way in"),
    "backend": "It is device; PartitionGraph has backend",
    "min_block_size": "It is min_subgraph_size",
    "params": "It belongs to pt.load(symbol, params=...)",
    "torch_executed_ops": "It is forbid={'Softmax': 'cuda'}, with ONNX's names",
}
"""Hints by the names of options that the `compile` of other programs has."""

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("device_priorities", "multi_device_priorities"), "The order of the devices is their priority: 'HETERO:first,second'"
    ),
    **dict.fromkeys(
        ("num_streams", "performance_hint", "performance_hint_num_requests", "exclusive_async_requests"),
        "Calls at once are NUM_REQUESTS, a key of HETERO, and m.start(inputs) starts them",
    ),
    **dict.fromkeys(
        ("log_level", "log_severity_level"), "Logs are Python's, under the name 'partita'; on the command line, -v"
    ),
}
"""Remedies by the names of keys, in lower case, for which Partita has something else than a key of the device."""


FLAGS: dict[str, str] = {
    "d": "devices", "device": "devices", "providers": "devices", "e": "devices", "nireq": "streams", "niter": "iterations",
    "t": "seconds", "b": "batch", "i": "input", "nthreads": "threads", "m": "MODEL", "model": "MODEL", "vs": "other-devices",
}
"""Options of the command line by the names that benchmark_app and onnxruntime's tools have for them, without dashes."""


def meant_device(name: str, known: Collection[str]) -> str:
    """The remedy for the unknown name of a device."""
    if name.upper() == "AUTO":
        return "Name devices: AUTO:cuda,cpu is measured by compile, HETERO:cuda,cpu gives each op to the first that runs it"
    own = name.removesuffix(PROVIDER).lower()
    meant = [device for device in (own, *DEVICES.get(own, ())) if device in known]
    if name.endswith(PROVIDER):
        ours = "".join(f", or {device!r}" for device in meant)
        return f"Write 'onnxruntime' with config={{'onnxruntime': {{'PROVIDER': {name!r}}}}}{ours}"
    if name.upper() == "NPU":
        return "OpenVINO's own devices are openvino.CPU, openvino.GPU and openvino.NPU"
    if meant:
        return f"Did you mean {' or '.join(map(repr, meant))}?"
    return did_you_mean(name, known) or f"There are {', '.join(known)}. {REGISTER}"


def meant_devices(wanted: str) -> str:
    """The remedy for text with a colon or a comma that names no devices."""
    head, _, rest = (part.strip() for part in wanted.partition(":"))
    if rest.isdigit():
        return f"The number of a device follows a dot: {head}.{rest}"
    if head.upper() == "AUTO":
        named = [part.strip().lower() for part in rest.split(",")]
        ours = ",".join(DEVICES.get(one, (one,))[0] for one in named)
        return f"AUTO is for compile and auto, which measure; HETERO:{ours} gives each op to the first of these that runs it"
    return "Several devices are written HETERO:first,second"


def meant_key(name: str, known: Collection[str]) -> str | None:
    """The remedy for an unknown key; None if nobody can tell what it was meant for."""
    plain = name.removeprefix("KEY_")
    for key in (plain.upper(), KEYS.get(plain.lower(), "")):
        if key in known:
            return f"Did you mean {key!r}?"
    elsewhere = ELSEWHERE.get(plain.lower())
    return f"{elsewhere}." if elsewhere else did_you_mean(plain, known)
