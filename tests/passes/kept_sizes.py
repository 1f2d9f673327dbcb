"""The sizes that each op tells: those of its results, in symbols of its inputs, and what these have to fulfil.

`python -m tests.passes.kept_sizes` writes the file that `test_kept_sizes.py` compares with anew."""

from __future__ import annotations

from pathlib import Path

import partita as pt
from partita.graph.errors import PartitaError
from partita.passes.infer.reading import Reading, symbolic
from tests.fuzz.sizes.subjects import microsoft_names, misfit_names, model_of, op_names, ways_of

KEPT = Path(__file__).with_name("kept_sizes.txt")
SEEDS = (0, 1)

SUBJECTS = {
    f"{name}, {way}, {seed}": (name, seed, way)
    for name in [*misfit_names(), *op_names(), *microsoft_names()]
    for seed in (SEEDS if name in op_names() else SEEDS[:1])
    for way in ways_of(name, ("each", "constant"))
}


def line(subject: str) -> str:
    """The line of the file for a model."""
    model = model_of(*SUBJECTS[subject])
    if model is None:
        return f"{subject} | is none"
    try:
        reading = Reading(model.graph, [symbolic(node[0]) for node in model.graph.inputs])
    except PartitaError as error:
        return f"{subject} | {error.cause}"
    return f"{subject} | {told(reading, model.graph)}"


def told(reading: Reading, graph: pt.Graph) -> str:
    """The sizes of a graph's results, and what those of its inputs have to fulfil."""
    results = "; ".join(_listed(reading.sizes(entry)) for entry in graph.outputs)
    said = [f"{r.left} {r.relation} {r.right}" for r in (*reading.requirements, *reading.assumptions)]
    return f"{results} | {', '.join(said)}"


def _listed(sizes: object) -> str:
    return f"[{', '.join(map(str, sizes))}]" if isinstance(sizes, tuple) else "unknown"


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line(subject)}\n" for subject in SUBJECTS), "utf-8")
