"""PRECISION: the configured type of products and of stored values on a device."""

from __future__ import annotations

from partita.accelerators.interface.accelerator import PRECISIONS
from partita.accelerators.interface.keys import Key, one_of
from partita.accelerators.tvm.device import NOTES
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.special import Used
from partita.graph.graph import Graph

FAST = "fast"
"""PRECISION: the type in which the device is fastest."""

TF32 = "tf32"
"""PRECISION: float32, but tensor cores round the operands of products to ten fraction bits, as many as float16 has."""

DTYPES = {"f32": "float32", TF32: "float32", "f16": "float16", "bf16": "bfloat16"}
"""Element types of stored values by the values of PRECISION."""

PRECISION = Key("f32", one_of(*PRECISIONS, FAST))
"""Configuration key."""

PRECISION_OR_TF32 = Key("f32", one_of(*PRECISIONS, FAST, TF32))
"""Configuration key of a device whose products may round float32."""


def narrowed(graph: Graph, dtype: str, machine: Machine, used: Used | None, notes: tuple[str, ...] = ()) -> Graph:
    """The graph with values of this 16-bit type where that pays off, multiplied by this instruction. Its notes for the report are
    `notes` and those about the narrowing."""
    from partita.accelerators.tvm.layouts.narrowing import narrow
    from partita.accelerators.tvm.query.support import takes

    result = narrow(graph, dtype, takes(graph, machine))
    return result.graph.evolve(attrs={**result.graph.attrs, NOTES: (*notes, *result.notes(used))})
