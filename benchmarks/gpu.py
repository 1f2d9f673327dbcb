"""The latency of models on a GPU, side by side: python -m benchmarks.gpu [--models NAME ...]

    python -m benchmarks.gpu --carry FOLDER [--arch sm_90]     compiles here, GPU or not, and leaves all that the run needs
    python -m benchmarks.gpu --carried FOLDER                  runs it where there is a GPU; TVM's runtime alone will do

Partita's `cuda` against torch, torch.compile and onnxruntime's CUDA provider, each where it is installed; from arrays in the
host's memory to arrays in the host's memory. Where there is no GPU of NVIDIA's the smallest model runs on an OpenCL driver, that
of another GPU or one for the processor, beside onnxruntime on the processor, and nothing of it is kept."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from benchmarks import publish, results, tables
from benchmarks.contest import CASE_LIMIT, compete, run_case
from benchmarks.contestants import ENGINES, Engine
from benchmarks.machine import OtherLoad, usable_cores
from benchmarks.models import NAMES, Model, model
from benchmarks.processes import module_command
from benchmarks.progress import Progress, run, say

ON_GPU = ("partita", "onnxruntime", "torch", "torch.compile")


ON_OPENCL = {"partita": Engine("partita_opencl"), "onnxruntime": ENGINES["onnxruntime"]}
"""The engines where there is no GPU of NVIDIA's."""


def engines(names: Sequence[str]) -> dict[str, Engine]:
    """The engines that can use a GPU; torch comes from this environment if it is installed here, or else from its own."""
    here = importlib.util.find_spec("torch") is not None
    return {name: attrs.evolve(ENGINES[name], environment=None) if here else ENGINES[name] for name in names}


def gpu_name() -> str | None:
    """The GPU that is here; None where there is none."""
    from partita.accelerators.tvm.run.cuda_driver import driver_of

    driver = driver_of(0)
    return driver.title if driver else None


def opencl_name() -> str:
    """The OpenCL device that is here; AcceleratorUnavailable, with what to install, where there is none."""
    from partita.accelerators.tvm.run.opencl_driver import drivers

    return drivers()[0].name


def expected(case_model: Model, inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """The outputs that onnxruntime computes on the processor."""
    from benchmarks.peers.onnxruntime import load

    return load(str(case_model.path), (case_model.name, case_model.batch), usable_cores())(inputs)


def carry(case_model: Model, folder: Path, arch: str) -> Path:
    """Leave an export, the inputs and the expected outputs; the file that holds the export."""
    import partita as pt

    inputs = case_model.inputs()
    held: dict[str, Any] = {f"input {name}": array for name, array in inputs.items()}
    held |= {f"output {i}": array for i, array in enumerate(expected(case_model, inputs))}
    np.savez(carried_path(folder, case_model, ".npz"), **held)
    path = carried_path(folder, case_model, ".partita")
    pt.compile(pt.load(case_model.path), "cuda", {"ARCH": arch} if arch else None).export(path, bodies=False)
    return path


def carried_path(folder: Path, case_model: Model, suffix: str) -> Path:
    """A file of what was carried."""
    return folder / f"{case_model.name}-{case_model.batch}{suffix}"


def read_carried(folder: Path, case_model: Model) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The carried inputs and expected outputs."""
    with np.load(carried_path(folder, case_model, ".npz")) as held:
        inputs = {name.removeprefix("input "): held[name] for name in held if name.startswith("input ")}
        return inputs, [held[name] for name in held if name.startswith("output ")]


def one_process(args: argparse.Namespace, name: str, batch: int) -> dict[str, Any]:
    """Measure one model in this process."""
    if args.carried:
        case_model = Model(name, batch, args.carried / f"{name}-{batch}.onnx")
        inputs, reference = read_carried(args.carried, case_model)
    else:
        case_model = model(name, batch)
        inputs = case_model.inputs()
        reference = list(expected(case_model, inputs))
    if args.opencl:
        return compete(ON_OPENCL, case_model, usable_cores(), inputs, reference, args.seconds, CASE_LIMIT, args.gate)
    return compete(engines(args.engines), case_model, 0, inputs, reference, args.seconds, CASE_LIMIT, args.gate)


def measure(args: argparse.Namespace) -> list[results.Row]:
    """Each model in processes of its own."""
    cases = [(name, batch) for batch in args.batch for name in args.models]
    if args.carried:
        cases = [(name, batch) for name, batch in cases if (args.carried / f"{name}-{batch}.partita").exists()]
    progress = Progress(len(cases), "gpu")
    rows: list[results.Row] = []
    for name, batch in cases:
        progress.step(f"{name}, batch {batch}")
        words = ["--case", name, str(batch), "--seconds", str(args.seconds * len(args.engines) / args.processes)]
        words += ["--carried", str(args.carried.resolve())] if args.carried else []
        words += ["--opencl"] if args.opencl else []

        def command(names: Sequence[str], gate: int, words: Sequence[str] = words) -> list[str]:
            return module_command("benchmarks.gpu", [*words, "--gate", str(gate), "--engines", *names])

        threads = usable_cores() if args.opencl else 0
        running = ON_OPENCL if args.opencl else engines(args.engines)
        rows += run_case({"model": name, "batch": batch, "threads": threads}, running, command, args.processes)
    return rows


def show_on_opencl(args: argparse.Namespace) -> None:
    """The tiny form, to see that all of it works."""
    from partita.accelerators.errors import AcceleratorUnavailable

    try:
        name = opencl_name()
    except AcceleratorUnavailable as unavailable:
        print(f"There is no GPU of NVIDIA's here, and {unavailable.cause}, so nothing was measured.\n  {unavailable.remedy}.")
        return
    args.opencl, args.engines = True, list(ON_OPENCL)
    args.models, args.batch, args.seconds, args.processes = ["squeezenet"], [1], 1.0, 1
    load = OtherLoad()
    rows = measure(args)
    print(tables.TABLES["gpu"](results.section(rows, opencl=name, seconds=args.seconds, others_cores=load.cores())))
    print(f"There is no GPU of NVIDIA's here: `opencl` ran on {name}, onnxruntime on the processor. Nothing of it is kept.")
    print("To compile for a GPU here and run elsewhere: --carry, then --carried.")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--engines", nargs="+", default=list(ON_GPU), choices=ON_GPU, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=2.0, help="for one engine's turns in a case, in all its processes")
    parser.add_argument("--processes", type=int, default=2, help="fresh ones for each case")
    parser.add_argument("--carry", type=Path, metavar="FOLDER", help="compile into this folder instead of running")
    parser.add_argument("--arch", default="", help='what to compile for, as "sm_90"; by default the GPU that is here')
    parser.add_argument("--carried", type=Path, metavar="FOLDER", help="run what was carried here in this folder")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--gate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--opencl", action="store_true", help=argparse.SUPPRESS)
    publish.add_options(parser)
    args = parser.parse_args()
    if args.tiny:
        args.models, args.batch, args.seconds = ["squeezenet"], [1], 0.1
    if args.case:
        print(json.dumps(one_process(args, args.case[0], int(args.case[1]))))
    elif args.carry:
        args.carry.mkdir(parents=True, exist_ok=True)
        for name, batch in ((name, batch) for batch in args.batch for name in args.models):
            say(f"carried: {carry(model(name, batch), args.carry, args.arch)}")
    elif (gpu := gpu_name()) is None:
        show_on_opencl(args)
    else:
        load = OtherLoad()
        rows = measure(args)
        publish.finish("gpu", results.section(rows, gpu=gpu, seconds=args.seconds, others_cores=load.cores()), args, parser)


if __name__ == "__main__":
    run(main)
