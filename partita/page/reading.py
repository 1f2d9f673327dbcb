"""Parser of report pages; the data is validated, because the file may come from anybody."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from partita.accelerators.process.atomic import open_regular
from partita.graph.errors import GraphError
from partita.page.scene import RECORDS, Item, Scene

BEGIN, END = '<script type="application/json" id="scene">', "</script>"
"""Delimiters of the data in a page."""

LARGEST = 400 << 20
"""Maximum size of a page in bytes."""


def read_page(path: str | os.PathLike[str]) -> Scene:
    """The scene that the report page shows."""
    where = f"report page {os.fspath(path)!r}"
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _no_page(where, "it is too large")
        text = content.decode()
    except OSError as error:
        raise _no_page(where, error.strerror or str(error)) from None
    except ValueError:
        raise _no_page(where, "it is not text") from None
    _, begin, rest = text.partition(BEGIN)
    if not begin:
        raise _no_page(where, "there is no report in it")
    try:
        return _scene(json.loads(rest.partition(END)[0]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise _no_page(where, f"its data is not what this version of Partita writes ({type(error).__name__}: {error})") from None


def _no_page(where: str, why: str) -> GraphError:
    return GraphError(f"it cannot be compared: {why}", where=where, remedy="Give a file that report_page or --report wrote")


def _scene(data: Any) -> Scene:
    texts = [str(text) for text in data["texts"]]
    parts: dict[str, Any] = {name: _records(record, data[name], texts) for name, record in RECORDS.items() if name in data}
    scene = Scene(
        title=str(data["title"]),
        subtitle=str(data["subtitle"]),
        owned_by=str(data["owned_by"]),
        owners=tuple(map(str, data["owners"])),
        facts=tuple((str(what), str(value)) for what, value in data["facts"]),
        notes=tuple(map(str, data["notes"])),
        edges=[(int(value), int(reader)) for value, reader in zip(*data["edges"], strict=True)],
        run=str(data["run"]),
        total_us=_finite(data["total_us"]),
        before=str(data.get("before", "")),
        recorded=str(data.get("recorded", "")),
        compared=tuple((str(what), str(was), str(now)) for what, was, now in data.get("compared", ())),
        **parts,
    )
    _check(scene)
    return scene


def _records(record: type[Any], columns: Any, texts: Sequence[str]) -> list[Any]:
    """Rows of a table whose columns are lists."""
    fields = attrs.fields(record)
    read = [list(map(_READ[str(field.type)](texts), columns[field.name])) for field in fields]
    return [record(*row) for row in zip(*read, strict=True)]


_READ: dict[str, Callable[[Sequence[str]], Callable[[Any], Any]]] = {
    "str": lambda texts: lambda number: texts[_natural(number)],
    "int": lambda _: int,
    "float": lambda _: _finite,
    "bool": lambda _: bool,
    "tuple[str, ...]": lambda texts: lambda numbers: tuple(texts[_natural(number)] for number in numbers),
    "tuple[int, ...]": lambda _: lambda numbers: tuple(map(int, numbers)),
}
"""Parser for fields of each type; texts are indices into a table."""


def _natural(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is not a number of a text")
    return number


def _finite(number: Any) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number!r} is not a time")
    return float(number)


def _check(scene: Scene) -> None:
    """ValueError if an index is out of range, or if boxes contain each other."""
    boxes = len(scene.items)
    named = [item.parent for item in scene.items] + [bar.item for bar in scene.bars] + [change.item for change in scene.changes]
    named += [row.item for rows in (scene.laps, scene.seen, scene.probes) for row in rows]
    there = [value.source for value in scene.values] + [reader for _, reader in scene.edges]
    there += [end for wall in scene.walls for end in (wall.producer, wall.consumer)]
    there += [item for refusal in scene.refusals for item in refusal.items] + [row.item for row in scene.subgraphs]
    if not all(-1 <= number < boxes for number in named) or not all(0 <= number < boxes for number in there):
        raise ValueError("a number of a box that is not there")
    if not all(0 <= value < len(scene.values) for value, _ in scene.edges):
        raise ValueError("a number of a value that is not there")
    _check_nesting(scene.items)


def _check_nesting(items: Sequence[Item]) -> None:
    held = set[int]()
    for start in range(len(items)):
        chain = dict[int, None]()
        box = start
        while box >= 0 and box not in held:
            if box in chain:
                raise ValueError("boxes that lie in each other")
            chain[box] = None
            box = items[box].parent
        held.update(chain)
