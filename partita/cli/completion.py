"""Completion by the shell: verbs, options, files, and the values of options."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import partita as pt

SHELLS = ("bash", "zsh", "tcsh")
"""Supported shells."""

COLONS = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//:}"  # or bash would take zoo:resnet50 for three words'


class Complete(argparse.Action):
    """Prints the completion for a shell, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        try:
            import shtab
        except ImportError:
            from partita.graph.errors import MissingDependency  # start-up

            raise MissingDependency("shtab", "completion", "writing the completion for a shell") from None
        functions: dict[str, str] = {}
        for action in _actions(parser):
            words, kind = _words(action), _kind(action)
            if words:
                name = functions.setdefault(_function(values, words, kind == "file"), f"_partita_values_{len(functions)}")
                complete = {"bash": name, "zsh": name, "tcsh": "f:*" if kind else f"({' '.join(words)})"}
                action.complete = complete  # type: ignore[attr-defined]
            elif kind:
                action.complete = {"file": shtab.FILE, "directory": shtab.DIRECTORY}[kind]  # type: ignore[attr-defined]
        defined = [f"{name}() {{\n{body}\n}}" for body, name in functions.items()]
        print(shtab.complete(parser, values, preamble={"bash": "\n".join([COLONS, *defined]), "zsh": "\n".join(defined)}))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Options and arguments of the parser and of all verbs."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _actions(verb)


def _words(action: argparse.Action) -> Sequence[str]:
    """Values that the option or argument takes, beside files."""
    from partita.accelerators.precision.lowered_ops import PRECISIONS  # start-up
    from partita.graph.readers.zoo import zoo_names  # start-up

    metavar = str(action.metavar)
    if metavar in ("MODEL", "B"):
        return [f"zoo:{name}" for name in zoo_names()]
    if metavar in ("D", "D,D") or action.dest == "backend":
        return [device.name for device in pt.devices() if device.usable] + ["HETERO:cpu,reference"]
    if metavar == "P,...":
        return PRECISIONS
    return getattr(action, "words", ())


def _kind(action: argparse.Action) -> str:
    """`file`, `directory`, or nothing."""
    metavar = str(action.metavar)
    if metavar in ("MODEL", "B") or "FILE" in metavar or re.match("[A-Z]+[.][a-z]+$", metavar):
        return "file"
    return "directory" if metavar in ("DIR", "FOLDER") else ""


def _function(shell: str, words: Sequence[str], files: bool) -> str:
    """The body of the shell's function that completes one of the words, or also a file."""
    if shell == "bash":
        return f'compgen -W {shlex.quote(" ".join(words))} -- "$1"' + ('\ncompgen -f -- "$1"' if files else "")
    return f"compadd -- {shlex.join(words)}" + ("\n_files" if files else "")
