"""Files of the cache, locks, slots, costs, stages and pictures, compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators import kept_resources
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_resources.KINDS)
def test_resources_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_resources, kind)
