"""Do the lowest and the newest versions that setup.cfg allows do? python -m tests.bounds [--folder FOLDER] [--highest] [PYTEST]

Makes an environment of the lowest version of each requirement (with --highest: of the newest within the bounds that pip resolves
now, whatever .venv has), and runs the quick tests of the core in it. `make bounds` does so at both ends. Tests that take
longer than MINUTES are ended, which is a failure."""

from __future__ import annotations

import argparse
import configparser
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]

EXTRAS = ("onnxruntime", "openvino", "image")
"""The extras whose bounds are tried too."""

TOOLS = ("pytest >=8", "pytest-xdist >=3.5", "hypothesis >=6.100")
"""What the tests themselves need, at any version."""

MINUTES = 30
"""The tests may take so long."""

TESTS = (
    "tests/graph", "tests/text", "tests/passes", "tests/partition", "tests/mxnet", "tests/test_house.py",
    "tests/accelerators/hetero/test_compile.py", "tests/accelerators/hetero/test_running.py",
    "tests/accelerators/package/test_export.py", "tests/accelerators/package/test_cache.py",
    "tests/accelerators/package/test_cache_damage.py", "tests/accelerators/package/test_cache_weights.py",
    "tests/accelerators/devices", "tests/accelerators/isolation", "tests/accelerators/tvm/test_cpu.py",
    "tests/accelerators/tvm/test_trial_process.py",
)
"""The core, in minutes. Tests that read ONNX's own node tests want the newest of them."""


def requirements(extras: Sequence[str] = EXTRAS) -> list[str]:
    """What setup.cfg asks for, a line each."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    blocks = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def lowest(requirement: str, python: Path) -> str:
    """The requirement held to the lowest version that it allows and that there is: "onnx >=1.19, <2" is "onnx ==1.19.0"."""
    match = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement)
    assert match is not None
    name, bounds = match[1], SpecifierSet(match[2])
    if not any(bound.operator in (">=", "~=", "==") for bound in bounds):
        raise ValueError(f"{requirement!r} has no lower bound")
    listed = subprocess.run([str(python), "-m", "pip", "index", "versions", name], capture_output=True, text=True, check=True)
    versions = next(line for line in listed.stdout.splitlines() if line.startswith("Available versions:"))
    known = sorted(map(Version, versions.partition(":")[2].replace(" ", "").split(",")))
    return f"{name} =={next(version for version in known if version in bounds)}"


def main() -> None:
    """Make the environment, run the tests, and end with their status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the environment there")
    parser.add_argument("--highest", action="store_true")
    arguments, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="partita-bounds-") as name:
        folder = arguments.folder or Path(name)
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
        wanted = requirements() if arguments.highest else [lowest(line, python) for line in requirements()]
        print(*wanted, sep="\n", flush=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", *wanted, *TOOLS]
        subprocess.run(command, check=True)
        tests = [argument for argument in more if argument.startswith("tests")] or list(TESTS)
        options = [argument for argument in more if not argument.startswith("tests")]
        command = [str(python), "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *options, *tests]
        done = subprocess.run(command, cwd=ROOT, check=False, timeout=60 * MINUTES)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
