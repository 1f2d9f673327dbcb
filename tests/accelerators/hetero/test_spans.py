"""Memory that arrays share, and outputs that share none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime.executor import Spans


def test_memory_is_shared_where_numpy_says_so() -> None:
    random, whole = np.random.default_rng(5), np.zeros(4096, np.uint8)

    def view() -> np.ndarray:
        start, count, step = (int(random.integers(0, high)) for high in (4000, 60, 5))
        part = whole[start : start + count * (step + 1) : step + 1]
        return part[::-1] if random.integers(2) else part[: len(part) // 2 * 2].reshape(2, -1).T

    answers = []
    for _ in range(200):
        arrays, asked = [view() for _ in range(int(random.integers(0, 9)))], view()
        answers.append(Spans([*arrays, "no array"]).may_share(asked))
        assert answers[-1] == any(np.may_share_memory(asked, array) for array in arrays)
        overlap = any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
        assert Spans(arrays).overlap == overlap
    assert 20 < sum(answers) < 180


ROWS = np.arange(24, dtype="float32").reshape(2, 12) - 5
TABLE = np.arange(24, dtype="float32").reshape(4, 6)


def reshaped(value: Any, *shape: int) -> pt.Node:
    return pt.op("Reshape", value, pt.constant(np.array(shape)))


def next_to(value: Any) -> pt.Node:
    return pt.op("Add", value, pt.constant(np.float32(1)))


ALIKE: dict[str, Callable[[Any], list[Any]]] = {
    "one value computed twice": lambda x: [next_to(x), next_to(x)],
    "an output as another": lambda x: [y := pt.op("Relu", x), pt.op("Identity", y), pt.op("Cast", y, to=1)],
    "views of an output": lambda x: [y := pt.op("Relu", x), reshaped(y, -1), reshaped(y, 0, 3, 4), reshaped(y, -1)],
    "a view that is read on": lambda x: [y := pt.op("Relu", x), next_to(reshaped(y, -1)), reshaped(y, -1)],
    "parts of an output": lambda x: [y := pt.op("Relu", x), *pt.op("Split", y, num_outputs=2, axis=0).outputs],
    "a copy": lambda x: [y := pt.op("Relu", x), pt.op("Expand", y, pt.constant(np.array([1, 1]))), pt.op("Concat", y, axis=0)],
    "the input": lambda x: [x, x, pt.op("Identity", x), pt.op("Relu", x)],
    "views of the input": lambda x: [reshaped(x, -1), reshaped(x, 0, 3, 4), pt.op("Unsqueeze", x, pt.constant(np.array([0])))],
    "views of a constant": lambda x: [table := pt.constant(TABLE), reshaped(table, -1), reshaped(table, -1), pt.op("Relu", x)],
    "sizes": lambda x: [pt.op("Shape", x), pt.op("Shape", x), pt.op("Shape", pt.op("Relu", x)), pt.op("Relu", x)],
}
"""Outputs that a device may keep in the same memory."""


@pytest.mark.parametrize("rows", [2, "N"])
@pytest.mark.parametrize("device", ["cpu", "reference", "onnxruntime", "openvino", "HETERO:cpu,reference"])
def test_what_is_written_to_one_output_shows_nowhere_else(device: str, rows: int | str) -> None:
    for name in device.removeprefix("HETERO:").split(","):
        if not any(info.name == name and info.usable for info in pt.devices()):
            pytest.skip(f"there is no {name} here")
    for title, outputs_of in ALIKE.items():
        x = pt.variable("x", "float32", (rows, 12))
        model, given = pt.compile(pt.Graph(outputs_of(x), [x]), device), ROWS.copy()
        outputs = list(model(given))
        wanted = [output.copy() for output in outputs]
        kept = np.empty_like(outputs[-1])
        listed = [*outputs, *model(given, out=[*[None] * (len(outputs) - 1), kept])]
        assert listed[-1] is kept
        for i, output in enumerate(listed):
            assert np.array_equal(output, wanted[i % len(wanted)]), title
            output[...] = -1 - i
        assert [output.ravel()[0] for output in listed] == [-1 - i for i in range(len(listed))], title
        assert np.array_equal(given, ROWS), title
        assert all(map(np.array_equal, model(given), wanted)), title


@pytest.mark.parametrize("count", [2, 40])
def test_outputs_are_the_caller_s_however_many_there_are(count: int) -> None:
    """Some are inputs, some the same value twice: what is written to one shows in no other, and in no later call."""
    given = [pt.variable(f"x{i}", "float32", (3,)) for i in range(count)]
    sums = [pt.op("Add", x, x) for x in given]
    graph = pt.Graph([*sums, *given, *sums], given)
    model = pt.compile(graph, "reference")
    arrays = [np.full(3, i, np.float32) for i in range(count)]
    outputs = list(model(*arrays))
    for i, output in enumerate(outputs):
        output[...] = -1 - i
    assert [float(output[0]) for output in outputs] == [-1.0 - i for i in range(3 * count)]
    assert [float(array[0]) for array in arrays] == list(range(count))
    assert np.array_equal(model(*arrays)[count - 1], np.full(3, 2 * (count - 1)))
