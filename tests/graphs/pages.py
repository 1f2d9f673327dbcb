"""Graphs for the page."""

from __future__ import annotations

import numpy as np

import partita as pt

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><!-- \u2028\u2029 ]]> \" ' &amp;"
"""A name that would run a program wherever it is taken for markup or for JavaScript."""


class Convolutions(pt.SubgraphProperty):
    """Takes convolutions and activations."""

    name = "conv"

    def create_subgraph_selector(self) -> pt.SubgraphSelector:
        return pt.ContainOpSelector({"Conv", "Relu", "Add"})


def small(hostile: bool = False) -> pt.Graph:
    """Conv, Relu | MaxPool | Conv, Relu, partitioned in two."""
    x = pt.variable("x", "float32", (1, 3, 8, 8))
    w = pt.constant(np.zeros((3, 3, 3, 3), np.float32), name="w")
    first = pt.op("Relu", pt.op("Conv", x, w, name="conv1", pads=[1, 1, 1, 1]), name="relu1")
    pool = pt.op("MaxPool", first, name=HOSTILE if hostile else "pool", kernel_shape=[2, 2], strides=[2, 2])
    last = pt.op("Relu", pt.op("Conv", pool, w, name="conv2", pads=[1, 1, 1, 1]), name="relu2")
    graph = pt.apply_pass(pt.Graph([last], name=HOSTILE if hostile else "small"), "InferShape")
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=Convolutions())


def long(ops: int) -> pt.Graph:
    """A chain with skips, named by blocks, every seventh op a pool."""
    values = [pt.variable("x", "float32", (1, 4, 8, 8))]
    for i in range(ops):
        name = f"block{i // 50}.op{i}"
        if i % 7 == 6:
            node = pt.op("MaxPool", values[-1], name=name, kernel_shape=[1, 1])
        elif i % 3 == 2:
            node = pt.op("Add", values[-1], values[max(0, len(values) - 5)], name=name)
        else:
            node = pt.op("Relu", values[-1], name=name)
        values.append(node)
    graph = pt.apply_pass(pt.Graph([values[-1]], name="long"), "InferShape")
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=Convolutions())
