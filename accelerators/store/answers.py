"""Keeps on disk which ops devices run, if they find out by trial: another trial costs as much as compiling."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from partita.accelerators.interface.device_list import Device
from partita.accelerators.store.folder import FOLDERS, chosen_folder, keep, read_kept
from partita.accelerators.store.key import source_digest

FOLDER = FOLDERS[0]
"""The subfolder of the cache with one file for each device, version and target."""

LIMIT = 20_000
"""Maximum number of answers in a file."""

Answers = MutableMapping[str, "bool | str"]


@contextlib.contextmanager
def remembering(devices: Sequence[Device], configs: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """A context in which devices know the answers of other processes; new answers are kept for later ones."""
    files = []
    for device in devices:
        path, known = _path(device, configs[device.label]), device.accelerator.findings()
        if path is not None and known is not None:
            kept = _read(path)
            for key, answer in kept.items():
                known.setdefault(key, answer)
            files.append((path, known, kept))
    yield
    for path, known, kept in files:
        if not known.keys() <= kept.keys():
            _write(path, known)


def _path(device: Device, config: Mapping[str, Any]) -> Path | None:
    folder = chosen_folder(config["CACHE_DIR"])
    if folder is None:
        return None
    says = [device.accelerator.name, dict(device.accelerator.identity(config)), source_digest()]
    return folder / FOLDER / hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, bool | str]:
    """The answers; empty if the file is missing or damaged."""
    data = read_kept(path)
    try:
        answers = {} if data is None else dict(json.loads(data))
    except (TypeError, ValueError, RecursionError):
        return {}
    return {str(key): answer for key, answer in answers.items() if answer is True or isinstance(answer, str)}


def _write(path: Path, known: Answers) -> None:
    """Merges the answers into the file. A failure is harmless: the ops are tried again."""
    answers = {**_read(path), **dict(known)}
    keep(path, json.dumps(dict(list(answers.items())[-LIMIT:])).encode())
