"""Results of tuning, stored beside the compile cache: for each kernel, the candidates that made the fastest one on this machine.

There is a file for each machine and each version of the kernels' code; any number of processes may read and extend it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import open_private, replacing
from partita.accelerators.process.cores import processor
from partita.accelerators.process.json_form import form_error
from partita.accelerators.store.folder import chosen_folder, inner_folder, refuse_link
from partita.accelerators.store.store import Store
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.run.runtime import version

FOLDER = "tuned"
"""Folder of these files in the cache folder."""


@attrs.frozen(slots=True)
class Finding:
    """Measurements of one kernel."""

    choices: Mapping[str, str]
    """Candidate of each choice, by the choice's name; empty if the cost model's candidates are the best."""
    seconds: float
    """Run time of the kernel in seconds."""
    before: float
    """Run time of the cost model's kernel in seconds, measured at the same time."""
    tried: int
    """Number of kernels measured."""


Findings = Mapping[str, Finding]
"""Results by the digest of a body's key."""


def digest_of(key: str) -> str:
    """Short digest of a body's key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def choices_in(tuned: Findings, key: str) -> Mapping[str, str]:
    """Candidates chosen for the body with that key, by the names of the choices."""
    row = tuned.get(digest_of(key))
    return {} if row is None else row.choices


def findings(config: Mapping[str, Any], machine: Machine) -> Findings:
    """Results for this machine; empty if the cache is off."""
    folder = chosen_folder(config.get("CACHE_DIR"))
    if folder is None or machine.is_gpu:
        return {}
    return _read(_path(folder, machine))


def add(config: Mapping[str, Any], machine: Machine, key: str, choices: Finding) -> None:
    """Store the result for a kernel."""
    folder = chosen_folder(config.get("CACHE_DIR"))
    if folder is None:
        raise AcceleratorError(
            "what tuning finds is kept in the cache, and the cache is off",
            where="CACHE_DIR",
            remedy="Compile the model with a folder there, or without it",
        )
    path = _path(folder, machine)
    with Store(folder).locked(path.stem):
        known = {**_read(path), digest_of(key): choices}
        inner_folder(path.parent)
        rows = {name: attrs.asdict(row) for name, row in sorted(known.items())}
        with replacing(path, 0o600, follows=False) as file:
            file.write(json.dumps({"machine": str(machine), "kernels": rows}, indent=1).encode())


def fingerprint(tuned: Findings) -> str:
    """Short digest of the results that compiled code depends on; empty if nothing was tuned."""
    chosen = {name: dict(row.choices) for name, row in tuned.items() if row.choices}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16] if chosen else ""


def _path(folder: Path, machine: Machine) -> Path:
    known = f"{machine} {processor()} {version()} {_kernels()}"
    return folder / FOLDER / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> dict[str, Finding]:
    """Results in the file; empty if the file is missing or damaged."""
    try:
        refuse_link(path.parent)
        state = os.stat(path)
        return dict(_parsed(path, state.st_mtime_ns, state.st_size))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, AcceleratorError):
        return {}


@cache
def _parsed(path: Path, _time: int, _size: int) -> Findings:
    with open_private(path) as file:
        rows = json.load(file)["kernels"]
    return {name: Finding(*(row[part] for part in _FORM)) for name, row in rows.items() if form_error(row, _FORM) is None}


_FORM = {"choices": {str: str}, "seconds": float, "before": float, "tried": int}
"""Form of a row; other rows, from a damaged or forged file, are ignored."""


@cache
def _kernels() -> str:
    """Digest of the kernels' code: with other code, other choices may be the best."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "kernels").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
