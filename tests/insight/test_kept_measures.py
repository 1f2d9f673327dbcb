"""Comparisons, diagnoses, searches and anonymous subgraphs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.insight import kept_measures
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_measures.KINDS)
def test_measures_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_measures, kind)
