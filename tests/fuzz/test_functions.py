"""Random functions around products compile in no more than seconds; `python -m tests.fuzz.functions` goes on at will."""

from __future__ import annotations

import pytest

from tests.fuzz.functions import graph_of, seconds_of

SECONDS = 20.0
"""The processor time that no small graph may exceed."""


@pytest.mark.parametrize("seed", [0, 77, 249])
def test_functions_around_products_compile_in_seconds(seed: int) -> None:
    assert seconds_of(seed) < SECONDS


def test_a_seed_draws_the_same_graph_each_time() -> None:
    assert str(graph_of(5)) == str(graph_of(5)) != str(graph_of(6))
