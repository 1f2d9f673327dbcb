"""Text forms of the graph between passes, for those who want to see what each did."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from partita.graph.aside import open_aside
from partita.graph.errors import PassError
from partita.graph.graph import Graph

DumpTarget = Callable[[str, str], None]
"""Gets a title ("01-FoldConstants") and the text form."""


def dumper(target: str | PathLike[str] | DumpTarget | None) -> Callable[[str, Graph], None]:
    """A function that writes one numbered dump for each stage; it does nothing where nobody asked."""
    if target is None:
        return _nothing
    write = target if callable(target) else folder_target(Path(target))
    numbers = itertools.count()

    def dump(stage: str, graph: Graph) -> None:
        write(f"{next(numbers):02d}-{stage}", str(graph))

    return dump


def folder_target(folder: Path) -> DumpTarget:
    """One file for each title, never half-written; the folder is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PassError(f"no dumps can be written there: {error.strerror}", where=str(folder)) from error

    def write(title: str, text: str) -> None:
        path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', title)}.txt"
        number, aside = open_aside(folder)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise

    return write


def _nothing(stage: str, graph: Graph) -> None:
    """Write nothing, because nobody asked for dumps."""
