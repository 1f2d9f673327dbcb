"""The pictures of the report page that the documentation shows: python -m tests.page.screenshots (needs Chromium, Pillow)."""

from __future__ import annotations

import io
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import partita as pt
from tests.page.conftest import NAMES

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
WINDOW = (1440, 900)
RUNS = 20
"""How often a model is run; the quickest run is shown."""


def on_two_devices(graph: pt.Graph, others: set[str], every: int = 1) -> pt.CompiledModel:
    """The graph compiled for the device `cpu`, with every so-many-th of these ops on onnxruntime."""
    placement = pt.query(graph, "HETERO:cpu,onnxruntime")
    for name in [name for name in placement if graph[name].op in others][::every]:
        placement[name] = "onnxruntime"
    return pt.compile(placement.apply(graph), "HETERO:cpu,onnxruntime")


def five_thousand(ops: int = 5000) -> pt.Graph:
    """Blocks of convolutions and arithmetic; the pools are not taken."""
    draw = random.Random(1)
    values: list[Any] = [pt.variable("x", "float32", (1, 64, 56, 56))]
    weight = pt.constant(np.zeros((64, 64, 3, 3), np.float32), name="w")
    for i in range(ops):
        op = draw.choice(["Conv", "Relu", "Add", "MaxPool", "Sigmoid", "Mul"])
        name, last = f"block{i // 50}.{op.lower()}{i}", values[-1]
        if op == "Conv":
            node = pt.op(op, last, weight, name=name, pads=[1, 1, 1, 1])
        elif op in ("Add", "Mul"):
            node = pt.op(op, last, values[max(0, len(values) - draw.randint(2, 9))], name=name)
        elif op == "MaxPool":
            node = pt.op(op, last, name=name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        else:
            node = pt.op(op, last, name=name)
        values.append(node)
    graph = pt.apply_pass(pt.Graph([values[-1]], name="five_thousand"), "InferShape")
    chosen = pt.PatternProperty(~pt.ContainOpSelector({"MaxPool"}), "fused")
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=chosen)


def cut(graph: pt.Graph, *ops: str) -> pt.Graph:
    """Subgraphs of these ops."""
    chosen = pt.PatternProperty(pt.ContainOpSelector(set(ops)), "fused")
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=chosen)


class Photographer:
    """Opens pages and keeps what they look like."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder

    def take(
        self,
        image: str,
        subject: Any,
        *,
        size: tuple[int, int] = WINDOW,
        theme: str = "light",
        find: str = "",
        before: Any = None,
    ) -> None:
        run = None
        if isinstance(subject, pt.CompiledModel):
            inputs = subject.example_inputs()
            run = min((subject.profile(*inputs) for _ in range(RUNS)), key=lambda profile: profile.total_us)
        path = pt.report_page(subject, self.folder / "page.html", profile=run, before=before)
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        if before is not None:
            page.get_by_role("tab", name="Changes").click()
        if find:
            page.get_by_role("combobox").fill(find)
            page.keyboard.press("Enter")
        page.wait_for_timeout(1000)
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        taken.quantize(128, dither=Image.Dither.NONE).save(IMAGES / f"report-{image}.png", optimize=True)
        context.close()


def main() -> None:
    """Take every picture anew."""
    IMAGES.mkdir(exist_ok=True)
    resnet = on_two_devices(pt.load("zoo:resnet50"), {"MaxPool", "Sum"}, 3)
    bert = pt.load(ROOT / "tests" / "data" / "torch" / "bert.onnx").evolve(name="bert")
    split = on_two_devices(bert, {"Softmax", "LayerNormalization"})
    large = five_thousand()
    squeezenet = pt.load("zoo:squeezenet")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        photographer = Photographer(browser, Path(folder))
        photographer.take("resnet50", resnet)
        photographer.take("bert", split, theme="dark", size=(1920, 1080), find="node_MatMul_100")
        photographer.take("phone", split, size=(390, 844), find="node_Softmax_102")
        photographer.take("changes", cut(squeezenet, "Conv", "Relu", "Concat"), before=cut(squeezenet, "Conv", "Relu"))
        photographer.take("five-thousand", large)
        photographer.take("five-thousand-open", large, find="block31.sigmoid1553")
        browser.close()


if __name__ == "__main__":
    main()
