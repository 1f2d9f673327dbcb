"""`make demo`: a real model partitioned, drawn, compiled, run, checked, and shown on a report page."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import partita as pt
from partita.accelerators.process.atomic import write_text
from partita.accelerators.store import default_folder, list_entries
from partita.compare import compare
from partita.graph.pictures import to_svg
from partita.graph.summary import print_summary, summarize
from partita.measuring.rounds import settle

PICTURE = Path("resnet50.svg")
"""File with a picture of the partitioned model."""

PAGE = Path("resnet50.html")
"""Report page of the compiled model and its run."""

NEXT = (
    ("why a node is where it is", "explain zoo:resnet50 n3 --select Conv,Relu"),
    ("another model partitioned: its page", "partition zoo:squeezenet --select Conv,Relu -o own.onnx --report own.html"),
    ("another model compiled, run and checked against the reference", "run zoo:squeezenet --check --report squeezenet.html"),
)
"""Suggestions for after the demo, each with its command."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Prints the title of a step, and the time that it took."""
    print(f"\n== {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"   ({time.perf_counter() - start:.2f} s)", flush=True)


class ConvBlock(pt.SubgraphProperty):
    """A convolution with what directly follows it: batch norm, residual add, activation."""

    name = "conv_block"

    def create_subgraph_selector(self) -> pt.Pattern:
        return pt.Pattern("Conv", "BatchNormalization?", "Sum|Add?", "Relu?")


def main() -> None:
    """Load, optimise, partition, draw, compile, run, check, profile, write the page."""
    with step("Load ResNet-50 (random weights, calibrated batch norms)"):
        original = pt.load("zoo:resnet50")
        print_summary(summarize(original))
    with step("Run the default passes"):
        graph = pt.apply_pass(original, "Default")
        print_summary(summarize(graph))
    with step("Partition: each convolution with its residual add and activation"):
        partitioned = pt.apply_pass(graph, "PartitionGraph", subgraph_property=ConvBlock())
        partitioned.attrs["partition_report"].print(12)
    with step(f"Draw it: {PICTURE}"):
        write_text(PICTURE, to_svg(partitioned))
    with step("Compile with TVM for this processor, what it lacks with the reference"):
        before = kept()
        model = pt.compile(graph)
        print(model)
        print(f"   {where_from(before)}")
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    with step("Run it, and check it against the reference on the original model"):
        check(model, original, image)
    with step("Profile: the ten slowest kernels"):
        profile = model.profile(image)
        profile.print(10)
    with step(f"Write the page: {PAGE}"):
        pt.report_page(model, PAGE, profile=profile)
    print("\n".join(next_steps()))


def kept() -> int:
    """Number of subgraphs in the user's cache; 0 if there can be no cache."""
    try:
        return len(list_entries())
    except pt.PartitaError:
        return 0


def where_from(before: int) -> str:
    """The part of the cache in the compilation, in words; `before` is the number of subgraphs that it held before."""
    if not kept():
        return "compiled now, and not kept: there is no cache"
    return f"{'compiled now, and kept in' if kept() > before else 'read from'} the cache {default_folder()}"


def next_steps() -> list[str]:
    """Location of the page, and suggestions with commands that work in the demo's folder."""
    lines = ["", f"== Open {PAGE.resolve().as_uri()} in a browser: the graph, its kernels, and this run", "== Then try"]
    for what, words in NEXT:
        lines += [f"   {what}:", f"     {_partita()} {words}"]
    return lines


def _partita() -> str:
    """Command line of this interpreter, as short as it can be typed here."""
    program = Path(sys.executable).with_name("partita")
    runs, rest = (program, []) if program.exists() else (Path(sys.executable), ["-m", "partita"])
    shown = runs.relative_to(Path.cwd()) if runs.is_relative_to(Path.cwd()) else runs
    return shlex.join([str(shown), *rest])


def check(model: pt.CompiledModel, original: pt.Graph, image: np.ndarray) -> None:
    """Checks that two images give two results, within 1e-4 of the reference's, as logarithms: the input of the final softmax."""
    outputs = model(image)
    (other,), (difference,) = (
        compare(original, result, outputs) for result in (model(-image), pt.compile(original, "reference")(image))
    )
    assert other.worst > 0, "another image has to give another answer"
    print(f"   error {difference.worst:.1e} (at most 1e-4); {1e3 * usual_seconds(model, image):.1f} ms an image")
    assert difference.worst < 1e-4, "the compiled model differs from the reference"


def usual_seconds(model: pt.CompiledModel, image: np.ndarray) -> float:
    """Median time of some runs, after the threads of the reference's products have gone to sleep."""
    settle()
    taken = []
    for _ in range(10):
        start = time.perf_counter()
        model(image)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
