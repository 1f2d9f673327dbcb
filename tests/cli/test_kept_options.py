"""The options of each verb are those that are kept."""

from __future__ import annotations

import pytest

from partita.cli.main import VERBS
from tests.cli.kept_options import KEPT, lines


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_options_that_are_kept(verb: str) -> None:
    kept = [line for line in KEPT.read_text("utf-8").splitlines() if line.partition(" | ")[0] == verb]
    assert list(lines(verb)) == kept, "where this is meant: python -m tests.cli.kept_options"
