"""Tests read as this graph in, that graph out, in the text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.readers.text import parse
from partita.graph.text import print_graph
from partita.passes import apply_pass
from tests.close import assert_close


def text(body: str, opset: int | str = 21) -> Graph:
    """A graph from its text without the line that states the opset."""
    return parse(f"opset {opset}\n{body}")


def check(
    passes: str | Sequence[str],
    before: str,
    after: str,
    opset: int | str = 21,
    constants: Mapping[str, np.ndarray] | None = None,
    **options: Any,
) -> Graph:
    """The passes turn the one text into the other; run again they change nothing."""
    g = text(before, opset)
    shown = print_graph(g)
    result = apply_pass(g, passes, **options)
    assert print_graph(result) == print_graph(text(after, opset))
    assert print_graph(g) == shown, "the graph given has changed"
    assert print_graph(apply_pass(result, passes, **options)) == print_graph(result), "a second run changes it again"
    return result


def unchanged(passes: str | Sequence[str], before: str, opset: int | str = 21, **options: Any) -> Graph:
    """The passes find nothing to do and return the graph itself."""
    g = text(before, opset)
    result = apply_pass(g, passes, **options)
    assert print_graph(result) == print_graph(g)
    assert result.nodes == g.nodes
    return result


def same_values(a: Graph, b: Graph, inputs: Sequence[Any], tolerance: float = 0.0) -> None:
    """Both graphs have the same border and give the same outputs."""
    assert [(n.name, n[0].type) for n in a.inputs] == [(n.name, n[0].type) for n in b.inputs]
    assert a.output_names == b.output_names
    for x, y in zip(interpret(a, inputs), interpret(b, inputs), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert_close(x, y, atol=tolerance, rtol=tolerance)
