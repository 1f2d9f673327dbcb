"""Output of a verb: results go to stdout, as tables or JSON; progress and warnings go to stderr.

Names come from models, which may be hostile: none of their control characters reaches the terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import attrs

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

WIDTH = 160
"""Width of tables in a file or a pipe, unless COLUMNS is set."""

MANY = 7
"""Tables with at least this many columns lose their frame if they are too wide."""

DEBUG = "PARTITA_DEBUG"
"""Environment variable with the effect of --debug."""


@attrs.frozen(slots=True)
class Screen:
    """Output of one run."""

    as_json: bool = False
    """True to print one JSON object instead of tables."""
    quiet: bool = False
    """True to suppress progress."""

    def show(self, *items: RenderableType) -> None:
        """Print tables or lines of text on stdout; nothing with JSON."""
        if self.as_json:
            return
        console = _console(sys.stdout)
        for item in items:
            title = getattr(item, "title", None)
            if title is not None and not isinstance(item, str):
                console.print(_Clean(title), soft_wrap=True)  # a table would fold its title at its own width
                setattr(item, "title", None)  # noqa: B010  only tables have one
            _squeeze(item, console)
            console.print(_Clean(item), soft_wrap=isinstance(item, str))

    def write_json(self, data: Any) -> None:
        """Print the result as JSON on stdout; nothing unless JSON was requested."""
        if self.as_json:
            print(json.dumps(_plain(data), indent=1, allow_nan=False))

    def say(self, text: str) -> None:
        """Print a line of progress on stderr."""
        if not self.quiet:
            _print_line(text, "dim")

    def note(self, text: str) -> None:
        """Print a requested line on stderr, even with --quiet."""
        _print_line(text, "dim")

    def note_all(self, lines: Iterable[str]) -> None:
        """Print several such lines."""
        for line in lines:
            self.note(line)

    def warn(self, text: str) -> None:
        """Print a warning about the result on stderr."""
        _print_line(f"warning: {text}", "yellow")

    def fail(self, text: str, data: Mapping[str, Any]) -> None:
        """Print the reason for a failure on stderr, and {"error": data} on stdout with JSON."""
        self.write_json({"error": data})
        _print_line(f"error: {text}", "red")


def table(title: str, columns: Iterable[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> Table:
    """A table of plain cells; the columns in `right` are aligned right."""
    from rich.table import Table
    from rich.text import Text

    from partita.graph.formatting import shortened  # start-up

    grid = Table(title=Text(title))
    on_the_right = set(right)
    for column in columns:
        grid.add_column(column, justify="right" if column in on_the_right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(shortened(str(cell))) for cell in row))
    return grid


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            """Left to main, as for any other output."""
            raise BrokenPipeError

    wide = stream.isatty() or "COLUMNS" in os.environ
    return Piped(file=stream, width=None if wide else WIDTH, highlight=False, emoji=False, markup=False)


def _print_line(text: str, style: str) -> None:
    from rich.text import Text

    head, colon, rest = text.partition(":") if style != "dim" else (text, "", "")
    _console(sys.stderr).print(_Clean(Text.assemble((head + colon, style), rest)), soft_wrap=True)


def _squeeze(item: RenderableType, console: Console) -> None:
    """Remove the frame of a table that has many columns and is too wide, so that fewer cells are folded."""
    from rich.table import Table

    if not isinstance(item, Table) or len(item.columns) < MANY:
        return
    if console.measure(item, options=console.options.update(width=10_000)).maximum > console.width:
        item.box = None
        item.padding = (0, 2, 0, 0)


class _Clean:
    """A wrapper that replaces characters that are not printable."""

    def __init__(self, inner: RenderableType) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self.inner, options):
            yield segment if segment.control else Segment(_printable(segment.text), segment.style)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _plain(data: Any) -> Any:
    """The value in a form that JSON can represent: NaN and infinities become null."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
