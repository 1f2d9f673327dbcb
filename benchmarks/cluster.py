"""Work shared out by Ray and by processes of this machine: python -m benchmarks.cluster compile|map [--into PAGE] [--tiny]

`compile`: nine models of the zoo compiled for `cpu`, by one process, by several, and by tasks of a local cluster of Ray's, each
time into an empty cache. `map`: images through a small network, by a plain loop, by processes and by actors of Ray's, one of
which is killed in the middle; exits with 1 if one byte differs from the loop's."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import partita as pt
from benchmarks.models import NAMES
from benchmarks.progress import say
from benchmarks.tables import markdown, merge

EXECUTORS = ("serial", "processes", "ray")

ZOO = NAMES[:9]
"""The models of the zoo of the onnx package."""

COMPILED = ("compiled by", "models", "seconds")
MAPPED = ("images by", "first result, s", "images in a second from then on", "longest wait, s", "workers killed", "right")


def compile_models(names: list[str], executors: list[str], workers: int) -> list[list[str]]:
    """A row for each executor."""
    graphs = [pt.load(f"zoo:{name}") for name in names]
    rows = []
    for executor in executors:
        if executor == "ray":
            start_ray(workers)
        say(executor)
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            config = {"NUM_THREADS": 1, "CACHE_DIR": folder}
            pt.compile_many(graphs, "cpu", config, executor=executor, workers=workers)
            seconds = time.perf_counter() - start
        by = "one process" if executor == "serial" else f"{executor}, {workers} workers"
        say(f"{by}: {seconds:.0f} s")
        rows.append([by, str(len(names)), f"{seconds:.0f}"])
    return rows


def map_images(count: int, executors: list[str], workers: int) -> tuple[list[list[str]], bool]:
    """A row for a plain loop and for each executor, and whether all have the bytes of the loop."""
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", (1, 3, 32, 32))
    filters = pt.constant(random.standard_normal((16, 3, 3, 3)).astype("float32"))
    net = pt.op("GlobalAveragePool", pt.op("Relu", pt.op("Conv", x, filters, pads=[1] * 4)))
    model = pt.compile(pt.Graph([net], name="images"), "cpu", {"NUM_THREADS": 1})
    images = [random.standard_normal((1, 3, 32, 32)).astype("float32") for _ in range(count)]
    start = time.perf_counter()
    wanted = [model(image)[0].tobytes() for image in images]
    rows = [["a loop", "0", f"{count / (time.perf_counter() - start):.0f}", "0", "0", "yes"]]
    for executor in executors:
        if executor == "serial":
            continue
        if executor == "ray":
            start_ray(workers)
        say(executor)
        results, times = [], [time.perf_counter()]
        for number, outputs in enumerate(pt.map_batches(images, model, executor=executor, workers=workers)):
            results.append(next(iter(outputs.values())).tobytes())
            times.append(time.perf_counter())
            if number == count // 2:
                os.kill(next(worker_pids(executor)), signal.SIGKILL)
        waits = np.diff(times)
        speed, longest = (count - 1) / waits[1:].sum(), waits[1:].max()
        cells = [f"{waits[0]:.1f}", f"{speed:.0f}", f"{longest:.2f}", "1", "yes" if results == wanted else "no"]
        rows.append([f"{executor}, {workers} workers", *cells])
    return rows, all(row[-1] == "yes" for row in rows)


def start_ray(workers: int) -> None:
    """A local cluster for so many workers."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)


def worker_pids(executor: str) -> Iterator[int]:
    """The workers among the processes that this one started, or that those started."""
    word = b"ray::_Actor" if executor == "ray" else b"partita.mapping.worker"
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = word in (path / "cmdline").read_bytes()
            if is_worker and os.getpid() in ancestors(int(path.name)):
                yield int(path.name)
        except OSError:  # it has ended meanwhile
            continue


def ancestors(pid: int) -> Iterator[int]:
    """The processes that a process descends from."""
    while pid > 1:
        pid = int(Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[1])
        yield pid


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compile", "map"))
    parser.add_argument("--models", nargs="*", default=list(ZOO), help="of the zoo (default: all)")
    parser.add_argument("--by", nargs="*", default=list(EXECUTORS), choices=EXECUTORS, help="who does it (default: all)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--into", type=Path, help="a page of Markdown with the marks of the table")
    parser.add_argument("--tiny", action="store_true", help="few images")
    args = parser.parse_args()
    if args.what == "compile":
        header: tuple[str, ...] = COMPILED
        rows, is_right = compile_models(args.models, args.by, args.workers), True
    else:
        header = MAPPED
        rows, is_right = map_images(40 if args.tiny else 2000, args.by, args.workers)
    print(markdown(header, rows))
    if args.into:
        merge(args.into, f"cluster-{args.what}", header, rows)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
