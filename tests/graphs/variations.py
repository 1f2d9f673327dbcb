"""Small variations of models: a parameter one larger, a size one smaller, an input fewer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from partita.graph import Graph
from partita.graph.errors import PartitaError
from partita.graph.microsoft import body_of, is_known
from partita.graph.microsoft.table import MEANINGS
from partita.graph.node import Node
from partita.graph.readers.mxnet.ops.table import converter_of
from partita.graph.types import TensorType
from tests.fuzz.sizes.subjects import drawn
from tests.mxnet.data import Case

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

WORDS = ("0", "1", "2", "-1", "True", "(1, 1)", "(0,)")
"""Values of a parameter that a symbol does not give."""

TURNED = {"True": "False", "False": "True"}

CHOICES = {
    "act_type": ("relu", "prelu", "elu", "rrelu"), "layout": ("NCHW", "NHWC", "NWC", "NDHWC", "HWN"), "mode": (
        "instance", "channel", "spatial", "clip", "wrap", "raise", "size", "like", "to_even_up", "edge", "always",
    ),
    "pool_type": ("max", "avg", "sum", "lp"), "pooling_convention": ("full", "same"), "ret_typ": ("value", "both", "mask"),
    "sample_type": ("nearest", "bilinear"), "multi_input_mode": ("sum",), "dtype": ("float16", "int32", "bool"),
    "out_dtype": ("float64",), "constant_value": ("1.5",), "temperature": ("0.5",), "slope": ("0.5",),
}
"""Further values of parameters."""


def texts(name: str, text: str | None) -> list[str]:
    """Other values of a parameter of MXNet, each as text; None is one that is not given."""
    if text is None:
        return [*CHOICES.get(name, ()), *(WORDS if name not in CHOICES else ())]
    if text in TURNED:
        return [TURNED[text], "None"]
    listed = list(CHOICES.get(name, ()))
    numbers = list(NUMBER.finditer(text))
    for number in dict.fromkeys([*numbers[:1], *numbers[-1:]]):
        for step in (-1, 1):
            value = float(number[0]) + step
            written = f"{value:g}" if "." in number[0] or "e" in number[0] else f"{int(value)}"
            listed.append(text[: number.start()] + written + text[number.end() :])
    if text.startswith(("(", "[")):
        inner = text[1:-1].rstrip(", ")
        listed += [f"({inner}, 1)", f"({inner}, -1)", f"({inner.rpartition(',')[0]})", f"({inner}, None)"]
    elif numbers:
        listed += ["0", "-2", f"({text}, {text})"]
    return [value for value in dict.fromkeys([*listed, "None"]) if value != text]


def sizes(shape: Sequence[int]) -> Iterator[tuple[int | None, ...]]:
    """Other shapes: of one axis more or fewer, with a size that is one more, one, or dynamic."""
    yield (*shape, 1)
    yield tuple(shape[:-1])
    for axis, size in enumerate(shape):
        for other in (size + 1, 1, None):
            if other != size and (axis in (0, 1, len(shape) - 1) or other is not None):
                yield (*shape[:axis], other, *shape[axis + 1 :])


def symbols(case: Case) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Variations of one symbol of MXNet: the name of each, the symbol, and the shapes of its inputs."""
    nodes = case.symbol["nodes"]
    for at, node in enumerate(nodes):
        if node["op"] == "null" or (row := converter_of(node["op"])) is None:
            continue
        given = dict(node.get("attrs", {}))
        for name in sorted({*row.params, *given}):
            for text in texts(name, given.get(name)):
                yield f"{node['op']} {name}={text}", _with(case.symbol, at, attrs={**given, name: text}), case.shapes
        inputs = node["inputs"]
        if inputs:
            yield f"{node['op']} without its last input", _with(case.symbol, at, inputs=inputs[:-1]), case.shapes
            yield f"{node['op']} with one more input", _with(case.symbol, at, inputs=[*inputs, inputs[-1]]), case.shapes
    for at, node in enumerate(nodes):
        for number in ("2", "6") if node["op"] == "null" and node["name"] in case.shapes else ():
            yield f"{node['name']} of type {number}", _with(case.symbol, at, attrs={"__dtype__": number}), case.shapes
    for name, shape in case.shapes.items():
        for other in sizes(shape):
            yield f"{name} of {other}".replace("None", "?"), case.symbol, {**case.shapes, name: other}


def _with(symbol: dict[str, Any], at: int, **parts: Any) -> dict[str, Any]:
    nodes = list(symbol["nodes"])
    nodes[at] = {**nodes[at], **parts}
    return {**symbol, "nodes": nodes}


