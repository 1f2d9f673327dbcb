"""Pages, rooflines, measurements and inputs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.kept import check_kept
from tests.page import kept_views


@pytest.mark.parametrize("kind", kept_views.KINDS)
def test_views_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_views, kind)
