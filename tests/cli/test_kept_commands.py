"""The output of commands, and the files that they write, compared with kept ones."""

from __future__ import annotations

import pytest

from tests.cli.kept_commands import COMMANDS, KEPT, lines


@pytest.mark.parametrize("subject", COMMANDS)
def test_commands_print_what_is_kept(subject: str) -> None:
    kept = set(KEPT.read_text("utf-8").splitlines())
    assert not [line for line in lines(subject) if line not in kept], "where this is meant: python -m tests.cli.kept_commands"
