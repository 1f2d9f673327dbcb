"""Run a model on all files of a folder, in several processes; each result is a file of its own.

Each .npy, .npz or image file of the folder is one call, in the order of the names. Its outputs are written to NAME.npz in the
output folder, with the same bytes for any number of workers. Instead of a folder, --input may name a .parquet file: each row is
a call, and its outputs are written to NUMBER.npz. A worker that crashes is restarted. With --ray the workers are actors of the
cluster that Ray is connected to."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.errors import InputError
from partita.accelerators.process.atomic import replacing
from partita.accelerators.store.capsules.capsule import write_arrays
from partita.cli import exits
from partita.cli.arguments import add_devices, add_model, at_least, config_of, precise
from partita.cli.inputs import IMAGES, NORMALIZE, Specs, fitted, listed, read_inputs
from partita.cli.models import load_model
from partita.cli.screen import Screen
from partita.graph.errors import MissingDependency, ReadError, WriteError
from partita.graph.formatting import counted, first_line
from partita.graph.types import TensorType, Type

EXAMPLE = """\
  partita map zoo:squeezenet --input photos --output answers
  partita map net.partita --input photos --output answers --workers 4
"""

KINDS = frozenset((".npy", ".npz")) | IMAGES
"""File extensions of inputs."""

FOLDER = "a folder of .npy, .npz and image files, or a .parquet file"

EVERY = 2.0
"""Seconds between two lines of progress."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    add_devices(parser, precision=True)
    group = parser.add_argument_group("inputs and outputs")
    group.add_argument("--input", dest="folder", metavar="FOLDER", required=True, help=FOLDER)
    group.add_argument("--output", metavar="FOLDER", required=True, help="the folder for the results")
    text = "how an image is normalized (default: %(default)s)"
    group.add_argument("--normalize", choices=NORMALIZE, default=NORMALIZE[0], help=text)
    workers = parser.add_argument_group("workers")
    workers.add_argument("--workers", type=at_least(1), metavar="N", help="number of workers (default: one for each processor)")
    workers.add_argument("--ray", action="store_true", help="use Ray actors instead of processes on this machine")
    parser.set_defaults(input=[])


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the model on each file, and write its outputs."""
    source, folder = Path(arguments.folder), Path(arguments.output)
    table = Table(source) if source.suffix.lower() == ".parquet" and source.is_file() else None
    files = [] if table is not None else _files(source)
    if folder.exists() and folder.samefile(source):
        raise WriteError("results would overwrite the inputs", where=str(folder), remedy="Name another folder for --output")
    config = precise(config_of(arguments.config, arguments.devices), arguments.devices, arguments.precision)
    _, model = load_model(arguments, screen, config)
    folder.mkdir(parents=True, exist_ok=True)
    specs = model.properties.inputs

    def inputs() -> Iterator[dict[str, Any]]:
        if table is not None:
            yield from table.inputs(specs)
        for file in files:
            yield read_inputs([str(file)], specs, arguments.normalize)

    stems = [file.stem for file in files] if table is None else [f"{row:06}" for row in range(len(table))]
    executor, started, reported = "ray" if arguments.ray else "processes", time.monotonic(), time.monotonic()
    results = pt.map_batches(inputs(), model, executor=executor, workers=arguments.workers)
    for number, (stem, outputs) in enumerate(zip(stems, results, strict=True), 1):
        with replacing(folder / f"{stem}.npz") as target:
            write_arrays(target, outputs)
        if time.monotonic() - reported > EVERY:
            reported = time.monotonic()
            screen.say(f"{number} of {len(stems)}, {number / (reported - started):.0f} per second")
    seconds = time.monotonic() - started
    screen.write_json({"files": len(stems), "seconds": seconds, "output": str(folder)})
    screen.show(f"{counted(len(stems), 'file' if table is None else 'row')} in {seconds:.1f} s, written to {folder}")
    return exits.OK


def _files(folder: Path) -> list[Path]:
    """Input files of the folder, sorted by name; WriteError if two of them have the same stem, which names the result."""
    if not folder.is_dir():
        raise ReadError("there is no such folder", where=str(folder), remedy="Give a folder of .npy, .npz or image files")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in KINDS and path.is_file())
    if not files:
        raise ReadError("the folder holds no input file", where=str(folder), remedy=f"Inputs end in {', '.join(sorted(KINDS))}")
    by_stem = {file.stem: file for file in files}
    twin = next((file for file in files if by_stem[file.stem] is not file), None)
    if twin is not None:
        cause = f"{twin.name} and {by_stem[twin.stem].name} would have one result, {twin.stem}.npz"
        raise WriteError(cause, where=str(folder), remedy="Rename one of them")
    return files


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
            raise ReadError(f"it cannot be read as a Parquet file: {first_line(error)}", where=str(path)) from error

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
            cause = f"it has {columns.count(twin)} columns {twin!r}; an input takes one"
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
            raise InputError(f"its lists differ in length: {error}", where=where) from error
        if array.dtype.kind not in "bifuU":
            raise InputError("it does not hold numbers, or one is missing", where=where)
        if isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(size, int) for size in kind.shape):
            shape = tuple(int(size) for size in kind.shape if isinstance(size, int))
            array = array.reshape(shape) if array.size == np.prod(shape, dtype=np.int64) else array
        return fitted(array, kind)
