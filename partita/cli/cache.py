"""List, explain or clear the cache of compiled subgraphs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import attrs

from partita.accelerators.store import CacheEntry, clear, default_folder, list_entries
from partita.cli import exits
from partita.cli.screen import Screen, table
from partita.graph.errors import ReadError
from partita.graph.formatting import counted
from partita.graph.summary import size_text

EXAMPLE = """\
  partita cache ls
  partita cache explain cpu_0
  partita cache clear
"""

SHOWN = 30
"""Maximum number of entries listed without --all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "action",
        metavar="ls|explain|clear|path",
        choices=("ls", "explain", "clear", "path"),
        help="list the entries, explain why each was compiled, remove all, or print the folder",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="show only this model, this subgraph, or keys that begin so")
    parser.add_argument("--all", action="store_true", help=f"list all entries, not only the {SHOWN} used last")
    parser.add_argument("--folder", metavar="DIR", help="the cache folder (default: the user's own)")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """List or clear the cache, or show its folder."""
    folder = arguments.folder or str(default_folder())
    if arguments.folder and not (Path(folder) / "entries").is_dir():
        raise ReadError("this is not a cache folder", where=folder, remedy="Name one that a CACHE_DIR named")
    if arguments.action == "path":
        screen.write_json({"folder": folder})
        screen.show(folder)
    elif arguments.action == "clear":
        count = clear(folder)
        screen.write_json({"folder": folder, "removed": count})
        screen.show(f"{folder}: {counted(count, 'entry', 'entries')} removed")
    else:
        _list(folder, arguments, screen)
    return exits.OK


def _list(folder: str, arguments: argparse.Namespace, screen: Screen) -> None:
    entries, name = list_entries(folder), arguments.name
    if name is not None:
        entries = [entry for entry in entries if name in (entry.model, entry.subgraph) or entry.name.startswith(name)]
    screen.write_json({"folder": folder, "entries": [attrs.asdict(entry) for entry in entries]})
    total, shown = len(entries), entries if arguments.all else entries[-SHOWN:]
    columns: tuple[str, ...] = ("model", "subgraph", "key", "device", "ops", "code", "compiled in", "last used")
    rows: list[tuple[str, ...]] = [_row(entry) for entry in shown]
    if arguments.action == "explain":
        columns = ("model", "subgraph", "key", "compiled because")
        rows = [(entry.model, entry.subgraph, entry.name[:12], entry.because) for entry in shown]
    screen.show(
        table(
            f"{folder}: {counted(total, 'entry', 'entries')}{', the last used are:' if total > len(shown) else ''}",
            columns,
            rows,
            right=("ops", "code", "compiled in"),
        )
    )


def _row(entry: CacheEntry) -> tuple[str, ...]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
    size = size_text(entry.bytes)
    return (
        entry.model,
        entry.subgraph,
        entry.name[:12],
        entry.key.device,
        str(entry.ops),
        size,
        f"{entry.seconds:.2f} s",
        used,
    )
