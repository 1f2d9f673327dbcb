"""ONNX's node tests through the passes: python -m tests.passes.node_models prints how many still give what is expected."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from partita.graph import Graph, PartitaError
from partita.graph.interpret import interpret
from partita.graph.readers.onnx import load_onnx
from partita.passes import apply_pass, optimize
from tests.numerics.driver import from_proto

Change = Callable[[Graph], Graph]


@lru_cache(maxsize=1)
def node_tests() -> list[Any]:
    """All of ONNX's node tests: each has a model, inputs for it and the outputs expected."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model_tests(kind="node")


def error_of(case: Any, g: Graph) -> str | None:
    """What is wrong with the graph's outputs for the test's inputs; None if nothing is."""
    from onnx.backend.test.runner import Runner

    for inputs, outputs in case.data_sets:
        expected = [from_proto(value) for value in outputs]
        try:
            result = interpret(g, [from_proto(value) for value in inputs])
            if not (len(expected) == len(result) == 1 and expected[0] is result[0] is None):
                Runner.assert_similar_outputs(expected, result, rtol=case.rtol, atol=case.atol)
        except (AssertionError, PartitaError, AttributeError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return None


def same_border(a: Graph, b: Graph) -> bool:
    """Have both the same inputs, and outputs of the same names and element types?"""
    types = [[getattr(entry.type, "dtype", None) for entry in graph.outputs] for graph in (a, b)]
    known = [[x if y else None for x, y in zip(row, types[0], strict=True)] for row in types]
    inputs = [[(node.name, node[0].type) for node in graph.inputs] for graph in (a, b)]
    return inputs[0] == inputs[1] and a.output_names == b.output_names and known[0] == known[1]


def sweep(change: Change, cases: list[Any]) -> Iterator[tuple[str, str]]:
    """For each test what became of it: "equal", "not computed before" or what is wrong."""
    for case in cases:
        g = load_onnx(case.model)
        if error_of(case, g) is not None:
            yield case.name, "not computed before"
            continue
        try:
            result = change(g)
        except PartitaError as error:
            yield case.name, str(error)
            continue
        yield case.name, "border changed" if not same_border(g, result) else error_of(case, result) or "equal"


def main() -> None:
    """Print the count, and every test that is not equal."""
    names = sys.argv[1:]
    change: Change = (lambda g: apply_pass(g, names)) if names else optimize
    listed = dict(sweep(change, node_tests()))
    counts = Counter(what if what in ("equal", "not computed before") else "wrong" for what in listed.values())
    for name, what in sorted(listed.items()):
        if what != "equal":
            print(f"{name}: {what}"[:400])
    print(f"{len(listed)} models: {dict(counts)}")


if __name__ == "__main__":
    main()
