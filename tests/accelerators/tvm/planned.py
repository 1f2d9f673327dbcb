"""Kernels of graphs on machines that need not be here: for each the name of its schedule, and a sum over its text.

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
from accelerators import accelerator
from accelerators.tvm.bodies.body import make_body
from accelerators.tvm.device import TvmAccelerator
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.lower.lowering import own_draft
from accelerators.tvm.machine.machine import Machine, gpu_machine, opencl_machine
from accelerators.tvm.machine.special import Used
from accelerators.tvm.sizes.sizing import forms_for_any_size
from tests.accelerators.tvm.plan_graphs import GRAPHS

KEPT = Path(__file__).with_name("planned.txt")

MACHINES = {
    "sse": Machine("cpu", "nehalem", 2, 4, 16, (Used("plain"), Used("fma"))),
    "avx2": Machine("cpu", "haswell", 4, 8, 16, (Used("avx2"), Used("fma"))),
    "avx512": Machine("cpu", "znver4", 4, 16, 32, (Used("avx512-vnni"), Used("vdpbf16ps"), Used("vpermps"))),
    "amx": Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("amx-int8"), Used("amx-bf16"), Used("vpermps"))),
    "sm_80": gpu_machine("sm_80"),
    "opencl": opencl_machine(256, 32768, frozenset()),
}

FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
"""Numbers of floating point: of those that were computed, the last digits differ from one processor to the next."""


def written(text: str) -> pt.Graph:
    """The graph of a line like "(float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul (x, w) }"; inputs whose names begin
    with w are constants."""
    proto = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 23)])
    proto.graph.CopyFrom(parser.parse_graph(f"g {text.replace(' <>', '')}"))
    for item in [item for item in proto.graph.input if item.name.startswith("w")]:
        proto.graph.input.remove(item)
        kind = item.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        sizes = [size.dim_value for size in kind.shape.dim]
        numbers = (np.arange(np.prod(sizes, dtype=int)) % 7 - 3).reshape(sizes) / (1 if dtype.kind == "i" else 8)
        proto.graph.initializer.append(numpy_helper.from_array(numbers.astype(dtype), item.name))
    return pt.load(proto)


def machines_for(name: str) -> list[str]:
    """The machines whose kernels are kept for a graph: the rarer ones take turns."""
    if name.startswith(("products", "convolutions", "quantized")):
        return ["avx2", "avx512", "amx", "sm_80"]
    return ["avx2", "sm_80", ("sse", "avx512", "opencl")[zlib.crc32(name.encode()) % 3]]


def line(name: str, machine: str) -> str:
    """The line of the file for a graph on a machine."""
    return f"{name} | {machine} | {', '.join(map(_told, drafts(written(GRAPHS[name]), MACHINES[machine])))}"


def _told(draft: Draft | str) -> str:
    if isinstance(draft, str):
        return draft
    text = FRACTION.sub(lambda number: f"{float(number[0]):.2e}", str(draft.kernel))
    return f"{draft.schedule} {zlib.crc32(text.encode()):08x}"


def drafts(graph: pt.Graph, machine: Machine) -> Iterator[Draft | str]:
    """The kernels of the graph in the order of its calls; the ops, or the kind of error, of one that is not ours."""
    device = accelerator(machine.kind)
    assert isinstance(device, TvmAccelerator)
    for form in _forms(graph, device):
        for call in [node for node in device.fused(form, machine).nodes if node.is_call]:
            assert call.subgraph is not None
            body = make_body(call.subgraph)
            try:
                draft = own_draft(body, machine)
            except (pt.PartitaError, TypeError, ValueError, AssertionError, IndexError) as error:
                yield type(error).__name__
                continue
            yield "+".join(str(node.op) for node in body.ops) if draft is None or draft.kernel is None else draft


def _forms(graph: pt.Graph, device: TvmAccelerator) -> Iterator[pt.Graph]:
    if all(node[0].type is not None and node[0].type.is_static for node in graph.inputs):
        yield graph
        return
    for form in forms_for_any_size(device.transform(graph)):
        yield form.graph


def main(asked: list[str]) -> None:
    """Print the kernels of one graph, or write the file."""
    if asked:
        kernels = drafts(written(GRAPHS[asked[0]]), MACHINES[asked[1]])
        print(*[draft.kernel if isinstance(draft, Draft) else draft for draft in kernels], sep="\n")
        return
    KEPT.write_text("".join(f"{line(name, machine)}\n" for name in GRAPHS for machine in machines_for(name)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
