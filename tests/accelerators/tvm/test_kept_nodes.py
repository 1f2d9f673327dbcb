"""What is said of drawn nodes, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.tvm import kept_nodes
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_nodes.KINDS)
def test_answers_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_nodes, kind)
