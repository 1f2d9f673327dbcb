"""The virtual environments of the peers: made on first use beside the repository's own, kept until `make clean`.

No peer is ever a requirement of Partita: where one cannot be installed, its column is missing and says why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent


class PeerMissing(Exception):
    """A peer that cannot be had here, with the reason and what to do about it."""


@attrs.frozen
class Environment:
    """The environment that a peer needs."""

    name: str
    """The folder is `.venv-bench-NAME`."""
    requirements: tuple[str, ...]
    """The requirements that pip installs."""
    python: str = ""
    """The interpreter's version, such as 3.8; empty: the one that runs this."""

    @property
    def folder(self) -> Path:
        """The folder of the environment."""
        return ROOT / f".venv-bench-{self.name}"


TORCH = Environment("torch", (os.environ.get("TORCH", "torch ==2.13.0"), "transformers", "onnx", "onnxscript", "attrs"))
MXNET = Environment("mxnet", ("mxnet ==1.9.1", "numpy ==1.23.5"), python="3.8")


def python_of(environment: Environment) -> Path:
    """The environment's interpreter; the environment is made first if it is not there as wanted."""
    inside = environment.folder / "bin" / "python"
    stamp = environment.folder / "installed"
    wanted = "\n".join(environment.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return inside
    base = _interpreter(environment)
    print(f"-- making {environment.folder.name}: {', '.join(environment.requirements)} (once)", file=sys.stderr, flush=True)
    _quietly([base, "-m", "venv", "--clear", str(environment.folder)], environment)
    _quietly([str(inside), "-m", "pip", "install", "--quiet", *environment.requirements], environment)
    stamp.write_text(wanted)
    return inside


def _interpreter(environment: Environment) -> str:
    """A Python of the version that the environment wants: on the path, or among pyenv's."""
    if not environment.python:
        return sys.executable
    on_path = shutil.which(f"python{environment.python}")
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = sorted(kept.glob(f"{environment.python}.*/bin/python"))
    for candidate in [on_path, *map(str, of_pyenv)]:
        if candidate and subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return candidate
    wanted = f"Python {environment.python}"
    raise PeerMissing(f"{environment.name} needs {wanted}: none on the path or in {kept} (pyenv install {environment.python})")


def _quietly(command: Sequence[str], environment: Environment) -> None:
    """Run it; if it fails, its last words are the reason."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise PeerMissing(f"{environment.name} could not be installed: {''.join(last)}")


def run_module(environment: Environment, module: str, arguments: Sequence[str]) -> str:
    """Run a module of this repository inside an environment and return what it printed."""
    command = [str(python_of(environment)), "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout
