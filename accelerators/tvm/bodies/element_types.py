"""Element types that a kernel reads and stores, as text, and why it computes in float32 where a narrower type was requested."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.graph.graph import Graph

WIDE = "partita.wide"
"""Metadata: why an op computes in float32 although its graph uses a narrower type."""


def element_types(body: Body) -> str:
    """Element types of the kernel's input values and its largest weight matrix, "->" those of its results; a single type if all
    are the same."""
    inputs = [node[0] for node in body.graph.inputs]
    matrices = [entry for entry in inputs[body.values :] if len(shape_of(entry)) > 1]
    largest = sorted(matrices, key=lambda entry: math.prod(shape_of(entry)))[-1:]
    read = ", ".join(dict.fromkeys(element_of(entry) for entry in (*inputs[: body.values], *largest)))
    stored = ", ".join(dict.fromkeys(element_of(entry) for entry in body.graph.outputs))
    return stored if read in ("", stored) else f"{read} -> {stored}"


def why_wide(body: Graph) -> str:
    """Reasons why ops of a call's body compute in float32; empty if there are none."""
    return "; ".join(dict.fromkeys(node.metadata[WIDE] for node in body.nodes if WIDE in node.metadata))
