"""Dumps of the graph in text form between passes."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from partita.graph.atomic_write import open_aside
from partita.graph.errors import PassError
from partita.graph.graph import Graph

DumpTarget = Callable[[str, str], None]
"""Receives a title ("01-FoldConstants") and the text form."""


def dumper(target: str | PathLike[str] | DumpTarget | None) -> Callable[[str, Graph], None]:
    """A function that writes one numbered dump for each stage; it does nothing where nobody asked. An input that the stage before
    made is not written again."""
    if target is None:
        return _nothing
    write = target if callable(target) else folder_target(Path(target))
    numbers, last = itertools.count(), list[Graph]()

    def dump(stage: str, graph: Graph) -> None:
        if stage != "input" or not any(graph is one for one in last):
            write(f"{next(numbers):02d}-{stage}", str(graph))
        last[:] = [graph]

    return dump


def folder_target(folder: Path) -> DumpTarget:
    """Writes one file per title, atomically; creates the folder."""
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
    """The dumper without a target."""
