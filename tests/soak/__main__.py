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
from pathlib import Path
from unittest import mock

import attrs

from tests.soak.figures import COLUMNS, Figures

ATTACKS = ()
"""The modules, in the order in which they run."""


def main() -> None:
    """Run the attacks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="for all attacks together (60)")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other things (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    print("attack".ljust(12) + "".join(title.rjust(13) for title in (*COLUMNS, "seconds")), flush=True)
    share = arguments.minutes * 60 / len(arguments.only)
    made = {name: run(name, share, arguments.seed) for name in arguments.only}
    if arguments.json:
        arguments.json.write_text(json.dumps({name: attrs.asdict(figures) for name, figures in made.items()}, indent=1))
    sys.exit(not all(figures.clean for figures in made.values()))


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
