"""Compiling and running small graphs on the device `cpu`, and what numpy in double precision says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code.building import build
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.interpret import interpret
from partita.graph.types import Array

REALS = ("float32", "float16", "bfloat16")


def normals(seed: int | np.random.Generator) -> Callable[..., Array]:
    """A function of a shape: random numbers, the same in each run of the tests."""
    random = np.random.default_rng(seed)
    return lambda *shape: random.standard_normal(shape).astype("float32")


def number(value: float) -> pt.Node:
    """The number as a constant."""
    return pt.constant(np.float32(value))


def compiled(graph: pt.Graph, device: str = "cpu", **config: Any) -> CompiledTvm:
    """The graph for a TVM device."""
    chosen = accelerator(device)
    model = chosen.compile(graph, chosen.full_config(config))
    assert isinstance(model, CompiledTvm)
    return model


def error(result: Array, wanted: Array) -> float:
    """The largest difference, against the largest number."""
    assert result.shape == wanted.shape
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if a.size else 0.0


def check(graph: pt.Graph, inputs: list[Array], limit: float = 2e-6, **config: Any) -> CompiledTvm:
    """Run the graph with its outputs prefilled by nan, and hold every output against numpy in double precision."""
    model = compiled(graph, **config)
    out = [np.full([int(d) for d in e.type.shape], np.nan, "float32") if _is_float(e) else None for e in graph.outputs]
    outputs = model.run(inputs, out)
    for value, wanted in zip(outputs, interpret(doubled(graph), [as_double(x) for x in inputs]), strict=True):
        assert error(value, wanted) <= limit
    return model


def doubled(graph: pt.Graph) -> pt.Graph:
    """The graph in double precision."""
    from partita.graph.rewrite import rewrite
    from partita.graph.types import TensorType

    def visit(node: pt.Node, rewriter: Any) -> None:
        types = tuple(TensorType("float64", t.shape) if getattr(t, "dtype", "") in REALS else t for t in node.output_types)
        value = None if node.value is None else as_double(node.value)
        rewriter.keep(node, rewriter.rebuilt(node, output_types=types, value=value))

    return rewrite(graph, visit)


def as_double(array: Array) -> Array:
    """float32, float16 and bfloat16 as float64."""
    return array.astype(np.float64) if array.dtype.name in REALS else array


def schedules(compiled_model: CompiledTvm) -> list[str]:
    """The schedules of the kernels in order."""
    return [kernel.schedule for kernel in compiled_model.kernels()]


def products_and_spills(graph: pt.Graph, machine: Machine) -> tuple[int, int]:
    """In the machine code between the kernel's first product and its last: how many products of whole vectors there are, and how
    many vectors are read from the stack."""
    text = build(make_body(graph), machine).library.inspect_source("asm")
    vector = {4: "%xmm", 8: "%ymm", 16: "%zmm"}[machine.lanes]
    product = "vfmadd" if "vfmadd" in text else "mulps"
    lines = text[text.index(product) : text.rindex(product)].splitlines()
    products = sum(product in line and vector in line for line in lines)
    return products, sum("(%rsp)" in line and f", {vector}" in line for line in lines)


def _is_float(entry: Any) -> bool:
    return getattr(entry.type, "dtype", "") == "float32" and entry.type.is_static
