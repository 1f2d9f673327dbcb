"""Random graphs and random transforms, which rename, split, merge, drop or inline some ops: the device's answer about each
op, and where and why each is placed beside a device that takes all.

`python -m tests.accelerators.hetero.kept_queries` writes the file that `test_kept_queries.py` compares with anew."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import partita as pt
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.partition import PatternProperty
from tests.accelerators.hetero.small_devices import device
from tests.kept import write_kept
from tests.partition.kept_partitions import ONE, TWO, graph_of

KEPT = Path(__file__).with_name("kept_queries.txt")

SUBJECTS = list(map(str, range(120)))

Change = Callable[[Node, Rewriter], None]


def named(node: Node, rewriter: Rewriter) -> None:
    names = tuple([f"{name}_v" for name in node.output_names])
    rewriter.keep(node, rewriter.rebuilt(node, name=f"{node.name}_n", output_names=names))


def as_another(node: Node, rewriter: Rewriter) -> None:
    rewriter.keep(node, rewriter.rebuilt(node, op="Softsign" if node.op in ONE else "Div" if node.op in TWO else node.op))


def as_two(node: Node, rewriter: Rewriter) -> None:
    if node.op not in ONE:
        rewriter.keep(node)
        return
    first = pt.op("Abs", rewriter.value(node.reads[0]), name=f"{node.name}_first")
    rewriter.replace(node[0], pt.op(str(node.op), first, name=f"{node.name}_second")[0])


def as_two_of_its_value(node: Node, rewriter: Rewriter) -> None:
    if node.op not in ONE:
        rewriter.keep(node)
        return
    first = pt.op("Sigmoid", rewriter.value(node.reads[0]), name=f"{node.name}_first")
    rewriter.keep(node, pt.op(str(node.op), first, name=node.name))


def dropped(node: Node, rewriter: Rewriter) -> None:
    if len(node.output_names) == 1:
        rewriter.replace(node[0], rewriter.value(node.reads[0]))
    else:
        rewriter.keep(node)


def listed(node: Node, rewriter: Rewriter) -> None:
    """Keep the node, which lists itself and what it reads as fused."""
    names = [node.name, *(entry.node.name for entry in node.reads if entry.node.is_op)]
    rewriter.keep(node, rewriter.rebuilt(node, name=f"{node.name}_f", metadata={"partita.fused": "\n".join(names)}))


def taken_in(node: Node, rewriter: Rewriter) -> None:
    """The node reads what its first input's node reads, in place of it."""
    source = node.reads[0].node
    if source.op in ONE and len(node.output_names) == 1:
        inputs = (rewriter.value(source.reads[0]), *map(rewriter.value, node.reads[1:]))
        metadata = {"partita.fused": f"{source.name}\n{node.name}"}
        rewriter.keep(node, node.evolve(inputs=inputs, op=node.op, metadata=metadata))
    else:
        rewriter.keep(node)


CHANGES: tuple[Change, ...] = (named, as_another, as_two, as_two_of_its_value, dropped, listed, taken_in)


def transform_of(rng: random.Random) -> Callable[[Any, pt.Graph], pt.Graph]:
    """A transform that changes some nodes, by their names."""
    changes = rng.sample(CHANGES, rng.randint(1, 3))
    share, seed, inlines = rng.choice((0.2, 0.5, 1.0)), rng.random(), rng.random() < 0.5

    def transform(self: Any, graph: pt.Graph) -> pt.Graph:
        def visit(node: Node, rewriter: Rewriter) -> None:
            chance = random.Random(f"{seed} {node.name}")
            if node.is_op and not node.is_call and node.reads and chance.random() < share:
                chance.choice(changes)(node, rewriter)
            else:
                rewriter.keep(node)

        return rewrite(inline_calls(graph) if inlines else graph, visit)

    return transform


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    rng = random.Random(f"query {subject}")
    graph = graph_of(rng)
    if rng.random() < 0.3:
        some = set(rng.sample([*ONE, *TWO], 5))
        graph = pt.apply_pass(graph, "PartitionGraph", subgraph_property=PatternProperty(pt.ContainOpSelector(some), "own"))
    members: dict[str, Any] = {"transform": transform_of(rng)} if rng.random() < 0.9 else {}
    taken = rng.sample([*ONE, *TWO, "Split", "Concat", "Softsign", "Div", "Sigmoid"], rng.randint(8, 15))
    with device("alpha", " ".join(taken), **members), device("beta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers: Any = pt.accelerator("alpha").query(graph)
            told = [f"{name}: {answer}" for name, answer in answers.items() if answer is not True]
            placement = pt.query(graph, "HETERO:alpha,beta")
            told += [f"{placement!r} {placement.inlined} {placement.notes}", *map(placement.why, placement)]
        except pt.PartitaError as error:
            told = [f"{type(error).__name__}: {error}"]
    return [f"{subject} | {line!r}" for line in told]


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
