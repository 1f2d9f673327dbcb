"""Summary of a graph: counts and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING

import attrs

from partita.graph.nested import graphs_in
from partita.graph.text.digests import arrays_in
from partita.graph.types import TensorType, Type

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from partita.graph.graph import Graph


LISTED = 16
"""Maximum number of inputs, and of outputs, in the table."""


@attrs.frozen(slots=True)
class Summary:
    """The contents of a graph in numbers."""

    name: str
    """The graph's name."""
    inputs: tuple[tuple[str, Type | None], ...]
    """Names and types of the inputs."""
    outputs: tuple[tuple[str, Type | None], ...]
    """Names and types of the outputs."""
    ops: Mapping[str, int]
    """Number of ops by type in the graph and its bodies (each body counted once), most frequent first."""
    calls: int
    """Number of subgraph calls."""
    bodies: int
    """Number of bodies of calls, If, Loop and Scan."""
    constants: int
    """Number of constant arrays."""
    parameters: int
    """Number of elements of these arrays; an array that several constants share counts once."""
    bytes: int
    """Bytes of these arrays."""
    symbols: tuple[str, ...]
    """The symbolic dimensions of the inputs."""
    opsets: Mapping[str, int]
    """The op sets."""


def summarize(graph: Graph) -> Summary:
    """Counts the contents of the graph and its bodies. Linear."""
    inner = list(graphs_in(graph))
    ops = [node for body in inner for node in body.nodes if node.is_op]
    counts = Counter(f"{node.domain}::{node.op}" if node.domain else str(node.op) for node in ops)
    arrays = {id(array): array for array in arrays_in(graph)}.values()
    types = [node.output_types[0] for node in graph.inputs]
    dims = [dim for t in types if isinstance(t, TensorType) for dim in t.shape or ()]
    return Summary(
        name=graph.name,
        inputs=tuple(zip((node.output_names[0] for node in graph.inputs), types, strict=True)),
        outputs=tuple((name, entry.type) for name, entry in zip(graph.output_names, graph.outputs, strict=True)),
        ops=dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        calls=sum(node.is_call for node in ops),
        bodies=len(inner) - 1,
        constants=len(arrays),
        parameters=sum(array.size for array in arrays),
        bytes=sum(array.nbytes for array in arrays),
        symbols=tuple(dict.fromkeys(dim for dim in dims if isinstance(dim, str))),
        opsets=dict(graph.opsets),
    )


def summary_text(summary: Summary, width: int = 100) -> str:
    """The table as plain text."""
    from rich.console import Console

    stream = StringIO()
    print_summary(summary, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Prints the summary as a table."""
    from rich.console import Console

    (console or Console()).print(summary_table(summary))


def summary_table(summary: Summary) -> Table:
    """The summary as a table, by rich."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(summary.name), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for what, text in _rows(summary):
        table.add_row(what, Text(text))
    return table


def _rows(summary: Summary) -> list[tuple[str, str]]:
    rows = [
        ("inputs", _values(summary.inputs)),
        ("outputs", _values(summary.outputs)),
        ("ops", f"{sum(summary.ops.values()):,}: " + ", ".join(f"{count} {op}" for op, count in summary.ops.items())),
        ("parameters", f"{summary.parameters:,} in {_counted(summary.constants, 'array')}, {size_text(summary.bytes)}"),
        ("opsets", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in summary.opsets.items())),
    ]
    if summary.calls or summary.bodies:
        rows.append(("bodies", f"{summary.bodies:,}, called in {_counted(summary.calls, 'place')}"))
    if summary.symbols:
        rows.append(("dynamic", ", ".join(summary.symbols)))
    return rows


def _values(values: tuple[tuple[str, Type | None], ...]) -> str:
    shown = [name if value_type is None else f"{name}: {value_type}" for name, value_type in values[:LISTED]]
    return "\n".join([*shown, f"... {len(values) - LISTED} more"] if len(values) > LISTED else shown)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size_text(count: int) -> str:
    """A number of bytes in readable form."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
