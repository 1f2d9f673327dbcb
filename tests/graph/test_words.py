"""Pieces of the sentences that people read."""

from __future__ import annotations

import pytest

from partita.graph.formatting import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("no such file\nand more"), "no such file"), (OSError(), "OSError"), (OSError("\nmore"), "OSError")],
)
def test_an_error_is_told_by_its_first_line_or_its_kind(error: Exception, line: str) -> None:
    assert first_line(error) == line
