"""List the changes between two report pages: moved ops, regrouped subgraphs, times.

BEFORE and AFTER were written by `--report` or `report_page` for one model, placed, partitioned or compiled in two ways."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby

from partita.accelerators.process.atomic import write_text
from partita.cli import exits
from partita.cli.arguments import NEVER, Usage, add_fail_on
from partita.cli.models import writable
from partita.cli.screen import Screen, table
from partita.page.differences import compared
from partita.page.reading import read_page
from partita.page.scene import Scene
from partita.page.writing import scene_text

EXAMPLE = """\
  partita diff before.html after.html
  partita diff before.html after.html -o changes.html
  partita diff before.html after.html --fail-on moved,slower=1.1
"""

CONDITIONS = {
    "moved": "an op is on another device",
    "regrouped": "a subgraph has other ops",
    "new": "an op was added",
    "gone": "an op was removed",
    "slower=X": "the run takes more than X times as long (1 without =X)",
}
"""Conditions of --fail-on."""

SHOWN = 12
"""Maximum number of changes of each kind that are shown without --all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("before", metavar="BEFORE.html", help="the earlier page")
    parser.add_argument("after", metavar="AFTER.html", help="the later page")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="write the later page with the changes marked")
    parser.add_argument("--all", action="store_true", help="show all changes")
    add_fail_on(parser.add_argument_group("comparing"), CONDITIONS, NEVER)


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compare the pages."""
    for page in (arguments.before, arguments.after):
        writable(arguments.output, page)
    before = read_page(arguments.before)
    scene = compared(before, read_page(arguments.after))
    failed = _failed(before, scene, arguments.fail_on)
    if arguments.output:
        write_text(arguments.output, scene_text(scene))
    screen.write_json(
        {
            "counts": {what: {"before": was, "after": now} for what, was, now in scene.compared},
            "changes": [{"kind": change.what, "name": change.name, "text": change.text} for change in scene.changes],
            "failed": failed,
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
    for name in failed:
        screen.warn(f"failed on {name}")
    return exits.NO if failed else exits.OK


def _failed(before: Scene, now: Scene, conditions: Sequence[tuple[str, float]]) -> list[str]:
    """The conditions of --fail-on that hold."""
    kinds = {change.what for change in now.changes}
    if any(name == "slower" for name, _ in conditions) and not (before.run and now.run):
        remedy = "Write both with `partita run --report`, or report_page(model, path, profile=model.profile(inputs))"
        raise Usage("--fail-on slower compares times, and a page has none", remedy=remedy)
    return [name for name, times in conditions if name in kinds or (name == "slower" and now.total_us > times * before.total_us)]
