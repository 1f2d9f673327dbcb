"""Tables of reports: the columns of a row, for terminals and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from partita.graph.pictures.html import table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import TextType

Row = TypeVar("Row")


@attrs.frozen(slots=True)
class Column(Generic[Row]):
    """A column of a report's table."""

    title: str
    """Its title in a terminal."""
    cell: Callable[[Row], object]
    """Its value for a row."""
    right: bool = False
    """True if a terminal aligns it on the right."""
    notebook: str | None = None
    """Its title in a notebook if it is another; empty if the notebook leaves it out."""


class Tabular:
    """A report with a table: rich prints it in a terminal."""

    __slots__ = ()

    def to_table(self) -> Table:
        """The rows as a rich table for a terminal."""
        raise NotImplementedError

    def __rich__(self) -> Table:
        return self.to_table()


def terminal_table(
    columns: Sequence[Column[Row]], rows: Iterable[Row], title: str = "", caption: TextType | None = None,
    most: int | None = None, folds: bool = False, **options: Any,
) -> Table:
    """The rows as a rich table; those beyond `most` are only counted. `folds`: long cells are wrapped instead of cut."""
    from rich.table import Table
    from rich.text import Text

    shown = list(rows)
    grid = Table(title=Text(title) if title else None, caption=caption, **options)
    for column in columns:
        justify, overflow = "right" if column.right else "left", "fold" if folds else "ellipsis"
        grid.add_column(column.title, justify=justify, overflow=overflow)  # type: ignore[arg-type]
    for row in shown[:most]:
        grid.add_row(*(Text(str(column.cell(row))) for column in columns))
    if most is not None and len(shown) > most:
        grid.add_row(f"... {len(shown) - most} more")
    return grid


def notebook_table(columns: Sequence[Column[Row]], rows: Iterable[Row], title: str, most: int = 30) -> str:
    """The rows as HTML, in the columns that notebooks show."""
    kept = [column for column in columns if column.notebook != ""]
    return table([column.notebook or column.title for column in kept], [[column.cell(row) for column in kept] for row in rows],
                 title=title, most=most)
