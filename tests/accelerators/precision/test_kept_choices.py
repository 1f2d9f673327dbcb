"""Precisions chosen for drawn graphs, and what measuring them needs, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.precision import kept_choices
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_choices.KINDS)
def test_choices_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_choices, kind)
