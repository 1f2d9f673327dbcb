"""Puts the rows that runs of `benchmarks.precision` printed into the tables of the documentation.

    python -m benchmarks.precision --merge FILE ...

A run of some models replaces their rows and leaves the others, so that a table can be measured in pieces. The last row, the
geometric mean, is computed anew from what the table then holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.models.files import NAMES
from benchmarks.timing import Ratio, mean
from benchmarks.venvs import ROOT
from partita.accelerators.process.atomic import write_text

PAGES = {"int8": "quantized.md", "bf16": "precision.md"}
"""By kind, the page of its tables: that of one thread stands between `<!-- precision:KIND-1 -->` and its end with a slash."""

FOLDERS = (ROOT / "docs", ROOT / "benchmarks" / "notes")
"""The documentation, with the table of one thread, and the notes, with the others."""

_TITLE = re.compile(r"\*\*(\w+), (\d+) threads?\*\*")
_RATIO = re.compile(r"([\d.]+) ±([\d.]+)")
_LAST = "| geometric mean |"

Title = tuple[str, int]
"""A kind, and a number of threads."""


def rows_of(text: str) -> dict[Title, dict[str, str]]:
    """By table and model, the rows that a run printed; the last of each model. Rows without a sure ratio are left out."""
    printed: dict[Title, dict[str, str]] = {}
    title: Title | None = None
    for line in text.splitlines():
        heading = _TITLE.match(line)
        if heading:
            title = heading[1], int(heading[2])
        name = line.split("|")[1].strip() if line.startswith("| ") else ""
        if title is not None and name in NAMES and _RATIO.search(line) and "inconclusive" not in line:
            printed.setdefault(title, {})[name] = line
    return printed


def merged(page: str, title: Title, rows: Mapping[str, str]) -> str:
    """The page with these rows in its table of that title; as it was if it has no such table."""
    kind, threads = title
    block = re.compile(rf"(<!-- precision:{kind}-{threads} -->\n)(.*?)(<!-- /precision:{kind}-{threads} -->)", re.DOTALL)
    return block.sub(lambda match: f"{match[1]}{_table(match[2], rows)}{match[3]}", page)


def _table(text: str, rows: Mapping[str, str]) -> str:
    """The table with these rows in place of its own of the same models, in the order of the models."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    own = {line.split("|")[1].strip(): line for line in lines[at + 1 :] if line.startswith("| ") and not line.startswith(_LAST)}
    whole = own | dict(rows)
    kept = [whole[name] for name in NAMES if name in whole]
    return "\n".join([*lines[: at + 1], *kept, _means(kept), ""])


def _means(rows: Iterable[str]) -> str:
    """The last row: the mean of each column of ratios."""
    columns = zip(*(row.strip("| ").split(" | ") for row in rows))
    cells = [[(float(ratio[1]), float(ratio[2])) for cell in column if (ratio := _RATIO.fullmatch(cell))] for column in columns]
    means = [str(mean([Ratio(value, spread / value) for value, spread in column])) if column else "" for column in cells[2:]]
    return f"{_LAST} | {' | '.join(means)} |"


def merge(files: Iterable[Path]) -> None:
    """Merge what runs printed into these files."""
    for file in files:
        for title, rows in rows_of(file.read_text("utf-8")).items():
            for folder in FOLDERS:
                page = folder / PAGES[title[0]]
                write_text(page, merged(page.read_text("utf-8"), title, rows))
