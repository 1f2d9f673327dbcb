"""Partitions of random graphs: the subgraphs, and sums over the text of each graph, its report, its drawings and its page.

`python -m tests.partition.kept_partitions` writes the file that `test_kept_partitions.py` compares with anew."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import partita as pt
from partita.graph.pictures.dot import to_dot
from partita.graph.pictures.layered import layered_svg
from partita.page.collect import collect
from partita.partition import PatternProperty

KEPT = Path(__file__).with_name("kept_partitions.txt")

GROWTHS = ("walk", "largest", "seed", "waves")
ONE, TWO = ("Relu", "Neg", "Abs", "Exp", "Sqrt", "Tanh"), ("Add", "Mul", "Sub", "MatMul")
SUBJECTS = [f"{seed}, {growth}" for seed in range(90) for growth in GROWTHS]

PATTERNS = (("Relu", "Neg?", "Abs?"), ("Add", "Relu"), ("Mul", "Sub", "Exp?"), ("Neg", "Exp", "Tanh"))


def graph_of(rng: random.Random) -> pt.Graph:
    """A graph of one or two inputs in which most ops read what is near."""
    values: list[Any] = [pt.variable(name, "float32", (3, 3)) for name in ("x", "y")[: rng.randint(1, 2)]]
    ops = []
    for number in range(rng.randint(3, 18)):
        near = values[-4:]
        if rng.random() < 0.15:
            node = pt.op("Split", rng.choice(near), name=f"n{number}", axis=0, num_outputs=2, n_outputs=2)
            values += [pt.op("Concat", node[1], node[0], name=f"n{number}c", axis=0)]
        elif rng.random() < 0.6:
            values.append(pt.op(rng.choice(ONE), rng.choice(near), name=f"n{number}"))
        else:
            values.append(pt.op(rng.choice(TWO), rng.choice(near), rng.choice(near), name=f"n{number}"))
        ops.append(values[-1])
    return pt.Graph([ops[-1], *rng.sample(ops[:-1], min(2, len(ops) - 1))], name="drawn")


def partitioned(subject: str) -> pt.Graph:
    """The partitioned graph of a subject."""
    seed, growth = subject.split(", ")
    rng = random.Random(int(seed))
    graph = graph_of(rng)
    options: dict[str, Any] = {"growth": growth}
    if rng.random() < 0.4:
        options["min_subgraph_size"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        options["max_subgraphs"] = rng.randint(0, 2)
    if rng.random() < 0.5:
        options["dedup_inputs"] = rng.random() < 0.5
    kinds = rng.sample([*ONE, *TWO, "Split", "Concat"], rng.randint(4, 10))
    first = PatternProperty(pt.ContainOpSelector(set(kinds)), "first")
    chain = [PatternProperty(pt.Pattern(*rng.choice(PATTERNS)), "second")] if rng.random() < 0.4 else []
    for each in [*chain, first]:
        graph = pt.apply_pass(graph, "PartitionGraph", subgraph_property=each, **options)
    return graph


def line(subject: str) -> str:
    """The line of the file for a subject."""
    graph = partitioned(subject)
    report = graph.attrs["partition_report"]
    groups = " ".join(f"{group.name}({' '.join(sorted(group.nodes))})" for group in report.groups)
    names = [node.name for node in graph_of(random.Random(int(subject.split(',')[0]))).nodes if node.is_op]
    parts = [str(graph), str(report), "\n".join(_explained(report, name) for name in names)]
    if subject.endswith("walk"):
        parts += [to_dot(graph), layered_svg(graph, None), collect(graph).to_json()]
    return f"{subject} | {groups} | {' '.join(f'{zlib.crc32(part.encode()):08x}' for part in parts)}"


def _explained(report: Any, name: str) -> str:
    try:
        return str(report.explain(name))
    except pt.PartitaError as error:
        return str(error)


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line(subject)}\n" for subject in SUBJECTS), "utf-8")
