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
    "enable_profiling": "PERF_COUNT",
}
"""The keys by other programs' names for them, in lower case."""

_CALL = "Call the model: outputs = m({name: array, ...}), then outputs[0] or outputs[name]"
_START = "m.start(inputs) starts a call, and .result() waits for its outputs"

METHODS: dict[str, str] = {
    **dict.fromkeys(("run", "infer", "predict", "forward", "infer_new_request"), _CALL),
    **dict.fromkeys(("run_async", "start_async", "create_infer_request"), _START),
    "get_inputs": "m.properties.inputs are its inputs: pairs of a name and a type",
    "get_outputs": "m.properties.outputs are its outputs: pairs of a name and a type",
    "get_property": "m.properties has them as attributes, like m.properties.optimal_requests",
    "export_model": "m.export(path) writes it, and pt.import_model(path) reads it",
}
"""Remedies by the names of methods that compiled models of other programs have."""


def meant_device(name: str, known: Collection[str]) -> str:
    """The remedy for the unknown name of a device."""
    if name.upper() == "AUTO":
        return "Name devices: AUTO:cuda,cpu is measured by compile, HETERO:cuda,cpu gives each op to the first that runs it"
    own = name.removesuffix(PROVIDER).lower()
    meant = [device for device in (own, *DEVICES.get(own, ())) if device in known]
    if name.endswith(PROVIDER):
        ours = "".join(f", or {device!r}" for device in meant)
        return f"Write 'onnxruntime' with config={{'onnxruntime': {{'PROVIDER': {name!r}}}}}{ours}"
    if meant:
        return f"Did you mean {' or '.join(map(repr, meant))}?"
    return did_you_mean(name, known) or f"There are {', '.join(known)}"


def meant_devices(wanted: str) -> str:
    """The remedy for text with a colon or a comma that names no devices."""
    head, _, rest = (part.strip() for part in wanted.partition(":"))
    if rest.isdigit():
        return f"The number of a device follows a dot: {head}.{rest}"
    if head.upper() == "AUTO":
        return f"AUTO is for compile and auto, which measure; HETERO:{rest} gives each op to the first of these that runs it"
    return "Several devices are written HETERO:first,second"


def meant_key(name: str, known: Collection[str]) -> str | None:
    """The remedy for an unknown key; None if nobody can tell what it was meant for."""
    plain = name.removeprefix("KEY_")
    for key in (plain.upper(), KEYS.get(plain.lower(), "")):
        if key in known:
            return f"Did you mean {key!r}?"
    return did_you_mean(plain, known)
