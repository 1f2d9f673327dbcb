"""List the changes between two report pages: moved ops, regrouped subgraphs, times.

BEFORE and AFTER are files that `--report` or `report_page` wrote, of one model placed, partitioned or compiled in two ways."""

from __future__ import annotations

import argparse
from itertools import groupby

from partita.cli import exits
from partita.cli.models import writable
from partita.cli.screen import Screen, table

EXAMPLE = """\
  partita diff before.html after.html
  partita diff before.html after.html -o changes.html
"""

SHOWN = 12
"""Maximum number of changes of each kind that are shown without --all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("before", metavar="BEFORE.html", help="the earlier page")
    parser.add_argument("after", metavar="AFTER.html", help="the later page")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="write the later page with what changed marked in it")
    parser.add_argument("--all", action="store_true", help="show all changes")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compare the pages."""
    from partita.accelerators.process.atomic import write_text
    from partita.page.differences import compared
    from partita.page.reading import read_page
    from partita.page.writing import scene_text

    for page in (arguments.before, arguments.after):
        writable(arguments.output, page)
    scene = compared(read_page(arguments.before), read_page(arguments.after))
    if arguments.output:
        write_text(arguments.output, scene_text(scene))
    screen.write_json(
        {
            "counts": {what: {"before": was, "after": now} for what, was, now in scene.compared},
            "changes": [{"kind": change.what, "name": change.name, "text": change.text} for change in scene.changes],
        }
    )
    screen.show(table("counts", ("", "before", "after"), scene.compared, right=("before", "after")))
    for kind, grouped in groupby(scene.changes, key=lambda change: change.what):
        changes = list(grouped)
        rows = [(change.name, change.text) for change in (changes if arguments.all else changes[:SHOWN])]
        rows += [(f"… {len(changes) - len(rows)} more", "--all shows them")] if len(rows) < len(changes) else []
        screen.show(table(f"{kind}: {len(changes)}", ("name", "what"), rows))
    if not scene.changes:
        screen.show("nothing moved, and no time changed")
    if arguments.output:
        screen.show(f"wrote {arguments.output}")
    return exits.OK
