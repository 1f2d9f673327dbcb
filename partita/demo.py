"""`make demo`: a real model, from the file to what Partita does with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import partita as pt
from graph.summary import print_summary, summarize


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    print(f"\n== {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"   ({time.perf_counter() - start:.2f} s)", flush=True)


class ConvBlock(pt.SubgraphProperty):
    """A convolution with what follows it directly: batch norm, residual add, activation."""

    name = "conv_block"

    def create_subgraph_selector(self) -> pt.Pattern:
        return pt.Pattern("Conv", "BatchNormalization?", "Sum|Add?", "Relu?")


def main() -> None:
    """Load, optimise, partition."""
    with step("Load ResNet-50 (random weights, calibrated batch norms)"):
        graph = pt.load("zoo:resnet50")
        print_summary(summarize(graph))
    with step("Run the default passes"):
        graph = pt.apply_pass(graph, "Default")
        print_summary(summarize(graph))
    with step("Partition: each convolution with its residual add and activation"):
        graph = pt.apply_pass(graph, "PartitionGraph", subgraph_property=ConvBlock())
        graph.attrs["partition_report"].print()


if __name__ == "__main__":
    main()
