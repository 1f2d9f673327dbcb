"""Readings of drawn arguments and configurations, and messages about them, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators import kept_arguments
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_arguments.KINDS)
def test_answers_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_arguments, kind)
