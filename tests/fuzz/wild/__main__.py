"""Files of other people against onnxruntime: python -m tests.fuzz.wild FOLDER --devices reference HETERO:cpu,reference

Prints each model that onnxruntime runs and a device does not, or computes otherwise, and at last how many there were."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from tests.fuzz.children import Child


def main() -> None:
    """Try all models of a folder, or those of a list."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.wild", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", nargs="+", default=["reference"])
    parser.add_argument("--list", type=Path, help="a file of paths in the folder, one a line; all .onnx files by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="a model that takes longer hangs")
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.onnx"))
    if options.list:
        paths = [options.folder / line for line in options.list.read_text().splitlines() if line]
    counts: Counter[str] = Counter()
    with Child("tests.fuzz.wild.child", "results", renewed_after=150) as child:
        for path in paths:
            answer = child.ask({"path": str(path), "devices": options.devices}, options.seconds)
            if answer.last is None:
                step = answer.notes[-1]["step"] if answer.notes else "start"
                results = {step: f"{answer.end}: {answer.printed[-600:]}"}
            else:
                results = dict(answer.last["results"])
            for device, text in results.items():
                counts[f"{device}: {text.split()[0].rstrip(':,')}"] += 1
                if device != "onnxruntime" and text != "agrees":
                    about = results.get("onnxruntime", "")
                    print(f"{path.relative_to(options.folder)}\t{device}\t{about}\t{text!r}", flush=True)
    for title, count in sorted(counts.items()):
        print(count, title)


if __name__ == "__main__":
    main()
