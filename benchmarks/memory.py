"""How much memory a model takes while it is compiled and while it runs, as multiples of its weights.

    python -m benchmarks.memory resnet50.onnx bert.onnx --devices cpu onnxruntime openvino HETERO:cpu,onnxruntime
    python -m benchmarks.memory resnet50.onnx bert.onnx --devices cpu --precisions f32 bf16

Each figure is of a fresh process: the most that it held at once, over what it held when the graph was loaded (the graph's own
weights are in that). On several devices each tenth of the ops goes to the next one in turn."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import module_command, run_json
from benchmarks.travel import spread

MEGA = 1 << 20

DEVICES = ["cpu", "onnxruntime", "openvino", "HETERO:cpu,onnxruntime"]

SECONDS = 3600.0
"""The seconds that one process may take."""


def main() -> None:
    """Measure each model on each device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help='ONNX files, or "zoo:NAME"')
    parser.add_argument("--devices", nargs="+", default=DEVICES)
    parser.add_argument("--precisions", nargs="+", default=["f32"], help="PRECISION of each device; weights count as float32")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_child(arguments.models[0], arguments.devices[0], arguments.precisions[0], *arguments.child)))
        return
    titles = ("weights", "compiling", "running", "compiling again", "running", "importing", "running")
    print(f"{'':<16}{'':<26}" + "".join(f"{title:>17}" for title in titles))
    for model in arguments.models:
        for device, precision in [(d, p) for d in arguments.devices for p in arguments.precisions]:
            with tempfile.TemporaryDirectory(prefix="partita-memory-") as folder:
                figures = [_measured(model, device, precision, task, folder) for task in ("compile", "compile", "import")]
            weights = figures[0]["weights"]
            values = [f"{row[name] / weights:.2f}" for row in figures for name in ("making", "running")]
            shown = [f"{weights / MEGA:.0f} MB", *values]
            title = device if precision == "f32" else f"{device} {precision}"
            print(f"{Path(model).stem:<16}{title:<26}" + "".join(f"{value:>17}" for value in shown), flush=True)


def _measured(model: str, device: str, precision: str, task: str, folder: str) -> dict[str, float]:
    """One task in a process of its own."""
    options = ["--devices", device, "--precisions", precision, "--child", task, folder]
    return dict(run_json(module_command("benchmarks.memory", [model, *options]), SECONDS))


def _child(model: str, device: str, precision: str, task: str, folder: str) -> dict[str, float]:
    """Bytes over what was held before: `making` the model, and then `running` it three times."""
    import partita as pt

    path, cache = Path(folder) / "net.partita", str(Path(folder) / "cache")
    graph = pt.load(model) if task == "compile" else None
    for name in _names(device):
        pt.query(pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2,)))]), name)
    _settle()
    before = _held("VmRSS")
    if graph is not None:
        weights = float(sum(node.value.nbytes for node in graph.nodes if node.value is not None))
        (Path(folder) / "weights").write_text(str(weights))
        config = {"CACHE_DIR": cache, **({} if precision == "f32" else {"PRECISION": precision})}
        compiled = pt.compile(spread(graph, device), device, config=dict.fromkeys(_names(device), config))
    else:
        weights = float((Path(folder) / "weights").read_text())
        compiled = pt.import_model(path)
    making = _held("VmHWM") - before
    _settle()
    given = compiled.example_inputs()
    for _ in range(3):
        compiled(*given)
    running = _held("VmHWM") - before
    if task == "compile" and not path.exists():
        compiled.export(path)
    return {"weights": weights, "making": making, "running": running}


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
