"""Sessions recognize decoders with one changed node as is kept."""

from __future__ import annotations

import pytest

from tests.accelerators.sessions.kept_decoders import DECODERS, PARTS, kept, lines


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("subject", DECODERS)
@pytest.mark.thinned(12)
def test_decoders_are_recognized_as_is_kept(subject: str, part: int) -> None:
    expected = kept()[subject]
    others = {name: text for name, text in lines(subject, [part]) if expected.get(name, text) != text}
    assert not others, "where this is meant: python -m tests.accelerators.sessions.kept_decoders"
