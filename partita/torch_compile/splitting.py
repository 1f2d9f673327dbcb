"""A captured graph of which Partita can run some parts: those become calls, and torch runs what lies between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from graph.logs import logger
from partita.torch_compile.captured import Captured
from partita.torch_compile.exporting import NotExported, export_graph
from partita.torch_compile.graph_call import GraphCall

if TYPE_CHECKING:
    import torch

LEAST = 2
"""A part of fewer ops is left in torch: handing tensors over would cost more than it saves."""

def split(module: torch.fx.GraphModule, inputs: Sequence[Any], call: Callable[[Any], GraphCall]) -> Callable[..., Any]:
    """The graph with a call for each part that Partita runs.

    Halves of the graph, in its order, are exported, and halves of those that cannot be, until the ops are found that have to stay
    in torch: of n ops k take about 2 k log n exports, of ever smaller parts. A graph that changes tensors in place stays in torch
    as a whole: a part's results are new tensors, and no views of what they were made of."""
    ops = [node for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    changing = next((node for node in ops if _changes_in_place(node)), None)
    if changing is not None:
        logger("torch").info("torch runs all of a graph, since %s changes a tensor in place", changing.name)
        return module.forward
    middle = len(ops) // 2
    left = _left_in_torch(module, ops, inputs, 0, middle) | _left_in_torch(module, ops, inputs, middle, len(ops))
    starts = [i for i in range(1, len(ops)) if (i in left) != (i - 1 in left)]
    cut = _cut(module, ops, starts)
    bounds = [0, *starts, len(ops)]
    for number, (first, last) in enumerate(pairwise(bounds)):
        if first not in left and last - first >= LEAST:
            part = getattr(cut, f"submod_{number}")
            part.forward = call(part)
    names = ", ".join(dict.fromkeys(str(ops[i].target) for i in sorted(left)))
    logger("torch").info("a graph of %d ops is cut into %d parts; torch runs %s", len(ops), len(bounds) - 1, names)
    return cut.forward


def _changes_in_place(node: torch.fx.Node) -> bool:
    """Does the op write to a tensor that it is given?"""
    name = str(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", ""))
    is_named_so = (name.endswith("_") and not name.endswith("__")) or name in ("setitem", "iadd", "isub", "imul", "itruediv")
    return is_named_so or bool(node.kwargs.get("inplace")) or node.kwargs.get("out") is not None


def _left_in_torch(module: Any, ops: Sequence[Any], inputs: Sequence[Any], first: int, last: int) -> set[int]:
    """The ops between two that have no form in ONNX."""
    if first == last:
        return set()
    cut = _cut(module, ops, sorted({first, last} - {0, len(ops)}))
    number = 1 if first else 0
    part, given = getattr(cut, f"submod_{number}"), _inputs_of(cut, inputs, f"submod_{number}")
    try:
        export_graph(Captured.of(part), given, dynamic=False)
        return set()
    except NotExported:
        pass
    if last - first == 1:
        return {first}
    middle = (first + last) // 2
    return _left_in_torch(module, ops, inputs, first, middle) | _left_in_torch(module, ops, inputs, middle, last)


def _cut(module: Any, ops: Sequence[Any], starts: Sequence[int]) -> Any:
    """The graph as parts that begin with these ops, one after another: `submod_0`, `submod_1`, …"""
    import torch
    from torch.fx.passes.split_module import split_module

    part_of = {node: sum(start <= i for start in starts) for i, node in enumerate(ops)}
    return split_module(module, torch.nn.Module(), lambda node: part_of.get(node, 0), keep_original_order=True)


def _inputs_of(cut: Any, inputs: Sequence[Any], name: str) -> tuple[Any, ...]:
    """What a part of the graph is called with."""
    import torch

    calls: dict[str, tuple[Any, ...]] = {}

    class Noting(torch.fx.Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            calls[str(target)] = args
            return super().call_module(target, args, kwargs)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        Noting(cut).run(*inputs)
    return calls[name]
