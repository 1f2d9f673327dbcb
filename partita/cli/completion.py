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

BASH_LIST = """\
  local head="${{1%"${{1##*[,:]}}"}}" word
  for word in {parts}; do
    [[ ",${{head//:/,}}" == *",$word,"* ]] || compgen -P "$head" -W "$word" -- "${{1#"$head"}}"
  done
  [[ $head ]] || compgen -W {whole} -- "$1\""""
"""The body of a function that completes each part of a list; `whole` are words with a colon."""

ZSH_LIST = """\
  local -a before
  if compset -P '*[,:]'; then
    before=(${{(s:,:)${{IPREFIX//:/,}}}})
  else
    compadd -- {whole}
  fi
  compadd -S '' -F before -- {parts}"""
"""The same for zsh, which adds no space: another part may follow."""


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
                body = _function(values, words, kind == "file", _takes_list(action))
                name = functions.setdefault(body, f"_partita_values_{len(functions)}" + f"_{kind}" * bool(kind))
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
    from partita.accelerators.tvm.machine.gpu import CORES  # start-up
    from partita.accelerators.tvm.machine.processor import PROCESSORS  # start-up
    from partita.graph.readers.zoo import zoo_names  # start-up

    metavar = str(action.metavar)
    if metavar in ("MODEL", "B"):
        return [f"zoo:{name}" for name in zoo_names()]
    if metavar in ("D", "D,D") or action.dest == "backend":
        several = ["HETERO:cpu,reference"] if _takes_list(action) else []
        return [device.name for device in pt.devices() if device.usable] + several
    if metavar == "P,...":
        return PRECISIONS
    if action.dest == "arch":
        return [*PROCESSORS, *CORES]
    return getattr(action, "words", ())


def _kind(action: argparse.Action) -> str:
    """`file`, `directory`, or nothing."""
    metavar = str(action.metavar)
    if metavar in ("MODEL", "B") or "FILE" in metavar or re.match("[A-Z]+[.][a-z]+$", metavar):
        return "file"
    return "directory" if metavar in ("DIR", "FOLDER") else ""


def _takes_list(action: argparse.Action) -> bool:
    """True if the option takes several words with commas between them."""
    return action.dest == "fail_on" or (str(action.metavar) in ("D", "D,D", "P,...") and action.dest != "device")


def _function(shell: str, words: Sequence[str], files: bool, is_list: bool) -> str:
    """The body of the shell's function that completes one of the words, or also a file, or each word of a list."""
    if is_list:
        whole, parts = (shlex.join(word for word in words if (":" in word) is colon) for colon in (True, False))
        if shell == "bash":
            return BASH_LIST.format(parts=parts, whole=shlex.quote(whole))
        return ZSH_LIST.format(parts=parts, whole=whole)
    if shell == "bash":
        return f'compgen -W {shlex.quote(" ".join(words))} -- "$1"' + ('\ncompgen -f -- "$1"' if files else "")
    return f"compadd -- {shlex.join(words)}" + ("\n_files" if files else "")
