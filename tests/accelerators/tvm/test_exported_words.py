"""The words of an exported subgraph, as somebody may have changed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.tvm.compiled.serialization import read_words

ROW = ["relu", "relu_0", "relu_0", "rows", ["relu"], "Relu"]
GOOD = {"launches": [ROW], "weights": 2, "outputs": [0, "constant"], "checks": ["a check"], "notes": ["a note"]}
WEIGHTS = [np.zeros(2, "f"), np.ones(3, "f")]


def test_constants_that_are_outputs_come_behind_the_kernels_weights() -> None:
    said = read_words(GOOD, WEIGHTS, "here")
    assert said.weights == (WEIGHTS[0],) and said.outputs[0] == 0 and said.outputs[1] is WEIGHTS[1]
    assert [launch.symbol for launch in said.launches] == ["relu_0"]
    assert said.checks == ("a check",) and said.notes == ("a note",)


@pytest.mark.parametrize(
    "change",
    [
        {"launches": 3}, {"launches": [ROW[:3]]}, {"launches": [7]}, {"weights": "two"}, {"weights": None}, {"outputs": 0},
        {"outputs": ["first"]}, {"outputs": [None]}, {"checks": 1}, {"notes": 2.5},
    ],
    ids=str,
)
def test_words_of_another_form_are_one_error(change: dict[str, Any]) -> None:
    with pytest.raises(AcceleratorError, match="is not what this version of Partita writes"):
        read_words({**GOOD, **change}, WEIGHTS, "here")


@pytest.mark.parametrize("missing", ["launches", "weights", "outputs"])
def test_words_that_are_missing_are_one_error(missing: str) -> None:
    with pytest.raises(AcceleratorError, match="is not what this version of Partita writes"):
        read_words({key: value for key, value in GOOD.items() if key != missing}, WEIGHTS, "here")


@pytest.mark.parametrize("words", [[], "words", None, 3], ids=str)
def test_what_is_no_dictionary_is_one_error(words: Any) -> None:
    with pytest.raises(AcceleratorError, match="is not what this version of Partita writes"):
        read_words(words, WEIGHTS, "here")


@pytest.mark.parametrize(("change", "needed"), [({"weights": 3}, 3), ({"weights": 1}, 1), ({"outputs": ["constant"] * 4}, 4)])
def test_other_weights_are_one_error(change: dict[str, Any], needed: int) -> None:
    with pytest.raises(AcceleratorError, match=f"it needs {needed} weights, and 2 came with it"):
        read_words({**GOOD, **change}, WEIGHTS, "here")
