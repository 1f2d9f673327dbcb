"""Files, declarations, folds, conversions and meanings, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.graph import kept_readers
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_readers.KINDS)
def test_readings_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_readers, kind)
