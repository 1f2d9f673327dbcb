"""ONNX's node tests with the first dimension a symbol, on the device `cpu` at two sizes, against the reference:

    python -m tests.accelerators.tvm.symbolic_cases [cases for each op] [seconds]

prints what became of them: right, refused by `query`, served by the stand-in, refused by both devices, or wrong."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph import TensorType
from partita.graph.interpret import interpret
from partita.graph.rewrite import Rewriter, rewrite
from tests.accelerators.tvm.node_cases import cases, difference
from tests.numerics.driver import from_proto

SYMBOL = "N"


@attrs.frozen
class SymbolicCase:
    """One node test with a symbol."""

    name: str
    graph: pt.Graph
    sizes: tuple[list[np.ndarray[Any, Any]], ...]
    """Inputs at each size."""
    rtol: float
    atol: float


def symbolic(case: Any) -> SymbolicCase | None:
    """The case with a symbol for the first dimension of its first input, and of each input that has the same there."""
    arrays = [from_proto(value) for value in case.data_sets[0][0]]
    if not arrays or not all(isinstance(a, np.ndarray) and a.dtype.kind in "fiub" for a in arrays) or not arrays[0].ndim:
        return None
    count = arrays[0].shape[0]
    if not count:
        return None
    chosen = [a.ndim > 0 and a.shape[0] == count for a in arrays]

    def visit(node: Any, rewriter: Rewriter) -> None:
        kind = node.output_types[0]
        if node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)))
        elif node.is_variable and isinstance(kind, TensorType) and chosen[position[node.name]]:
            value_type = TensorType(kind.dtype, (SYMBOL, *arrays[position[node.name]].shape[1:]))
            rewriter.keep(node, node.evolve(output_types=(value_type,)))
        else:
            rewriter.keep(node)

    graph = pt.load(case.model)
    position = {node.name: i for i, node in enumerate(graph.inputs)}
    doubled = [np.concatenate([a, a]) if yes else a for a, yes in zip(arrays, chosen, strict=True)]
    return SymbolicCase(case.name, rewrite(graph, visit), (arrays, doubled), case.rtol, case.atol)


def outcome(case: SymbolicCase) -> Iterator[str]:
    """What became of each size; "refused" once where `query` says no."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = pt.compile(case.graph, "cpu")
    except pt.PartitaError:
        yield "refused"
        return
    for given in case.sizes:
        try:
            with np.errstate(all="ignore"):
                wanted = interpret(case.graph, given)
        except (pt.PartitaError, ValueError, IndexError, TypeError):
            wanted = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outputs = model(*given)
            except pt.PartitaError as error:
                yield "error in both" if wanted is None else f"wrong: {error}"
                continue
        if wanted is None:
            yield "wrong: the reference refuses it"
            continue
        problem = difference(outputs, list(wanted), case)
        stood_in = any("runs otherwise" in str(warning.message) for warning in caught)
        yield f"wrong: {problem}" if problem else "stood in" if stood_in else "right"


def chosen_cases(each: int) -> Iterator[SymbolicCase]:
    """So many cases of each op, those that ONNX has expanded into simpler ops aside."""
    seen: Counter[str] = Counter()
    for case in cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 and seen[nodes[0].op_type] < each:
            result = symbolic(case)
            if result is not None:
                seen[nodes[0].op_type] += 1
                yield result


def main() -> None:
    """Count the outcomes, and print what is wrong."""
    each, seconds = (int(text) for text in (*sys.argv[1:], *("2", "600")[len(sys.argv) - 1 :]))
    end = time.monotonic() + seconds
    listed: Counter[str] = Counter()
    for case in chosen_cases(each):
        if time.monotonic() > end:
            print("the time is over")
            break
        for said in outcome(case):
            listed[said if said[:5] != "wrong" else "wrong"] += 1
            if said[:5] == "wrong":
                print(f"{case.name}: {said[:300]}", flush=True)
    print(dict(listed))


if __name__ == "__main__":
    main()
