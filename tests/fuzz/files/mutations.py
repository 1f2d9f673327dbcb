"""Files made wrong: their bytes, or what is written in them (fields of protobuf messages, trees of JSON, words of a text)."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
"""Numbers that a size, a count or an index may turn into."""

WORDS = (
    "", "x", "y", "../x", "/etc/passwd", "\0", "é", "null", "[1, 2]", "{}", "(1,)", "(1000000000, 1000000000)", "nan", "1e999",
    "-1", "9" * 40, "float32", "int4", "string", "main", "a" * 5000, "%s", "{0}",
)
"""Words that a name or a value may turn into."""

EIGHTS = (
    b"\xff" * 8,
    bytes(8),
    b"\xff\xff\xff\x7f" + bytes(4),
    b"\x01" + bytes(7),
    bytes(4) + b"\x01" + bytes(3),
)
"""Eight bytes that lie when a number is read from them."""


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """Cut short, or with some bytes changed, gone, put in, doubled or moved."""
    result = bytearray(data or b"\0")
    if rng.random() < 0.08:
        return bytes(result[: rng.randrange(len(result))])
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        result = result or bytearray(b"\0")
        i, j, size = rng.randrange(len(result)), rng.randrange(len(result)), rng.choice((1, 2, 4, 8, 64))
        kind = rng.randrange(7)
        if kind == 0:
            result[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            result[i] = rng.randrange(256)
        elif kind == 2:
            del result[i : i + size]
        elif kind == 3:
            result[i:i] = rng.randbytes(size)
        elif kind == 4:
            result[i : i + size] = result[j : j + size]
        elif kind == 5:
            result[i : i + 8] = rng.choice(EIGHTS)
        else:
            result[i:i] = result[j : j + size] * rng.choice((1, 2, 50))
    return bytes(result)


def text_changed(data: bytes, rng: random.Random) -> bytes:
    """The text with some words removed, doubled, exchanged or replaced."""
    text = data.decode("utf-8", "replace")
    pieces = [
        *'()[]{},:=@%?#"\\\n-_9\0',
        *WORDS,
        *map(str, NUMBERS),
        'b"',
        "sparse(",
        "const",
        "graph",
        "call",
        "func",
    ]
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:i] + text[i + rng.choice((1, 3, 20)) :]
        elif kind == 1:
            text = text[:i] + rng.choice(pieces) + text[i:]
        elif kind == 2:
            text = text[:i] + rng.choice(pieces) + text[i + 1 :]
        else:
            text = text[:i] + text[j : j + rng.choice((5, 30, 200))] + text[i:]
    return text.encode("utf-8", "surrogatepass")


def json_changed(data: bytes, rng: random.Random) -> bytes:
    """The tree with some values exchanged for others, removed, doubled, or put under other names."""
    try:
        tree = json.loads(data)
    except ValueError:
        return bytes_changed(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tree = tree_changed(tree, rng)
    return json.dumps(tree).encode()


def tree_changed(tree: Any, rng: random.Random) -> Any:
    """The tree with one value changed."""
    result = copy.deepcopy(tree)
    places = list(_places(result))
    if not places:
        return odd_value(result, rng)
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind < 3:
        holder[key] = odd_value(holder[key], rng)
    elif kind == 3:
        del holder[key]
    elif kind == 4:
        other, name = rng.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif kind == 5 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif kind == 6 and isinstance(holder, dict):
        holder[rng.choice((*WORDS, *map(str, holder)))] = holder.pop(key)
    else:
        holder[key] = [holder[key]] if rng.random() < 0.5 else {"x": holder[key]}
    return result


def _places(tree: Any) -> Any:
    """Every value below, by what holds it."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        for key in (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        ):
            yield holder, key
            waiting.append(holder[key])


def odd_value(value: Any, rng: random.Random) -> Any:
    """Another value, of the same kind mostly."""
    if rng.random() < 0.25:
        return rng.choice([None, True, [], {}, "", 0, -1, 1.5, [[]], float("inf")])
    if isinstance(value, bool) or value is None:
        return rng.choice([not value, None, 2, "true"])
    if isinstance(value, (int, float)):
        return rng.choice([*NUMBERS, value + 1, value - 1, -value, 0.5])
    if isinstance(value, str):
        return rng.choice([*WORDS, value + "_", value[:-1], value * 2, value.upper()])
    return rng.choice([[], {}, None, 3])


def message_changed(data: bytes, rng: random.Random, kind: Any) -> bytes:
    """A protobuf message with some fields of other values of their types, gone or doubled."""
    try:
        message = kind.FromString(data)
    except Exception:  # noqa: BLE001  (protobuf's own error types differ by its version)
        return bytes_changed(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        _change_field(message, rng)
    return message.SerializeToString()


def _change_field(message: Any, rng: random.Random) -> None:
    """Walk down to some field and change it; now and then one that was not there."""
    while fields := message.ListFields():
        if rng.random() < 0.06:
            absent = [
                field
                for field in message.DESCRIPTOR.fields
                if field.message_type is None and not _many(message, field)
            ]
            if absent:
                field = rng.choice(absent)
                setattr(message, field.name, _other_scalar(getattr(message, field.name), field, rng))
                return
        field, value = rng.choice(fields)
        many = _many(message, field)
        if many and (field.message_type is None or rng.random() < 0.2):
            _change_items(value, field, rng)
            return
        if field.message_type is None:
            setattr(message, field.name, _other_scalar(value, field, rng))
            return
        if rng.random() < 0.06:
            message.ClearField(field.name)
            return
        message = rng.choice(value) if many else value


def _many(message: Any, field: Any) -> bool:
    return hasattr(getattr(message, field.name), "extend") and not isinstance(
        getattr(message, field.name), (str, bytes)
    )


def _change_items(items: Any, field: Any, rng: random.Random) -> None:
    i, kind = rng.randrange(len(items)), rng.randrange(4)
    if kind == 0:
        del items[i]
    elif field.message_type is not None:
        items.add().CopyFrom(rng.choice(items))
    elif kind == 1:
        items.append(rng.choice(items))
    else:
        items[i] = _other_scalar(items[i], field, rng)


def _other_scalar(value: Any, field: Any, rng: random.Random) -> Any:
    if field.enum_type is not None:
        return rng.choice(list(field.enum_type.values_by_number))
    if isinstance(value, str):
        return rng.choice([*WORDS, value + "_", value])
    if isinstance(value, bytes):
        return rng.choice([b"", value[:-1], value + value, b"\xff", value + b"\0", b"0" * 40, b"../x"])
    if isinstance(value, float):
        return rng.choice([0.0, float("nan"), float("inf"), -value, 1e30])
    if isinstance(value, bool):
        return not value
    small = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32)
    numbers = [n for n in (*NUMBERS, value + 1, value - 1) if not small or -(2**31) <= n < 2**31]
    return rng.choice([n for n in numbers if -(2**63) <= n < 2**63])
