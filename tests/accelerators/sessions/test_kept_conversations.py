"""Drawn conversations compared with kept lines."""

from __future__ import annotations

import pytest

from tests.accelerators.sessions import kept_conversations
from tests.kept import check_kept


@pytest.mark.parametrize("kind", kept_conversations.DECODERS)
def test_conversations_are_those_that_are_kept(kind: str) -> None:
    check_kept(kept_conversations, kind)
