"""How much memory a model takes while it is compiled and while it runs, as multiples of its weights.

    python -m benchmarks.memory resnet50.onnx bert.onnx --devices cpu onnxruntime openvino HETERO:cpu,onnxruntime
    python -m benchmarks.memory resnet50 bert vgg19 --devices cpu --precisions f32 bf16 int8

Each figure is of a fresh process: the most that it held at once, over what it held when the graph was loaded (the graph's own
weights are in that) and each device had compiled and run a small model, as multiples of the weights in float32. On several
devices each tenth of the ops goes to the next one in turn. `int8` is the model in QDQ form, which the models of
`benchmarks.models` have. With several precisions, the figures of the others are also given as parts of the first one's."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import partita as pt
from benchmarks.models.files import NAMES, model
from benchmarks.models.quantized import quantized_model
from benchmarks.processes import module_command, run_json
from benchmarks.travel import spread

MEGA = 1 << 20

PRECISIONS = ["f32", "bf16", "f16", "int8"]

DEVICES = ["cpu", "onnxruntime", "openvino", "HETERO:cpu,onnxruntime"]

SECONDS = 3600.0
"""The seconds that one process may take."""


def main() -> None:
    """Measure each model on each device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help='ONNX files, "zoo:NAME", or names of `benchmarks.models`')
    parser.add_argument("--devices", nargs="+", default=DEVICES)
    parser.add_argument("--precisions", nargs="+", default=["f32"], choices=PRECISIONS, help="PRECISION of each device, or int8")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_child(arguments.models[0], arguments.devices[0], arguments.precisions[0], *arguments.child)))
        return
    titles = ("weights", "compiling", "running", "compiling again", "running", "importing", "running")
    print(f"{'':<16}{'':<26}" + "".join(f"{title:>17}" for title in titles))
    for name, device in [(name, device) for name in arguments.models for device in arguments.devices]:
        first: Sequence[float] = ()
        for precision in arguments.precisions:
            figures = _figures(name, device, precision)
            first = first or figures
            multiples = [f"{figure / figures[0]:.2f}" for figure in figures[1:]]
            parts = [f" ({figure / other:.2f})" * (figures is not first) for figure, other in zip(figures, first)][1:]
            shown = [f"{figures[0] / MEGA:.0f} MB", *map("".join, zip(multiples, parts))]
            title = device if precision == "f32" else f"{device} {precision}"
            print(f"{Path(name).stem:<16}{title:<26}" + "".join(f"{value:>17}" for value in shown), flush=True)


def _figures(name: str, device: str, precision: str) -> list[float]:
    """The bytes of the weights in float32, then the figures of each column."""
    given = str(model(name).path) if name in NAMES else name
    compiled = given if precision != "int8" else str(quantized_model(name).path)
    with tempfile.TemporaryDirectory(prefix="partita-memory-") as folder:
        rows = [_measured(compiled, device, precision, task, folder) for task in ("compile", "compile", "import")]
    return [_weights(given), *(row[key] for row in rows for key in ("making", "running"))]


def _weights(path: str) -> float:
    return float(sum(node.value.nbytes for node in pt.load(path).nodes if node.value is not None))


def _measured(file: str, device: str, precision: str, task: str, folder: str) -> dict[str, float]:
    """One task in a process of its own."""
    options = ["--devices", device, "--precisions", precision, "--child", task, folder]
    return dict(run_json(module_command("benchmarks.memory", [file, *options]), SECONDS))


def _child(file: str, device: str, precision: str, task: str, folder: str) -> dict[str, float]:
    """Bytes over what was held before: `making` the model, and then `running` it three times."""
    path, cache = Path(folder) / "net.partita", str(Path(folder) / "cache")
    config = {"CACHE_DIR": cache, **({} if precision in ("f32", "int8") else {"PRECISION": precision})}
    for name in _names(device):
        small = pt.compile(_small_quantized() if precision == "int8" else _small(), name, config)
        small(*small.example_inputs())
    graph = pt.load(file) if task == "compile" else None
    _settle()
    before = _held("VmRSS")
    if graph is not None:
        compiled = pt.compile(spread(graph, device), device, config=dict.fromkeys(_names(device), config))
    else:
        compiled = pt.import_model(path)
    making = _held("VmHWM") - before
    _settle()
    given = compiled.example_inputs()
    for _ in range(3):
        compiled(*given)
    running = _held("VmHWM") - before
    if task == "compile" and not path.exists():
        compiled.export(path)
    return {"making": making, "running": running}


def _small() -> pt.Graph:
    """What an engine needs once for all models is in memory when this one has run."""
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", (1, 16, 20, 20))
    conv = pt.op("Relu", pt.op("Conv", x, pt.constant(random.standard_normal((16, 16, 3, 3)).astype("float32"))))
    flat = pt.op("Flatten", conv)
    return pt.Graph([pt.op("MatMul", flat, pt.constant(random.standard_normal((5184, 16)).astype("float32")))], name="small")


def _small_quantized() -> pt.Graph:
    """The same for quantized models: a convolution, a product, and a function that becomes a table."""
    random = np.random.default_rng(0)

    def numbers(integers: pt.Node, scale: float) -> pt.Node:
        return pt.op("DequantizeLinear", integers, pt.constant(np.float32(scale)))

    def rounded(values: pt.Node, scale: float) -> pt.Node:
        integers = pt.op("QuantizeLinear", values, pt.constant(np.float32(scale)), pt.constant(np.uint8(128)))
        return pt.op("DequantizeLinear", integers, pt.constant(np.float32(scale)), pt.constant(np.uint8(128)))

    def weight(*sizes: int) -> pt.Node:
        return numbers(pt.constant(random.integers(-127, 128, sizes).astype("int8")), 0.001)

    x = pt.variable("x", "float32", (1, 16, 20, 20))
    conv = rounded(pt.op("Relu", pt.op("Conv", rounded(x, 0.02), weight(16, 16, 3, 3))), 0.02)
    curved = rounded(pt.op("Gelu", rounded(pt.op("MatMul", pt.op("Flatten", conv), weight(5184, 16)), 0.02)), 0.02)
    return pt.Graph([curved], name="small", opsets={"": 20})


def _names(device: str) -> list[str]:
    return device.removeprefix("HETERO:").split(",")


def _settle() -> None:
    """Give free memory back to the system and reset the high-water mark."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def _held(field: str) -> float:
    """The bytes that this process holds (VmRSS), or the most that it held since the last reset (VmHWM)."""
    line = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if line is None:
        sys.exit(f"this system does not tell {field}")
    return int(line[1]) * 1024.0


if __name__ == "__main__":
    main()
