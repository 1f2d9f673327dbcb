"""ONNX models with one field changed: a sum over the text of each graph and how many notes it comes with, or why it is refused.

`python -m tests.onnx.kept_readings` writes the file that `test_kept_readings.py` compares with anew."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from partita.graph.errors import PartitaError
from partita.graph.readers.onnx import load_onnx
from tests.graphs.kept_graphs import text_sum
from tests.onnx.models import FUNCTIONS, LINE, NESTED, model
from tests.onnx.test_deviations import OLDER

KEPT = Path(__file__).with_name("kept_readings.txt")

LOOP = """
net (int64 n, bool c, float[3] x) => (float[3] y, float[k, 3] z) {
  y, z = Loop (n, c, x) <body = step (int64 i, bool go, float[3] a) => (bool more, float[3] b, float[3] s) {
    more = Identity(go)  b = Add(a, x)  s = Neg(b)
  }>
}"""

WINDOWS = """
net (float[1, 2, 6, N] x) => (float[1, 3, 4, M] y) <float[3, 2, 3, 3] w> {
  t = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], auto_pad = "NOTSET"> (x, w)
  c = Constant <value = int64[2] {0, 1}> ()
  d = Constant <value_floats = [1.0, 2.5]> ()
  e = Reshape (d, c)
  y = Clip (t, , e)
}"""


def bases() -> dict[str, Any]:
    """The models that are changed."""
    windows = model(WINDOWS)
    windows.graph.initializer.append(numpy_helper.from_array(np.ones((3, 2, 3, 3), np.float32), "w"))
    listed = {"line": model(LINE), "nested": model(NESTED), "functions": model(FUNCTIONS), "loop": model(LOOP)}
    listed |= {"windows": windows, "tensors": _tensors()}
    for name, (version, attributes, count) in OLDER.items():
        listed[name] = _older(name.split()[0], version, attributes, count)
    return listed


def _tensors() -> Any:
    """Constants of all kinds of fields."""
    fields = {"f": 1, "i": 6, "l": 7, "d": 11, "u": 12, "q": 13, "b": 9, "h": 10, "s": 8, "n": 22}
    values = {kind: [1, 0, 1, 1] if kind != 8 else [b"a", b"b", b"c", b"d"] for kind in fields.values()}
    tensors = [helper.make_tensor(name, kind, [2, 2], values[kind]) for name, kind in fields.items()]
    tensors.append(numpy_helper.from_array(np.arange(6, dtype=np.int16).reshape(2, 3), "r"))
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("p", 1, [2], [3.0, 4.0]), helper.make_tensor("places", 7, [2], [1, 3]), [2, 2]
    )
    nodes = [helper.make_node("Identity", [tensor.name], [f"{tensor.name}y"]) for tensor in tensors]
    nodes.append(helper.make_node("Identity", ["p"], ["py"]))
    outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "tensors", [], outputs, tensors, sparse_initializer=[sparse])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _older(op: str, version: int, attributes: dict[str, Any], count: int) -> Any:
    shape = (2, 3, 4, 5)
    tail = shape[int(attributes.get("axis", -1)) :]
    infos = [helper.make_tensor_value_info(name, 1, shape if name == "x" else tail) for name in ("x", "w", "b")[:count]]
    nodes = [helper.make_node(op, [info.name for info in infos], ["y"], **attributes)]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)


def changed(proto: Any) -> Iterator[tuple[str, Any]]:
    """The name of each change of one field, and the changed model."""
    yield "as it is", proto
    for path in _paths(proto):
        for name, value in _values(_at(proto, path)):
            other = copy.deepcopy(proto)
            try:
                _set(_at(other, path[:-1]), path[-1], value)
            except ValueError:  # protobuf takes no such value
                continue
            yield f"{'.'.join(map(str, path))} {name}", other


def _paths(message: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            continue
        path = (*before, field.name)
        yield path
        is_list = hasattr(value, "append") or hasattr(value, "add")
        for i, item in enumerate(list(value)[:4]) if is_list else ():
            yield (*path, i)
            if hasattr(item, "ListFields"):
                yield from _paths(item, (*path, i))
        if not is_list and hasattr(value, "ListFields"):
            yield from _paths(value, path)


def _at(message: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        message = message[part] if isinstance(part, int) else getattr(message, part)
    return message


def _values(value: Any) -> list[tuple[str, Any]]:
    """Other values of a field; None takes it away."""
    match value:
        case int():
            return [(f"{other}", other) for other in dict.fromkeys((0, value - 1, value + 1, 99))]
        case float():
            return [("0.0", 0.0), ("more", value + 0.5)]
        case str():
            return [("empty", ""), ("other", "other"), ("x", "x"), ("is gone", None)]
        case bytes():
            return [("empty", b""), ("shorter", value[:-1]), ("other", b"other")]
    return [("is gone", None)]


def _set(message: Any, part: Any, value: Any) -> None:
    if isinstance(part, int):
        if value is None:
            del message[part]
        else:
            message[part] = value
    elif value is None:
        message.ClearField(part)
    else:
        setattr(message, part, value)


def line(proto: Any) -> str:
    """What becomes of a model."""
    try:
        graph = load_onnx(proto)
    except PartitaError as error:
        return str(error).splitlines()[0].partition(" typestr:")[0]
    notes = graph.attrs.get("notes", ())
    return f"{text_sum(graph)}, {sum(node.is_op for node in graph.nodes)} ops, {len(notes)} notes"


def lines(subject: str) -> Iterator[tuple[str, str]]:
    """The name of each change of a model, and what becomes of it."""
    for name, proto in changed(bases()[subject]):
        yield name, line(proto)


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for each in KEPT.read_text("utf-8").splitlines():
        subject, name, expected = each.split(" | ", 2)
        listed.setdefault(subject, {})[name] = expected
    return listed


if __name__ == "__main__":
    every = [f"{subject} | {name} | {result}\n" for subject in bases() for name, result in lines(subject)]
    KEPT.write_text("".join(every), "utf-8")
