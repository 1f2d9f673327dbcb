"""All benchmarks that compare with peers, one after the other: python -m benchmarks [--tiny] [--results FOLDER] [--publish]

Under forty minutes on four cores, once the environments and models are made. Results are written after each, the documentation at
the end."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks import publish
from benchmarks.processes import module_command
from benchmarks.progress import Progress, run
from benchmarks.venvs import ROOT

PARTS = ("partition", "latency", "compiling", "gpu")


def main() -> None:
    """Each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    publish.add_options(parser)
    args = parser.parse_args()
    words = ["--tiny"] * args.tiny + (["--results", str(args.results.resolve())] if args.results else [])
    progress = Progress(len(PARTS), "benchmark")
    failed = []
    for part in PARTS:
        progress.step(part)
        done = subprocess.run(module_command(f"benchmarks.{part}", words), cwd=ROOT, check=False)
        if done.returncode:
            failed.append(part)
    if args.publish:
        publish.publish(args.results)
    if failed:
        sys.exit(f"error: these ended with an error, shown above: {', '.join(failed)}")


if __name__ == "__main__":
    run(main)
