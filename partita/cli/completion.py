"""Shell completion of the command line, written by the extra `completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")
"""Supported shells."""


class Complete(argparse.Action):
    """Prints the completion for a shell, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        try:
            import shtab
        except ImportError:
            from partita.graph.errors import MissingDependency

            raise MissingDependency("shtab", "completion", "writing the completion for a shell") from None
        for action in _actions(parser):
            if _names_a_file(action):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, values))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Options and arguments of the parser and of all verbs."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _actions(verb)


def _names_a_file(action: argparse.Action) -> bool:
    metavar = str(action.metavar)
    return metavar == "MODEL" or "FILE" in metavar or metavar.startswith(("OUT.", "PAGE."))


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add --completion."""
    text = "print the completion for this shell, and exit (needs the extra `completion`)"
    parser.add_argument("--completion", action=Complete, choices=SHELLS, default=argparse.SUPPRESS, help=text)
