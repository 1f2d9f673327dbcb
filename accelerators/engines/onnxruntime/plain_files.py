"""Files that onnxruntime may run unchanged: those that hold only what it computes as its device does.

The check reads protobuf's wire format itself: the onnx package takes longer to import than the engine to answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

_WINDOW = "dilations kernel_shape pads strides"

_BY_ATTRIBUTES = {
    "": "Abs Add And Ceil Cos Div Equal Erf Exp Floor GatherND GlobalAveragePool Greater GreaterOrEqual HardSwish Identity"
    " IsNaN Less LessOrEqual Log MatMul Mul Neg Not Or PRelu Pow Relu Round Shape Sigmoid Sin Softplus Softsign Sqrt Sub Sum"
    " Tanh Where",
    _WINDOW: "MaxPool",
    f"{_WINDOW} count_include_pad": "AveragePool",
    f"{_WINDOW} group": "Conv ConvTranspose",
    "allowzero": "Reshape",
    "alpha": "Elu LeakyRelu",
    "alpha beta": "HardSigmoid",
    "alpha beta transA transB": "Gemm",
    "alpha gamma": "Selu",
    "approximate": "Gelu",
    "axes": "Squeeze Unsqueeze",
    "axes keepdims": "ReduceMean",
    "axis": "Concat Flatten Gather LogSoftmax Softmax",
    "axis epsilon stash_type": "LayerNormalization",
    "epsilon momentum": "BatchNormalization",
    "min max": "Clip",
    "perm": "Transpose",
    "ratio seed": "Dropout",
    "to": "Cast",
    "value": "Constant",
}

PLAIN = {op: frozenset(names.encode().split()) for names, listed in _BY_ATTRIBUTES.items() for op in listed.split()}
"""The safe ops of ONNX's own domain, with the attributes that they may have. None makes an empty value of
non-empty ones, and none is handled in `quirks`, `guarding` or `optimizers` unless for other attributes."""

_SILENT = {b"auto_pad": b"NOTSET", b"batch_dims": 0, b"ceil_mode": 0, b"storage_order": 0, b"noop_with_empty_axes": 0}
"""Attributes that any op may have with these values, which are defaults."""

_MOST_INPUTS = {"Dropout": 2}
"""Maximum number of inputs of an op; with a third one a Dropout may drop elements."""

_PASSING = frozenset(("Constant", "Dropout", "Identity"))
"""Ops whose results may be the engine's own memory."""

OURS = b"partita."
"""Prefix of the metadata keys that Partita adds to a node, such as its device."""

# Field numbers of a model, a graph, a tensor and an attribute; that of a name is the same in several.
_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25
_NODES, _INITIALIZERS, _OUTPUTS, _VALUE_INFO, _SPARSE = 1, 5, 12, 13, 15
_DIMS, _EXTERNAL_DATA, _DATA_LOCATION = 1, 13, 14
_NAME, _INT, _STRING, _TENSOR, _TYPE = 1, 3, 4, 5, 2

_OF_ATTRIBUTES = frozenset((_NAME, 2, _INT, _STRING, _TENSOR, 7, 8, 13, 20))
"""The fields that an attribute may have: a name, a number, text, a tensor, numbers, a comment and its kind."""

_VARINT, _LENGTH = 0, 2
_SIZES = {1: 8, 5: 4}
"""The size in bytes of a field's content, by its wire type, for fixed-size types."""

_HEAD = 20
"""Maximum number of bytes before a field's content: its tag and its length."""

PIECE = 1 << 14
"""Number of bytes that are read at a time."""


def is_plain(file: BinaryIO) -> bool:
    """True if onnxruntime may run this file unchanged. False also if it is damaged."""
    try:
        _check_model(_Part(_File(file), 0, file.seek(0, os.SEEK_END)))
    except (OSError, ValueError, IndexError, TypeError, _NotPlain):
        return False
    return True


class _NotPlain(Exception):
    """The file contains something that is not known to be safe."""


def _check(plain: bool) -> None:
    if not plain:
        raise _NotPlain


