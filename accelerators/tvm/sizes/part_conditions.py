"""Shape constraints of ops that are decomposed before sizes are inferred: their parts may not imply them. A decomposed loss with
fewer labels than images just gathers as many elements as there are labels."""

from __future__ import annotations

from collections.abc import Sequence

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.graph import Graph
from partita.graph.ops.shape_constraints import fits, has_fits, shape_of


def fits_apart(graph: Graph, transformed: Graph, inputs: Sequence[Sequence[Size]]) -> tuple[Extent, ...]:
    """Shape constraints of ops of `graph` that `transformed` lacks, as conditions (each ≥ 0), as far as they concern sizes of
    inputs. `inputs` are those of the transformed graph. CompileError if one never holds. Linear."""
    stated = {node.name: shape_of(node[0]) or () for node in graph.inputs}
    sizes: dict[object, Size] = {}
    for node, known in zip(transformed.inputs, inputs, strict=True):
        sizes.update(zip(stated.get(node.name, ()), known, strict=False))
    there = {node.name for node in transformed.nodes if has_fits(node)}
    conditions = list[Extent]()
    for node in graph.nodes:
        if not node.is_op or not has_fits(node) or node.name in there:
            continue
        for fit in fits(node, [shape_of(entry) for entry in node.inputs]):
            size, other = (sizes.get(side, side) for side in (fit.size, fit.other))
            if fit.relation == "one or equal" or not (isinstance(size, (int, Extent)) and isinstance(other, (int, Extent))):
                continue
            for room in (other - size, size - other)[: 2 if fit.relation == "equal" else 1]:
                if isinstance(room, Extent):
                    conditions.append(room)
                elif room < 0:
                    where = f"node {node.name!r} ({node.op})"
                    raise CompileError(f"{fit.said} do not go together: {size} and {other}", where=where)
    return tuple(conditions)
