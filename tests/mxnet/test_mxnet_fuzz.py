"""Damaged files are refused with one clear error or read as what they have become; nothing else ever happens."""

from __future__ import annotations

import copy
import json
import random

import pytest

from partita.graph import Graph, PartitaError
from partita.graph.readers.mxnet import load_mxnet, read_params
from partita.graph.verify import verify
from tests.mxnet.data import FOLDER, cases

PARAMS = (FOLDER / "many_ops-0000.params").read_bytes()
SYMBOL = (FOLDER / "many_ops-symbol.json").read_bytes()
NUMBERS = [b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f" + bytes(4), b"\x01" + bytes(7)]
TEXTS = [
    "0", "-1", "1", "3", "(1,)", "()", "(0, 0)", "(2, 2)", "(-1, -1)", "(1, 2, 3, 4, 5)", "None", "True", "1e300", "nan",
    "inf", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "(9223372036854775807, 1)", "abc", "",
    "1000000000", "(1000000000, 1000000000)", "float16", "int8", "bool", "NHWC", "full", "1.5", "wrap", "channel", "like",
]
KEYS = [
    "axis",
    "kernel",
    "stride",
    "num_outputs",
    "shape",
    "scale",
    "__shape__",
    "__dtype__",
    "depth",
    "k",
    "repeats",
]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them changed, gone, doubled or replaced by numbers that lie."""
    result = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(result))
        kind = chance.randrange(5)
        if kind == 0:
            result[at] = chance.randrange(256)
        elif kind == 1:
            del result[at : at + chance.randint(1, 20)]
        elif kind == 2:
            result[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 9)))
        elif kind == 3:
            result[at : at + 8] = chance.choice(NUMBERS)
        else:
            del result[at:]
        result = result or bytearray(b" ")
    return bytes(result)


def altered(symbol: dict, ops: list[str], chance: random.Random) -> dict:
    """The symbol with a parameter, an op, an input or an output changed."""
    result = copy.deepcopy(symbol)
    nodes = result["nodes"]
    node = chance.choice(nodes)
    kind = chance.randrange(6)
    if kind <= 2:
        parameters = node.setdefault("attrs", {})
        parameters[chance.choice([*parameters, chance.choice(KEYS)])] = chance.choice(TEXTS)
    elif kind == 3:
        node["op"] = chance.choice(ops)
    elif kind == 4:
        node["inputs"] = [[chance.randrange(len(nodes)), 0, 0] for _ in range(chance.randint(0, 4))]
    else:
        chance.choice(result["heads"])[chance.randrange(2)] = chance.choice(
            [0, 1, -1, 10**6, chance.randrange(len(nodes))]
        )
    return result


def read(make) -> bool:
    """Was it read? A graph that was read is a good one."""
    try:
        result = make()
    except PartitaError as refused:
        assert str(refused)
        return False
    if isinstance(result, Graph):
        verify(result)
    return True


@pytest.mark.parametrize("seed", range(8))
def test_damaged_parameters(seed):
    chance = random.Random(seed)
    assert 0 < sum(read(lambda: read_params(damaged(PARAMS, chance))) for _ in range(250)) < 250


@pytest.mark.parametrize("seed", range(4))
def test_damaged_json(seed):
    chance, weights = random.Random(seed), read_params(PARAMS)
    assert sum(read(lambda: load_mxnet(damaged(SYMBOL, chance), weights)) for _ in range(150)) < 150


@pytest.mark.parametrize("seed", range(8))
def test_altered_symbols(seed):
    chance, every = random.Random(seed), list(cases().values())
    ops = sorted({node["op"] for case in every for node in case.symbol["nodes"]})
    outcomes = []
    for _ in range(150):
        case = chance.choice(every)
        symbol = altered(case.symbol, ops, chance)
        shapes = case.shapes if chance.random() < 0.7 else None
        outcomes.append(read(lambda c=case, read_symbol=symbol, s=shapes: load_mxnet(json.dumps(read_symbol), c.params, s)))
    assert 0 < sum(outcomes) < len(outcomes)
