"""A capsule: its contents, and how it is written."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.registry import engines
from partita.accelerators.process.atomic import write_text
from partita.graph.atomic_write import PREFIX
from partita.graph.graph import Graph
from partita.graph.writers import save

FILES = ("capsule.json", "model.onnx", "inputs.npz", "expected.npz", "run.py", "requirements.txt")
"""The names of a capsule's files."""


@attrs.frozen(slots=True, eq=False)
class Capsule:
    """One subgraph with its inputs and expected outputs."""

    graph: Graph
    """The subgraph."""
    inputs: Sequence[Any]
    """The values of its inputs; empty if it never ran."""
    expected: Sequence[Any]
    """Its expected outputs; empty if unknown."""
    device: Device
    """The device that runs it."""
    config: Mapping[str, Any]
    """The device's configuration."""
    reason: str
    """The failure."""
    tolerance: float = 1e-3
    """The largest error, max|a - b| over max|b|, of a correct output."""
    plan: Mapping[str, Any] = attrs.field(factory=dict)
    """Information of the plan about the subgraph: its name, its neighbours."""


def write_capsule(capsule: Capsule, folder: str | Path) -> Path:
    """Writes the folder, which must not contain a capsule's files yet, completely or not at all. `python run.py` in it runs the
    subgraph again."""
    target = Path(folder)
    try:
        present = next((name for name in FILES if (target / name).exists()), None)
        if present is not None:
            cause = "there is a capsule already" if present == FILES[0] else f"there is a file {present!r} already"
            raise AcceleratorError(cause, where=str(target), remedy="Name another folder")
        is_new = not target.exists()
        target.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=PREFIX, dir=target) as aside:
                _write_files(capsule, Path(aside))
                for path in Path(aside).iterdir():
                    path.rename(target / path.name)
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    target.rmdir()
            raise
    except OSError as error:
        raise AcceleratorError(f"the capsule cannot be written: {error.strerror or error}", where=str(target)) from error
    return target


def _write_files(capsule: Capsule, folder: Path) -> None:
    """Writes all files into an empty folder."""
    from importlib import resources

    save(capsule.graph, str(folder / "model.onnx"))
    write_arrays(folder / "inputs.npz", dict(zip((node.name for node in capsule.graph.inputs), capsule.inputs)))
    write_arrays(folder / "expected.npz", dict(zip(capsule.graph.output_names, capsule.expected)))
    script = resources.files("partita.accelerators.store.capsules").joinpath("run.py.txt").read_text("utf-8")
    write_text(folder / "run.py", script)
    write_text(folder / "requirements.txt", "\n".join(_requirements(capsule)) + "\n")
    write_text(folder / "capsule.json", json.dumps(_described(capsule), indent=1) + "\n")


def _described(capsule: Capsule) -> dict[str, Any]:
    accelerator = capsule.device.accelerator
    kind = device_class(accelerator)
    return {
        "subgraph": capsule.graph.name,
        "device": capsule.device.label,
        "module": kind.__module__,
        "class": kind.__qualname__,
        "config": told_config(capsule),
        "reason": capsule.reason,
        "tolerance": capsule.tolerance,
        "nodes": [{"name": node.name, "op": node.op} for node in capsule.graph.nodes if node.is_op],
        "inputs": [node.name for node in capsule.graph.inputs],
        "outputs": list(capsule.graph.output_names),
        "dtypes": {name: np.asarray(value).dtype.name for name, value in _values(capsule).items()},
        "plan": dict(capsule.plan),
        "versions": {**_versions(), **accelerator.identity(capsule.config)},
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _values(capsule: Capsule) -> dict[str, Any]:
    inputs = dict(zip((node.name for node in capsule.graph.inputs), capsule.inputs))
    return {**inputs, **dict(zip(capsule.graph.output_names, capsule.expected))}


def told_config(capsule: Capsule) -> dict[str, Any]:
    """The part of the configuration that is written to the file."""
    keys = capsule.device.accelerator.keys()
    return {name: value for name, value in capsule.config.items() if name in keys and _is_told(keys[name], value)}


def _is_told(key: Any, value: Any) -> bool:
    """True if the value may go into a file: it differs from the default, names no file, and can be JSON."""
    return not key.names_files and isinstance(value, (str, int, float, bool)) and value != key.default


def device_class(accelerator: Accelerator) -> type:
    """The class of a device, also of one that runs in a process of its own."""
    kind: type = getattr(accelerator, "device_class", type(accelerator))
    return kind


def _versions() -> dict[str, str]:
    from importlib import metadata

    versions = {"python": platform.python_version()}
    for package in ("partita", "numpy", "onnx"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions


def _requirements(capsule: Capsule) -> list[str]:
    """The packages needed to run it: an engine's and its provider's, or else Partita and the package of the device."""
    from importlib import metadata

    name = capsule.device.accelerator.name
    module = capsule.config.get("EP_PACKAGE") or "" if name in engines() else device_class(capsule.device.accelerator).__module__
    own = metadata.packages_distributions().get(module.partition(".")[0], [])
    packages = [name, *own, "numpy"] if name in engines() else [*own, "partita"]
    return [_pinned(package) for package in dict.fromkeys(packages)]


def _pinned(package: str) -> str:
    from importlib import metadata

    try:
        return f"{package}=={metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def name_in_file(name: str) -> str:
    """The name with NUL, which would end it in a zip file, replaced by a visible character."""
    return name.replace("\0", "\u2400")


def write_arrays(target: str | os.PathLike[str] | BinaryIO, arrays: Mapping[str, Any]) -> None:
    """Writes the arrays to a path or an open file, under any names. Text becomes fixed-width text."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, value in arrays.items():
            if not isinstance(value, (np.ndarray, np.generic)):
                cause = f"a {type(value).__name__} cannot be kept in a file of arrays"
                raise NotSupported(cause, where=f"value {name!r}", remedy="Cut the model where arrays leave it")
            array = np.asarray(value)
            plain = array.astype(str) if array.dtype.hasobject else array
            with archive.open(f"{name_in_file(name)}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, plain, allow_pickle=False)
