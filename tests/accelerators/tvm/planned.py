"""Kernels of graphs on machines that need not be here: for each the name of its schedule, and a sum over its text and over the
constants that it reads, laid out as it reads them. For graphs of any size also a sum over what their sizes have to fulfil.

`python -m tests.accelerators.tvm.planned` writes the file that `test_planned.py` compares with anew, and
`python -m tests.accelerators.tvm.planned "moves: cut" avx2` prints kernels."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import partita as pt
from partita.accelerators import accelerator
from partita.accelerators.interface.cached_attention import cached_attention
from partita.accelerators.tvm.bodies.body import Body, element_of, make_body
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.accelerators.tvm.device import TvmAccelerator
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, GradualPack
from partita.accelerators.tvm.lower.lowering import lower, own_draft
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, gpu_machine, opencl_machine
from partita.accelerators.tvm.sizes.sizing import Sized, forms_for_any_size
from partita.graph.types import Array, TensorType
from tests.accelerators.tvm.plan_graphs import GRAPHS

FLOATS = {onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")}

KEPT = Path(__file__).with_name("planned.txt")

MACHINES = {
    "sse": Machine("cpu", "nehalem", 2, 4, 16, (Used("plain"), Used("fma"))),
    "avx2": Machine("cpu", "haswell", 4, 8, 16, (Used("avx2"), Used("fma"))),
    "avx512": Machine("cpu", "znver4", 4, 16, 32, (Used("avx512-vnni"), Used("vdpbf16ps"), Used("vpermps"))),
    "amx": Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("amx-int8"), Used("amx-bf16"), Used("vpermps"))),
    "many": Machine("cpu", "znver4", 48, 16, 32, (Used("avx512-vnni"), Used("vdpbf16ps"), Used("vpermps")), near=48 << 10),
    "sm_80": gpu_machine("sm_80"),
    "tf32": gpu_machine("sm_80", takes_tf32=True),
    "opencl": opencl_machine(256, 32768, frozenset()),
}

ROUNDED = "MatMul", "Gemm", "Conv"
"""Ops whose float32 is rounded before it is multiplied."""

FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
"""Numbers of floating point: of those that were computed, the last digits differ from one processor to the next."""

LOOP = re.compile(r"^ *(?:for .* in (.*)|(if .*)|.* = (T.sblock_alloc_buffer.*)):?$", re.MULTILINE)
"""The loops and buffers of a kernel that is scheduled by a rule."""


def written(text: str) -> pt.Graph:
    """The graph of a line like "(float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul (x, w) }"; inputs whose names begin
    with w are constants, those whose names begin with ws numbers above zero."""
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    proto = onnx.ModelProto(ir_version=10, opset_import=domains)
    proto.graph.CopyFrom(parser.parse_graph(f"g {text.replace(' <>', '')}"))
    for item in [item for item in proto.graph.input if item.name.startswith("w")]:
        proto.graph.input.remove(item)
        kind = item.type.tensor_type
        sizes = [size.dim_value for size in kind.shape.dim]
        is_above_zero = item.name.startswith("ws") or onnx.TensorProto.DataType.Name(kind.elem_type).startswith("UINT")
        numbers = np.arange(np.prod(sizes, dtype=int)) % 7 + (1 if is_above_zero else -3)
        is_float = kind.elem_type in FLOATS
        array = (numbers / 8 if is_float else numbers).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).reshape(sizes)
        proto.graph.initializer.append(numpy_helper.from_array(array, item.name))
    return pt.load(proto)


def graph_of(name: str) -> pt.Graph:
    """The graph of this name: of its text, or a cached attention of the sizes that the name says."""
    if GRAPHS[name]:
        return written(GRAPHS[name])
    batch, groups, each, new, room, depth, window = map(int, name.rpartition(" ")[2].split(","))
    query, cache, added = (batch, groups * each, new, depth), (batch, groups, room, depth), (batch, groups, new, depth)
    shapes = {"query": query, "keys": cache, "values": cache, "new_keys": added, "new_values": added}
    inputs = [pt.variable(name, "float32", shape) for name, shape in shapes.items()]
    inputs.append(pt.variable("length", "int64", (1,)))
    q, k, v, more_k, more_v, length = (node[0] for node in inputs)
    call = cached_attention(q, (k, v), (more_k, more_v), length, query, cache, 0.3, "attention", window)
    return pt.apply_pass(pt.Graph([call], inputs, name="attention", opsets={"": 21}), "InferShape")


def machines_for(name: str) -> list[str]:
    """The machines whose kernels are kept for a graph, among them one that rounds float32 where there are products of these."""
    machines = _machines(name)
    is_rounded = "sm_80" in machines and "float[" in GRAPHS[name] and any(op in GRAPHS[name] for op in ROUNDED)
    return [*machines, "tf32"] if is_rounded else machines


TURNS = ("sse", "avx2", "avx2", "avx512", "amx", "sm_80", "sm_80", "opencl")
"""The machines of graphs that are drawn."""


def _machines(name: str) -> list[str]:
    """The rarer machines take turns, and all of them for graphs that are drawn, two for each."""
    number = zlib.crc32(name.encode())
    if not GRAPHS[name]:
        return ["avx2", "avx512"]
    if name.startswith("narrow"):
        return ["avx512", "amx"]
    if name.startswith("of gpus"):
        return ["sm_80"]
    if name.startswith("nets"):
        return [("avx2", "avx512", "amx")[number % 3], ("many", "sm_80", "many", "sse")[number // 3 % 4]]
    if ", drawn" in name:
        return list(dict.fromkeys((TURNS[number % 8], TURNS[(number // 8 + number % 8) % 8])))
    if name.startswith(("products", "convolutions", "quantized")):
        return ["avx2", "avx512", "amx", "sm_80"]
    return ["avx2", "sm_80", ("sse", "avx512", "opencl")[number % 3]]


def line(name: str, machine: str) -> str:
    """The line of the file for a graph on a machine."""
    try:
        listed = [summary for summary, _ in kernels(graph_of(name), MACHINES[machine], precision_of(name))]
    except pt.PartitaError as error:
        listed = [f"refused: {error.cause}"]
    return f"{name} | {machine} | {', '.join(listed)}"


def precision_of(name: str) -> str:
    """The configuration's PRECISION for a graph."""
    return "bf16" if name.startswith("narrow") else "f32"


