"""Mutated text: a graph or one clear error, nothing else."""

from __future__ import annotations

import random
import time

import pytest

from partita.graph import PartitaError
from partita.graph.readers.text import parse
from tests.text.test_text_form import NET

PIECES = [*"()[]{},:=@%?#\"\\\n-_9\0", 'b"', "sparse("]
PIECES += "-> :: const graph func input float32[2] 1e999 nan base64".split()


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at, end = rng.randrange(len(text)), rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + text[at + rng.randint(1, 9) :]
        elif kind == 1:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(PIECES) + text[at + 1 :]
        else:
            text = text[:at] + text[end : end + 20] + text[at:]
        text = text or "graph"
    return text


def rounds(count: int, seed: int) -> None:
    rng = random.Random(seed)
    outcomes = {True: 0, False: 0}
    for _ in range(count):
        text = mutated(NET, rng)
        try:
            graph = parse(text)
        except PartitaError as error:
            assert "line" in str(error)
            outcomes[False] += 1
        else:
            assert str(parse(str(graph))) == str(graph)
            outcomes[True] += 1
    assert min(outcomes.values()) > count // 50


def test_mutated_text() -> None:
    rounds(1500, 1)


@pytest.mark.slow
def test_mutated_text_at_length() -> None:
    rounds(50_000, 2)


def test_blanks_and_open_strings_take_linear_time() -> None:
    for text in (" " * 200_000 + "\1", "//" * 200_000, '"' + "\\a" * 200_000, "graph" + " \n" * 200_000):
        with pytest.raises(PartitaError):
            parse(text)


@pytest.mark.slow
def test_a_hundred_thousand_nodes_take_seconds() -> None:
    lines = [
        f"  n{i + 1} = Conv(n{i}, n0) {{kernel_shape=[3, 3], pads=[1, 1, 1, 1]}} : float32[1, 64, 112, 112]"
        for i in range(100_000)
    ]
    text = "\n".join(["opset 21\n", "graph net(n0: float32[1, 3]) -> (n100000) {", *lines, "}"])
    start = time.thread_time()
    assert str(parse(text)) == text
    assert time.thread_time() - start < 30
