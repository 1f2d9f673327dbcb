"""All benchmarks that compare with peers, one after the other: python -m benchmarks [--tiny] [--results FOLDER] [--publish]

Under forty minutes on four cores, once the environments and models are made. A run that ends well leaves one file in
benchmarks/results, and then the documentation is written anew; of a run that does not, what was measured lies in build/bench."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks import publish, results
from benchmarks.processes import module_command
from benchmarks.progress import Progress, run, say
from benchmarks.venvs import ROOT
from partita.accelerators.process.atomic import write_text

PARTS = ("partition", "latency", "compiling", "gpu")


def main() -> None:
    """Each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART", help=", ".join(PARTS))
    publish.add_options(parser)
    args = parser.parse_args()
    final = results.fresh(args.results)
    unfinished = (args.results / "unfinished" if args.results else ROOT / "build" / "bench") / final.name
    unfinished.unlink(missing_ok=True)
    try:
        failed = measure(args.parts, unfinished, ["--tiny"] * args.tiny)
    except KeyboardInterrupt:
        said_where(unfinished)
        raise
    if failed:
        said_where(unfinished)
        sys.exit(f"error: these ended with an error, shown above: {', '.join(failed)}")
    if not unfinished.exists():
        say("nothing was measured")
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    write_text(final, unfinished.read_text())
    unfinished.unlink()
    say(f"results: {final}")
    if args.publish:
        publish.publish(args.results)


def measure(parts: list[str], path: Path, words: list[str]) -> list[str]:
    """Run the parts, which leave their sections in the file; those that failed."""
    progress = Progress(len(parts), "benchmark")
    failed = []
    for part in parts:
        progress.step(part)
        command = module_command(f"benchmarks.{part}", [*words, "--results", str(path.resolve())])
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(part)
    return failed


def said_where(unfinished: Path) -> None:
    """Say what there is of a run that did not end well."""
    if unfinished.exists():
        say(f"not kept as results: {unfinished} has the parts that ended well")


if __name__ == "__main__":
    run(main)
