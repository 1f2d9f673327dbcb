"""Child processes that run a module of ours: their command line and environment.

A child finds our packages and the parent's PYTHONPATH. The current folder is not on its path, where someone's
`json.py` would replace Python's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from partita.graph.programs import program_folders

ROOT = Path(__file__).absolute().parents[2]
"""The folder of our package."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(paths: Sequence[str] | None = None, **variables: str) -> dict[str, str]:
    """This process's environment with these variables, and with our packages before the given folders on PYTHONPATH (by default
    its current ones; an empty entry means the current folder and is dropped). PATH loses such entries too."""
    folders = search_path() if paths is None else paths
    searched = {"PATH": program_folders(), "PYTHONPATH": os.pathsep.join([str(ROOT), *folders])}
    return {**os.environ, **variables, **searched}


def search_path() -> list[str]:
    """The folders in PYTHONPATH."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def implicit_path() -> list[str]:
    """The implicit folders of `sys.path`: the current one, and that of the running script."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = (".", os.path.dirname(script) or ".", os.path.dirname(os.path.realpath(script))) if script else (".",)
    implicit = {os.path.realpath(folder) for folder in folders}
    named = {*search_path(), str(ROOT)}
    return [path for path in sys.path if path not in named and os.path.realpath(path) in implicit]


def own_folder_last() -> None:
    """In a child that runs modules of others: where our package is in a clone, moves the clone behind all other folders of the
    search path. Another package may have a module `graph` too, or `tests`."""
    if (ROOT / "setup.py").exists():
        sys.path[:] = [*(path for path in sys.path if path != str(ROOT)), str(ROOT)]
