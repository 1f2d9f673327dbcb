"""Growths, watches, matches, calls and differences of drawn graphs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.kept import check_kept
from tests.partition import kept_growths


@pytest.mark.parametrize("kind", kept_growths.KINDS)
def test_growths_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_growths, kind)
