"""Publishes results: into a file, and, from the newest of each benchmark, into the tables and pictures of the
documentation.

    python -m benchmarks.publish      renders the documentation anew from what is in benchmarks/results

In a Markdown file, what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->` is written here and nowhere else."""

from __future__ import annotations

import argparse
import re
from functools import partial
from pathlib import Path

from benchmarks import results, tables
from benchmarks.progress import say
from benchmarks.venvs import ROOT
from partita.accelerators.process.atomic import write_text

TABLES = ROOT / "benchmarks" / "notes" / "tables.md"
"""The page of all tables; the documentation has a summary of them."""

PAGES = (TABLES, ROOT / "docs" / "performance.md", ROOT / "README.md")
PICTURES = ROOT / "docs" / "pictures"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every benchmark shares."""
    parser.add_argument("--tiny", action="store_true", help="the smallest run that shows that it works; no peers are installed")
    parser.add_argument("--results", type=Path, help="the folder of the results (benchmarks/results), or a file")
    parser.add_argument("--publish", action="store_true", help="write the tables and pictures of the documentation too")


def finish(name: str, section: results.Section, args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Print the table, leave the file, and publish if asked to.

    A run that is not whole is kept only if a folder is named.
    """
    print(tables.TABLES[name](section))
    is_whole = all(getattr(args, option, None) == parser.get_default(option) for option in SELECTING)
    if is_whole or args.results:
        is_file = args.results is not None and args.results.suffix == ".json"
        path = args.results if is_file else results.fresh(args.results)
        results.write(name, section, path)
        say(f"results: {path}")
    else:
        say("a part of the benchmark: its results are not kept (--results FOLDER keeps them)")
    if args.publish:
        publish(args.results)


NOT_YET = "Not measured yet."

SELECTING = ("models", "batch", "threads", "engines", "shapes", "nodes")
"""The options that choose what is measured."""


def publish(folder: Path | None = None) -> None:
    """Render the newest run of each benchmark."""
    latest = {name: section for name in tables.TABLES if (section := results.newest(name, folder))}
    texts = {name: tables.TABLES[name](latest[name]) if name in latest else NOT_YET for name in tables.TABLES}
    texts["summary"] = tables.summary(latest) or NOT_YET
    for mark, (name, brief) in tables.BRIEF.items():
        texts[mark] = brief(latest[name]) if name in latest else NOT_YET
    draw(latest)
    for page in PAGES:
        if page.exists():
            put(page, texts)
            say(f"rendered {page.relative_to(ROOT)}")


def draw(latest: dict[str, results.Section]) -> None:
    """Draw the pictures that docs/performance.md shows; without matplotlib they stay as they are."""
    try:
        from benchmarks import plots
    except ImportError as error:
        say(f"no pictures: {error} (pip install matplotlib)")
        return
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, section in latest.items():
        if name in plots.PLOTS:
            plots.PLOTS[name](section, PICTURES)


def put(page: Path, texts: dict[str, str]) -> None:
    """Write each text between its markers; a page need not have all of them."""
    content = page.read_text()
    for name, text in texts.items():
        block = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
        content = block.sub(partial(_filled, text), content)
    write_text(page, content)


def _filled(text: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{text}\n\n{match[2]}"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    publish()
