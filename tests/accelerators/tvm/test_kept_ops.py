"""Small variations of single ops have the kernels and the reasons that are kept."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.accelerators.tvm.kept_ops import kept, lines


@pytest.mark.parametrize("subject", list(kept()))
@pytest.mark.thinned(64)
def test_variations_of_an_op_are_those_that_are_kept(subject: str) -> None:
    found, known = dict(lines(subject)), kept()[subject]
    changed = {name for name, expected in known.items() if found.get(name) != expected}
    assert not changed, "where this is meant: python -m tests.accelerators.tvm.kept_ops"
