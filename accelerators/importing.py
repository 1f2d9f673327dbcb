"""`import_model`, whose machinery is imported when it is first called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.process.ending import at_a_device
from partita.accelerators.running.compiled_model import CompiledModel


@at_a_device()
def import_model(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    config: Mapping[str, Any] | None = None,
    recompile: bool | str | Sequence[str] = False,
) -> CompiledModel:
    """The model that `CompiledModel.export` wrote, without compiling it again.

    The file may hold machine code, which is loaded into this process: import what you trust. Its checksums are verified before
    anything is loaded; with a `key` its signature too. `config` is as for `compile`. A subgraph that does not fit here (another
    processor, another version of the library, a device that is missing) is an error that says what differs, unless `recompile`
    allows to compile it anew from its ONNX body: True for the same device, or devices to choose from."""
    from partita.accelerators.package.unpacking import import_package

    return import_package(path, key, config, recompile)
