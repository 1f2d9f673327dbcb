"""ONNX files that onnxruntime may run unchanged: it computes everything in them as the device `onnxruntime` would.

The file is checked in protobuf's wire format, without its weights and without the package onnx. Anything that is not known to
be safe is left to the full reader: ops that onnxruntime computes wrongly for some attributes, functions, external data,
empty tensors, symbols of intermediate values, which onnxruntime would trust, and Partita's metadata of nodes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

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
non-empty ones, and none is handled in `hazards`, `guarding` or `optimizers` unless for other attributes."""

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
_NAME, _TENSOR = 1, 5
_TYPE = 2

_OF_ATTRIBUTES = frozenset((_NAME, 2, 3, 4, _TENSOR, 7, 8, 13, 20))
"""The fields that an attribute may have: a name, a number, text, a tensor, numbers, a comment and its kind."""

_VARINT, _LENGTH = 0, 2
_SIZES = {_VARINT: 0, 1: 8, 5: 4}
"""The size in bytes of a field's content, by its wire type, after a varint and for fixed-size types."""

_HEAD = 20
"""Maximum number of bytes before a field's content: its tag and its length."""

PIECE = 1 << 14
"""Number of bytes that are read at a time."""


def is_plain(file: BinaryIO) -> bool:
    """True if onnxruntime may run this file unchanged. False also if it is damaged."""
    try:
        size = file.seek(0, os.SEEK_END)
        _check_model(_File(file), size)
    except (OSError, ValueError, IndexError, AttributeError, TypeError, _NotPlain):
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


def _check_model(file: _File, size: int) -> None:
    graphs = 0
    for field, _, start, stop in _walked(file, 0, size):
        _check(field not in (_TRAINING, _FUNCTIONS))
        if field == _GRAPH:
            graphs += 1
            _check_graph(file, start, stop)
    _check(graphs == 1)


def _check_graph(file: _File, start: int, end: int) -> None:
    computed, wanted = set[bytes](), set[bytes]()
    for field, _, at, stop in _walked(file, start, end):
        _check(field != _SPARSE)
        if field == _INITIALIZERS:
            _check_tensor(file, at, stop)
        elif field == _NODES:
            computed |= _computed(file.content(at, stop), file.seen)
        elif field == _OUTPUTS:
            wanted |= {value for number, value in _fields(file.content(at, stop)) if number == _NAME}
        elif field == _VALUE_INFO:
            _check_value_info(file.content(at, stop), file.seen)
    _check(bool(wanted) and wanted <= computed)


def _computed(node: bytes, seen: set[tuple[str, bytes]]) -> set[bytes]:
    """Checks a node, and returns the values that it computes."""
    _check(OURS not in node)
    op, inputs, outputs, attributes = "", 0, set[bytes](), list[bytes]()
    for field, value in _fields(node):
        if field == 1:
            inputs += 1
        elif field == 2:
            outputs.add(value)
        elif field == 4:
            op = value.decode()
        elif field == 5:
            attributes.append(value)
        elif field == 7:
            _check(not value)
    _check(op in PLAIN and inputs <= _MOST_INPUTS.get(op, inputs))
    for attribute in attributes:
        if (op, attribute) not in seen:
            _check_attribute(attribute, PLAIN[op])
            seen.add((op, attribute))
    return set() if op in _PASSING else outputs


def _check_attribute(attribute: bytes, plain: frozenset[bytes]) -> None:
    fields = list(_fields(attribute))
    held = dict(fields)
    name = held.get(_NAME, b"")
    _check(held.keys() <= _OF_ATTRIBUTES and [number for number, _ in fields].count(_TENSOR) <= 1)
    if name in _SILENT:
        silent = _SILENT[name]
        _check(held.get(4 if isinstance(silent, bytes) else 3, silent) == silent)
        return
    _check(name in plain)
    if _TENSOR in held:
        _check_tensor(_File(io.BytesIO(held[_TENSOR])), 0, len(held[_TENSOR]))


def _check_tensor(file: _File, start: int, end: int) -> None:
    """Checks that a tensor is not empty, and that its data are in this file. The data are skipped."""
    for field, number, at, stop in _walked(file, start, end):
        if field == _DIMS:
            _check(number != 0 and all(_packed(file.content(at, stop))))
        else:
            _check(field != _EXTERNAL_DATA and not (field == _DATA_LOCATION and number))


def _check_value_info(value_info: bytes, seen: set[tuple[str, bytes]]) -> None:
    """Checks that the declared type of a value has no symbolic size."""
    for number, declared in _fields(value_info):
        if number == _TYPE and ("", declared) not in seen:
            _check(not _names_sizes(declared))
            seen.add(("", declared))


def _names_sizes(declared: bytes) -> bool:
    """True if a type has a symbolic size."""
    inner = [declared]
    for field in (1, 2, 1):  # the tensor, its shape, the sizes
        inner = [value for content in inner for number, value in _fields(content) if number == field and type(value) is bytes]
    return any(number == 2 for size in inner for number, _ in _fields(size))


# -- protobuf's wire format ------------------------------------------------------------------------------


def _walked(file: _File, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message between these offsets: field number, value if it is an integer, and start and end of the
    content."""
    while start < end:
        head = file.content(start, min(start + _HEAD, end))
        tag, at = (head[0], 1) if head[0] < 0x80 else _varint(head, 0)
        kind, number = tag & 7, 0
        if kind in (_VARINT, _LENGTH):
            number, at = _varint(head, at)
        size = number if kind == _LENGTH else _SIZES.get(kind, -1)
        start += at
        stop = start + size
        _check(size >= 0 and stop <= end)
        yield tag >> 3, number, start, stop
        start = stop


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message in memory: field number and value, which is an integer or bytes."""
    start, end = 0, len(content)
    while start < end:
        tag = content[start]
        tag, start = (tag, start + 1) if tag < 0x80 else _varint(content, start)
        kind = tag & 7
        if kind == _VARINT:
            number, start = _varint(content, start)
            yield tag >> 3, number
            continue
        size = _SIZES.get(kind, -1)
        if kind == _LENGTH:
            size = content[start]
            size, start = (size, start + 1) if size < 0x80 else _varint(content, start)
        stop = start + size
        if size < 0 or stop > end:
            raise _NotPlain
        yield tag >> 3, content[start:stop]
        start = stop


def _packed(content: bytes) -> Iterator[int]:
    """The integers of a packed field."""
    start = 0
    while start < len(content):
        number, start = _varint(content, start)
        yield number


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