def kernels(graph: pt.Graph, machine: Machine, precision: str) -> Iterator[tuple[str, Draft | None]]:
    """The kernels of the graph in the order of its calls, each after what its line says of it: the ops of one that is scheduled
    by a rule and, for processors, a sum over its loops; the kind of error where there is one."""
    device = accelerator(machine.kind).configured({"PRECISION": precision} if precision != "f32" else {})
    assert isinstance(device, TvmAccelerator)
    for form in _forms(graph, device):
        if isinstance(form, Sized):
            yield f"form {_sum_of_form(form):08x}", None
            form = form.graph
        fused = device.fused(form, machine, flagged=True)
        for call in [node for node in fused.nodes if node.is_call]:
            assert call.subgraph is not None
            body = make_body(call.subgraph)
            try:
                draft = own_draft(body, machine)
                summary = _summary(draft, body, machine)
            except (pt.PartitaError, TypeError, ValueError, AssertionError, IndexError) as error:
                yield type(error).__name__, None
                continue
            yield summary, draft


def _summary(draft: Draft | None, body: Body, machine: Machine) -> str:
    if draft is not None and draft.kernel is not None:
        return f"{draft.schedule} {_sum_of_kernel(draft, body):08x}"
    ops = "+".join(str(node.op) for node in body.ops)
    if machine.is_gpu:
        return ops
    return f"{ops} {sum_of_loops(body, machine):08x}"


def sum_of_loops(body: Body, machine: Machine) -> int:
    """A sum over the loops and buffers of kernels that a rule schedules."""
    loops = LOOP.findall("".join(f"{kernel}\n" for kernel in lower(body, machine).kernels().values()))
    return zlib.crc32(str(loops).encode())


def _forms(graph: pt.Graph, device: TvmAccelerator) -> Iterator[pt.Graph | Sized]:
    if all(isinstance(node[0].type, TensorType) and node[0].type.is_static for node in graph.inputs):
        yield graph
    else:
        yield from forms_for_any_size(device.transform(graph))


def _sum_of_form(form: Sized) -> int:
    said = (form.inputs, form.conditions, form.counts, dict(form.rounded), form.filled)
    return zlib.crc32(str(said).encode())


def _sum_of_kernel(draft: Draft, body: Body) -> int:
    result = zlib.crc32(FRACTION.sub(lambda number: f"{float(number[0]):.2e}", str(draft.kernel)).encode())
    for i, (variable, array) in enumerate(zip(body.graph.inputs[body.values :], body.weights, strict=True), body.values):
        pack = draft.packs.get(i)
        stored = array if isinstance(pack, GradualPack) else as_stored(array, element_of(variable[0]))
        result = zlib.crc32(_rounded(stored if pack is None else pack(stored)), result)
    return result


def _rounded(array: Array) -> bytes:
    """The array's bytes, those of numbers of floating point without their last digits."""
    if array.dtype.kind in "iub":
        return np.ascontiguousarray(array).tobytes()
    with np.errstate(over="ignore"):
        parts, powers = np.frexp(np.nan_to_num(array.astype(np.float32), nan=-12345.0))
    return np.rint(parts * 500.3).astype(np.int16).tobytes() + powers.astype(np.int16).tobytes()


def main(asked: list[str]) -> None:
    """Print the kernels of one graph, or write the file."""
    if asked:
        for summary, draft in kernels(graph_of(asked[0]), MACHINES[asked[1]], precision_of(asked[0])):
            print(summary, draft.kernel if draft is not None else "has no kernel of ours", sep="\n")
        return
    KEPT.write_text("".join(f"{line(name, machine)}\n" for name in GRAPHS for machine in machines_for(name)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
