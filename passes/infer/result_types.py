"""Types of an op's results without their sizes: by the letters of its schema, or by the rule of an op whose attributes decide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from partita.graph.errors import TypeMismatch
from partita.graph.node import Node
from partita.graph.ops.schemas import spec_of
from partita.graph.types import BY_NUMBER, BY_ONNX_NAME, ELEMENT_TYPES, MapType, SequenceType, TensorType, Type

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

Kind = Type | str | None
"""The type of a result: an element type, if it is a tensor whose sizes have a rule; else the whole type."""

KINDS: dict[str, Callable[[Context], Sequence[Kind]]] = {}
"""The rules by op, for those whose schema does not decide; prefixed with the domain outside ONNX's own."""


def kinds(*ops: str) -> Callable[[Any], Any]:
    """Registers the decorated function as the rule of these ops."""

    def register(function: Callable[[Context], Sequence[Kind]]) -> Callable[[Context], Sequence[Kind]]:
        KINDS.update(dict.fromkeys(ops, function))
        return function

    return register


def by_schema(node: Node, version: int, type_of: Callable[[int], Type | None]) -> list[Kind]:
    """The kind of each result: the only one that the schema allows, or that of the first known input with the same letter."""
    letters = _letters(str(node.op), node.domain, version)
    if not letters:
        return [None] * len(node.output_names)
    count = len(node.inputs)
    found = [only or _first(slots, count, type_of) for only, slots in letters[: len(node.output_names)]]
    return found + found[-1:] * (len(node.output_names) - len(found))


def _first(slots: Sequence[range], count: int, type_of: Callable[[int], Type | None]) -> Kind:
    for some in slots:
        for slot in some[: count - some.start] if some.start < count else ():
            given = type_of(slot)
            if given is not None:
                return given.dtype if isinstance(given, TensorType) else given
    return None


@cache
def _letters(op: str, domain: str, version: int) -> list[tuple[str | None, list[range]]]:
    """Per formal output its only element type, or the inputs that have its letter."""
    spec = spec_of(op, domain, version)
    found: list[tuple[str | None, list[range]]] = []
    for param in () if spec is None else spec.outputs:
        only = next(iter(param.types)) if len(param.types) == 1 else None
        slots = [
            range(slot, sys.maxsize if given.option == "variadic" else slot + 1)
            for slot, given in enumerate(() if spec is None else spec.inputs)
            if given.symbol == param.symbol and (given.homogeneous or given.option != "variadic")
        ]
        found.append((only if only in ELEMENT_TYPES else None, slots))
    return found


def allowed(c: Context, found: Sequence[Kind]) -> Sequence[Kind]:
    """These kinds of the results, if the op's schema allows their element types."""
    spec = spec_of(str(c.op), c.node.domain, c.version)
    for kind, param in zip(found, () if spec is None else spec.outputs, strict=False):
        dtype = kind.dtype if isinstance(kind, TensorType) else kind
        if isinstance(dtype, str) and param.types and dtype not in param.types:
            may_be = ", ".join(sorted(param.types))
            raise TypeMismatch(f"its attributes ask for {param.name!r} of {dtype}, which may be {may_be}", where=c.where)
    return found


def named(c: Context, name: str, default: str | None) -> str | None:
    """The element type in an attribute: ONNX's number of it, or its name."""
    value = c.attribute(name)
    if isinstance(value, str):
        return BY_ONNX_NAME.get(value.lower(), value.lower())
    return default if value is None else BY_NUMBER.get(value, default)


def _as_named(c: Context, name: str, default: str | int | None = None) -> Sequence[Kind]:
    """One tensor of the element type in an attribute; without it, of the default, or that of an input."""
    return [named(c, name, c.dtype(default) if isinstance(default, int) else default)]


def _by_attribute(c: Context, prefix: str, kinds: str = "strings int64s floats") -> str | None:
    """The element type of the attribute with this prefix that is present."""
    words = {"strings": "string", "int64s": "int64", "ints": "int64", "floats": "float32"}
    return next((words[word] for word in kinds.split() if c.attribute(prefix + word)), None)


@kinds("ConstantOfShape")
def _filled(c: Context) -> Sequence[Kind]:
    value = c.attribute("value")
    return ["float32" if value is None else value.dtype.name if value.dtype.kind not in "OSU" else "string"]


