"""Plans of calls of drawn graphs, and what else is decided while a model runs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.hetero import kept_steps
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_steps.KINDS)
def test_steps_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_steps, kind)
