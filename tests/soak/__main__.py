"""Attacks for as long as asked, and prints a row of figures for each.

    python -m tests.soak --minutes 60
    python -m tests.soak --minutes 10 --only kills threads --seed 7

The minutes are shared out equally. The exit status is 1 if anything went wrong; what went wrong is printed with it. An attack is
a module of this folder with a function `attack(seconds: float, seed: int) -> Figures`; ATTACKS lists them."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import attrs

from tests.soak.figures import COLUMNS, Figures

ATTACKS = ("models", "files", "guard", "kills", "faults", "processes", "devices", "isolated", "threads")
"""The modules, in the order in which they run."""


PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
START, END = "<!-- soak -->", "<!-- /soak -->"
"""The page that holds the table."""


def main() -> None:
    """Run the attacks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="for all attacks together (60)")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other things (0)")
    parser.add_argument("--publish", action="store_true", help="keep the rows in docs/reliability.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    print("attack".ljust(12) + "".join(title.rjust(13) for title in (*COLUMNS, "seconds")), flush=True)
    share = arguments.minutes * 60 / len(arguments.only)
    listed = {name: run(name, share, arguments.seed) for name in arguments.only}
    if arguments.publish:
        publish(PAGE, listed, share, arguments.seed)
    if arguments.json:
        arguments.json.write_text(json.dumps({name: attrs.asdict(figures) for name, figures in listed.items()}, indent=1))
    sys.exit(not all(figures.clean for figures in listed.values()))


def publish(page: Path, results: Mapping[str, Figures], seconds: float, seed: int) -> None:
    """Put the rows into the page's table, in the places of older ones of the same attacks."""
    before, start, rest = page.read_text("utf-8").partition(START)
    table, end, after = rest.partition(END)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    rows.pop("attack", None)
    for name, figures in results.items():
        command = f"python -m tests.soak --only {name} --minutes {seconds / 60:g} --seed {seed}"
        counts = " | ".join(f"{getattr(figures, title):,}" for title in COLUMNS)
        rows[name] = f"| {name} | {counts} | `{command}` |"
    head = f"| attack | {' | '.join(COLUMNS)} | again |"
    ruler = "|---|" + "---:|" * len(COLUMNS) + "---|"
    lines = [head, ruler, *(rows[name] for name in sorted(rows))]
    page.write_text(before + start + "\n" + "\n".join(lines) + "\n" + end + after, "utf-8")


def run(name: str, seconds: float, seed: int) -> Figures:
    """One attack, with a cache folder of its own, and its row."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="partita-soak-") as folder, mock.patch.dict("os.environ", XDG_CACHE_HOME=folder):
        figures: Figures = importlib.import_module(f"tests.soak.{name}").attack(seconds, seed)
    counts = [*(getattr(figures, title) for title in COLUMNS), round(time.monotonic() - start)]
    print(name.ljust(12) + "".join(f"{count:,}".rjust(13) for count in counts), flush=True)
    for line in figures.failures[:20]:
        print(f"    {line}", flush=True)
    return figures


if __name__ == "__main__":
    main()
