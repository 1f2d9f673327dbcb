"""Random nodes of every op and version through loading, inference and saving, each batch in a process of its own:

    python -m tests.onnx.inference_crashes [first] [count] [seconds]

prints the nodes at which the process ended or hung, which belong into `graph/ops/onnx_crashes.py`, and errors that are no
PartitaError."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from partita.graph.errors import PartitaError
from partita.graph.readers.onnx import load_onnx
from partita.graph.writers.onnx import to_model
from partita.passes import apply_pass

BATCH = 2000
"""How many nodes a process tries, unless one ends it."""

LONGEST = 60
"""Seconds that one may take."""

DTYPES = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}

SMALL = (0, 1, 2, 3, -1, -2, 5, 7, -3, 10)
LARGE = (100, 2**31, 2**40, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e30, float("nan"), float("inf"))
TEXTS = (b"", b"a", b"SAME_UPPER", b"VALID", b"ij,jk->ik", b"...i->i", b"->", b"i", b"linear", b"\xff", b"NOTSET", b"ii->")

Random = random.Random


@cache
def schemas() -> list[Any]:
    """Every version of every op."""
    return [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx", "ai.onnx.ml")]


def _integer(r: Random) -> int:
    return r.choice(SMALL) if r.random() < 0.85 else r.choice(LARGE)


def _attribute(r: Random, name: str, kind: str) -> Any:
    if r.random() < 0.05:
        kind = r.choice(("INT", "INTS", "FLOAT", "STRING", "FLOATS"))
    count = r.choice((0, 1, 1, 2, 2, 3, 4))
    values: dict[str, Any] = {
        "INT": lambda: _integer(r),
        "INTS": lambda: [_integer(r) for _ in range(count)],
        "FLOAT": lambda: r.choice(FLOATS),
        "FLOATS": lambda: [r.choice(FLOATS) for _ in range(count)],
        "STRING": lambda: r.choice(TEXTS),
        "STRINGS": lambda: [r.choice((b"a", b"", b"Relu")) for _ in range(count)],
        "TENSOR": lambda: numpy_helper.from_array(np.ones(r.choice(((), (0,), (1,), (2, 2))), r.choice(("f4", "i8"))), "t"),
        "TYPE_PROTO": lambda: r.choice((helper.make_tensor_type_proto(1, [2]), onnx.TypeProto())),
    }
    if kind not in values:
        return None
    return helper.make_attribute(name, values[kind](), attr_type=getattr(onnx.AttributeProto, kind))


def _type(r: Random, text: str) -> Any:
    if text.startswith("seq("):
        return helper.make_sequence_type_proto(_type(r, text[4:-1]))
    if text.startswith("optional("):
        return helper.make_optional_type_proto(_type(r, text[9:-1]))
    if not text.startswith("tensor("):
        return onnx.TypeProto()
    sizes = [r.choice((0, 1, 2, 3, 4, 5, 8, "N", None)) for _ in range(r.choice((0, 1, 1, 2, 2, 3, 4, 4, 5)))]
    return helper.make_tensor_type_proto(DTYPES.get(text[7:-1], 1), None if r.random() < 0.1 else sizes)


def random_model(seed: int) -> Any:
    """A model of one node; its attributes and inputs may be anything."""
    r = Random(seed)
    schema = r.choice(schemas())
    allowed = {c.type_param_str: sorted(c.allowed_type_strs) for c in schema.type_constraints}
    names, values, constants = [], [], []
    for k in range(r.randint(schema.min_input, min(schema.max_input, schema.min_input + 6, 8))):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        text = r.choice(allowed.get(formal.type_str, [formal.type_str]))
        if formal.option.name == "Optional" and r.random() < 0.3:
            names.append("")
            continue
        names.append(f"x{k}")
        if k and r.random() < 0.4 and text in ("tensor(int64)", "tensor(float)"):
            shape = r.choice(((), (1,), (2,), (3,), (4,), (2, 2), (0,)))
            array = np.array([r.choice(SMALL) for _ in range(int(np.prod(shape)))], "f4" if "float" in text else "i8")
            constants.append(numpy_helper.from_array(array.reshape(shape), f"x{k}"))
        else:
            kind = onnx.TypeProto() if r.random() < 0.1 else _type(r, text)
            values.append(helper.make_value_info(f"x{k}", kind))
    most = max(1, min(schema.max_output, schema.min_output + 3))
    outputs = [f"y{k}" for k in range(r.randint(max(1, schema.min_output), max(most, schema.min_output, 1)))]
    node = helper.make_node(schema.name, names, outputs, name="n", domain=schema.domain)
    for name, formal in schema.attributes.items():
        if r.random() < (0.9 if formal.required else 0.5):
            result = _attribute(r, name, formal.type.name)
            node.attribute.extend([result] if result is not None else [])
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    graph = helper.make_graph([node], "g", values, results, initializer=constants)
    opsets = {schema.domain: schema.since_version, **({} if schema.domain in ("", "ai.onnx") else {"": 18})}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in opsets.items()])


def try_one(seed: int) -> None:
    """What a pipeline does with a file: any PartitaError is right."""
    try:
        graph = load_onnx(random_model(seed).SerializeToString())
    except PartitaError:
        return
    for strict in (True, False):
        try:
            apply_pass(graph, "InferShape", strict=strict)
        except PartitaError:
            continue
    try:
        to_model(graph)
    except PartitaError:
        return


def findings(first: int, count: int, seconds: float) -> Iterator[str]:
    """What went wrong; forked processes try one seed after the other."""
    schemas()
    end = time.monotonic() + seconds
    seed = first
    while seed < first + count and time.monotonic() < end:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            _serve(seed, min(seed + BATCH, first + count), writing, end)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            said = stream.read().decode().splitlines()
        _, status = os.waitpid(pid, 0)
        yield from (line for line in said if not line.isdigit())
        tried = [int(line) for line in said if line.isdigit()]
        last = tried[-1] if tried else seed
        if os.WIFSIGNALED(status):
            text = onnx.printer.to_text(random_model(last).graph)
            yield f"seed {last}, signal {os.WTERMSIG(status)}: {' '.join(text.split())}"
        seed = last + 1


def _serve(first: int, stop: int, writing: int, end: float) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for seed in range(first, stop):
        if time.monotonic() > end:
            break
        os.write(writing, b"%d\n" % seed)
        signal.alarm(LONGEST)
        try:
            try_one(seed)
        except Exception as error:  # noqa: BLE001  (any is a finding)
            os.write(writing, f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split())[:200]}\n".encode())
    os._exit(0)


def main() -> None:
    """Print what was found."""
    first, count, seconds = (int(text) for text in (*sys.argv[1:], *("0", "100000", "600")[len(sys.argv) - 1 :]))
    wrong = 0
    for line in findings(first, count, seconds):
        wrong += 1
        print(line, flush=True)
    print(f"{count} nodes or {seconds} s: {wrong} crashes, hangs and foreign errors")


if __name__ == "__main__":
    main()
