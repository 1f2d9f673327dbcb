"""`import_model`, whose implementation is imported on the first call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.errors import check_path


@at_a_device()
def import_model(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    config: Mapping[str, Any] | None = None,
    recompile: bool | str | Sequence[str] = False,
) -> CompiledModel:
    """The model that `CompiledModel.export` wrote, without compiling it again.

    The file may hold machine code, which is loaded into this process: only import files that you trust. Checksums are verified
    before anything is loaded; with a `key` the signature too. `config` is as for `compile`. A subgraph that does not fit here
    (another processor, another version of the library, a missing device) is an error that names the difference, unless
    `recompile` allows compiling it again from its ONNX body: True for the same device, or devices to choose from."""
    from partita.accelerators.package.unpacking import import_package

    return import_package(check_path("import_model", path, AcceleratorError), key, config, recompile)
