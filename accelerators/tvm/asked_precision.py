"""PRECISION: the type in which a device makes products and stores values, as a configuration asks for it."""

from __future__ import annotations

from partita.accelerators.interface.accelerator import PRECISIONS
from partita.accelerators.interface.keys import Key, one_of
from partita.accelerators.tvm.device import NOTES
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.special import Used
from partita.graph.graph import Graph

FAST = "fast"
"""PRECISION: whatever the device is fastest in."""

TF32 = "tf32"
"""PRECISION: float32, of which products on tensor cores take ten bits behind the point, as many as float16 has."""

DTYPES = {"f32": "float32", TF32: "float32", "f16": "float16", "bf16": "bfloat16"}
"""The element types of what is stored by the values of PRECISION."""

PRECISION = Key("f32", one_of(*PRECISIONS, FAST))
"""The key of a configuration."""

PRECISION_OR_TF32 = Key("f32", one_of(*PRECISIONS, FAST, TF32))
"""The key of a device whose products may round float32."""


def narrowed(graph: Graph, dtype: str, machine: Machine, used: Used | None, notes: tuple[str, ...] = ()) -> Graph:
    """The graph with values of this type of two bytes where that is good, multiplied by this instruction; the report says so
    behind other notes."""
    from partita.accelerators.tvm.layouts.narrowing import narrow
    from partita.accelerators.tvm.query.support import takes

    result = narrow(graph, dtype, takes(graph, machine))
    return result.graph.evolve(attrs={**result.graph.attrs, NOTES: (*notes, *result.notes(used))})
