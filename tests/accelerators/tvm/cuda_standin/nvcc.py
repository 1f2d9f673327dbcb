"""A stand-in for nvcc: `nvcc -cubin -arch=sm_80 -O3 -o OUT IN` compiles CUDA source for the processor, as a shared library behind
its size."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Compile one file."""
    form, _, _, _, target, source = arguments
    text = Path(source).read_text("utf-8")
    assert form == "-cubin"
    kernels = dict.fromkeys(re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(', text))
    text = re.sub(r"__shared__ (alignas\(\d+\))", r"\1 static", text)
    text += "".join(f"\nKERNEL({name})\n" for name in kernels)
    with tempfile.TemporaryDirectory() as folder:
        for header in ("cuda.h", "math_constants.h"):
            (Path(folder) / header).touch()
        given, compiled = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        given.write_text(text, "utf-8")
        header = Path(__file__).parent / "threads.h"
        options = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", f"-I{folder}", "-include", str(header)]
        options += ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]  # A GPU does not read across its words either.
        done = subprocess.run(["g++", *options, "-o", str(compiled), str(given)], check=False)
        if done.returncode:
            return done.returncode
        library = compiled.read_bytes()
        Path(target).write_bytes(struct.pack("<Q", len(library)) + library)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
