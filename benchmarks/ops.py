"""Each op on the device `cpu` against TVM's default pipeline, and element-wise chains and layer norms against ONNX Runtime.

    python -m benchmarks.ops [PART OF A NAME ...] [--threads 1 4] [--tiny] [--json FILE]

The two sides run in turn, each as the bare call of what it compiled on arrays that are there already; the fastest of the rounds
counts. An op is too slow where it takes more than 1.1 times what TVM's pipeline takes (the slack is for noise, and a tenth of
what starting threads costs), a chain where it takes more than 1.2 times ONNX Runtime's time. Exits with 1 if any is."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from benchmarks.op_case import Case
from benchmarks.op_list import TINY, cases, chains
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.machine.library import part, tvm
from partita.accelerators.tvm.machine.machine import host_machine
from partita.accelerators.tvm.run.threads import set_threads, set_tvm_threads
from partita.graph.errors import PartitaError
from partita.graph.writers.onnx import to_model
from partita.measuring.rounds import settle

LIMITS = {"tvm": 1.1, "onnxruntime": 1.2}
"""For each rival, how many times its time our op may take."""

SLACK_US = 0.5
"""Less than this is no difference."""

Call = Callable[[], Any]


@attrs.frozen
class Row:
    """One comparison."""

    name: str
    threads: int
    rival: str
    ours_us: float
    rival_us: float
    schedules: str
    """The schedules of our kernels."""

    @property
    def ratio(self) -> float:
        """Our time in parts of the rival's."""
        return self.ours_us / self.rival_us

    @property
    def is_slow(self) -> bool:
        """Is it slower than it may be?"""
        return self.ours_us > self.rival_us * LIMITS[self.rival] + SLACK_US


def compare(case: Case, threads: int, rivals: Iterable[str], rounds: int, milliseconds: float) -> Iterator[Row]:
    """Compare our time on the case with each rival that can run it; PartitaError if our device cannot."""
    ours, schedules = our_call(case, threads)
    for rival in rivals:
        try:
            other = tvm_call(case, threads) if rival == "tvm" else onnxruntime_call(case, threads)
        except Exception as error:  # noqa: BLE001  whatever the rival says: there is nothing to compare with
            print(f"    {case.name}: {rival} has none ({type(error).__name__})", file=sys.stderr)
            continue
        mine, its = measured(ours, other, rounds, milliseconds)
        yield Row(case.name, threads, rival, mine, its, schedules)


def our_call(case: Case, threads: int) -> tuple[Call, str]:
    """A call of what our device compiles, as TVM's virtual machine runs it, and the names of its schedules."""
    device = accelerator("cpu")
    compiled: Any = device.compile(case.graph(), device.full_config({"NUM_THREADS": threads}))
    names = "+".join(kernel.schedule for kernel in compiled.kernels())
    call = _vm_call(compiled.assembled.executable, [*case.arrays(), *compiled.assembled.weights])
    set_threads(threads)
    return call, names


def tvm_call(case: Case, threads: int) -> Call:
    """TVM's ONNX importer and its default pipeline for the same processor."""
    warnings.simplefilter("ignore")
    module = part("relax.frontend.onnx").from_onnx(to_model(case.graph()))
    target = host_machine(threads).target
    with target:
        executable = part("relax").build(module, target)
    set_tvm_threads(threads)
    return _vm_call(executable, case.arrays())


def _vm_call(executable: Any, arrays: Iterable[Any]) -> Call:
    machine = part("relax").VirtualMachine(executable, tvm().cpu())
    main, tensors = machine["main"], [tvm().runtime.tensor(array) for array in arrays]
    return lambda: main(*tensors)


def onnxruntime_call(case: Case, threads: int) -> Call:
    """ONNX Runtime, its inputs and outputs bound to memory beforehand."""
    import onnxruntime

    graph = case.graph()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for node, array in zip(graph.inputs, case.arrays(), strict=True):
        binding.bind_cpu_input(node.output_names[0], array)
    for value in session.get_outputs():
        binding.bind_output(value.name)
    return lambda: session.run_with_iobinding(binding)


def measured(ours: Call, other: Call, rounds: int, milliseconds: float) -> tuple[float, float]:
    """Microseconds of each, measured in turn; the fastest round counts."""
    counts = [_count(call, milliseconds) for call in (ours, other)]
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, call in enumerate((ours, other)):
            settle()
            start = time.perf_counter()
            for _ in range(counts[side]):
                call()
            best[side] = min(best[side], (time.perf_counter() - start) / counts[side])
    return best[0] * 1e6, best[1] * 1e6


def _count(call: Call, milliseconds: float) -> int:
    """How many calls together take about `seconds`."""
    call()
    start = time.perf_counter()
    call()
    return max(1, min(1000, int(milliseconds / 1e3 / max(time.perf_counter() - start, 1e-7))))


def chosen(names: list[str], tiny: bool) -> Iterator[tuple[Case, tuple[str, ...]]]:
    """The cases that are asked for, each with its rivals."""
    for group, rivals in ((cases(), ("tvm",)), (chains(), ("tvm", "onnxruntime"))):
        for case in group:
            wanted = not names or any(name in case.name for name in names)
            if wanted and (not tiny or case.size <= TINY):
                yield case, rivals


def main(argv: list[str] | None = None) -> int:
    """Measure, and say which are too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART OF A NAME")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--tiny", action="store_true", help="small cases, measured once")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args(argv)
    rounds, milliseconds = (2, 0.05) if args.tiny else (9, 4.0)
    rows: list[Row] = []
    for threads in args.threads:
        for case, rivals in chosen(args.names, args.tiny):
            try:
                for row in compare(case, threads, rivals, rounds, milliseconds):
                    if row.is_slow and not args.tiny:
                        row = next(iter(compare(case, threads, [row.rival], 3 * rounds, milliseconds)))
                    rows.append(row)
                    print(_line(row), flush=True)
            except PartitaError as error:
                print(f"    {case.name}: not on this device: {error.cause.splitlines()[0][:100]}", file=sys.stderr)
    slow = sorted((row for row in rows if row.is_slow), key=lambda row: -row.ratio)
    print(f"\n{len(rows)} comparisons, {len(slow)} too slow")
    for row in slow:
        print(_line(row))
    if args.json:
        args.json.write_text(json.dumps([{**attrs.asdict(row), "ratio": row.ratio} for row in rows], indent=1))
    return 1 if slow and not args.tiny else 0


def _line(row: Row) -> str:
    mark = "SLOW" if row.is_slow else "    "
    times = f"{row.ours_us:10.1f} us {row.rival_us:10.1f} us  {row.ratio:5.2f}"
    return f"{mark} {row.threads}t {times} of {row.rival:11}  {row.name:46} {row.schedules}"


if __name__ == "__main__":
    sys.exit(main())
