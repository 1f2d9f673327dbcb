"""ONNX files that onnxruntime may have as they stand: it computes all of what is in them as the device `onnxruntime` would.

The file is looked at in protobuf's wire format, without its weights and without the package onnx. Whatever is not surely plain
is left to those who read the file: ops that onnxruntime computes wrongly for some attributes, functions, data in other files,
tensors without elements, symbols of values between, which onnxruntime would believe, and what Partita notes of nodes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

_OPS = (
    "Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Constant Conv ConvTranspose Cos Div Dropout Elu"
    " Equal Erf Exp Flatten Floor Gather GatherND Gelu Gemm GlobalAveragePool Greater GreaterOrEqual HardSigmoid"
    " HardSwish Identity IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul MaxPool Mul Neg Not"
    " Or PRelu Pow ReduceMean Relu Reshape Round Selu Shape Sigmoid Sin Softmax Softplus Softsign Sqrt Squeeze Sub Sum"
    " Tanh Transpose Unsqueeze Where"
).split()

_WINDOW = "dilations kernel_shape pads strides"

_ATTRIBUTES = {
    "AveragePool": f"{_WINDOW} count_include_pad",
    "BatchNormalization": "epsilon momentum",
    "Cast": "to",
    "Clip": "min max",
    "Concat": "axis",
    "Constant": "value",
    "Conv": f"{_WINDOW} group",
    "ConvTranspose": f"{_WINDOW} group",
    "Dropout": "ratio seed",
    "Elu": "alpha",
    "Flatten": "axis",
    "Gather": "axis",
    "Gelu": "approximate",
    "Gemm": "alpha beta transA transB",
    "HardSigmoid": "alpha beta",
    "LayerNormalization": "axis epsilon stash_type",
    "LeakyRelu": "alpha",
    "LogSoftmax": "axis",
    "MaxPool": _WINDOW,
    "ReduceMean": "axes keepdims",
    "Reshape": "allowzero",
    "Selu": "alpha gamma",
    "Softmax": "axis",
    "Squeeze": "axes",
    "Transpose": "perm",
    "Unsqueeze": "axes",
}

PLAIN = {op: frozenset(_ATTRIBUTES.get(op, "").encode().split()) for op in _OPS}
"""The ops of ONNX's own domain that are plain, with the attributes that they may have. None makes a value without elements of
values with elements, and none has to be guarded in `hazards`, `guarding` or `optimizers` unless by other attributes."""

_SILENT = {b"auto_pad": b"NOTSET", b"batch_dims": 0, b"ceil_mode": 0, b"storage_order": 0, b"noop_with_empty_axes": 0}
"""Attributes that any op may have with these values, which say nothing."""

_MOST_INPUTS = {"Dropout": 2}
"""How many inputs an op may have; with a third one a Dropout may drop numbers."""

_PASSING = frozenset(("Constant", "Dropout", "Identity"))
"""Ops whose results may be memory of the engine's own."""

OURS = b"partita."
"""What the keys of the notes begin with that Partita keeps with a node: the device that it is for, for one."""

# The numbers of fields: of a model, a graph, a tensor, an attribute; that of a name is the same in several.
_GRAPH, _TRAINING, _FUNCTIONS = 7, 20, 25
_NODES, _INITIALIZERS, _OUTPUTS, _VALUE_INFO, _SPARSE = 1, 5, 12, 13, 15
_DIMS, _EXTERNAL_DATA, _DATA_LOCATION = 1, 13, 14
_NAME, _TENSOR = 1, 5
_TYPE = 2

_OF_ATTRIBUTES = frozenset((_NAME, 2, 3, 4, _TENSOR, 7, 8, 13, 20))
"""What an attribute may hold: a name, a number, text, a tensor, numbers, a comment and its kind."""

_VARINT, _LENGTH = 0, 2
_SIZES = {_VARINT: 0, 1: 8, 5: 4}
"""The bytes of a field's content by its kind, behind a whole number and for those of fixed size."""

_HEAD = 20
"""The most bytes before a field's content: its number and kind, and its length."""

PIECE = 1 << 14
"""The bytes that are read at a time."""


def is_plain(file: BinaryIO) -> bool:
    """May onnxruntime have this file as it stands? False too if it is damaged."""
    try:
        size = file.seek(0, os.SEEK_END)
        _check_model(_File(file), size)
    except (OSError, ValueError, IndexError, AttributeError, TypeError, _NotPlain):
        return False
    return True


class _NotPlain(Exception):
    """Something in the file is not surely plain."""


def _check(plain: bool) -> None:
    if not plain:
        raise _NotPlain


class _File:
    """A file of which a piece at a time is in memory; what is passed over is not read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = 0
        self._piece = b""
        self.seen = set[tuple[str, bytes]]()
        """The attributes and types that were looked at and are plain: each comes many times."""

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
    """The values that a node computes; it has to be a plain one."""
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
    """A tensor has elements, and they stand in this file. Its data are passed over."""
    for field, number, at, stop in _walked(file, start, end):
        if field == _DIMS:
            _check(number != 0 and all(_packed(file.content(at, stop))))
        else:
            _check(field != _EXTERNAL_DATA and not (field == _DATA_LOCATION and number))


def _check_value_info(value_info: bytes, seen: set[tuple[str, bytes]]) -> None:
    """The declared type of a value has no size that is a symbol."""
    for number, declared in _fields(value_info):
        if number == _TYPE and ("", declared) not in seen:
            _check(not _names_sizes(declared))
            seen.add(("", declared))


def _names_sizes(declared: bytes) -> bool:
    """Does a type have a size that is a symbol?"""
    inner = [declared]
    for field in (1, 2, 1):  # the tensor, its shape, the sizes
        inner = [value for content in inner for number, value in _fields(content) if number == field and type(value) is bytes]
    return any(number == 2 for size in inner for number, _ in _fields(size))


# -- protobuf's wire format ------------------------------------------------------------------------------


def _walked(file: _File, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message between these places: the number of each, its value if it is a whole number, and where its
    content begins and ends."""
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
    """The same of a message in memory: the number of each field, and its value, which is a whole number or bytes."""
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
    """The whole numbers of a packed field."""
    start = 0
    while start < len(content):
        number, start = _varint(content, start)
        yield number


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """The whole number that begins here, and where it ends."""
    number = shift = 0
    while shift < 64:
        byte = content[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, start
        shift += 7
    raise _NotPlain