class _File:
    """A file that is read in pieces; skipped parts are not read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = 0
        self._piece = b""
        self.seen = set[tuple[str, bytes]]()
        """The attributes and types that passed the check, since each occurs many times."""

    def content(self, start: int, stop: int) -> bytes:
        """The bytes of this part of the file."""
        at = start - self._start
        if at < 0 or at + stop - start > len(self._piece):
            self._file.seek(start)
            self._piece, self._start, at = self._file.read(max(stop - start, PIECE)), start, 0
        return self._piece[at : at + stop - start]


class _Part:
    """A protobuf message in the file."""

    __slots__ = ("file", "start", "stop")

    def __init__(self, file: _File, start: int, stop: int) -> None:
        self.file, self.start, self.stop = file, start, stop

    @property
    def content(self) -> bytes:
        """Its bytes."""
        return self.file.content(self.start, self.stop)

    def fields(self) -> Iterator[tuple[int, int, _Part]]:
        """Field number, value if it is an integer, and content of each field."""
        start, end = self.start, self.stop
        while start < end:
            head = self.file.content(start, min(start + _HEAD, end))
            tag, at = (head[0], 1) if head[0] < 0x80 else _varint(head, 0)
            kind, number, size = tag & 7, 0, 0
            if kind in (_VARINT, _LENGTH):
                number, at = _varint(head, at)
                size = number if kind == _LENGTH else 0
            else:
                size = _SIZES.get(kind, -1)
            part = _Part(self.file, start + at, start + at + size)
            _check(size >= 0 and part.stop <= end)
            yield tag >> 3, number, part
            start = part.stop

    def new(self, op: str = "") -> bool:
        """True the first time for this content."""
        key = (op, self.content)
        is_new = key not in self.file.seen
        self.file.seen.add(key)
        return is_new


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """The varint at this offset, and the offset of its end."""
    number = shift = 0
    while shift < 64:
        byte = content[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, start
        shift += 7
    raise _NotPlain


def _check_model(model: _Part) -> None:
    fields = [(field, part) for field, _, part in model.fields()]
    _check(not {field for field, _ in fields} & {_TRAINING, _FUNCTIONS})
    (graph,) = [part for field, part in fields if field == _GRAPH]
    computed, wanted = set[bytes](), set[bytes]()
    for field, _, part in graph.fields():
        _check(field != _SPARSE)
        if field == _INITIALIZERS:
            _check_tensor(part)
        elif field == _NODES:
            computed |= _computed(part)
        elif field == _OUTPUTS:
            wanted |= {name.content for number, _, name in part.fields() if number == _NAME}
        elif field == _VALUE_INFO:
            _check(not any(number == _TYPE and inner.new() and _names_sizes(inner) for number, _, inner in part.fields()))
    _check(bool(wanted) and wanted <= computed)


def _computed(node: _Part) -> set[bytes]:
    """Checks a node, and returns the values that it computes."""
    _check(OURS not in node.content)
    op, inputs, outputs, attributes = "", 0, set[bytes](), list[_Part]()
    for field, _, part in node.fields():
        if field == 1:
            inputs += 1
        elif field == 2:
            outputs.add(part.content)
        elif field == 4:
            op = part.content.decode()
        elif field == 5:
            attributes.append(part)
        elif field == 7:
            _check(part.start == part.stop)
    _check(op in PLAIN and inputs <= _MOST_INPUTS.get(op, inputs))
    for attribute in attributes:
        if attribute.new(op):
            _check_attribute(attribute, PLAIN[op])
    return set() if op in _PASSING else outputs


def _check_attribute(attribute: _Part, plain: frozenset[bytes]) -> None:
    fields = list(attribute.fields())
    held = {field: (number, part) for field, number, part in fields}
    _check(held.keys() <= _OF_ATTRIBUTES and [field for field, _, _ in fields].count(_TENSOR) <= 1)
    name = held[_NAME][1].content if _NAME in held else b""
    if name in _SILENT:
        silent = _SILENT[name]
        if isinstance(silent, bytes):
            _check(_STRING not in held or held[_STRING][1].content == silent)
        else:
            _check(_INT not in held or held[_INT][0] == silent)
        return
    _check(name in plain)
    if _TENSOR in held:
        _check_tensor(held[_TENSOR][1])


def _check_tensor(tensor: _Part) -> None:
    """Checks that a tensor is not empty, and that its data are in this file. The data are skipped."""
    for field, number, part in tensor.fields():
        if field == _DIMS:
            content, at = part.content, 0
            _check(number != 0)
            while at < len(content):  # packed integers
                size, at = _varint(content, at)
                _check(size != 0)
        else:
            _check(field != _EXTERNAL_DATA and not (field == _DATA_LOCATION and number))


def _names_sizes(declared: _Part) -> bool:
    """True if a type has a symbolic size."""
    inner = [declared]
    for field in (1, 2, 1):  # the tensor, its shape, the sizes
        inner = [part for outer in inner for number, _, part in outer.fields() if number == field]
    return any(number == 2 for size in inner for number, _, _ in size.fields())
