"""One op read by its rule: the sizes of its results, and what it requires of those of its inputs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import partita as pt
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.symbols import symbol
from partita.passes.infer.reading import Reading

Given = tuple[tuple[Any, ...], dict[str, Any]]
Cases = dict[str, list[tuple[Given, str]]]


def of(*inputs: Any, **attributes: Any) -> Given:
    """The inputs and attributes of an op. A tuple is an input of these sizes, whose values are unknown; a number is a scalar, and
    a list a vector; "N-3" among them follows from a size N, and "?" is a size that values decide. None is an input that is left
    out, or in a list an element that nobody knows."""
    return inputs, attributes


def zeros(*sizes: int) -> Any:
    """A constant that is one only by its sizes."""
    return np.zeros(sizes, np.int8)


def _input(number: int, item: Any) -> Node | None:
    if item is None:
        return None
    if isinstance(item, tuple):
        return pt.variable(f"x{number}", "float32", item)
    listed = item if isinstance(item, list) else [item]
    if isinstance(item, np.ndarray) or all(isinstance(value, int) for value in listed):
        return pt.constant(np.asarray(item, None if isinstance(item, np.ndarray) else np.int64))
    if None in listed:
        pieces = [pt.variable(f"u{number}", "int64", (1,)) if value is None else _input(number, [value]) for value in listed]
        return pt.op("Concat", *pieces, axis=0)
    parts = [re.fullmatch(r"([A-Z?]?)([-+]?\d*)", str(value)) for value in listed]
    data = pt.variable(f"v{number}", "float32", tuple([part[1] or 0 for part in parts if part]))
    for axis, value in enumerate(listed):
        data = pt.op("Compress", data, pt.variable(f"chosen{axis}", "bool", (2,)), axis=axis) if value == "?" else data
    sizes = pt.op("Shape", data)
    values = pt.op("Add", sizes, pt.constant(np.array([int(part[2] or 0) for part in parts if part])))
    return values if isinstance(item, list) else pt.op("Squeeze", values, pt.constant(np.array([0])))


def read(name: str, given: Given) -> tuple[Reading, Node]:
    """The op as a graph of its own, read with symbols."""
    inputs, attributes = given
    opset, results = attributes.get("opset", 21), attributes.get("results", 1)
    nodes = [_input(number, item) for number, item in enumerate(inputs)]
    rest = {key: value for key, value in attributes.items() if key not in ("opset", "results")}
    node = pt.op(name, *nodes, name="y", opset=opset, output_names=[f"y{i}" for i in range(results)], **rest)
    graph = Graph(list(node.outputs), opsets={"": opset})
    shapes = [[symbol(size) if isinstance(size, str) else size for size in one[0].type.shape] for one in graph.inputs]
    return Reading(graph, map(tuple, shapes)), node


def said(name: str, given: Given) -> str:
    """The sizes of the results, "?" for unknown ones; where what has to hold; if what is assumed. Or the contradiction."""
    try:
        reading, node = read(name, given)
    except pt.PartitaError as error:
        return error.cause
    known = [reading.sizes(entry) for entry in node.outputs]
    text = " ".join("?" if sizes is None else f"[{', '.join(map(str, sizes))}]" for sizes in known)
    for word, listed in (("where", reading.requirements), ("if", reading.assumptions)):
        if listed:
            text += f" {word} " + ", ".join(f"{one.left} {one.relation} {one.right}" for one in listed)
    return text + ("; more of integers" if reading.is_open else "")


def elements(name: str, given: Given) -> str:
    """The elements of the results as far as they follow; nothing of those of which nothing follows."""
    reading, node = read(name, given)
    listed = [reading.elements(entry) for entry in node.outputs]
    return " ".join(str(array.tolist()) for array in listed if array is not None)


def check(name: str, cases: Cases) -> None:
    """Hold what is said of each case of an op against what is expected."""
    assert [said(name, given) for given, _ in cases[name]] == [expected for _, expected in cases[name]]
