"""Requests to imitated engines, and the use of their answers, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.devices import kept_engines
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_engines.KINDS)
def test_answers_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_engines, kind)