@kinds("LayerNormalization")
def _normalized(c: Context) -> Sequence[Kind]:
    return [c.dtype(0), *[named(c, "stash_type", "float32")] * 2]


@kinds("LinearAttention")
def _attended(c: Context) -> Sequence[Kind]:
    return [c.dtype(0), c.dtype(3) or c.dtype(0)]


@kinds("QuantizeLinear")
def _quantized(c: Context) -> Sequence[Kind]:
    stated = c.attribute("output_dtype") or 0
    return [BY_NUMBER.get(stated) or (c.dtype(2) if c.has(2) else "uint8")]


@kinds("DequantizeLinear")
def _dequantized(c: Context) -> Sequence[Kind]:
    stored, zeros = c.dtype(0), c.dtype(2)
    if stored is not None and zeros is not None and stored != zeros:
        cause = f"its integers are {stored} and its zero points {zeros}"
        raise TypeMismatch(cause, where=c.where, remedy="Give zero points of the integers' type")
    return [BY_NUMBER.get(c.attribute("output_dtype") or 0) or ("float32" if c.version < 19 else c.dtype(1))]


KINDS.update(
    {
        "Cast": partial(_as_named, name="to"),
        "BitCast": partial(_as_named, name="to"),
        "Multinomial": partial(_as_named, name="dtype", default="int32"),
        **dict.fromkeys(("RandomNormal", "RandomUniform"), partial(_as_named, name="dtype", default="float32")),
        **dict.fromkeys(
            ("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"), partial(_as_named, name="dtype", default=0)
        ),
        **dict.fromkeys(
            ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"),
            partial(_as_named, name="output_datatype", default="float32"),
        ),
    }
)


@kinds("ai.onnx.ml.LinearClassifier", "ai.onnx.ml.SVMClassifier", "ai.onnx.ml.TreeEnsembleClassifier")
def _classified(c: Context) -> Sequence[Kind]:
    return ["string" if c.attribute("classlabels_strings") else "int64", "float32"]


@kinds("ai.onnx.ml.CategoryMapper")
def _mapped(c: Context) -> Sequence[Kind]:
    return [{"int64": "string", "string": "int64"}.get(c.dtype(0) or "")]


@kinds("ai.onnx.ml.LabelEncoder")
def _encoded(c: Context) -> Sequence[Kind]:
    if c.version < 2:
        return _mapped(c)
    table = c.attribute("values_tensor")
    if table is not None:
        return ["string" if table.dtype.kind in "OSU" else table.dtype.name]
    return [_by_attribute(c, "values_")]


@kinds("ai.onnx.ml.CastMap")
def _cast_map(c: Context) -> Sequence[Kind]:
    return [{"TO_FLOAT": "float32", "TO_STRING": "string", "TO_INT64": "int64"}.get(c.attribute("cast_to", "TO_FLOAT"))]


@kinds("ai.onnx.ml.DictVectorizer")
def _vectorized(c: Context) -> Sequence[Kind]:
    given = c.type(0)
    value = given.value if isinstance(given, MapType) else None
    return [value.dtype if isinstance(value, TensorType) else None]


@kinds("ai.onnx.ml.ZipMap")
def _zipped(c: Context) -> Sequence[Kind]:
    key = _by_attribute(c, "classlabels_", "strings int64s")
    return [None if key is None else SequenceType(MapType(key, TensorType("float32")))]


@kinds("ai.onnx.preview.training.Adagrad", "ai.onnx.preview.training.Momentum", "ai.onnx.preview.training.Adam")
def _trained(c: Context) -> Sequence[Kind]:
    return [c.dtype(slot) for slot in trained_slots(c)]


def trained_slots(c: Context) -> list[int]:
    """For each result of an optimizer, the input that it replaces: tensors come first, then gradients, which none replaces."""
    groups = 4 if c.op == "Adam" else 3
    count = (len(c.node.inputs) - 2) // groups
    return [2 + slot for slot in range(groups * count) if not count <= slot < 2 * count][: c.results]


@kinds("ai.onnx.preview.training.Gradient")
def _differentiated(c: Context) -> Sequence[Kind]:
    return [c.dtype(slot) for slot in range(c.results)]
