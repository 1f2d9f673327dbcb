"""The file that a run leaves: `benchmarks/results/<date>-<machine>.json`, one section for each benchmark."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.machine import commit, description, machine_name
from benchmarks.timing import Ratio, Times
from partita.accelerators.process.atomic import write_text

FOLDER = Path(__file__).resolve().parent / "results"


@attrs.frozen
class Row:
    """The result of one engine on one case."""

    case: dict[str, Any]
    """The case that was measured: model, batch and threads, or shape and nodes."""
    engine: str
    """The engine that was measured."""
    times: Times | None = None
    """The times; None where there are none, and then `note` says why."""
    ratio: Ratio | None = None
    """Partita's time over this engine's."""
    error: float | None = None
    """The largest difference of its outputs from the reference's, as a part of the largest output."""
    note: str = ""
    """A note for the reader: cut off, cyclic, wrong, not installed."""
    extra: dict[str, Any] = attrs.Factory(dict)
    """Further findings: groups, bytes."""

    @property
    def is_sound(self) -> bool:
        """A time that may be compared."""
        return self.times is not None and not self.note


@attrs.frozen
class Section:
    """The results of one run of a benchmark."""

    rows: tuple[Row, ...]
    """In the order of measurement."""
    about: dict[str, Any]
    """Machine, versions, commit, date, options, load."""


def section(rows: Sequence[Row], **about: Any) -> Section:
    """The rows with what they were measured on."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    return Section(tuple(rows), {**description(), "commit": commit(), "date": now, **about})


def fresh(folder: Path | None = None) -> Path:
    """A file for a run of today on this machine that is not there yet: no run ever writes over another."""
    folder = folder or FOLDER
    name = f"{datetime.date.today().isoformat()}-{machine_name()}"
    later = (folder / f"{name}-{number}.json" for number in itertools.count(2))
    return next(path for path in itertools.chain([folder / f"{name}.json"], later) if not path.exists())


def write(name: str, section: Section, path: Path) -> None:
    """Put a section into a run's file, beside the sections that are there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = json.loads(path.read_text()) if path.exists() else {}
    whole[name] = {"about": section.about, "rows": [attrs.asdict(row) for row in section.rows]}
    lines = (f"  {json.dumps(key)}: {_section_text(value)}" for key, value in sorted(whole.items()))
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _section_text(value: dict[str, Any]) -> str:
    """One line for each row, so that a comparison of two files shows what changed."""
    rows = ",\n    ".join(json.dumps(row) for row in value["rows"])
    return f'{{"about": {json.dumps(value["about"])}, "rows": [\n    {rows}]}}'


def read(path: Path) -> dict[str, Section]:
    """The sections of a file."""
    return {
        name: Section(tuple(map(row, value["rows"])), value["about"]) for name, value in json.loads(path.read_text()).items()
    }


def row(value: dict[str, Any]) -> Row:
    """One row as it was read."""
    times, ratio = value.pop("times"), value.pop("ratio")
    if times:
        times["processes"] = tuple(times.get("processes", ()))
    return Row(**value, times=times and Times(**times), ratio=ratio and Ratio(**ratio))


def newest(name: str, folder: Path | None = None) -> Section | None:
    """The latest run of that benchmark, on whichever machine."""
    sections = (read(path).get(name) for path in sorted((folder or FOLDER).glob("*.json")))
    return max((section for section in sections if section), key=lambda section: section.about["date"], default=None)


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order of first appearance."""
    return list(dict.fromkeys(values))
