"""Rows of a Parquet file as inputs of calls: a column for each input, by name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from partita.accelerators.errors import InputError
from partita.cli.inputs import Specs, fitted, listed
from partita.graph.errors import MissingDependency, ReadError
from partita.graph.formatting import first_line
from partita.graph.types import TensorType, Type

ROWS = 64
"""Number of rows read at once."""


class Table:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        if find_spec("pyarrow") is None:
            raise MissingDependency("pyarrow", "parquet", f"reading {path.name}")
        import pyarrow
        from pyarrow import parquet

        self._path = path
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, pyarrow.ArrowException) as error:
            raise ReadError(f"it is no Parquet file that can be read: {first_line(error)}", where=str(path)) from error

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def inputs(self, specs: Specs) -> Iterator[dict[str, Any]]:
        """Arrays of each row by the names of the inputs. A cell is a number, or a list of numbers, nested or flat; other columns
        are not read."""
        import pyarrow

        names = [name for name, _ in specs]
        columns = self._file.schema_arrow.names
        missing = next((name for name in names if name not in columns), None)
        if missing is not None:
            cause = f"it has no column {missing!r}; its columns are {', '.join(columns) or 'none'}"
            raise InputError(cause, where=str(self._path), remedy=listed(specs))
        twin = next((name for name in names if columns.count(name) > 1), None)
        if twin is not None:
            cause = f"it has {columns.count(twin)} columns {twin!r}, and an input has one value"
            raise InputError(cause, where=str(self._path), remedy="Rename all but one of them")
        number = 0
        try:
            for batch in self._file.iter_batches(ROWS, columns=names):
                for i in range(batch.num_rows):
                    yield {name: self._cell(batch.column(name)[i], kind, name, number) for name, kind in specs}
                    number += 1
        except (OSError, pyarrow.ArrowException) as error:
            raise ReadError(f"row {number} cannot be read: {first_line(error)}", where=str(self._path)) from error

    def _cell(self, cell: Any, kind: Type | None, name: str, number: int) -> Any:
        where = f"{self._path}, row {number}, column {name!r}"
        try:
            array = np.asarray(cell.as_py())
        except ValueError as error:
            raise InputError(f"its lists are not of one length: {error}", where=where) from error
        if array.dtype.kind not in "bifuU":
            raise InputError("it holds no numbers, or lacks one", where=where)
        if isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(size, int) for size in kind.shape):
            shape = tuple(int(size) for size in kind.shape if isinstance(size, int))
            array = array.reshape(shape) if array.size == np.prod(shape, dtype=np.int64) else array
        return fitted(array, kind)
