"""The command line: see the package."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import benchmarks.models as models


def main() -> None:
    """Make the models that are asked for, check each, and copy them where they are wanted."""
    parser = argparse.ArgumentParser(description=models.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(models.NAMES)}")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--to", type=Path, help="copy them into this folder, each as NAME.onnx, or NAME-8.onnx at batch 8")
    args = parser.parse_args()
    for name in args.names or models.NAMES:
        if name not in models.NAMES:
            sys.exit(f"error: there is no model {name!r}\n  There are {', '.join(models.NAMES)}")
        for batch in args.batch:
            case_model = models.model(name, batch)
            size = case_model.path.stat().st_size / 2**20
            print(f"{case_model.path} {size:.1f} MiB; {models.check(case_model)}", flush=True)
            if args.to:
                args.to.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(case_model.path, args.to / (f"{name}.onnx" if batch == 1 else f"{name}-{batch}.onnx"))


if __name__ == "__main__":
    main()
