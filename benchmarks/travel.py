"""Models exported on each device and imported in a fresh process: are the answers the same, and how soon is the first one there?

    python -m benchmarks.travel --devices cpu openvino HETERO:cpu,onnxruntime --models zoo:resnet50 vit.onnx

Without --models: the zoo, and the small BERT and ViT of the tests. On several devices they take turns by tenths of the ops."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from benchmarks.processes import module_command, run_json
from benchmarks.venvs import ROOT
from partita.accelerators.errors import NotSupported

DATA = ROOT / "tests" / "data" / "torch"

SMALL = (DATA / "bert.onnx", DATA / "vit.onnx")
"""Models of a kind that the zoo does not have."""

DEVICES = ("cpu", "onnxruntime", "openvino", "reference", "HETERO:cpu,onnxruntime", "HETERO:openvino,cpu,reference")

SECONDS = 1800.0
"""The seconds that the importing process may take."""


@attrs.frozen(slots=True)
class Journey:
    """One model on one device, exported and imported."""

    model: str
    """The model's name."""
    device: str
    """The devices asked for."""
    subgraphs: int
    """The number of subgraphs."""
    megabytes: float
    """The file's size."""
    compiling: float
    """Seconds that compiling took."""
    exporting: float
    """Seconds that writing the file took."""
    importing: float
    """Seconds that reading it took in the other process, once Partita itself was imported."""
    first: float
    """Seconds from the start of the import of Partita to the first answer there."""
    difference: float
    """The largest difference between the answers here and there, by the largest number."""


def main() -> None:
    """Print a line for each journey; fail if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=all_models(), help='ONNX files, or "zoo:NAME"')
    parser.add_argument("--devices", nargs="+", default=list(DEVICES))
    parser.add_argument("--child", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_arrived(Path(arguments.child))))
        return
    titles = ("subgraphs", "MB", "compile", "export", "import", "first answer", "difference")
    print(f"{'':<22}{'':<31}" + "".join(f"{title:>13}" for title in titles))
    journeys = []
    for model in arguments.models:
        for device in arguments.devices:
            try:
                journeys.append(journey := travel(model, device))
            except NotSupported as error:
                print(f"{_title(model):<22}{device:<31} refused: {error.cause.splitlines()[-1].strip()}", flush=True)
                continue
            print(
                f"{journey.model:<22}{journey.device:<31}{journey.subgraphs:>13}{journey.megabytes:>13.1f}{journey.compiling:>13.2f}"
                f"{journey.exporting:>13.2f}{journey.importing:>13.2f}{journey.first:>13.2f}{journey.difference:>13.1e}",
                flush=True,
            )
    if any(journey.difference > 1e-6 for journey in journeys):
        sys.exit("answers differ")


def all_models() -> list[str]:
    """The zoo, and the small ones."""
    from partita.graph.readers.zoo import zoo_names

    return [*(f"zoo:{name}" for name in zoo_names()), *map(str, SMALL)]


def travel(model: str, device: str) -> Journey:
    """Compile and export here, import and run there."""
    import partita as pt

    graph = spread(pt.load(model), device)
    start = time.perf_counter()
    compiled = pt.compile(graph, device)
    compiling = time.perf_counter() - start
    with tempfile.TemporaryDirectory(prefix="partita-travel-") as folder:
        path = Path(folder) / "net.partita"
        start = time.perf_counter()
        compiled.export(path)
        exporting = time.perf_counter() - start
        inputs = compiled.example_inputs()
        np.savez(Path(folder) / "inputs.npz", *inputs)
        imported = run_json(module_command("benchmarks.travel", ["--child", folder]), SECONDS)
        with np.load(Path(folder) / "outputs.npz") as file:
            there = [file[name] for name in file.files]
        size = path.stat().st_size / 2**20
    differences = [_difference(a, b) for a, b in zip(compiled(*inputs), there, strict=True)]
    times = compiling, exporting, imported["importing"], imported["first"]
    return Journey(_title(model), device, len(compiled.units), size, *times, max(differences))


def _title(model: str) -> str:
    return model.removeprefix("zoo:") if model.startswith("zoo:") else Path(model).stem


def _arrived(folder: Path) -> dict[str, float]:
    """In the other process: import, run, and leave the outputs in the folder."""
    start = time.perf_counter()
    import partita as pt

    with np.load(folder / "inputs.npz") as file:
        inputs = [file[name] for name in file.files]
    ready = time.perf_counter()
    model = pt.import_model(folder / "net.partita")
    importing = time.perf_counter() - ready
    outputs = model(*inputs)
    first = time.perf_counter() - start
    np.savez(folder / "outputs.npz", *outputs)
    return {"importing": importing, "first": first}


def spread(graph: Any, device: str) -> Any:
    """On several devices: each tenth of the ops on the next device, where that takes the op."""
    import partita as pt
    from partita.accelerators.interface.registry import accelerator

    names = device.removeprefix("HETERO:").split(",")
    if len(names) == 1:
        return graph
    placement = pt.query(graph, device)
    shown = pt.apply_pass(graph, "InferShape", strict=False)
    answers = {name: accelerator(name).query(shown) for name in names}
    ops = [node.name for node in graph.nodes if node.is_op and node.name in placement]
    for i, name in enumerate(ops):
        wanted = names[i * 10 // len(ops) % len(names)]
        if answers[wanted].get(name) is True:
            placement[name] = wanted
    return placement.apply(graph)


def _difference(a: Any, b: Any) -> float:
    """The largest difference by the largest number; infinite where they are not comparable."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind not in "fc":
        return float((a != b).any())
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30))


if __name__ == "__main__":
    main()