def nodes(subject: str) -> Iterator[tuple[str, Graph | PartitaError]]:
    """Variations of a node of onnxruntime's own: the name of each, and its body or the error that refuses it."""
    case = drawn(subject, 0)
    if case is None:
        return
    node = next(node for node in case.graph.nodes if is_known(node))
    types = [None if entry is None else entry.type for entry in node.inputs]
    values = [None if entry is None else entry.node.value for entry in node.inputs]
    for name in sorted(MEANINGS[str(node.op)].attributes):
        for value in others(name, node.attrs.get(name), MICROSOFT):
            attrs = {key: each for key, each in {**node.attrs, name: value}.items() if each is not None}
            yield f"{name}={value}", _body(node.evolve(attrs=attrs), types, values)
    for i, each in enumerate(types):
        if isinstance(each, TensorType):
            yield f"without input {i}", _body(node.evolve(inputs=_put(node.inputs, i, None)), _put(types, i, None), values)
            for dtype in ("float16", "float64", "int8", "uint8"):
                yield f"input {i} of {dtype}", _body(node, _put(types, i, TensorType(dtype, each.shape)), values)
            for shape in [*sizes(each.shape or ()), None] if values[i] is None else ():
                yield f"input {i} of {shape}", _body(node, _put(types, i, TensorType(each.dtype, shape)), values)
    for count in range(1, 5):
        names = tuple(f"result{i}" for i in range(count))
        yield f"{count} results", _body(node.evolve(output_names=names, output_types=(None,) * count), types, values)
    more = (*node.inputs, *(entry for entry in (node.inputs[0],) * 3 if len(node.inputs) < 12))
    for count in range(len(node.inputs) + 1, len(more) + 1):
        wider = node.evolve(inputs=(*node.inputs, *(None,) * (count - len(node.inputs) - 1), node.inputs[0]))
        padded = [*types, *[None] * (count - len(types) - 1), types[0]]
        yield f"with input {count - 1}", _body(wider, padded, [*values, *[None] * (count - len(values))])


def _body(node: Node, types: Sequence[Any], values: Sequence[Any]) -> Graph | PartitaError:
    try:
        return body_of(node, types, values)
    except PartitaError as error:
        return error
    except (ArithmeticError, IndexError, ValueError) as error:  # callers take these for a refusal, too
        return PartitaError(f"it raises {type(error).__name__}")


def _put(values: Sequence[Any], at: int, value: Any) -> list[Any]:
    return [*values[:at], value, *values[at + 1 :]]


def others(name: str, value: Any, absent: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Other values of an attribute; None is one that is not given."""
    match value:
        case None:
            listed = absent.get(name, (0, 1, 2, -1))
        case int():
            listed = (value - 1, value + 1, 0, 2 * value, None)
        case float():
            listed = (value / 2, 0.0, 1.0, None)
        case str() | bytes():
            listed = (*absent.get(name, ()), None)
        case list() | tuple() if not value or not isinstance(value[0], int | float):
            listed = (*absent.get(name, ()), value[:-1], None)
        case list() | tuple():
            listed = ([*value, 1], value[:-1], [*value[:-1], value[-1] + 1], [value[0] + 1, *value[1:]], None)
        case _:
            listed = (None,)
    return [each for each in listed if type(each) is not type(value) or each != value]


MICROSOFT = {
    "activation": ("Relu", "LeakyRelu", "HardSigmoid", "Clip", "Tanh", "Elu"), "activation_params": ([0.5], [0.25, 0.5]),
    "activation_alpha": (0.5,), "activation_beta": (0.5,), "activation_gamma": (0.5,), "alpha": (0.5, 1.0), "beta": (0.5,),
    "auto_pad": ("SAME_UPPER", "VALID", "NOTSET"), "dilations": ([2, 2],), "strides": ([2, 2],),
    "pads": ([1, 1, 1, 1], [0, 0, 0, 1]),
    "kernel_shape": ([3, 3], [2, 2]), "epsilon": (0.5,), "scale": (0.5, 1.0), "softcap": (2.0,), "mask_filter_value": (-1.0,),
    "k_quant_type": ("NONE", "PER_TENSOR"), "v_quant_type": ("NONE", "PER_TENSOR"), "qkv_hidden_sizes": ([8, 8, 8], [8, 8]),
    "axes": ([0], [1], [-1]), "activations": (["Sigmoid", "Tanh", "Tanh"],), "direction": ("reverse", "bidirectional"),
}
"""Values of attributes of onnxruntime's ops that are not integers."""
