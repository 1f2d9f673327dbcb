"""Damaged files: one PartitaError each, or a graph that can be verified, written and read again."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

from partita.graph.errors import PartitaError
from partita.graph.readers import load
from partita.graph.verify import verify
from partita.graph.writers.onnx import save, to_model
from tests.onnx.models import FUNCTIONS, LINE, NESTED, model
from tests.onnx.node_roundtrip import node_cases
from tests.onnx.test_external import _graph
from tests.onnx.test_writer import calls

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    """Real files, and ours, which hold notes to be damaged."""
    node = [case.model.SerializeToString() for case in node_cases()]
    own = [model(text) for text in (LINE, NESTED, FUNCTIONS)]
    own += [to_model(graph) for graph in (calls(), *map(load, own))]
    light = [path.read_bytes() for path in sorted(LIGHT.glob("*.onnx"))]
    return [data for data in node if len(data) < 20_000][::4] + [proto.SerializeToString() for proto in own] * 30 + light


def bytes_damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut short, or with some bytes changed, gone, put in or doubled."""
    result = bytearray(data)
    if rng.random() < 0.1:
        return bytes(result[: rng.randrange(len(result))])
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        i, j = rng.randrange(len(result)), rng.randrange(len(result))
        kind = rng.randrange(5)
        if kind == 0:
            result[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            result[i] = rng.randrange(256)
        elif kind == 2:
            del result[i : i + rng.randrange(1, 9)]
        elif kind == 3:
            result[i:i] = rng.randbytes(3)
        else:
            result[i : i + 8] = result[j : j + 8]
    return bytes(result)


def fields_damaged(data: bytes, rng: random.Random) -> bytes:
    """The file with some fields changed to other values of their types: other names, odd numbers, items gone or doubled."""
    proto = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _damage_field(proto, rng, data)
    return proto.SerializeToString()


def _damage_field(proto, rng, data):
    """Walk down to some field and change it."""
    while fields := proto.ListFields():
        field, value = rng.choice(fields)
        repeated = not isinstance(value, (str, bytes)) and hasattr(value, "extend")
        if repeated and (field.message_type is None or rng.random() < 0.2):
            _damage_list(value, field, rng)
            return
        if field.message_type is None:
            numbers = list(field.enum_type.values_by_number) if field.enum_type is not None else None
            setattr(proto, field.name, rng.choice(numbers) if numbers else _other(value, rng))
            return
        if rng.random() < 0.05:
            proto.ClearField(field.name)
            return
        proto = rng.choice(value) if repeated else value


def _damage_list(items, field, rng):
    i = rng.randrange(len(items))
    kind = rng.randrange(3)
    if kind == 0:
        del items[i]
    elif field.message_type is None:
        items[i] = _other(rng.choice(items) if kind == 1 else items[i], rng) if rng.random() < 0.7 else rng.choice(items)
    else:
        items.add().CopyFrom(rng.choice(items))


def _other(value, rng):
    if isinstance(value, str):
        return rng.choice(["", "x", "y", "t", "first", value + "_", "../x", "[1,2]", '{"outer":[]}', "\0", "null"])
    if isinstance(value, bytes):
        return rng.choice([b"", value[:-1], value + value, b"\xff"])
    if isinstance(value, float):
        return rng.choice([0.0, float("nan"), -value])
    return rng.choice([0, 1, 2, 5, 99, value + 1] + [-1, 2**31 - 1] * (value < 0 or value > 30))


def survive(data: bytes) -> bool:
    """Whether the file can still be read; anything but a PartitaError is raised."""
    try:
        graph = load(data)
        verify(graph)
        load(to_model(graph))
    except PartitaError:
        return False
    return True


@pytest.mark.parametrize("damage", [bytes_damaged, fields_damaged])
def test_damaged_files(files, damage):
    rng = random.Random(1)
    read = sum(survive(damage(rng.choice(files), rng)) for _ in range(3000))
    assert read > 100, "most damage should not even be noticed by chance"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("damage", [bytes_damaged, fields_damaged])
def test_many_damaged_files(files, damage, seed):
    rng = random.Random(f"{seed}")
    for _ in range(10_000):
        survive(damage(rng.choice(files), rng))


def test_damaged_files_with_external_data(tmp_path):
    path = tmp_path / "net.onnx"
    save(_graph(1), path, external=True)
    data, rng = path.read_bytes(), random.Random(2)
    for i in range(1000):
        path.write_bytes((bytes_damaged, fields_damaged)[i % 2](data, rng))
        try:
            verify(load(path))
        except PartitaError:
            continue


def test_functions_nested_too_deep_or_doubling_are_refused():
    parts = "".join(
        f'<domain: "my", opset_import: ["" : 21, "my" : 1]> f{i} (a) => (b) {{ t = my.f{i + 1} (a)  b = my.f{i + 1} (t) }}\n'
        for i in range(40)
    )
    last = '<domain: "my", opset_import: ["" : 21]> f40 (a) => (b) { b = Relu (a) }'
    text = "net (float[3] x) => (float[3] y) { y = my.f0 (x) }\n" + parts + last
    assert load(model(text))["y"].is_call
    with pytest.raises(PartitaError, match="more than 10000000 nodes"):
        load(model(text), inline=True)
