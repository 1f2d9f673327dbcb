"""Random models on a device that refuses random nodes. Started as a program, it checks so many of them, and prints nothing."""

from __future__ import annotations

import random
import sys

import numpy as np
import onnxruntime
from onnx import helper

import partita as pt
from tests.onnxruntime_plugin.models import CPU, assigned, model, provider, session

UNARY, BINARY = ("Relu", "Tanh", "Neg", "Abs", "Identity"), ("Add", "Mul", "Max")


def random_model(draw: random.Random) -> bytes:
    """A model of up to 30 ops, some of which have several readers; values are read near and far."""
    names, nodes = ["x"], []
    for i in range(draw.randint(2, 30)):
        count = draw.choice((1, 1, 2))
        read = [draw.choice(names[-draw.choice((3, 12)) :]) for _ in range(count)]
        nodes.append(helper.make_node(draw.choice(UNARY if count == 1 else BINARY), read, [f"v{i}"], name=f"n{i}"))
        names.append(f"v{i}")
    outputs = sorted({names[-1], *draw.sample(names[1:], min(len(nodes), draw.randint(1, 3)))})
    return model(nodes, {"x": ["n", 4]}, outputs)


class Choosy(pt.Accelerator):
    """Refuses about a third of the nodes, chosen by name and seed."""

    name = "choosy"
    seed = 0

    def supports(self, node, graph):
        return random.Random(f"{self.seed} {node.name}").random() > 0.35 or "it does not like it"

    def compile(self, graph, config):
        return pt.accelerator("reference").compile(graph, {})


def check(seed: int, name: str) -> None:
    """One model: the numbers are onnxruntime's, and the device has each live node that it does not refuse."""
    draw = random.Random(seed)
    content = random_model(draw)
    Choosy.seed = seed
    graph = pt.apply_pass(pt.load(content), "EliminateDead")
    wanted = sorted(node.op for node in graph.nodes if node.is_op and pt.accelerator("choosy").supports(node, graph) is True)
    settings = onnxruntime.SessionOptions()
    running = session(content, name, settings=settings)
    taken = sorted(op for ops in assigned(running, name) for op in ops)
    assert taken == wanted, f"seed {seed}: {taken} instead of {wanted}"
    x = np.array([[draw.uniform(-2, 2) for _ in range(4)]] * 2, np.float32)
    expected = onnxruntime.InferenceSession(content, providers=[CPU]).run(None, {"x": x})
    for mine, true in zip(running.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(mine, true, rtol=1e-5, atol=1e-6, err_msg=f"seed {seed}")


if __name__ == "__main__":
    pt.register_accelerator(Choosy)
    with provider("choosy") as registered:
        for number in range(int(sys.argv[1])):
            check(number, registered)
