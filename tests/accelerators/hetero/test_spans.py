"""Whether memory is shared is said as numpy says it, and by one look at each array."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from accelerators.running.spans import Spans


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
    assert 20 < sum(answers) < 180


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
