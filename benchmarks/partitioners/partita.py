"""Partita's own growths, named behind the file: the whole pass, with plan, check and splice."""

from __future__ import annotations

import sys

from benchmarks.partition_scale import graph_of, options_for
from benchmarks.partitioners import Color, Finding, Preds, clocked, report
from partita.partition.partition_graph import partition_graph


def measure(preds: Preds, color: Color) -> Finding:
    """Partition once and measure it."""
    graph = graph_of(preds, color)
    options = options_for(sys.argv[2], several=False)
    seconds, partitioned = clocked(lambda: partition_graph(graph, **options))
    return seconds, sum(node.is_call for node in partitioned.nodes), ""


if __name__ == "__main__":
    report(measure)
