"""Small graphs for the tests of devices, and a short way to run one on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelerators.interface.accelerator import CompiledSubgraph
from accelerators.interface.registry import accelerator
from graph.build import constant, op, variable
from graph.graph import Graph
from passes.infer import infer


def compiled(device: str, graph: Graph, **config: Any) -> CompiledSubgraph:
    made = accelerator(device)
    return made.compile(infer(graph), made.full_config(config))


def run(device: str, graph: Graph, *inputs: Any, **config: Any) -> list[Any]:
    return list(compiled(device, graph, **config).run(list(inputs)))


def conv_relu() -> Graph:
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    conv = op("Conv", variable("x", "float32", (1, 3, 16, 16)), constant(weights, name="w"), name="conv", kernel_shape=[3, 3])
    return Graph([op("Relu", conv, name="relu")], name="small")


def one(op_type: str, *types: tuple[str, Any], **attrs: Any) -> Graph:
    inputs = [variable(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(types)]
    return Graph([op(op_type, *inputs, name="n", **attrs)])


def answer(device: str, graph: Graph, name: str = "n") -> bool | str:
    return accelerator(device).query(graph)[name]
