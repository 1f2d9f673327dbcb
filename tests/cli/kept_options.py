"""The options and arguments of each verb: their names, what they take, and their help.

`python -m tests.cli.kept_options` writes the file that `test_kept_options.py` compares with anew."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from partita.cli.main import VERBS, make_parser

KEPT = Path(__file__).with_name("kept_options.txt")


def lines(verb: str) -> Iterator[str]:
    """A line for each option or argument of the verb."""
    verbs = next(action for action in make_parser([verb])._actions if isinstance(action, argparse._SubParsersAction))
    for action in verbs.choices[verb]._actions:
        takes = " ".join(
            f"{field}={getattr(action, field)!r}" for field in ("metavar", "nargs", "const", "choices", "required")
            if getattr(action, field) not in (None, False)
        )
        kind = getattr(action.type, "__name__", "")
        yield f"{verb} | {' '.join(action.option_strings) or action.dest} | {kind} | {takes} | {action.help}"


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for verb in VERBS for line in lines(verb)), "utf-8")
