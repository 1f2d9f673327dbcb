"""The pages of the gallery: six reports, made of models that need no download."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("cnn.html", "transformer.html", "diff.html", "diagnosis.html", "timeline.html", "five-thousand.html")
"""The files, in the order of the page."""

NODES = 5_000
"""The size of the large graph."""


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    import numpy as np

    import partita as pt

    random = np.random.default_rng(0)
    devices = "HETERO:cpu,reference"
    network, encoder = convolutions(), transformer(2)
    network_cut = pt.query(network, devices, forbid={"LeakyRelu": "cpu"})
    model = pt.compile(encoder, devices, forbid={"Softmax": "cpu"})
    tokens = random.standard_normal((1, 16, 32)).astype("float32")
    model(tokens)  # the first call takes longer
    with model.timeline() as timeline:
        for future in [model.start(tokens) for _ in range(6)]:
            future.result()
    with tempfile.TemporaryDirectory() as folder:

        def page(subject: Any, **options: Any) -> str:
            return pt.report_page(subject, Path(folder, "page.html"), **options).read_text("utf-8")

        return {
            "cnn.html": page(network_cut),
            "transformer.html": page(model, profile=model.profile(tokens)),
            "diff.html": page(pt.query(network, devices, forbid={"MaxPool": "cpu"}), before=network_cut),
            "timeline.html": page(model, timeline=timeline),
            "diagnosis.html": drawn(diagnosis()),
            "five-thousand.html": page(pt.plan(large(), subgraph_property=supported({"Relu", "Add"}))),
        }


def supported(ops: set[str]) -> Any:
    """A property that takes these ops."""
    import partita as pt

    return pt.PatternProperty(pt.ContainOpSelector(ops), "device")


def convolutions() -> Any:
    """A residual network with an activation that one device refuses."""
    import numpy as np

    import partita as pt

    random = np.random.default_rng(0)
    value = pt.variable("image", "float32", (1, 8, 32, 32))
    for i in range(6):
        weight = pt.constant((random.standard_normal((8, 8, 3, 3)) / 9).astype("float32"), name=f"w{i}")
        conv = pt.op("Conv", value, weight, pads=[1, 1, 1, 1], name=f"conv{i}")
        value = pt.op("Add", pt.op("LeakyRelu" if i % 3 == 2 else "Relu", conv, name=f"act{i}"), value, name=f"sum{i}")
        if i % 2:
            value = pt.op("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2], name=f"pool{i}")
    return pt.Graph([pt.op("GlobalAveragePool", value, name="mean")], name="residual")


def transformer(layers: int) -> Any:
    """An encoder of some layers."""
    import numpy as np

    import partita as pt

    random = np.random.default_rng(0)

    def product(value: Any, width: int, name: str) -> Any:
        weight = random.standard_normal((32 if "down" not in name else 64, width)) / 6
        return pt.op("MatMul", value, pt.constant(weight.astype("float32"), name=f"{name}_weight"), name=name)

    scale = pt.constant(np.ones(32, "float32"), name="scale")
    value = pt.variable("tokens", "float32", (1, 16, 32))
    for i in range(layers):
        query, key, content = (product(value, 32, f"{name}{i}") for name in ("query", "key", "value"))
        scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1], name=f"turn{i}"), name=f"scores{i}")
        seen = pt.op("MatMul", pt.op("Softmax", scores, name=f"softmax{i}"), content, name=f"seen{i}")
        value = pt.op("LayerNormalization", pt.op("Add", value, seen, name=f"add{i}"), scale, name=f"norm{i}")
        hidden = pt.op("Gelu", product(value, 64, f"up{i}"), name=f"gelu{i}")
        value = pt.op("Add", value, product(hidden, 32, f"down{i}"), name=f"out{i}")
    return pt.Graph([value], name="encoder", opsets={"": 21})


def large() -> Any:
    """A chain of residual blocks in which every seventh op is an Erf."""
    import partita as pt

    value = shortcut = pt.variable("x", "float32", (1, 16))
    for i in range(NODES):
        if i % 7 == 6:
            value = pt.op("Erf", value, name=f"erf{i}")
        elif i % 7 == 3:
            value = pt.op("Add", value, shortcut, name=f"add{i}")
            shortcut = value
        else:
            value = pt.op("Relu", value, name=f"relu{i}")
    return pt.Graph([value], name="large")


def drawn(found: Any) -> str:
    """A page with the drawing of a diagnosis above its text."""
    head = '<!doctype html><meta charset="utf-8"><title>A diagnosis</title><style>body { background: white; margin: 2em }</style>'
    return f"{head}{found.to_svg()}<pre>{html.escape(str(found))}</pre>"


def diagnosis() -> Any:
    """The findings of `pt.diagnose` on a device whose Softmax is wrong by one in a hundred."""
    import numpy as np

    import partita as pt
    from partita.graph.interpret import interpret

    class Compiled(pt.CompiledSubgraph):
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        def run(self, inputs: Any, out: Any = None) -> Any:
            wrong = any(node.op == "Softmax" for node in self.graph.nodes)
            return [array * np.float32(1.01) if wrong else array for array in interpret(self.graph, inputs)]

    class Faulty(pt.Accelerator):
        name = "faulty"

        def supports(self, node: Any, graph: Any) -> bool:
            return True

        def compile(self, graph: Any, config: Any) -> Any:
            return Compiled(graph)

    pt.register_accelerator(Faulty)
    try:
        return pt.diagnose(transformer(1), "faulty", np.ones((1, 16, 32), np.float32))
    finally:
        pt.unregister_accelerator("faulty")
